//! A checkpoint that is kept for settled snapshots, and reading it.

use std::collections::BTreeMap;
use std::ops::Deref;

use pando_device::{AnyDevice, Device};
use pando_format::Lsn;
use pando_space::BlockSet;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Rank, RwLock};

use crate::error::{Error, Result};
use crate::kept::pages::{CutPages, CutSource};
use crate::kept::run::Run;
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
    /// None once it is ended.
    open: RwLock<Option<Open>>,
    /// Number of places that the page table may have.
    places_max: u64,
    /// Bytes of memory that it may take, without the runs.
    bytes: u64,
}

/// What is read of a checkpoint that has not ended.
#[derive(Debug)]
struct Open {
    /// Replaced when their page table has become too large.
    pages: Arc<CutPages>,
    /// What was replaced between earlier snapshots and the checkpoint, by the LSN of the snapshot;
    /// with the number of those who read it.
    runs: BTreeMap<Lsn, (Arc<Run>, u32)>,
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
        let open = Open {
            pages: Arc::new(CutPages::new(Arc::new(source))?),
            runs: BTreeMap::new(),
        };
        let cut = Self {
            lsn,
            began: time::now(),
            is_ended: AtomicBool::new(false),
            handles: AtomicU64::new(1),
            id: held.keep(blocks),
            held: held.clone(),
            space: space.clone(),
            device,
            open: RwLock::new(Rank::Leaf, Some(open)),
            places_max: Self::table_bytes(pool_bytes) / PLACE_BYTES,
            bytes,
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

    /// Bytes of memory that it may take, without the runs.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that its runs take.
    pub(crate) fn run_bytes(&self) -> u64 {
        let open = self.open.read();
        let runs = open.iter().flat_map(|open| open.runs.values());
        runs.map(|(run, _)| run.memory_bytes()).sum()
    }

    /// The least LSN at which somebody reads: before that of the checkpoint, if a snapshot was
    /// settled on it.
    pub(crate) fn lowest(&self) -> Lsn {
        let open = self.open.read();
        let first = open.as_ref().and_then(|open| open.runs.keys().next());
        first.copied().unwrap_or(self.lsn)
    }

    /// Adds what was replaced between `lsn` and the checkpoint, for a snapshot whose registration
    /// has not ended. Returns false if the checkpoint has ended.
    pub(crate) fn add_run(&self, lsn: Lsn, run: Run) -> bool {
        let mut open = self.open.write();
        let Some(open) = &mut *open else {
            return false;
        };
        let before = open.runs.insert(lsn, (Arc::new(run), 1));
        assert!(before.is_none(), "a second run for the same LSN");
        true
    }

    /// Counts one more reader of the run for `lsn`. Returns false if there is none.
    pub(crate) fn share_run(&self, lsn: Lsn) -> bool {
        let mut open = self.open.write();
        let run = open.as_mut().and_then(|open| open.runs.get_mut(&lsn));
        run.map(|(_, readers)| *readers += 1).is_some()
    }

    /// Counts one reader less of the run for `lsn`, and removes it after the last.
    pub(crate) fn remove_reader(&self, lsn: Lsn) {
        if self.device.check_process().is_err() {
            // A forked child: others may have held the lock.
            return;
        }
        let mut open = self.open.write();
        let Some(Open { runs, .. }) = &mut *open else {
            return;
        };
        let (_, readers) = runs.get_mut(&lsn).expect("its reader keeps it");
        *readers -= 1;
        let unread = match readers {
            0 => runs.remove(&lsn),
            _ => None,
        };
        drop(open);
        // Its blocks are freed without the lock.
        drop(unread);
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
        if self.device.check_process().is_err() {
            // A forked child: others may have held the locks, and the blocks are the parent's.
            return true;
        }
        // Memory, the file of the mapping, and the blocks of runs end with the last reader.
        let open = self.open.write().take();
        drop(open);
        self.space.free_all(self.held.release(self.id));
        true
    }

    /// Calls `read` with the pages, and with the run of `lsn` if there is one, and judges what came
    /// of it: an error may come from blocks that were overwritten. Blocks as `read` does.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; those of `read`; [`Error::Io`] in a forked child.
    pub(crate) fn read<T>(
        &self,
        lsn: Lsn,
        read: impl FnOnce(&CutPages, Option<&Run>) -> Result<T>,
    ) -> Result<T> {
        self.device
            .check_process()
            .map_err(Error::io("use a store in a forked child"))?;
        let (pages, run) = match &*self.open.read() {
            Some(open) => (
                open.pages.clone(),
                open.runs.get(&lsn).map(|(run, _)| run.clone()),
            ),
            None => return Err(Error::SnapshotEnded),
        };
        let read = read(&pages, run.as_deref());
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
        let mut open = self.open.write();
        match &mut *open {
            Some(open) if Arc::ptr_eq(&open.pages, old) => open.pages = fresh,
            _ => {}
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
