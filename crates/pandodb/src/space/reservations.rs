//! What running operations were reserved: blocks for the pages that they make dirty, and page ids
//! for the chunks that they name. Given back when the pages are dirty and count themselves, or the
//! ids are taken (decision 015).

use std::cell::Cell;

use pando_sync::atomic::{AtomicU64, Ordering};

/// The sums of what is reserved.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    blocks: AtomicU64,
    /// Page ids for chunks, beside those of reserved blocks.
    ids: AtomicU64,
}

/// Blocks reserved to a commit; given back on drop, when its pages are dirty and count themselves.
#[derive(Debug)]
pub(crate) struct BlockReservation<'a> {
    reservations: &'a Reservations,
    blocks: u64,
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        let before = self
            .reservations
            .blocks
            .fetch_sub(self.blocks, Ordering::Relaxed);
        assert!(before >= self.blocks, "a reservation was given back twice");
    }
}

/// Page ids reserved to the chunks of a commit; those that were not taken are given back on drop.
#[derive(Debug)]
pub(crate) struct IdReservation<'a> {
    reservations: &'a Reservations,
    ids: Cell<u64>,
}

impl IdReservation<'_> {
    /// A chunk has taken one of the ids, which is not among those that are available any more.
    pub(crate) fn taken(&self) {
        self.give_back(1);
    }

    /// Ids that nobody has taken.
    pub(crate) fn left(&self) -> u64 {
        self.ids.get()
    }

    fn give_back(&self, ids: u64) {
        let left = self.ids.get().checked_sub(ids);
        self.ids
            .set(left.expect("an id is taken that was reserved"));
        // SeqCst: what was taken before is seen by who looks at the reservations first.
        let before = self.reservations.ids.fetch_sub(ids, Ordering::SeqCst);
        assert!(before >= ids, "a reservation was given back twice");
    }
}

impl Drop for IdReservation<'_> {
    fn drop(&mut self) {
        if self.ids.get() > 0 {
            self.give_back(self.ids.get());
        }
    }
}

impl Reservations {
    /// Blocks that are reserved.
    pub(crate) fn blocks(&self) -> u64 {
        // SeqCst: who cuts the file off withholds first, and looks at what is reserved after.
        self.blocks.load(Ordering::SeqCst)
    }

    /// Page ids for chunks that are reserved.
    pub(crate) fn ids(&self) -> u64 {
        self.ids.load(Ordering::SeqCst)
    }

    /// Reserve first, look after: two callers may both be refused, never both be let through.
    pub(crate) fn reserve(&self, blocks: u64) -> BlockReservation<'_> {
        let before = self.blocks.fetch_add(blocks, Ordering::SeqCst);
        assert!(
            before.checked_add(blocks).is_some(),
            "more than there can be"
        );
        BlockReservation {
            reservations: self,
            blocks,
        }
    }

    /// As [`Reservations::reservation`], of ids.
    pub(crate) fn reserve_ids(&self, ids: u64) -> IdReservation<'_> {
        if ids > 0 {
            // SeqCst: reservation first, look after.
            self.ids.fetch_add(ids, Ordering::SeqCst);
        }
        IdReservation {
            reservations: self,
            ids: Cell::new(ids),
        }
    }
}
