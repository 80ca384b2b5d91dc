//! State between checkpoints: the files that they change, requests for them, and waiters
//! (decision 041).

use std::task::Waker;

use pando_device::AnyFile;
use pando_format::Lsn;
use pando_format::superblock::Superblock;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Mutex, MutexGuard, Rank, SequenceWaiters, WaitList, time};

use crate::files::mapping::MappingFiles;
use crate::state::checkpoint_progress::CheckpointTurns;

/// State between checkpoints, requests for checkpoints, and waiters.
#[derive(Debug)]
pub(crate) struct CheckpointState {
    /// Locked during a checkpoint.
    files: Mutex<Files>,
    /// Set by a request; taken by the checkpoint thread.
    wanted: AtomicBool,
    /// Where the checkpoint thread waits for a request.
    work: WaitList,
    /// Number of checkpoints that were asked for with [`CheckpointState::ask`].
    asked: AtomicU64,
    /// The highest of these numbers whose checkpoint is durable.
    finished: AtomicU64,
    finished_waiters: SequenceWaiters,
    /// Wall-clock time of the last checkpoint, in milliseconds since 1970.
    last_unix_ms: AtomicU64,
    /// LSN of the last checkpoint.
    last_lsn: AtomicU64,
    /// Begins and ends of checkpoints.
    pub(crate) turns: CheckpointTurns,
}

/// The files that a checkpoint changes. Guarded by `CheckpointState::files`.
#[derive(Debug)]
pub(crate) struct Files {
    /// Both of its slots are written for each checkpoint.
    pub(crate) superblock_file: AnyFile,
    /// The last one that is durable in both slots.
    pub(crate) superblock: Superblock,
    /// The journal that checkpoints append to, and the number of the mapping.
    pub(crate) mapping: MappingFiles,
}

impl CheckpointState {
    /// Returns the state after the checkpoint that `files` names: none is asked for.
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

    /// Wall-clock time of the last checkpoint, in milliseconds since 1970.
    pub(crate) fn last_unix_ms(&self) -> u64 {
        self.last_unix_ms.load(Ordering::Relaxed)
    }

    /// Asserts that a batch that is not applied yet is after the last checkpoint: recovery starts
    /// from that checkpoint.
    pub(crate) fn assert_behind(&self, lsn: Lsn) {
        // Relaxed: the LSN only grows, and never past a batch that is not applied.
        let last = self.last_lsn.load(Ordering::Relaxed);
        assert!(lsn.0 > last, "{lsn} is within the checkpoint at {last}");
    }

    /// Asks for a checkpoint soon.
    pub(crate) fn request(&self) {
        self.wanted.store(true, Ordering::Release);
        self.work.notify_all();
    }

    /// Asks for a checkpoint that begins after the call. Returns its number, for
    /// [`CheckpointState::has_finished`].
    pub(crate) fn ask(&self) -> u64 {
        let mine = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.request();
        mine
    }

    /// True if a checkpoint has been asked for and has not begun.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: asking twice does no harm.
        self.wanted.load(Ordering::Relaxed)
    }

    /// As [`CheckpointState::is_wanted`], and withdraws the request.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Registers the checkpoint thread for the next request.
    pub(crate) fn register_for_work(&self, waker: &Waker) {
        self.work.register(waker);
    }

    /// Returns the highest number that was asked for, which the checkpoint that begins now serves.
    /// The caller holds the files.
    pub(crate) fn served(&self) -> u64 {
        let served = self.asked.load(Ordering::Acquire);
        let finished = self.finished.load(Ordering::Acquire);
        assert!(finished <= served, "more checkpoints than were asked for");
        served
    }

    /// Notes that a checkpoint at `lsn` is durable. [`CheckpointState::finish`] tells its waiters.
    pub(crate) fn note(&self, lsn: Lsn) {
        let before = self.last_lsn.swap(lsn.0, Ordering::Relaxed);
        assert!(
            before <= lsn.0,
            "a checkpoint at {lsn} after one at {before}"
        );
        self.last_unix_ms.store(time::unix_ms(), Ordering::Relaxed);
    }

    /// Notes that every request up to number `served` is served, and wakes their waiters.
    pub(crate) fn finish(&self, served: u64) {
        let asked = self.asked.load(Ordering::Acquire);
        assert!(served <= asked, "a checkpoint serves who has not asked");
        self.finished.fetch_max(served, Ordering::AcqRel);
        self.finished_waiters.notify(served);
    }

    /// Wakes all waiters, because no checkpoint will follow.
    pub(crate) fn fail(&self) {
        self.finished_waiters.notify(u64::MAX);
    }

    /// True while somebody has locked the files.
    #[cfg(test)]
    pub(crate) fn are_files_locked(&self) -> bool {
        self.files.try_lock().is_none()
    }

    /// Locks the files that a checkpoint changes, for `Engine::lock_files`. Blocks while one runs.
    pub(crate) fn lock_files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    /// True once the checkpoint with this number of [`CheckpointState::ask`] is durable.
    pub(crate) fn has_finished(&self, asked: u64) -> bool {
        // Acquire: pairs with the Release in finish, so the caller sees what the checkpoint freed.
        self.finished.load(Ordering::Acquire) >= asked
    }

    /// Has `waker` woken when [`CheckpointState::has_finished`] becomes true; check it after this
    /// call.
    pub(crate) fn register(&self, asked: u64, waker: &Waker) {
        self.finished_waiters.register(asked, waker);
    }

    /// Wakes the checkpoint thread and all waiters, because no checkpoint will follow.
    pub(crate) fn stop(&self) {
        self.work.notify_all();
        self.fail();
    }
}
