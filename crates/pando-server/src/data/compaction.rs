//! The compaction of the store that a command started: it has a thread of its own, only one runs at
//! a time, and INFO reports on it.

use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicU8, AtomicU32, Ordering};
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
pub(crate) struct CompactionProgress {
    pub(crate) phase: CompactPhase,
    /// Share of the whole compaction that is done, 0 to 100.
    pub(crate) percent: u32,
}

/// No compaction runs.
const IDLE: u8 = 0;
/// From `start` until the thread has stored how the compaction ended.
const RUNNING: u8 = 1;
/// As `RUNNING`, but it was asked to end, which it sees at the next report of its progress.
const ENDING: u8 = 2;

/// The state of compaction; see the module.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// `IDLE`, `RUNNING` or `ENDING`.
    state: AtomicU8,
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
            state: AtomicU8::new(IDLE),
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
        // Acquire: pairs with the Release at the end of the previous compaction.
        let begins =
            this.state
                .compare_exchange(IDLE, RUNNING, Ordering::Acquire, Ordering::Relaxed);
        if begins.is_err() {
            return Ok(false);
        }
        this.percent.store(0, Ordering::Relaxed);
        let own = Arc::clone(this);
        let spawned = thread::Builder::new()
            .name("pando-compact".to_owned())
            .spawn(move || own.run(|| db.compact(|progress| own.note(progress))));
        match spawned {
            Ok(handle) => {
                // The thread of the previous compaction has ended.
                *this.thread.lock() = Some(handle);
                Ok(true)
            }
            Err(error) => {
                this.state.store(IDLE, Ordering::Release);
                Err(error)
            }
        }
    }

    fn run(&self, compact: impl FnOnce() -> pandodb::Result<CompactReport>) {
        let mut running = Running {
            compaction: self,
            ended: Ended::Failed("the thread of the compaction has ended early".to_owned()),
        };
        running.ended = match compact() {
            Ok(report) => Ended::Done(report),
            Err(error) => Ended::Failed(error.to_string()),
        };
    }

    fn note(&self, progress: CompactProgress) -> ControlFlow<()> {
        *self.phase.lock() = progress.phase;
        let percent = (progress.share * 100.0).clamp(0.0, 100.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped above"
        )]
        let percent = percent as u32;
        self.percent.store(percent, Ordering::Relaxed);
        match self.state.load(Ordering::Relaxed) {
            ENDING => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Asks the running compaction to end soon. Returns false if none runs. One that starts later
    /// is not asked.
    pub(crate) fn abort(&self) -> bool {
        // Acquire: pairs with the Release in run.
        let asked =
            self.state
                .compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire);
        asked != Err(IDLE)
    }

    /// Ends the running compaction and waits for it; blocks.
    pub(crate) fn end(&self) {
        let _running = self.abort();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // If the thread has panicked, that was told, and where it had begun to change something
            // the store is poisoned.
            let _ = thread.join();
        }
    }

    /// Returns the progress of the running compaction, if one runs.
    pub(crate) fn running(&self) -> Option<CompactionProgress> {
        // Acquire: pairs with the Release in run.
        let running = self.state.load(Ordering::Acquire) != IDLE;
        running.then(|| CompactionProgress {
            phase: *self.phase.lock(),
            percent: self.percent.load(Ordering::Relaxed),
        })
    }

    /// Returns how the last compaction ended.
    pub(crate) fn ended(&self) -> Ended {
        self.ended.lock().clone()
    }
}

/// A compaction that runs. Dropped at its end, also by a panic: the next one may start.
struct Running<'a> {
    compaction: &'a Compaction,
    ended: Ended,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.compaction.ended.lock() = self.ended.clone();
        // Release: pairs with the Acquire in start.
        self.compaction.state.store(IDLE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asks is told that it failed, and the next one may start.
    #[test]
    fn a_compaction_that_panics_has_ended() {
        let compaction = Compaction::default();
        compaction.state.store(RUNNING, Ordering::Relaxed);
        let run = || compaction.run(|| panic!("planted"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        assert!(compaction.running().is_none());
        let ended = compaction.ended();
        assert!(
            matches!(&ended, Ended::Failed(text) if text.contains("early")),
            "{ended:?}"
        );
    }

    /// A client that is told that its abort was accepted has aborted the running compaction, even
    /// if its thread has not begun, and whatever another client starts meanwhile. Later compactions
    /// are not aborted.
    #[test]
    fn an_abort_is_for_the_compaction_that_runs() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let compaction = Arc::new(Compaction::default());
        assert!(!compaction.abort());
        // This is the state at the beginning of `start`.
        compaction.state.store(RUNNING, Ordering::Relaxed);
        let progress = CompactProgress {
            phase: CompactPhase::Garbage,
            share: 0.5,
        };
        assert_eq!(compaction.note(progress), ControlFlow::Continue(()));
        assert!(compaction.abort() && compaction.abort());
        assert!(!Compaction::start(&compaction, db.clone()).unwrap());
        assert_eq!(compaction.note(progress), ControlFlow::Break(()));
        compaction.run(|| db.compact(|progress| compaction.note(progress)));
        assert!(!compaction.abort());
        assert!(Compaction::start(&compaction, db).unwrap());
        while compaction.running().is_some() {
            thread::yield_now();
        }
        let ended = compaction.ended();
        assert!(
            matches!(ended, Ended::Done(report) if report.finished),
            "{ended:?}"
        );
    }
}
