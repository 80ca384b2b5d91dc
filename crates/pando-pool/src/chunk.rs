//! Chunks: pieces of very large values that have an id and a place, and never a frame.
//!
//! The owner of the extent writes a chunk before it gets its id. The chunk gets its id in the apply
//! section that makes a leaf name it, so its pair belongs to the epoch of its log record. A reader
//! of a chunk makes sure that it is not freed meanwhile. The chunk may be moved, however, and its
//! old place is overwritten some checkpoints later, so after a read the reader checks that the
//! chunk is still where it was. The extent of a freed or moved chunk waits for the checkpoint,
//! because a log record has named it.

use pando_format::{Epoch, PageId, StoredPage};
use pando_sync::atomic::Ordering;

use crate::apply_token::ApplyToken;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// The epoch of a chunk's image is not known: whatever frees the chunk, its extent waits for the
/// checkpoint.
const UNKNOWN: Option<Epoch> = None;

impl Pool {
    /// Gives an id to the chunk at `stored`, in the epoch of `token`.
    ///
    /// # Errors
    /// [`Restart::Wait`] when no page id is free.
    ///
    /// # Panics
    /// When `stored` is not a chunk.
    pub fn adopt_chunk(&self, token: &ApplyToken<'_>, stored: StoredPage) -> Attempt<PageId> {
        assert!(stored.is_chunk(), "only chunks live without a frame");
        let Some(page) = self.page_ids().take() else {
            return Err(Restart::Wait(Resource::PageIds));
        };
        self.table().set(page, Place::Free, Place::Chunk(stored));
        self.epochs().push_pair(token.epoch(), page, Some(stored));
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_add(1, Ordering::Relaxed);
        Ok(page)
    }

    /// Returns the place of the chunk with this id, None if the id is not that of a chunk.
    pub fn chunk(&self, page: PageId) -> Option<StoredPage> {
        match self.table().get(page) {
            Place::Chunk(stored) => Some(stored),
            _ => None,
        }
    }

    /// Moves the chunk `page` from `old` to `new`, where its bytes have been written already.
    /// Returns false, without a change, if the chunk is no longer at `old`.
    ///
    /// The caller has seen the chunk at `old` in the epoch of `token`. An extent that was freed
    /// since is not reused before the checkpoint of that epoch, so the chunk at `old` is still the
    /// same.
    ///
    /// # Panics
    /// When `new` is not a chunk.
    #[must_use]
    pub fn move_chunk(
        &self,
        token: &ApplyToken<'_>,
        page: PageId,
        old: StoredPage,
        new: StoredPage,
    ) -> bool {
        assert!(new.is_chunk(), "a chunk stays a chunk");
        if !self
            .table()
            .swap(page, Place::Chunk(old), Place::Chunk(new))
        {
            return false;
        }
        self.epochs().push_pair(token.epoch(), page, Some(new));
        self.epochs().retire(old.extent, UNKNOWN, token.epoch());
        true
    }

    /// Frees the chunk `page`. Fails with [`Restart::Conflict`] if it is no longer at `stored`.
    pub(crate) fn free_chunk(
        &self,
        token: &ApplyToken<'_>,
        page: PageId,
        stored: StoredPage,
    ) -> Attempt<()> {
        if !self.table().swap(page, Place::Chunk(stored), Place::Free) {
            return Err(Restart::Conflict);
        }
        self.epochs().push_pair(token.epoch(), page, None);
        self.epochs().retire(stored.extent, UNKNOWN, token.epoch());
        self.epochs().page_freed(token.epoch(), false);
        self.page_ids().give_back(page);
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
