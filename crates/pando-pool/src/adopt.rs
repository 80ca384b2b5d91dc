//! Pages and chunks that are written outside the pool, by operations that fill a tree which nobody
//! reads yet (decision 051).
//!
//! ```text
//! reserve_ids -> seal_outside -> (the device) -> adopt, in the section that makes a node name it
//!     `-> return_id, if it comes to nothing
//! ```
//! A reserved id is in no list and its page word is free, so no checkpoint knows of it: after a
//! crash it is free again. An adopted page is like an evicted one.

use pando_format::cast::u32_of_len;
use pando_format::{Epoch, Extent, PageEncoder, PageId, StoredKind, StoredPage};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;

use crate::apply_token::ApplyToken;
use crate::chunk::adopt_place;
use crate::image::BadImage;
use crate::page_table::Place;
use crate::pool::Pool;

impl Pool {
    /// Takes up to `count` free page ids and appends them to `ids`.
    pub fn reserve_ids(&self, count: usize, ids: &mut Vec<PageId>) {
        ids.extend(std::iter::from_fn(|| self.page_ids().take()).take(count));
    }

    /// Gives back a reserved id that was not used for a page.
    pub fn return_id(&self, page: PageId) {
        debug_assert_eq!(self.table().get(page), Place::Free);
        self.page_ids().give_back(page);
    }

    /// Makes the place of a page known to a pool whose pages never change, if it is not. Returns
    /// whether it was not.
    pub fn add_stored(&self, page: PageId, stored: StoredPage) -> bool {
        self.table()
            .swap(page, Place::Free, Place::of_stored(stored))
    }

    /// Makes the bytes of a new page ready to be written, like those of an image. `epoch` is either
    /// the current one or closed. Returns the description of the page once it is written; its
    /// extent begins at block 0 and has the length that the page needs.
    ///
    /// # Errors
    /// [`BadImage`]: the bytes must not be written.
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
                blocks: u32_of_len(sealed.stored / self.options().block_bytes),
            },
            tag: sealed.tag,
            names_chunks: sealed.facts.names_pages,
            kind: StoredKind::Page,
        })
    }

    /// Turns the reserved id `page` into the page or chunk that was written at `stored`, in the
    /// epoch of `token`. The write must be complete: the checkpoint of the epoch syncs it.
    ///
    /// # Panics
    /// When the id was not reserved.
    pub fn adopt(&self, token: &ApplyToken<'_>, page: PageId, stored: StoredPage) {
        adopt_place(self.table(), self.epochs(), (token.epoch(), page), stored);
        // Relaxed: a count that orders nothing.
        self.chunks
            .fetch_add(u64::from(stored.is_chunk()), Ordering::Relaxed);
    }
}
