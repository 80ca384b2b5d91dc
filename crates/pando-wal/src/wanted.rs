//! What the thread that makes and removes files is asked for, and how full the log is.

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::options::LogOptions;
use crate::tail::Tail;

/// See the module. `growth` says in which order they are written and read.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Bytes of the largest record that wants room, 0 if none does. Set by whoever finds none,
    /// taken by the thread.
    pub(crate) wanted: AtomicU64,
    /// The last file could not be made, and is still wanted.
    stuck: AtomicBool,
    /// A checkpoint has freed files.
    pub(crate) spare: AtomicBool,
    /// LSN of the last truncation, plus the positions behind it that lie in no file.
    pub(crate) base: AtomicU64,
    /// Number of bytes that may be written between checkpoints.
    pub(crate) limit: AtomicU64,
    budget: u64,
    /// The thread waits here.
    pub(crate) work: WaitList,
}

impl Growth {
    pub(crate) fn new(options: &LogOptions) -> Self {
        Self {
            wanted: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            spare: AtomicBool::new(false),
            base: AtomicU64::new(options.start.0),
            limit: AtomicU64::new(options.budget_bytes()),
            budget: options.budget_bytes(),
            work: WaitList::new(),
        }
    }

    /// Notes that a segment was opened. Returns whether a file should be made. The caller holds the
    /// tail's lock.
    #[cold]
    pub(crate) fn note_segment(&self, tail: &Tail) -> bool {
        self.note_base(tail);
        tail.is_low()
    }

    /// Notes from where on the log counts. The caller holds the tail's lock.
    pub(crate) fn note_base(&self, tail: &Tail) {
        // Relaxed: whether a checkpoint is due need not be exact.
        self.base.store(tail.base(), Ordering::Relaxed);
    }

    /// Asks for room for a record of `record` bytes.
    pub(crate) fn want(&self, record: u64) {
        // Relaxed: the fence in notify_all orders it before the look at who waits.
        self.wanted.fetch_max(record, Ordering::Relaxed);
        self.work.notify_all();
    }

    /// Asks for a look at what a checkpoint has freed.
    pub(crate) fn look_for_spare(&self) {
        // Relaxed: as in want.
        self.spare.store(true, Ordering::Relaxed);
        self.work.notify_all();
    }

    /// Ends the thread's wait, after the log was stopped or poisoned.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
    }

    /// Returns whether no file can be made.
    pub(crate) fn is_stuck(&self) -> bool {
        // Relaxed: stored before those are woken who look at it.
        self.stuck.load(Ordering::Relaxed)
    }

    /// Notes whether files cannot be made. Returns whether that is new.
    pub(crate) fn note_stuck(&self, is_stuck: bool, tail: &Tail) -> bool {
        let limit = match is_stuck {
            true => tail.capacity().min(self.budget),
            false => self.budget,
        };
        // Relaxed: whether a checkpoint is due need not be exact.
        self.limit.store(limit, Ordering::Relaxed);
        self.stuck.swap(is_stuck, Ordering::Relaxed) != is_stuck
    }
}
