//! Whether something was freed or deleted since the last checkpoint began, or before one that has
//! not ended (decision 133).

use pando_sync::atomic::{AtomicBool, Ordering};

/// Room that the next checkpoint gives back, or the one that runs.
#[derive(Debug, Default)]
pub(crate) struct FreedRoom {
    /// Something was freed or deleted since a checkpoint last began.
    is_next: AtomicBool,
    /// Something had been when the running one began.
    is_now: AtomicBool,
}

impl FreedRoom {
    /// Notes that pages were freed, or that a key was deleted, whose leaf may soon be.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.is_next.load(Ordering::Relaxed) {
            // Release: pairs with the Acquire in begin and comes.
            self.is_next.store(true, Ordering::Release);
        }
    }

    /// Notes that a checkpoint begins: what was noted before is in it. What is noted meanwhile may
    /// be in it, too; the next one counts for that.
    pub(crate) fn begin(&self) {
        if self.is_next.load(Ordering::Acquire) {
            // Set before the other one is taken back: nobody finds neither.
            self.is_now.store(true, Ordering::Release);
            self.is_next.store(false, Ordering::Release);
        }
    }

    /// Notes that the checkpoint has given back what was freed before it.
    pub(crate) fn end(&self) {
        self.is_now.store(false, Ordering::Release);
    }

    /// Returns true if a checkpoint gives something back that has not ended.
    pub(crate) fn comes(&self) -> bool {
        // In this order: what is taken from the first is in the second.
        self.is_next.load(Ordering::Acquire) || self.is_now.load(Ordering::Acquire)
    }

    /// Returns true if that one has not begun.
    pub(crate) fn awaits_begin(&self) -> bool {
        self.is_next.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_comes_until_a_checkpoint_ends_that_began_behind_it() {
        let room = FreedRoom::default();
        assert!(!room.comes());
        room.note();
        assert!(room.comes() && room.awaits_begin());
        room.begin();
        assert!(room.comes() && !room.awaits_begin());
        room.note();
        room.end();
        assert!(room.comes(), "it was freed after the checkpoint began");
        room.begin();
        room.end();
        assert!(!room.comes());
        room.begin();
        assert!(!room.comes(), "nothing was freed");
    }
}
