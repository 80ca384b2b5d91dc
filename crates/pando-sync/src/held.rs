//! Counts what the current thread holds, for the rule that nobody waits while holding a latch.
//!
//! Guards carry a [`Held`], and code that waits calls [`assert_none`]. Only debug builds count, and
//! not the model checkers, which report such a wait as a deadlock. A guard with a [`Held`] stays on
//! its thread, which the compiler checks in every build.

use std::marker::PhantomData;

/// What a thread can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The exclusive latch of a page.
    Latch,
    /// Stripes of keys.
    Stripes,
    /// An apply section.
    Gate,
    /// A pin share.
    PinShare,
}

/// One thing that the current thread holds, until dropped.
#[derive(Debug)]
pub struct Held {
    #[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle))))]
    kind: Kind,
    /// Not `Send`, since each thread has its own counts.
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// Counts one more thing of `kind`.
    #[inline]
    pub fn new(kind: Kind) -> Self {
        count::add(kind);
        Self {
            #[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle))))]
            kind,
            _thread: PhantomData,
        }
    }
}

#[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle))))]
impl Drop for Held {
    fn drop(&mut self) {
        count::sub(self.kind);
    }
}

/// Panics in debug builds if the thread holds one of `kinds`. Called before a wait.
#[inline]
#[track_caller]
pub fn assert_none(kinds: &[Kind]) {
    for kind in kinds {
        debug_assert_eq!(count::of(*kind), 0, "waiting with {kind:?} in hand");
    }
}

#[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle))))]
mod count {
    use std::cell::Cell;

    use super::Kind;

    thread_local! {
        static COUNTS: [Cell<u32>; 4] = const { [const { Cell::new(0) }; 4] };
    }

    // A guard may be dropped while its thread ends, when counts no longer exist.
    fn with(kind: Kind, f: impl FnOnce(u32) -> u32) {
        let _ = COUNTS.try_with(|counts| {
            let count = &counts[kind as usize];
            count.set(f(count.get()));
        });
    }

    pub(super) fn add(kind: Kind) {
        with(kind, |count| count + 1);
    }

    pub(super) fn sub(kind: Kind) {
        with(kind, |count| count - 1);
    }

    pub(super) fn of(kind: Kind) -> u32 {
        COUNTS
            .try_with(|counts| counts[kind as usize].get())
            .unwrap_or(0)
    }
}

#[cfg(not(all(debug_assertions, not(any(pando_loom, pando_shuttle)))))]
mod count {
    use super::Kind;

    #[inline]
    pub(super) fn add(_kind: Kind) {}

    #[inline]
    pub(super) fn of(_kind: Kind) -> u32 {
        0
    }
}

#[cfg(all(test, debug_assertions, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_guard_counts_until_it_is_dropped() {
        let held = Held::new(Kind::Gate);
        assert_none(&[Kind::Latch, Kind::Stripes]);
        drop(held);
        assert_none(&[Kind::Latch, Kind::Stripes, Kind::Gate]);
    }

    #[test]
    #[should_panic(expected = "waiting with Latch in hand")]
    fn waiting_with_a_latch_panics() {
        let _held = Held::new(Kind::Latch);
        crate::park();
    }
}
