//! Reservations of running operations: blocks for the pages that they dirty, and page ids for the
//! chunks that they name. They end when the pages are dirty and count themselves, or when the ids
//! are taken (decision 015).

use std::cell::Cell;
use std::task::Waker;

use pando_sync::MarkedCount;
use pando_sync::atomic::{AtomicU64, Ordering};

/// The totals of all reservations.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Reserved blocks, with the mark of those who wait for the end of any reservation.
    blocks: MarkedCount,
    /// Reserved page ids for chunks, besides those of reserved blocks.
    ids: AtomicU64,
}

/// Blocks reserved for a commit. Drop it once its pages are dirty and count themselves.
#[derive(Debug)]
pub(crate) struct BlockReservation<'a> {
    reservations: &'a Reservations,
    blocks: u64,
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        // A caller that sees the blocks gone from here sees the dirty pages that they are for: see
        // `SpaceKeeper::taken`.
        self.reservations.blocks.take_away(self.blocks);
    }
}

/// Page ids reserved for the chunks of a commit. Dropping it releases the ids that were not taken.
#[derive(Debug)]
pub(crate) struct IdReservation<'a> {
    reservations: &'a Reservations,
    /// Ids that have not been taken.
    ids: Cell<u64>,
    /// Those among them that no chunk takes.
    spare: u64,
}

impl IdReservation<'_> {
    /// Notes that a chunk has taken one of the ids, which is therefore no longer available.
    pub(crate) fn taken(&self) {
        self.give_back(1);
    }

    /// Has `ids` of them be for pages that are made without a block of their own reserved.
    pub(crate) fn set_spare(&mut self, ids: u64) {
        assert!(ids <= self.ids.get(), "more than are reserved");
        self.spare = ids;
    }

    /// Number of ids that chunks have not taken.
    pub(crate) fn left(&self) -> u64 {
        self.ids.get() - self.spare
    }

    fn give_back(&self, ids: u64) {
        let left = self.ids.get().checked_sub(ids);
        self.ids
            .set(left.expect("an id is taken that was reserved"));
        // SeqCst: a thread that reads the reservations first sees what was taken before.
        let before = self.reservations.ids.fetch_sub(ids, Ordering::SeqCst);
        assert!(before >= ids, "a reservation was given back twice");
        self.reservations.blocks.tell();
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
    /// Number of reserved blocks.
    pub(crate) fn blocks(&self) -> u64 {
        // SeqCst: a thread that cuts the file withholds first, and reads what is reserved
        // afterwards.
        self.blocks.get()
    }

    /// Number of reserved blocks, unless somebody may wait for the end of a reservation.
    #[inline]
    pub(crate) fn blocks_unmarked(&self) -> Option<u64> {
        self.blocks.get_unmarked()
    }

    /// Has `waker` woken at the end of any reservation. The caller looks at them afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        self.blocks.register(waker);
    }

    /// Number of page ids that are reserved for chunks.
    pub(crate) fn ids(&self) -> u64 {
        self.ids.load(Ordering::SeqCst)
    }

    /// Reserves `blocks`; the caller checks afterwards whether they exist. Of two concurrent
    /// callers, both may be refused, but never both succeed wrongly.
    pub(crate) fn reserve(&self, blocks: u64) -> BlockReservation<'_> {
        self.blocks.add(blocks);
        BlockReservation {
            reservations: self,
            blocks,
        }
    }

    /// As [`Reservations::reserve`], for ids.
    pub(crate) fn reserve_ids(&self, ids: u64) -> IdReservation<'_> {
        if ids > 0 {
            // SeqCst: reserve first, check afterwards.
            self.ids.fetch_add(ids, Ordering::SeqCst);
        }
        IdReservation {
            reservations: self,
            ids: Cell::new(ids),
            spare: 0,
        }
    }
}
