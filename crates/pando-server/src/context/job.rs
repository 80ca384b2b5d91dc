//! Work that a thread of its own does for a command.

use std::task::Waker;

use pando_sync::{Arc, Mutex, Rank};

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
pub(crate) struct JobEnd(Option<Arc<Job>>);

impl JobEnd {
    /// Records the result and wakes the connection.
    pub(crate) fn finish(mut self, result: Result<(), String>) {
        if let Some(job) = self.0.take() {
            job.end(result);
        }
    }
}

impl Drop for JobEnd {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            job.end(Err("the thread of this command has ended early".to_owned()));
        }
    }
}

impl Job {
    /// Returns a job without a result; `waker` is woken when it gets one.
    pub(crate) fn new(waker: Waker) -> (Arc<Self>, JobEnd) {
        let job = Arc::new(Self {
            state: Mutex::new(Rank::Leaf, (None, waker)),
        });
        (job.clone(), JobEnd(Some(job)))
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

#[cfg(test)]
mod tests {
    use pando_sync::thread;

    use super::*;

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
}
