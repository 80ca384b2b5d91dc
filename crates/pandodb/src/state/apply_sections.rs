//! Counts of the apply sections that have begun and ended: see `section`.

use pando_sync::atomic::{AtomicU64, Ordering};

/// Counts of the apply sections that have begun and ended; used in debug builds only. On cache
/// lines of its own, because reads access the fields next to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ApplySections {
    /// Number of the newest apply section.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl ApplySections {
    /// Begins an apply section. Returns its number, and whether no other section was running.
    pub(crate) fn begin(&self) -> (u64, bool) {
        // SeqCst: of two sections that overlap, at least one sees the other.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let ended = self.ended.load(Ordering::SeqCst);
        (number, number == ended + 1)
    }

    /// True if no apply section has begun after the one with `number`.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        number == self.begun.load(Ordering::SeqCst)
    }

    /// Ends an apply section.
    pub(crate) fn end(&self) {
        let ended = self.ended.fetch_add(1, Ordering::SeqCst) + 1;
        let begun = self.begun.load(Ordering::SeqCst);
        assert!(ended <= begun, "more sections end than have begun");
    }
}
