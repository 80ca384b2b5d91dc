//! The pages of a kept checkpoint in memory: a small pool of their own, whose page table is filled
//! from the checkpoint's mapping as pages are asked for.

use std::ops::Bound;

use pando_device::{AnyDevice, AnyFile, IoBuf};
use pando_format::cast::usize_of;
use pando_format::chunks::BlobRef;
use pando_format::{Compression, PageId};
use pando_pool::Restart;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_tree::{Ahead, Direction, LeafCopy, Tree};

use crate::error::Result;
use crate::kept::mapping::KeptMapping;
use crate::options::Budget;
use crate::pages::layout::{Layout, pool_of, space_keeper};
use crate::pages::leaves::fetch_leaves;
use crate::pages::store::Store;

/// Of how many frames one may be claimed by the reads of one call.
const TOGETHER_SHARE: usize = 4;
/// Number of leaves that a scan has read ahead first.
const WINDOW_MIN: usize = 2;
/// Most leaves that a scan has read ahead.
const WINDOW_MAX: usize = 32;

/// Reads pages of a store at the same time, as far as there is room, and blocks for it.
pub(crate) type ReadTogether<'a> = &'a dyn Fn(&Store, &[PageId]) -> Result<()>;

/// Where a scan of a kept checkpoint continues, and where it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptPosition<'a> {
    pub(crate) from: Bound<&'a [u8]>,
    pub(crate) until: Bound<&'a [u8]>,
    pub(crate) direction: Direction,
}

/// The read-ahead of one end of an iterator over a kept checkpoint. A scan that misses its second
/// leaf reads the next two with it, and at each further miss twice as many.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KeptAhead {
    /// Number of leaves that were read ahead last.
    window: usize,
    /// The scan has used the previous leaf, too.
    is_under_way: bool,
}

impl KeptAhead {
    /// A page is missing. Returns how many leaves to read together with it, at most `most`.
    fn missed(&mut self, most: usize) -> usize {
        if !std::mem::take(&mut self.is_under_way) {
            // The next page on the way to the same leaf.
            return 0;
        }
        self.window = (self.window * 2).clamp(WINDOW_MIN, WINDOW_MAX).min(most);
        self.window
    }

