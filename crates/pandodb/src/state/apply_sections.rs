//! How many apply sections have begun and ended: see `section`.

use pando_sync::atomic::{AtomicU64, Ordering};

/// How many apply sections have begun and ended. On lines of their own: reads look at what lies
/// beside.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ApplySections {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl ApplySections {
    /// An apply section begins; its number, and whether nobody else was inside.
    pub(crate) fn begin(&self) -> (u64, bool) {
        // SeqCst: of two that are inside at the same time one sees the other.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let ended = self.ended.load(Ordering::SeqCst);
        (number, number == ended + 1)
    }

    /// True if no apply section has begun since the one of `number`.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        number == self.begun.load(Ordering::SeqCst)
    }

    /// An apply section has ended.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}
