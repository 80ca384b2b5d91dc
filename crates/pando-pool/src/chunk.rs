//! Chunks: pieces of very large values that have an id and a place, and never a frame.
//!
//! A chunk is written before it gets its id, by whoever asked for its extent. It gets the id in the
//! apply section that makes a leaf name it, so its pair belongs to the epoch of its log record.
//! Whoever reads one has seen to it that it is not freed meanwhile; but it may be moved, and what
//! lay where it was is overwritten some checkpoints later: who has read it looks whether it is
//! still there. When it is freed or moved, its extent waits for the checkpoint: a log record has
//! named it.

use pando_format::{Epoch, PageId, StoredPage};
use pando_sync::atomic::Ordering;

use crate::apply_token::ApplyToken;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// The image of a chunk has no epoch: whatever frees it, its extent waits.
const UNKNOWN: Option<Epoch> = None;

impl Pool {
    /// Gives the chunk at `stored` an id, in the epoch of `token`.
    ///
    /// # Errors
    /// [`Restart::Wait`] when there is no page id.
    ///
    /// # Panics
    /// When `stored` is no chunk.
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

    /// Where the chunk with this id lies; None when it is none.
    pub fn chunk(&self, page: PageId) -> Option<StoredPage> {
        match self.table().get(page) {
            Place::Chunk(stored) => Some(stored),
            _ => None,
        }
    }

    /// From here on the chunk `page` lies at `new`, where its bytes have been written, and no
    /// longer at `old`. False, and nothing has changed, if it does not lie at `old` any more.
    ///
    /// The caller has seen it at `old` in the epoch of `token`: what was freed since is not given
    /// out again before that epoch's checkpoint, so the chunk at `old` is still the same.
    ///
    /// # Panics
    /// When `new` is no chunk.
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
        self.page_ids().give_back(page);
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
