//! Work on the whole store that a command started: it has a thread of its own, of each kind one
//! runs at a time, and INFO reports on it.

use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicU8, Ordering};
use pando_sync::thread::{self, JoinHandle};
use pando_sync::time::{Duration, Instant, now, unix_ms};
use pando_sync::{Arc, Mutex, Rank};

/// How the last one ended.
#[derive(Debug, Clone)]
pub(crate) enum Ended<R> {
    /// There was none.
    Never,
    /// It was stopped, or it finished.
    Done(R),
    Failed(String),
}

/// The end of the last one.
#[derive(Debug, Clone)]
pub(crate) struct Last<R> {
    pub(crate) ended: Ended<R>,
    /// Unix time of it, in milliseconds.
    pub(crate) unix_ms: u64,
    /// How long it ran.
    pub(crate) took: Duration,
}

/// None runs.
const IDLE: u8 = 0;
/// From `start` until the thread has stored how it ended.
const RUNNING: u8 = 1;
/// As `RUNNING`, but it was asked to end, which it sees at the next report of its progress.
const ENDING: u8 = 2;

/// Work of one kind, which tells of a progress `P` and ends with a result `R`; see the module.
#[derive(Debug)]
pub(crate) struct Background<P, R> {
    /// `IDLE`, `RUNNING` or `ENDING`.
    state: AtomicU8,
    /// That of the running one. Guarded by its lock, held for a copy or a change.
    progress: Mutex<P>,
    /// Guarded by its lock, held for a copy or a change.
    last: Mutex<Last<R>>,
    /// The thread of the newest one.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<P: Default, R> Default for Background<P, R> {
    fn default() -> Self {
        let last = Last {
            ended: Ended::Never,
            unix_ms: 0,
            took: Duration::ZERO,
        };
        Self {
            state: AtomicU8::new(IDLE),
            progress: Mutex::new(Rank::Leaf, P::default()),
            last: Mutex::new(Rank::Leaf, last),
            thread: Mutex::new(Rank::Leaf, None),
        }
    }
}

impl<P, R> Background<P, R>
where
    P: Clone + Default + Send + 'static,
    R: Clone + Send + 'static,
{
    /// Starts `work` on a thread of its own with this name. Returns false if one runs already.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(
        this: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Self) -> pandodb::Result<R> + Send + 'static,
    ) -> std::io::Result<bool> {
        // Acquire: pairs with the Release at the end of the previous one.
        let begins =
            this.state
                .compare_exchange(IDLE, RUNNING, Ordering::Acquire, Ordering::Relaxed);
        if begins.is_err() {
            return Ok(false);
        }
        *this.progress.lock() = P::default();
        let own = Arc::clone(this);
        let spawned = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || own.run(work));
        match spawned {
            Ok(handle) => {
                // The thread of the previous one has ended.
                *this.thread.lock() = Some(handle);
                Ok(true)
            }
            Err(error) => {
                this.state.store(IDLE, Ordering::Release);
                Err(error)
            }
        }
    }

    fn run(&self, work: impl FnOnce(&Self) -> pandodb::Result<R>) {
        let mut running = Running {
            work: self,
            began: now(),
            ended: Ended::Failed("the thread that did it has ended early".to_owned()),
        };
        running.ended = match work(self) {
            Ok(result) => Ended::Done(result),
            Err(error) => Ended::Failed(error.to_string()),
        };
    }

    /// Notes the progress of the running one, and tells it whether to go on.
    pub(crate) fn note(&self, progress: P) -> ControlFlow<()> {
        *self.progress.lock() = progress;
        match self.state.load(Ordering::Relaxed) {
            ENDING => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Asks the running one to end soon. Returns false if none runs. One that starts later is not
    /// asked.
    pub(crate) fn abort(&self) -> bool {
        // Acquire: pairs with the Release in run.
        let asked =
            self.state
                .compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire);
        asked != Err(IDLE)
    }

    /// Ends the running one and waits for it; blocks.
    pub(crate) fn end(&self) {
        let _running = self.abort();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // If the thread has panicked, that was told, and where it had begun to change something
            // the store is poisoned.
            let _ = thread.join();
        }
    }

    /// Returns the progress of the running one, if one runs.
    pub(crate) fn running(&self) -> Option<P> {
        // Acquire: pairs with the Release in run.
        let running = self.state.load(Ordering::Acquire) != IDLE;
        running.then(|| self.progress.lock().clone())
    }

    /// Returns how and when the last one ended.
    pub(crate) fn last(&self) -> Last<R> {
        self.last.lock().clone()
    }
}

/// One that runs. Dropped at its end, also by a panic: the next one may start.
struct Running<'a, P, R> {
    work: &'a Background<P, R>,
    began: Instant,
    ended: Ended<R>,
}

impl<P, R> Drop for Running<'_, P, R> {
    fn drop(&mut self) {
        *self.work.last.lock() = Last {
            ended: std::mem::replace(&mut self.ended, Ended::Never),
            unix_ms: unix_ms(),
            took: self.began.elapsed(),
        };
        // Release: pairs with the Acquire in start.
        self.work.state.store(IDLE, Ordering::Release);
    }
}

/// Returns a share from 0 to 1 in percent.
pub(crate) fn percent(share: f64) -> u32 {
    let percent = (share * 100.0).clamp(0.0, 100.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped above"
    )]
    let percent = percent as u32;
    percent
}

#[cfg(test)]
mod tests {
    use super::*;

    type Work = Background<u32, bool>;

    /// Whoever asks is told that it failed, and the next one may start.
    #[test]
    fn work_that_panics_has_ended() {
        let work = Work::default();
        work.state.store(RUNNING, Ordering::Relaxed);
        let run = || work.run(|_| panic!("planted"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        assert!(work.running().is_none());
        let last = work.last();
        assert!(
            matches!(&last.ended, Ended::Failed(text) if text.contains("early")),
            "{last:?}"
        );
    }

    /// A client that is told that its abort was accepted has aborted the running one, even if its
    /// thread has not begun, and whatever another client starts meanwhile. Later ones are not
    /// aborted.
    #[test]
    fn an_abort_is_for_the_one_that_runs() {
        let work = Arc::new(Work::default());
        let ask_once = |work: &Work| Ok(work.note(5).is_continue());
        assert!(!work.abort());
        // This is the state at the beginning of `start`.
        work.state.store(RUNNING, Ordering::Relaxed);
        assert_eq!(work.note(50), ControlFlow::Continue(()));
        assert_eq!(work.running(), Some(50));
        assert!(work.abort() && work.abort());
        assert!(!Work::start(&work, "again", ask_once).unwrap());
        work.run(ask_once);
        assert!(matches!(work.last().ended, Ended::Done(false)));
        assert!(!work.abort());
        assert!(Work::start(&work, "next", ask_once).unwrap());
        while work.running().is_some() {
            thread::yield_now();
        }
        let last = work.last();
        assert!(matches!(last.ended, Ended::Done(true)), "{last:?}");
        assert!(last.unix_ms > 0 && last.took > Duration::ZERO);
    }

    #[test]
    fn shares_are_shown_in_percent() {
        assert_eq!([0.0, 0.559, 1.0, 7.0].map(percent), [0, 55, 100, 100]);
    }
}
