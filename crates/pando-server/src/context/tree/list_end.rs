//! The ends of a list or sorted set, what was read there before it is needed, and the block there.

use crate::data::list_block::{self, Block};
use crate::data::tree_head::TreeHead;

/// An end of a list, or of a sorted set: that of the lowest scores is its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Head,
    Tail,
}

impl TreeHead {
    /// Moves the end of the positions of a list by one, and returns the number that is new.
    pub(super) fn widen(&mut self, end: ListEnd) -> u64 {
        match end {
            ListEnd::Head => {
                self.low -= 1;
                self.low
            }
            ListEnd::Tail => {
                self.high += 1;
                self.high
            }
        }
    }

    /// Has the end of the positions of a list in blocks follow the block at `position`, which was
    /// the last one there and is gone. Behind a number there may be other positions that begin with
    /// it, unless all are numbers.
    pub(super) fn narrow(&mut self, end: ListEnd, position: &[u8]) {
        let Some(number) = position
            .first_chunk()
            .map(|number| u64::from_be_bytes(*number))
        else {
            return;
        };
        let beyond = u64::from(self.is_numbered);
        match end {
            ListEnd::Head => self.low = self.low.max(number.saturating_add(beyond)),
            ListEnd::Tail => self.high = self.high.min(number.saturating_sub(beyond)),
        }
    }
}

/// The block at an end of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndBlock {
    pub(super) position: Vec<u8>,
    pub(super) block: Block,
    /// It is a long element: the block has none.
    pub(super) is_long: bool,
    /// It has changed since it was read or written.
    pub(super) has_changed: bool,
}

impl EndBlock {
    /// Becomes an empty block beyond the end of the list.
    pub(super) fn begin(&mut self, head: &mut TreeHead, end: ListEnd) {
        let number = head.widen(end);
        self.position.clear();
        self.position.extend_from_slice(&number.to_be_bytes());
        self.block.clear();
        (self.is_long, self.has_changed) = (false, false);
    }

    pub(super) fn has_room(&self, element: &[u8]) -> bool {
        !self.is_long && !list_block::is_long(element.len()) && self.block.has_room(element)
    }

    pub(super) fn push(&mut self, element: &[u8], end: ListEnd) {
        match end {
            ListEnd::Head => self.block.push_front(element),
            ListEnd::Tail => self.block.push(element),
        }
        self.has_changed = true;
    }

    /// Returns the element at the end.
    pub(super) fn last(&mut self, end: ListEnd) -> Option<&[u8]> {
        match end {
            ListEnd::Head => self.block.first(),
            ListEnd::Tail => self.block.last(),
        }
    }

    pub(super) fn pop(&mut self, end: ListEnd) {
        match end {
            ListEnd::Head => self.block.pop_front(),
            ListEnd::Tail => self.block.pop(),
        }
        self.has_changed = true;
    }
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
