//! The ends of a list or sorted set, and what was read there before it is needed.

/// An end of a list, or of a sorted set: that of the lowest scores is its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Head,
    Tail,
}

/// What was read beside an element that was popped, in the page of the scratch: the elements that
/// lie behind it at this end. The next one that is not popped yet is entry `next` of the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageAhead {
    pub(super) end: ListEnd,
    pub(super) next: usize,
}

impl PageAhead {
    pub(super) fn new(end: ListEnd, next: usize) -> Self {
        Self { end, next }
    }
}
