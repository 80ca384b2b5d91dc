//! Whether something was freed or deleted, and the checkpoint that gives it back (decision 133).

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether something was freed or deleted, and the checkpoint that gives it back.
#[derive(Debug, Default)]
pub(crate) struct FreedRoom {
    /// Something was since a checkpoint was last asked for to give it back.
    freed: AtomicBool,
    /// Number of that checkpoint; 0 before the first one.
    checkpoint: AtomicU64,
}

impl FreedRoom {
    /// Notes that pages were freed, or keys deleted, whose leaves may soon be.
    #[inline]
    pub(crate) fn note_freed(&self) {
        if !self.freed.load(Ordering::Relaxed) {
            // Release: pairs with the Acquire in checkpoint. Who sees it asks for a checkpoint, and
            // that one contains what was freed before.
            self.freed.store(true, Ordering::Release);
        }
    }

    /// Returns the number of the checkpoint that gives back what was freed. If something was since
    /// the last call, that is a new one, and `ask` asks for it.
    pub(crate) fn checkpoint(&self, ask: impl FnOnce() -> u64) -> u64 {
        if self.freed.load(Ordering::Relaxed) && self.freed.swap(false, Ordering::Acquire) {
            // Relaxed: a lower number would only end a wait earlier.
            self.checkpoint.fetch_max(ask(), Ordering::Relaxed);
        }
        self.checkpoint.load(Ordering::Relaxed)
    }
}
