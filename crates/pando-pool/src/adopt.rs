//! Pages and chunks that were written outside of the pool, by whoever fills a tree that nobody
//! reads yet.
//!
//! ```text
//! reserve_ids -> seal_outside -> (the device) -> adopt, in the section that makes a node name it
//!     `-> return_id, if it comes to nothing
//! ```
//! A reserved id is in no list and its page word is free, so a checkpoint knows nothing of it:
//! after a crash it is a free one. A page that was adopted is like one that was evicted.

use pando_format::{Epoch, Extent, PageEncoder, PageId, StoredKind, StoredPage};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;

use crate::apply_token::ApplyToken;
use crate::image::BadImage;
use crate::page_table::Place;
use crate::pool::Pool;

impl Pool {
    /// Takes up to `count` free page ids, and appends them.
    pub fn reserve_ids(&self, count: usize, ids: &mut Vec<PageId>) {
        ids.extend(std::iter::from_fn(|| self.page_ids().take()).take(count));
    }

    /// Gives a reserved id back that no page got.
    pub fn return_id(&self, page: PageId) {
        debug_assert_eq!(self.table().get(page), Place::Free);
        self.page_ids().give_back(page);
    }

    /// Makes the bytes of a new page ready to be written, as those of an image are. `epoch` goes
    /// on, or has ended. Returns what will be known of the page once it is written; its extent
    /// begins at block 0 and is as long as it has to be.
    ///
    /// # Errors
    /// [`BadImage`]: it must not be written.
    pub fn seal_outside(
        &self,
        bytes: &mut [u8],
        page: PageId,
        epoch: Epoch,
        encoder: &mut PageEncoder,
    ) -> Result<StoredPage, BadImage> {
        let sealed = self.seal(bytes, page, epoch, false, encoder)?;
        self.statistics().tick(Ticker::PageWrites, 1);
        self.statistics()
            .tick(Ticker::PageWriteBytes, sealed.stored as u64);
        Ok(StoredPage {
            extent: Extent {
                block: 0,
                blocks: (sealed.stored / self.options().block_bytes) as u32,
            },
            tag: sealed.tag,
            names_chunks: sealed.facts.names_pages,
            kind: StoredKind::Page,
        })
    }

    /// Makes `page`, a reserved id, the page or chunk that was written at `stored`, in the epoch of
    /// `token`. The write has ended: the checkpoint of the epoch syncs it.
    ///
    /// # Panics
    /// When the id was not reserved.
    pub fn adopt(&self, token: &ApplyToken<'_>, page: PageId, stored: StoredPage) {
        self.table()
            .set(page, Place::Free, Place::of_stored(stored));
        self.epochs().push_pair(token.epoch(), page, Some(stored));
        // Relaxed: a count that orders nothing.
        self.chunks
            .fetch_add(u64::from(stored.is_chunk()), Ordering::Relaxed);
    }
}
