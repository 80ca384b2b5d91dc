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
use crate::epoch::Epochs;
use crate::page_table::{PageTable, Place};
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// The epoch of a chunk's image is not known: whatever frees the chunk, its extent waits for the
/// checkpoint.
const UNKNOWN: Option<Epoch> = None;

/// Gives a page or chunk that was written at `stored` the free id `page`. Others can change its
/// place only once its pair is in the list.
pub(crate) fn adopt_place(
    table: &PageTable,
    epochs: &Epochs,
    (epoch, page): (Epoch, PageId),
    stored: StoredPage,
) {
    epochs.push_pair(epoch, page, Some(stored));
    table.set(page, Place::Free, Place::of_stored(stored));
}

/// Changes what is known of a page or chunk without a frame. Returns false, without a change, if it
/// is no longer `old`.
pub(crate) fn change_place(
    table: &PageTable,
    epochs: &Epochs,
    (epoch, page): (Epoch, PageId),
    (old, new): (StoredPage, StoredPage),
) -> bool {
    let change = || table.swap(page, Place::of_stored(old), Place::of_stored(new));
    epochs.push_pair_if(epoch, page, Some(new), change)
}

/// Frees the id of a page or chunk without a frame, but does not give it back. Returns false,
/// without a change, if it is no longer at `stored`.
pub(crate) fn free_place(
    table: &PageTable,
    epochs: &Epochs,
    (epoch, page): (Epoch, PageId),
    stored: StoredPage,
) -> bool {
    let freed = table.swap(page, Place::of_stored(stored), Place::Free);
    if freed {
        // Nobody changes the place of an id that is not given back.
        epochs.push_pair(epoch, page, None);
    }
    freed
}

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
        adopt_place(self.table(), self.epochs(), (token.epoch(), page), stored);
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
        let (table, epochs) = (self.table(), self.epochs());
        let moved = change_place(table, epochs, (token.epoch(), page), (old, new));
        if moved {
            epochs.retire(old.extent, UNKNOWN, token.epoch());
        }
        moved
    }

    /// Frees the chunk `page`. Fails with [`Restart::Conflict`] if it is no longer at `stored`.
    pub(crate) fn free_chunk(
        &self,
        token: &ApplyToken<'_>,
        page: PageId,
        stored: StoredPage,
    ) -> Attempt<()> {
        if !free_place(self.table(), self.epochs(), (token.epoch(), page), stored) {
            return Err(Restart::Conflict);
        }
        self.epochs().retire(stored.extent, UNKNOWN, token.epoch());
        self.epochs().page_freed(token.epoch(), false);
        self.page_ids().give_back(page);
        // Relaxed: a count that orders nothing.
        self.chunks.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use pando_format::{Extent, Lsn, StoredKind};
    use pando_sync::{Arc, Gate, thread};

    use super::*;

    const PAGE: PageId = PageId(0);
    const EPOCH: Epoch = Epoch(1);

    const fn at(block: u32) -> StoredPage {
        StoredPage {
            kind: StoredKind::Chunk,
            extent: Extent { block, blocks: 1 },
            tag: 0,
            names_chunks: false,
        }
    }

    const OLD: StoredPage = at(3);
    const NEW: StoredPage = at(2);

    type Shared = (PageTable, Epochs);

    fn shared() -> Arc<Shared> {
        Arc::new((PageTable::new(1).unwrap(), Epochs::new(EPOCH, true)))
    }

    fn moves((table, epochs): &Shared) -> bool {
        change_place(table, epochs, (EPOCH, PAGE), (OLD, NEW))
    }

    /// Returns the last word that a checkpoint has of the page.
    fn last_word((_, epochs): &Shared) -> u64 {
        epochs.advance(&Gate::new().close(), Lsn(1));
        epochs.take_pairs(EPOCH).pop().expect("a pair").1
    }

    /// The last pair of a chunk that is moved while it is freed says that it is free.
    #[test]
    fn a_freed_chunk_is_free_in_the_checkpoint() {
        loom::model(|| {
            let shared = shared();
            adopt_place(&shared.0, &shared.1, (EPOCH, PAGE), OLD);
            let mover = thread::spawn({
                let shared = shared.clone();
                move || moves(&shared)
            });
            let free = |stored| free_place(&shared.0, &shared.1, (EPOCH, PAGE), stored);
            let is_free = free(OLD) || free(NEW);
            assert!(is_free);
            mover.join().unwrap();
            assert_eq!(last_word(&shared), 0);
        });
    }

    /// That of one that is moved as soon as it can be seen says where it is.
    #[test]
    fn a_new_chunk_that_moves_is_there_in_the_checkpoint() {
        loom::model(|| {
            let shared = shared();
            let mover = thread::spawn({
                let shared = shared.clone();
                move || moves(&shared)
            });
            adopt_place(&shared.0, &shared.1, (EPOCH, PAGE), OLD);
            let place = if mover.join().unwrap() { NEW } else { OLD };
            assert_eq!(last_word(&shared), place.encode());
        });
    }
}
