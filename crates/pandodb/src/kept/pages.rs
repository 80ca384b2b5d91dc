//! The pages of a kept checkpoint in memory: a small pool of their own, whose page table is filled
//! from the checkpoint's mapping as pages are asked for.

use pando_device::{AnyDevice, AnyFile};
use pando_format::cast::usize_of;
use pando_format::chunks::BlobRef;
use pando_format::{Compression, PageId};
use pando_pool::Restart;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::kept::mapping::KeptMapping;
use crate::options::Budget;
use crate::pages::layout::{Layout, pool_of, space_keeper};
use crate::pages::store::Store;

/// What the pages of a kept checkpoint are read from, and how much memory they may take.
#[derive(Debug)]
pub(crate) struct CutSource {
    pub(crate) device: AnyDevice,
    pub(crate) data: AnyFile,
    pub(crate) layout: Layout,
    pub(crate) mapping: KeptMapping,
    /// The budget of the store, with the frames of this pool.
    pub(crate) budget: Budget,
}

/// The pages of a kept checkpoint that are in memory, and the places of those that were.
#[derive(Debug)]
pub(crate) struct CutPages {
    /// Nothing in it is ever changed or written.
    store: Store,
    source: Arc<CutSource>,
    /// Number of places in the page table.
    placed: AtomicU64,
}

impl CutPages {
    /// Returns a pool without pages.
    pub(crate) fn new(source: Arc<CutSource>) -> Result<Self> {
        let CutSource {
            device,
            data,
            layout,
            mapping,
            budget,
        } = &*source;
        let budget = Budget {
            page_ids_max: usize_of(mapping.pages().max(1)),
            ..*budget
        };
        // Its allocator allocates nothing.
        let space = space_keeper(data, 1, *layout, device.statistics());
        let pool = pool_of(&budget, *layout, Compression::default(), device)?;
        let store = Store::new(device.clone(), data.clone(), pool, space, 0, 0);
        Ok(Self {
            store,
            source,
            placed: AtomicU64::new(0),
        })
    }

    /// Returns another pool for the same pages, which has none.
    pub(crate) fn anew(&self) -> Result<Self> {
        Self::new(self.source.clone())
    }

    /// Number of pages whose places it knows; each takes 8 bytes of memory.
    pub(crate) fn placed(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }

    /// Runs `step` until it succeeds, and reads the pages that it misses. Blocks.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] or [`Error::Corrupt`] for damage.
    pub(crate) fn drive<T>(
        &self,
        mut step: impl FnMut(&Store) -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        let (mut turns, mut last) = (0, None);
        loop {
            match step(&self.store) {
                Ok(done) => return Ok(done),
                // A page that was never asked for looks like one that does not exist.
                Err(Restart::Damaged(page, _)) if last != Some(page) && self.place(page)? => {
                    last = Some(page);
                }
                Err(restart) => self.store.serve(restart, &mut turns)?,
            }
        }
    }

    /// Replaces `out` by the value that `blob` describes. Blocks.
    ///
    /// # Errors
    /// As [`CutPages::drive`].
    pub(crate) fn read_blob(&self, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        for chunk in &blob.chunks {
            self.place(chunk.page)?;
        }
        self.store.read_blob(blob, out)
    }

    /// Makes the place of `page` known. Returns false if the checkpoint has no such page.
    fn place(&self, page: PageId) -> Result<bool> {
        let Some(stored) = self.source.mapping.stored(page)? else {
            return Ok(false);
        };
        if self.store.pool.add_stored(page, stored) {
            self.placed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }
}
