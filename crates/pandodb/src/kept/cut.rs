//! A checkpoint that is kept for settled snapshots, and reading it.

use std::ops::Deref;

use pando_device::{AnyDevice, Device};
use pando_format::Lsn;
use pando_space::BlockSet;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Rank, RwLock};

use crate::error::{Error, Result};
use crate::kept::pages::{CutPages, CutSource};
use crate::space::held::{HeldBlocks, KeptId};
use crate::space::keeper::SpaceKeeper;

/// Bytes of the page table for each page that was asked for.
const PLACE_BYTES: u64 = 8;

/// A checkpoint that stays readable until the last handle is dropped, or until it is ended.
#[derive(Debug)]
pub(crate) struct KeptCut {
    lsn: Lsn,
    began: time::Instant,
    is_ended: AtomicBool,
    /// Number of handles; it ends when there is none.
    handles: AtomicU64,
    /// Its blocks among those that are held.
    id: KeptId,
    held: Arc<HeldBlocks>,
    space: Arc<SpaceKeeper>,
    device: AnyDevice,
    /// Replaced when their page table has become too large; None once it is ended.
    pages: RwLock<Option<Arc<CutPages>>>,
    /// Number of places that the page table may have.
    places_max: u64,
    /// Bytes of memory that it may take, with the runs of its readers.
    bytes: AtomicU64,
    /// Least LSN at which somebody reads.
    lowest: AtomicU64,
}

impl KeptCut {
    /// Keeps the checkpoint at `lsn`, which is durable and uses `blocks`. The caller is the thread
    /// that frees what checkpoints retire. Its pool may take `pool_bytes`.
    pub(crate) fn keep(
        lsn: Lsn,
        blocks: BlockSet,
        (held, space): (&Arc<HeldBlocks>, &Arc<SpaceKeeper>),
        source: CutSource,
        pool_bytes: u64,
    ) -> Result<KeptHandle> {
        let device = source.device.clone();
        let bytes = Self::bytes_of(pool_bytes, &blocks);
        let pages = CutPages::new(Arc::new(source))?;
        let cut = Self {
            lsn,
            began: time::now(),
            is_ended: AtomicBool::new(false),
            handles: AtomicU64::new(1),
            id: held.keep(blocks),
            held: held.clone(),
            space: space.clone(),
            device,
            pages: RwLock::new(Rank::Leaf, Some(Arc::new(pages))),
            places_max: Self::table_bytes(pool_bytes) / PLACE_BYTES,
            bytes: AtomicU64::new(bytes),
            lowest: AtomicU64::new(lsn.0),
        };
        Ok(KeptHandle(Arc::new(cut)))
    }

    /// Returns the bytes of memory of a checkpoint: its pool, its page table, and the set of its
    /// blocks.
    pub(crate) fn bytes_of(pool_bytes: u64, blocks: &BlockSet) -> u64 {
        pool_bytes + Self::table_bytes(pool_bytes) + blocks.bytes()
    }

    /// Bytes that the page table beside a pool may take.
    fn table_bytes(pool_bytes: u64) -> u64 {
        pool_bytes / 2
    }

    /// The LSN of the checkpoint.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// How long it has been kept.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Bytes of memory that it may take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The least LSN at which somebody reads: before that of the checkpoint, if a snapshot was
    /// settled on it.
    pub(crate) fn lowest(&self) -> Lsn {
        Lsn(self.lowest.load(Ordering::Relaxed))
    }

    /// Notes a snapshot at `lsn`, which takes `bytes` more bytes of memory. Before its registration
    /// ends.
    pub(crate) fn add_reader(&self, lsn: Lsn, bytes: u64) {
        // Relaxed: the end of the registration, which follows, is a Release.
        self.lowest.fetch_min(lsn.0, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if it can be read no longer. A reader checks this after it has read, and before it
    /// shows anything.
    pub(crate) fn is_ended(&self) -> bool {
        // Acquire: a reader that has read a block that was overwritten since it was freed sees
        // this: the flag is set before the block is freed.
        self.is_ended.load(Ordering::Acquire)
    }

    /// Ends it: reads fail from now on, and its blocks are free. Returns false if it has ended
    /// before.
    pub(crate) fn end(&self) -> bool {
        // Release: set before any block is freed.
        if self.is_ended.swap(true, Ordering::AcqRel) {
            return false;
        }
        // Memory, and the file of the mapping, end with the last reader.
        let pages = self.pages.write().take();
        drop(pages);
        if self.device.check_process().is_ok() {
            self.space.free_all(self.held.release(self.id));
        }
        true
    }

    /// Calls `read` with the pages, and judges what came of it: an error may come from blocks that
    /// were overwritten. Blocks as `read` does.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; those of `read`.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&CutPages) -> Result<T>) -> Result<T> {
        let Some(pages) = self.pages.read().clone() else {
            return Err(Error::SnapshotEnded);
        };
        let read = read(&pages);
        if self.is_ended() {
            return Err(Error::SnapshotEnded);
        }
        if pages.placed() > self.places_max {
            self.replace(&pages)?;
        }
        read
    }

    /// Replaces the pages by none, so that their page table takes no memory. Readers that have
    /// begun go on with the old ones.
    fn replace(&self, old: &Arc<CutPages>) -> Result<()> {
        let fresh = Arc::new(old.anew()?);
        let mut pages = self.pages.write();
        if pages.as_ref().is_some_and(|now| Arc::ptr_eq(now, old)) {
            *pages = Some(fresh);
        }
        Ok(())
    }
}

/// A handle of a kept checkpoint.
#[derive(Debug)]
pub(crate) struct KeptHandle(Arc<KeptCut>);

impl KeptHandle {
    /// Returns another handle of `cut`, unless it has ended.
    pub(crate) fn of(cut: &Arc<KeptCut>) -> Option<Self> {
        let more = |handles| (handles > 0).then_some(handles + 1);
        let relaxed = Ordering::Relaxed;
        let taken = cut.handles.fetch_update(relaxed, relaxed, more);
        // Dropped again if it has ended.
        let handle = taken.is_ok().then(|| Self(cut.clone()));
        handle.filter(|handle| !handle.is_ended())
    }

    /// The checkpoint.
    pub(crate) fn cut(&self) -> &Arc<KeptCut> {
        &self.0
    }
}

impl Clone for KeptHandle {
    fn clone(&self) -> Self {
        let before = self.0.handles.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a handle that was dropped");
        Self(self.0.clone())
    }
}

impl Deref for KeptHandle {
    type Target = KeptCut;

    fn deref(&self) -> &KeptCut {
        &self.0
    }
}

impl Drop for KeptHandle {
    fn drop(&mut self) {
        // AcqRel: what others have read through their handles is over.
        let before = self.0.handles.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a handle was dropped twice");
        if before == 1 {
            self.0.end();
        }
    }
}
