//! Whether a stay in the gate makes no more pages dirty than blocks were promised for: a promise
//! that is too small is found out by the page that cannot be written, on a full disk, much later.
//!
//! The pool counts dirty frames for all at once. Whoever is alone in the gate knows more: nobody
//! else adds to them meanwhile, and the cleaner only takes away. So a stay that was alone from its
//! beginning to its end is checked; the others are not. Debug builds only: the counts are lines
//! that all cores share.

use pando_format::Epoch;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::promises::IdPromise;

/// How many stays have begun and ended. On lines of their own: reads look at what lies beside.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Stays {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A stay in the gate.
pub(crate) struct Spending<'a> {
    engine: &'a Engine,
    number: u64,
    /// Nobody was inside when it began.
    is_alone: bool,
    epoch: Epoch,
    /// Pages that were dirty when it began.
    dirty: u64,
    /// Writes that had been put aside: what these make dirty nobody could foresee.
    aside: u32,
}

impl Engine {
    /// A stay begins: the caller is in the gate, and leaves it behind the drop.
    pub(crate) fn begin_spending(&self) -> Spending<'_> {
        if !cfg!(debug_assertions) {
            return Spending {
                engine: self,
                number: 0,
                is_alone: false,
                epoch: Epoch(0),
                dirty: 0,
                aside: 0,
            };
        }
        // SeqCst: of two that are inside at the same time one sees the other.
        let number = self.stays.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let ended = self.stays.ended.load(Ordering::SeqCst);
        let epoch = self.stay().epoch;
        Spending {
            engine: self,
            number,
            is_alone: number == ended + 1,
            epoch,
            dirty: self.pool.epochs().dirty(epoch),
            // Relaxed, as below: a stay that is alone sees its own.
            aside: self.aside_number.load(Ordering::Relaxed),
        }
    }
}

impl Spending<'_> {
    /// So many pages were promised to what has been done so far.
    pub(crate) fn check(&self, pages: u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        let now = self.engine.pool.epochs().dirty(self.epoch);
        // SeqCst: behind the look at what is dirty.
        let is_alone =
            self.is_alone && self.number == self.engine.stays.begun.load(Ordering::SeqCst);
        let aside = self.engine.aside_number.load(Ordering::Relaxed);
        if is_alone && aside == self.aside {
            let spent = now.saturating_sub(self.dirty);
            assert!(
                spent <= pages,
                "{spent} pages became dirty, and {pages} were promised"
            );
        }
    }
}

impl Spending<'_> {
    /// The batch is applied: each of its new chunks has taken its id.
    pub(crate) fn check_ids(&self, ids: &IdPromise<'_>) {
        let is_known = self.engine.aside_number.load(Ordering::Relaxed) == self.aside;
        debug_assert!(!is_known || ids.left() == 0, "a chunk without an id");
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.engine.stays.ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}
