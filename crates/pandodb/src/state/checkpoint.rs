//! What checkpoints go on from, who asks for one, and who waits for it.

use std::task::Waker;

use pando_device::AnyFile;
use pando_format::Lsn;
use pando_format::superblock::Superblock;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Mutex, MutexGuard, Rank, SequenceWaiters, WaitList, time};

use crate::files::mapping::MappingFiles;
use crate::state::checkpoint_progress::CheckpointTurns;

/// What checkpoints go on from, and who waits for them.
#[derive(Debug)]
pub(crate) struct CheckpointState {
    files: Mutex<Files>,
    wanted: AtomicBool,
    work: WaitList,
    /// Checkpoints asked for and finished, for those that wait for one.
    asked: AtomicU64,
    finished: AtomicU64,
    finished_waiters: SequenceWaiters,
    /// Wall clock of the last one, in milliseconds.
    last_unix_ms: AtomicU64,
    /// Log position where the last one was.
    last_lsn: AtomicU64,
    /// Those of the one that runs.
    pub(crate) turns: CheckpointTurns,
}

/// What a checkpoint changes: guarded by one lock.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) superblock_file: AnyFile,
    pub(crate) superblock: Superblock,
    pub(crate) mapping: MappingFiles,
}

impl CheckpointState {
    pub(crate) fn new(files: Files) -> Self {
        let last_lsn = files.superblock.checkpoint_lsn.0;
        Self {
            files: Mutex::new(Rank::CheckpointFiles, files),
            wanted: AtomicBool::new(false),
            work: WaitList::new(),
            asked: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            finished_waiters: SequenceWaiters::new(),
            last_unix_ms: AtomicU64::new(time::unix_ms()),
            last_lsn: AtomicU64::new(last_lsn),
            turns: CheckpointTurns::default(),
        }
    }

    /// Wall clock of the last checkpoint, in milliseconds since 1970.
    pub(crate) fn last_unix_ms(&self) -> u64 {
        self.last_unix_ms.load(Ordering::Relaxed)
    }

    /// A batch of the log that is not applied yet lies behind the last checkpoint: recovery begins
    /// there.
    pub(crate) fn assert_behind(&self, lsn: Lsn) {
        // Relaxed: it only grows, and not beyond a batch that is not applied.
        let last = self.last_lsn.load(Ordering::Relaxed);
        assert!(lsn.0 > last, "{lsn} lies in the checkpoint at {last}");
    }

    /// Asks for a checkpoint soon.
    pub(crate) fn request(&self) {
        self.wanted.store(true, Ordering::Release);
        self.work.notify_all();
    }

    /// Asks for a checkpoint that begins after the call; its number, for
    /// [`CheckpointState::has_finished`].
    pub(crate) fn ask(&self) -> u64 {
        let mine = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.request();
        mine
    }

    /// Somebody has asked for a checkpoint that has not begun.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: asking twice does no harm.
        self.wanted.load(Ordering::Relaxed)
    }

    /// As [`CheckpointState::is_wanted`]; from here on they have to ask again.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Registers the thread that makes checkpoints for the next request.
    pub(crate) fn register_for_work(&self, waker: &Waker) {
        self.work.register(waker);
    }

    /// Log position where the last one was.
    pub(crate) fn last_lsn(&self) -> u64 {
        // Relaxed: what asks for a checkpoint need not be exact.
        self.last_lsn.load(Ordering::Relaxed)
    }

    /// The number of the last one that was asked for: the checkpoint that begins now serves it. The
    /// caller holds the files.
    pub(crate) fn served(&self) -> u64 {
        let served = self.asked.load(Ordering::Acquire);
        let finished = self.finished.load(Ordering::Acquire);
        assert!(finished <= served, "more checkpoints than were asked for");
        served
    }

    /// A checkpoint at `lsn` is durable. Who waits for it learns of it by
    /// [`CheckpointState::finish`].
    pub(crate) fn note(&self, lsn: Lsn) {
        self.last_lsn.store(lsn.0, Ordering::Relaxed);
        self.last_unix_ms.store(time::unix_ms(), Ordering::Relaxed);
    }

    /// What was asked for up to `served` is durable.
    pub(crate) fn finish(&self, served: u64) {
        self.finished.fetch_max(served, Ordering::AcqRel);
        self.finished_waiters.notify(served);
    }

    /// Wakes all that wait for one, since none will come.
    pub(crate) fn fail(&self) {
        self.finished_waiters.notify(u64::MAX);
    }

    /// The files that a checkpoint changes, while none runs. Waits for the one that runs.
    pub(crate) fn lock_files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    /// True once the checkpoint of [`CheckpointState::ask`] is durable.
    pub(crate) fn has_finished(&self, asked: u64) -> bool {
        // Acquire: pairs with the Release in finish: what it freed is seen.
        self.finished.load(Ordering::Acquire) >= asked
    }

    /// Has `waker` woken when [`CheckpointState::has_finished`] comes true; look after this.
    pub(crate) fn register(&self, asked: u64, waker: &Waker) {
        self.finished_waiters.register(asked, waker);
    }

    /// Wakes all that wait, since nothing will come any more.
    pub(crate) fn stop(&self) {
        self.work.notify_all();
        self.fail();
    }
}
