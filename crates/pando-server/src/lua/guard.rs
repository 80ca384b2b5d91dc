//! What bounds a run of a script, and what is known of the run.
//!
//! Shared by the hook, the native functions and the state that they belong to, all of one thread.

use std::cell::{Cell, RefCell};

use pando_resp::Version;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::{Duration, Instant, now};

use super::json_settings::Settings;
use super::random::Random;

/// Bytes of the stack that a script may take. Threads have 2 MiB.
const STACK_BYTES_MAX: usize = 512 * 1024;

/// Bytes that take so long to be read or written that the clock is looked at behind them.
const LONG_BYTES: usize = 16 * 1024;

/// Why a run was ended before its script had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A command was interrupted.
    Interrupted,
    /// It is to go on elsewhere, since it takes long.
    Leaves,
    /// It took longer than it may.
    TimeOver,
    /// Somebody wants it to end.
    Killed,
    /// There was too little memory for a reply.
    NoMemory,
}

/// What a run begins with, and what it may take.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Of `math.random`.
    pub(crate) seed: u32,
    /// When it is ended.
    pub(crate) until: Option<Instant>,
    /// When it leaves its thread.
    pub(crate) leaves_at: Option<Instant>,
    /// Set when nobody waits for it any more.
    pub(crate) is_left: Option<Arc<AtomicBool>>,
    /// Grows whenever the scripts that run are to be ended.
    pub(crate) kills: Arc<AtomicU64>,
    /// What it was when the run began.
    pub(crate) kills_before: u64,
}

impl Limits {
    /// Returns why the run has to end, if it has to; the time for which it has waited does not
    /// count.
    fn ending(&self, waited: Duration) -> Option<Ending> {
        // Relaxed, twice: nothing else is read that it would be in order with.
        if self.kills.load(Ordering::Relaxed) != self.kills_before {
            return Some(Ending::Killed);
        }
        let is_left = self.is_left.as_ref();
        if is_left.is_some_and(|of| of.load(Ordering::Relaxed)) {
            return Some(Ending::Interrupted);
        }
        if self.until.is_none() && self.leaves_at.is_none() {
            return None;
        }
        let at = now();
        let is_over = |time: Instant| at >= time;
        let until = self.until.and_then(|of| of.checked_add(waited));
        if until.is_some_and(is_over) {
            return Some(Ending::TimeOver);
        }
        self.leaves_at
            .is_some_and(is_over)
            .then_some(Ending::Leaves)
    }
}

/// An error of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Begins with its code.
    pub(crate) text: String,
    /// Chunk and line, if they are known.
    pub(crate) place: Option<(String, usize)>,
    /// A native function has found too little memory.
    pub(crate) lacks_memory: bool,
    /// It is the error of a call, which was counted with that.
    pub(crate) is_counted: bool,
}

/// What the hook and the native functions look at.
pub(crate) struct Guard {
    pub(super) ending: Cell<Option<Ending>>,
    pub(super) limits: RefCell<Option<Limits>>,
    /// Time for which the run has waited.
    pub(super) waited: Cell<Duration>,
    /// What `redis.setresp` has chosen.
    pub(super) version: Cell<Version>,
    /// What the run has chosen of how `cjson` works.
    pub(super) json: Cell<Settings>,
    /// Of `math.random`.
    pub(super) random: Random,
    /// The error that the script has ended with.
    pub(super) failure: RefCell<Option<Failure>>,
    /// Where the stack was when the run began.
    pub(super) stack: Cell<usize>,
}

impl Guard {
    /// Returns the guard of a state that has run nothing.
    pub(super) fn new() -> Self {
        Self {
            ending: Cell::new(None),
            limits: RefCell::new(None),
            waited: Cell::new(Duration::ZERO),
            version: Cell::new(Version::Resp2),
            json: Cell::new(Settings::default()),
            random: Random::new(0),
            failure: RefCell::new(None),
            stack: Cell::new(0),
        }
    }

    /// Begins a run.
    pub(super) fn begin(&self, limits: Limits) {
        self.ending.set(None);
        self.failure.replace(None);
        self.version.set(Version::Resp2);
        self.json.set(Settings::default());
        self.random.seed(limits.seed);
        self.limits.replace(Some(limits));
        self.waited.set(Duration::ZERO);
        self.stack.set(stack_address());
    }

    /// Ends the bounds of a run. Returns why it was ended, if it was.
    pub(super) fn finish(&self) -> Option<Ending> {
        self.limits.replace(None);
        self.ending.take()
    }

    /// Returns true if the run has taken too much of the machine's stack to call C again.
    pub(super) fn is_deep(&self) -> bool {
        self.stack.get().abs_diff(stack_address()) >= STACK_BYTES_MAX
    }

    /// Returns which of its limits the run has reached.
    pub(crate) fn reached(&self) -> Option<Ending> {
        let limits = self.limits.borrow();
        limits.as_ref()?.ending(self.waited.get())
    }

    /// Notes that the run has waited.
    pub(crate) fn add_wait(&self, time: Duration) {
        self.waited.set(self.waited.get() + time);
    }

    /// Ends the run if it has reached its limits. Returns true if it is ended.
    pub(super) fn look(&self) -> bool {
        if let Some(ending) = self.reached() {
            self.end(ending);
        }
        self.ending.get().is_some()
    }

    /// As [`look`](Self::look), behind a native function that has read or written so many bytes.
    /// The hook does not see them: a thousand instructions may be hundreds of such calls.
    pub(super) fn look_behind(&self, bytes: usize) -> bool {
        bytes > LONG_BYTES && self.look()
    }

    /// Ends the run, unless it is ended already.
    pub(super) fn end(&self, ending: Ending) {
        if self.ending.get().is_none() {
            self.ending.set(Some(ending));
        }
    }
}

/// Returns an address in the frame of the caller, or near it.
#[inline(never)]
pub(super) fn stack_address() -> usize {
    let here = 0_u8;
    (&raw const here).addr()
}