    /// A leaf was copied.
    fn loaded(&mut self) {
        self.is_under_way = true;
    }
}

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
        let store = Store::new(device.clone(), data.clone(), pool, space, (0, 0), 0);
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
        step: impl FnMut(&Store) -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        self.drive_with(step, |_| ())
    }

    /// As [`CutPages::drive`]; each time a page is not in memory, `missed` is called with it before
    /// it is read.
    fn drive_with<T>(
        &self,
        mut step: impl FnMut(&Store) -> std::result::Result<T, Restart>,
        mut missed: impl FnMut(PageId),
    ) -> Result<T> {
        let (mut turns, mut last) = (0, None);
        loop {
            match step(&self.store) {
                Ok(done) => return Ok(done),
                // A page that was never asked for looks like one that does not exist.
                Err(Restart::Damaged(page, _)) if last != Some(page) && self.place(page)? => {
                    last = Some(page);
                }
                Err(restart) => {
                    if let Restart::Fault(page) = restart {
                        missed(page);
                    }
                    self.store.serve(restart, &mut turns)?;
                }
            }
        }
    }

    /// Copies the leaf of `tree` where a scan continues at `from`, and has the next leaves read
    /// together with it once the scan goes on and on. Blocks.
    ///
    /// # Errors
    /// As [`CutPages::drive`].
    pub(crate) fn scan_leaf(
        &self,
        together: ReadTogether<'_>,
        tree: Tree,
        at: KeptPosition<'_>,
        leaf: &mut LeafCopy,
        ahead: &mut KeptAhead,
    ) -> Result<()> {
        let KeptPosition {
            from,
            until,
            direction,
        } = at;
        self.drive_with(
            |store| tree.try_scan_leaf(&store.pool, from, direction, leaf),
            |page| {
                let most = ahead.missed(self.together_max() - 1);
                if most == 0 {
                    return;
                }
                let next = Ahead {
                    from,
                    until,
                    direction,
                    skip: 0,
                    most,
                };
                let (mut pages, mut bound) = (vec![page], Vec::new());
                let pool = &self.store.pool;
                let listed = tree.try_list_ahead(pool, next, &mut bound, |page| pages.push(page));
                if listed.is_ok() {
                    // Of a page that cannot be read, who comes to it gets the error.
                    let _late = self.fetch(together, &pages);
                }
            },
        )?;
        ahead.loaded();
        Ok(())
    }

    /// Reads the leaves of `keys` of `tree` that are not in memory, level by level, all of a level
    /// at the same time. Some may be missing all the same. Blocks.
    ///
    /// # Errors
    /// As [`CutPages::drive`].
    pub(crate) fn fetch_leaves(
        &self,
        together: ReadTogether<'_>,
        tree: Tree,
        keys: &[&[u8]],
    ) -> Result<()> {
        fetch_leaves((&self.store.pool, tree), keys, |pages| {
            self.fetch(together, pages)
        })
    }

    /// Most pages that are read at the same time: others may use the pool, too.
    pub(crate) fn together_max(&self) -> usize {
        self.store.pool.frames() / TOGETHER_SHARE
    }

    /// Reads `pages` at the same time, as far as there is room. Blocks.
    fn fetch(&self, together: ReadTogether<'_>, pages: &[PageId]) -> Result<()> {
        let pages = &pages[..pages.len().min(self.together_max())];
        for page in pages
            .iter()
            .filter(|page| !self.store.pool.is_known(**page))
        {
            self.place(*page)?;
        }
        together(&self.store, pages)
    }

    /// Reads chunk `index` of `blob` and checks it; then `buffer` holds its bytes. Blocks.
    ///
    /// # Errors
    /// As [`CutPages::drive`].
    pub(crate) fn read_chunk(
        &self,
        blob: &BlobRef,
        index: usize,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        self.place(blob.chunks[index].page)?;
        self.store.read_chunk(blob, index, buffer)
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

#[cfg(test)]
mod tests {
    use pando_device::File;

    use super::*;
    use crate::{Db, Durability};

    /// What lies before a damaged leaf is shown, as it is by an iterator of the present.
    #[test]
    fn what_lies_before_a_damaged_leaf_is_shown() {
        let options = Db::builder().durability(Durability::None);
        let db = options.max_memory(64 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        for number in 0..400_u32 {
            table.put(&number.to_be_bytes(), &[7; 500]).unwrap();
        }
        let snapshot = db.snapshot_settled().unwrap();
        let cut = db.engine().kept.find(snapshot.lsn()).unwrap();
        let tree = snapshot.tree_of(&table).unwrap();
        let damaged = cut
            .read(cut.lsn(), |pages, _| {
                let mut leaf = LeafCopy::new();
                pages.drive(|store| {
                    let forward = Direction::Forward;
                    tree.try_scan_leaf(&store.pool, Bound::Unbounded, forward, &mut leaf)
                })?;
                let ahead = Ahead {
                    from: Bound::Unbounded,
                    until: Bound::Unbounded,
                    direction: Direction::Forward,
                    skip: 0,
                    most: 40,
                };
                let (mut next, mut bound) = (Vec::new(), Vec::new());
                tree.try_list_ahead(&pages.store.pool, ahead, &mut bound, |page| next.push(page))
                    .unwrap();
                let page = next[20];
                let stored = pages.source.mapping.stored(page)?.unwrap();
                let block = pages.source.layout.block_bytes;
                let bytes = usize_of(u64::from(stored.extent.blocks) * block);
                let mut zeros = IoBuf::new(bytes);
                zeros.fill(0);
                pages
                    .source
                    .data
                    .write_at(&zeros, u64::from(stored.extent.block) * block)
                    .unwrap();
                Ok(page)
            })
            .unwrap();
        drop(cut);
        let mut shown = 0_u32;
        let mut error = None;
        for entry in snapshot.iter(&table) {
            match entry {
                Ok(_) => shown += 1,
                Err(other) => error = Some(other),
            }
        }
        let mut sound = shown;
        while snapshot.get(&table, &sound.to_be_bytes()).is_ok() && sound < 400 {
            sound += 1;
        }
        assert!(
            shown == sound,
            "page {damaged:?} is damaged: {shown} entries were shown, {sound} come before it: {error:?}"
        );
    }
}
