//! What a long command keeps while it waits or yields. Dropped when the command has ended.

use std::ops::Bound;
use std::task::Waker;

use pando_sync::time::Instant;
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Lsn;
use pandodb::nonblocking::ValueSource;

use super::edits::Edits;
use crate::client::watches::Watches;

/// An iteration over a database that has come some way.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The stored key behind which the iteration began; `None` for the beginning.
    pub(crate) start: Option<Vec<u8>>,
    /// Where it goes on; `None` at the beginning.
    pub(crate) position: Option<Position>,
    /// Keys looked at.
    pub(crate) examined: u64,
    /// Keys in `found`.
    pub(crate) count: usize,
    /// Encoded replies of the keys that match.
    pub(crate) found: Vec<u8>,
    /// They may be shown when this is durable.
    pub(crate) shown_from: Option<Lsn>,
    /// The end of the database is reached.
    pub(crate) at_end: bool,
    /// Began, so `start` is decided.
    pub(crate) begun: bool,
    pub(crate) done: bool,
}

/// A place between two stored keys.
#[derive(Debug)]
pub(crate) enum Position {
    /// Go on with this key, or the first behind it.
    At(Vec<u8>),
    /// Go on behind this key.
    Behind(Vec<u8>),
}

impl Position {
    /// Its form for the engine.
    pub(crate) fn bound(&self) -> Bound<&[u8]> {
        match self {
            Self::At(key) => Bound::Included(key),
            Self::Behind(key) => Bound::Excluded(key),
        }
    }
}

/// A WATCH that has come some way: a change behind any of its looks is a change.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Keys that it has looked at.
    pub(crate) keys: usize,
    pub(crate) watches: Watches,
    /// It has met a key that is over, and removes all of those first.
    pub(crate) removing: bool,
    /// Keys that it removes in the commit that comes next.
    pub(crate) removed: u64,
}

/// Work that a thread of its own does for a connection.
#[derive(Debug)]
pub(crate) struct Job {
    /// Guarded by its lock, held for a look or a change.
    result: Mutex<Option<Result<(), String>>>,
    waker: Waker,
}

impl Job {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            result: Mutex::new(Rank::Leaf, None),
            waker,
        })
    }

    /// The work is done.
    pub(crate) fn finish(&self, result: Result<(), String>) {
        *self.result.lock() = Some(result);
        self.waker.wake_by_ref();
    }

    /// The result, once there is one.
    pub(crate) fn result(&self) -> Option<Result<(), String>> {
        self.result.lock().clone()
    }
}

/// State of the running command of one connection.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Iterations, by the place of their command in EXEC.
    walks: Vec<(usize, Walk)>,
    /// What a WATCH has looked at so far.
    pub(crate) watching: Option<Box<Watching>>,
    pub(crate) job: Option<Arc<Job>>,
    /// When the command stops waiting; the loop wakes it then.
    pub(crate) deadline: Option<Instant>,
    /// The command has begun to wait.
    pub(crate) waiting: bool,
    /// Lookups of its current run that found their key, and that did not.
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    /// Commands that the current run of an EXEC has called.
    pub(crate) calls: Vec<InnerCall>,
    /// Values that are parts of the reply of the current run, by where in it they come.
    pub(crate) streams: Vec<(usize, ValueSource)>,
    /// Memory that they take.
    pub(crate) stream_bytes: usize,
    /// What its current run has read may be shown when this is durable.
    shown_from: Option<Lsn>,
    /// Strings in chunks that are being made.
    pub(crate) edits: Edits,
}

/// A command of an EXEC.
#[derive(Debug)]
pub(crate) struct InnerCall {
    /// Its number in the index of commands.
    pub(crate) id: usize,
    pub(crate) ns: u64,
    /// Code of the error that it replied.
    pub(crate) error: Option<Vec<u8>>,
}

impl Progress {
    /// The iteration of the command at `index`, taken out: put it back before halting.
    pub(crate) fn take_walk(&mut self, index: usize) -> Walk {
        match self.walks.iter().position(|(of, _)| *of == index) {
            Some(at) => self.walks.swap_remove(at).1,
            None => Walk::default(),
        }
    }

    pub(crate) fn keep_walk(&mut self, index: usize, walk: Walk) {
        self.walks.push((index, walk));
    }

    /// Something was read that may be shown when `lsn` is durable.
    #[inline]
    pub(crate) fn show_from(&mut self, lsn: Option<Lsn>) {
        self.shown_from = self.shown_from.max(lsn);
    }

    /// When all that was read may be shown.
    #[inline]
    pub(crate) fn shown_from(&self) -> Option<Lsn> {
        self.shown_from
    }

    /// Forgets everything; keeps no memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.edits.is_empty() {
            self.edits = Edits::default();
        }
        self.begin_again();
    }

    /// As [`Progress::clear`], but for what was made of values that may be the same.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        if !self.walks.is_empty() {
            self.walks = Vec::new();
        }
        self.watching = None;
        self.job = None;
        self.deadline = None;
        self.waiting = false;
        self.take_back();
        self.calls = Vec::new();
    }

    /// Forgets what the current run has counted: it is run again, or has failed.
    #[inline]
    pub(crate) fn take_back(&mut self) {
        (self.hits, self.misses) = (0, 0);
        self.shown_from = None;
        self.calls.clear();
        self.edits.rewind();
        if !self.streams.is_empty() {
            self.streams = Vec::new();
            self.stream_bytes = 0;
        }
    }
}
