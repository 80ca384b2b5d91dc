//! Work that a thread of its own does for a command.

use std::io;
use std::task::Waker;

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Arc, Mutex, Rank, thread};

/// Work that a separate thread does for a connection.
#[derive(Debug)]
pub(crate) struct Job {
    /// The result, and who is woken when there is one. Guarded by its lock, held for a copy or a
    /// change.
    state: Mutex<(Option<Result<(), String>>, Waker)>,
}

/// The end of a job, for the thread that does it. Dropped without a result, as by a panic, it ends
/// the job with an error: the command does not wait for ever.
#[derive(Debug)]
pub(crate) struct JobEnd {
    /// None once it has ended.
    job: Option<Arc<Job>>,
    /// Given back before the end is told: then the next command finds it free.
    turn: Option<JobTurn>,
}

/// The turn of a job among those of which one runs at a time: the flag is set until it is dropped.
#[derive(Debug)]
pub(crate) struct JobTurn(Arc<AtomicBool>);

impl JobTurn {
    /// Takes the turn; returns None if another job has it.
    pub(crate) fn try_take(taken: &Arc<AtomicBool>) -> Option<Self> {
        // Acquire: pairs with the Release below.
        let is_taken = taken.swap(true, Ordering::Acquire);
        (!is_taken).then(|| Self(taken.clone()))
    }
}

impl Drop for JobTurn {
    fn drop(&mut self) {
        // Release: what this job has done comes before what the next one does.
        self.0.store(false, Ordering::Release);
    }
}

impl JobEnd {
    /// Records the result and wakes the connection.
    pub(crate) fn finish(mut self, result: Result<(), String>) {
        self.end(result);
    }

    /// Has the job give back `turn` when it ends.
    pub(crate) fn with_turn(mut self, turn: JobTurn) -> Self {
        self.turn = Some(turn);
        self
    }

    fn end(&mut self, result: Result<(), String>) {
        self.turn = None;
        if let Some(job) = self.job.take() {
            job.end(result);
        }
    }
}

impl Drop for JobEnd {
    fn drop(&mut self) {
        self.end(Err("the thread of this command has ended early".to_owned()));
    }
}

impl Job {
    /// Returns a job without a result; `waker` is woken when it gets one.
    pub(crate) fn new(waker: Waker) -> (Arc<Self>, JobEnd) {
        let job = Arc::new(Self {
            state: Mutex::new(Rank::Leaf, (None, waker)),
        });
        let end = JobEnd {
            job: Some(job.clone()),
            turn: None,
        };
        (job, end)
    }

    fn end(&self, result: Result<(), String>) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = Some(result);
            state.1.clone()
        };
        waker.wake();
    }

    /// Returns the result. If there is none, `waker` is woken when there is, instead of who was to
    /// be woken before: the command may have gone to another thread.
    pub(crate) fn result(&self, waker: &Waker) -> Option<Result<(), String>> {
        let mut state = self.state.lock();
        if state.0.is_none() {
            state.1.clone_from(waker);
        }
        state.0.clone()
    }
}

/// Starts a thread that does the work of a command.
///
/// # Errors
/// The system refuses; for the client, without its first word.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| not_started(&error))
}

/// Says that a thread cannot be started, and what to do.
pub(crate) fn not_started(error: &io::Error) -> String {
    format!(
        "cannot start a thread: {error}; try again, or raise the limit of threads of the server \
         (ulimit -u, pids.max)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of the system alone says of nothing what it was about.
    #[test]
    fn a_thread_that_is_refused_is_named() {
        let text = not_started(&io::Error::from_raw_os_error(11));
        assert!(text.starts_with("cannot start a thread: ") && text.contains("(os error 11)"));
        let taken = Arc::new(AtomicBool::new(false));
        let did = taken.clone();
        start("pando-test", move || did.store(true, Ordering::Release)).unwrap();
        while !taken.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_panics_ends_its_job() {
        let waker = Waker::noop();
        let (job, end) = Job::new(waker.clone());
        assert_eq!(job.result(waker), None);
        let worker = thread::spawn(move || {
            let _end = end;
            panic!("planted");
        });
        worker.join().unwrap_err();
        let text = job.result(waker).unwrap().unwrap_err();
        assert!(text.contains("ended early"), "{text}");
        let (job, end) = Job::new(waker.clone());
        end.finish(Ok(()));
        assert_eq!(job.result(waker), Some(Ok(())));
    }

    /// A turn that stayed taken would refuse every later SAVE.
    #[test]
    fn the_turn_of_a_job_is_free_when_its_end_is_told() {
        /// Looks at the flag when it is woken.
        struct Look(Arc<AtomicBool>, Mutex<Option<bool>>);
        impl std::task::Wake for Look {
            fn wake(self: Arc<Self>) {
                *self.1.lock() = Some(self.0.load(Ordering::Acquire));
            }
        }
        for panics in [false, true] {
            let taken = Arc::new(AtomicBool::new(false));
            let look = Arc::new(Look(taken.clone(), Mutex::default()));
            let (_job, end) = Job::new(Waker::from(look.clone()));
            let end = end.with_turn(JobTurn::try_take(&taken).unwrap());
            assert!(JobTurn::try_take(&taken).is_none());
            let worker = thread::spawn(move || {
                assert!(!panics, "planted");
                end.finish(Ok(()));
            });
            assert_eq!(worker.join().is_err(), panics);
            assert_eq!(*look.1.lock(), Some(false), "panics: {panics}");
            assert!(JobTurn::try_take(&taken).is_some());
        }
    }
}
