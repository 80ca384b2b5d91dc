//! Chunks: pieces of very large values that have an id and a place, and never a frame.
//!
//! A chunk is written before it gets its id, by whoever asked for its extent. It gets the id in the
//! stay in the gate that makes a leaf name it, so its pair belongs to the epoch of its log record.
//! It never moves; whoever reads one has seen to it that it is not freed meanwhile. When it is
//! freed, its extent waits for the checkpoint: a log record has named it.

use pando_format::{Epoch, PageId, StoredPage};
use pando_sync::atomic::Ordering;

use crate::access::Stay;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// The image of a chunk has no epoch: whatever frees it, its extent waits.
const UNKNOWN: Option<Epoch> = None;

impl Pool {
    /// Gives the chunk at `stored` an id, in the epoch of `stay`.
    ///
    /// # Errors
    /// [`Restart::Wait`] when there is no page id.
    ///
    /// # Panics
    /// When `stored` is no chunk.
    pub fn adopt_chunk(&self, stay: &Stay, stored: StoredPage) -> Attempt<PageId> {
        assert!(stored.is_chunk, "only chunks live without a frame");
        let Some(page) = self.page_ids().take() else {
            return Err(Restart::Wait(Resource::PageIds));
        };
        self.table().set(page, Place::Free, Place::Chunk(stored));
        self.epochs().push_pair(stay.epoch, page, Some(stored));
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_add(1, Ordering::Relaxed);
        Ok(page)
    }

    /// Where the chunk with this id lies; None when it is none.
    pub fn chunk(&self, page: PageId) -> Option<StoredPage> {
        match self.table().get(page) {
            Place::Chunk(stored) => Some(stored),
            _ => None,
        }
    }

    pub(crate) fn free_chunk(&self, stay: &Stay, page: PageId, stored: StoredPage) -> Attempt<()> {
        if !self.table().swap(page, Place::Chunk(stored), Place::Free) {
            return Err(Restart::Conflict);
        }
        self.epochs().push_pair(stay.epoch, page, None);
        self.epochs().retire(stored.extent, UNKNOWN, stay.epoch);
        self.page_ids().give_back(page);
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
