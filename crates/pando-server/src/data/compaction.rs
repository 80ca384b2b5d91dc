//! The compaction of the store that a command started: it has a thread of its own, only one runs at
//! a time, and INFO reports on it.

use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pando_sync::thread::{self, JoinHandle};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::{CompactPhase, CompactProgress, CompactReport, Db};

/// How the last compaction ended.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    /// There was none.
    Never,
    /// It was stopped, or it finished.
    Done(CompactReport),
    Failed(String),
}

/// Progress of the running compaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub(crate) phase: CompactPhase,
    pub(crate) percent: u32,
}

/// The state of compaction; see the module.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// True from `start` until the thread has stored how the compaction ended.
    running: AtomicBool,
    /// Asks the running compaction to end; read at each report of its progress.
    stop: AtomicBool,
    /// Progress of the running compaction, in percent.
    percent: AtomicU32,
    /// Guarded by its lock, held for a copy or a change.
    phase: Mutex<CompactPhase>,
    /// Guarded by its lock, held for a copy or a change.
    ended: Mutex<Ended>,
    /// The thread of the newest compaction.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            percent: AtomicU32::new(0),
            phase: Mutex::new(Rank::Leaf, CompactPhase::Garbage),
            ended: Mutex::new(Rank::Leaf, Ended::Never),
            thread: Mutex::new(Rank::Leaf, None),
        }
    }
}

impl Compaction {
    /// Starts a compaction on a thread of its own. Returns false if one runs already.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(this: &Arc<Self>, db: Db) -> std::io::Result<bool> {
        // AcqRel: pairs with the Release at the end of the previous compaction.
        if this.running.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        this.stop.store(false, Ordering::Relaxed);
        this.percent.store(0, Ordering::Relaxed);
        let own = Arc::clone(this);
        let spawned = thread::Builder::new()
            .name("pando-compact".to_owned())
            .spawn(move || own.run(&db));
        match spawned {
            Ok(handle) => {
                // The thread of the previous compaction has ended.
                *this.thread.lock() = Some(handle);
                Ok(true)
            }
            Err(error) => {
                this.running.store(false, Ordering::Release);
                Err(error)
            }
        }
    }

    fn run(&self, db: &Db) {
        let ended = match db.compact(|progress| self.note(progress)) {
            Ok(report) => Ended::Done(report),
            Err(error) => Ended::Failed(error.to_string()),
        };
        *self.ended.lock() = ended;
        // Release: pairs with the AcqRel in start.
        self.running.store(false, Ordering::Release);
    }

    fn note(&self, progress: CompactProgress) -> ControlFlow<()> {
        *self.phase.lock() = progress.phase;
        let percent = (progress.share * 100.0).clamp(0.0, 100.0);
        self.percent.store(percent as u32, Ordering::Relaxed);
        match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Asks the running compaction to end soon. Returns false if none runs.
    pub(crate) fn abort(&self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        // Acquire: pairs with the Release in run.
        self.running.load(Ordering::Acquire)
    }

    /// Ends the running compaction and waits for it; blocks.
    pub(crate) fn end(&self) {
        let _running = self.abort();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // If the thread has panicked, it has poisoned nothing: the store is closed in the usual
            // way.
            let _ = thread.join();
        }
    }

    /// Returns the progress of the running compaction, if one runs.
    pub(crate) fn running(&self) -> Option<Running> {
        // Acquire: pairs with the Release in run.
        let running = self.running.load(Ordering::Acquire);
        running.then(|| Running {
            phase: *self.phase.lock(),
            percent: self.percent.load(Ordering::Relaxed),
        })
    }

    /// Returns how the last compaction ended.
    pub(crate) fn ended(&self) -> Ended {
        self.ended.lock().clone()
    }
}
