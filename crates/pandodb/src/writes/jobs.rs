//! Jobs for the engine thread that changes tables: a caller leaves a job in the queue and waits for
//! its result.

use std::collections::VecDeque;
use std::task::{Wake, Waker};

use pando_format::Lsn;
use pando_sync::{Arc, Mutex, Rank, WaitList, WakerArc};

use crate::error::{Error, Result};
use crate::locks::LockOwner;
use crate::writes::set::WriteSet;

/// A batch that creates, drops or empties tables; the thread applies it with the gate closed.
#[derive(Debug)]
pub(crate) struct Job {
    /// Guards the writes until the thread takes them, and then the result.
    state: Mutex<JobState>,
    /// Callers that wait for the result.
    ended: WaitList,
}

/// States of a job, in order; the close of the engine skips `Running`.
#[derive(Debug)]
enum JobState {
    Waiting(Box<JobWork>),
    Running,
    Ended(Result<JobEnd>),
}

/// What the thread takes.
#[derive(Debug, Default)]
pub(crate) struct JobWork {
    pub(crate) set: WriteSet,
    /// Waits for a lock that the batch has met.
    pub(crate) owner: Option<Box<LockOwner>>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobEnd {
    Committed(Lsn),
    /// Something that the batch had read or watched has changed.
    Conflict {
        watched: bool,
    },
}

impl Job {
    /// Returns a job that waits for the tables thread.
    pub(crate) fn new(writes: WriteSet) -> Self {
        Self {
            state: Mutex::new(
                Rank::Leaf,
                JobState::Waiting(Box::new(JobWork {
                    set: writes,
                    owner: None,
                })),
            ),
            ended: WaitList::new(),
        }
    }

    /// Puts back what was taken, until the thread takes it again.
    pub(crate) fn put_back(&self, work: Box<JobWork>) {
        let before = std::mem::replace(&mut *self.state.lock(), JobState::Waiting(work));
        assert!(matches!(before, JobState::Running), "it was taken");
    }

    /// Takes the writes, for the engine thread; None if the job was taken or has ended.
    pub(crate) fn take(&self) -> Option<Box<JobWork>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, JobState::Running) {
            JobState::Waiting(work) => Some(work),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Ends the job and wakes those that wait for it.
    pub(crate) fn end(&self, result: Result<JobEnd>) {
        let before = std::mem::replace(&mut *self.state.lock(), JobState::Ended(result));
        assert!(!matches!(before, JobState::Ended(_)), "a job ends once");
        self.ended.notify_all();
    }

    /// Returns the result, once it is there.
    pub(crate) fn result(&self) -> Option<Result<JobEnd>> {
        match &*self.state.lock() {
            JobState::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Registers `waker` for the result; returns true if it is there already.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.ended.register(waker);
        self.result().is_some()
    }
}

/// Puts a job into the queue again when it is woken.
pub(crate) struct JobWake {
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) job: Arc<Job>,
}

impl Wake for JobWake {
    fn wake(self: WakerArc<Self>) {
        if let Err(closed) = self.jobs.push(self.job.clone())
            && let Some(work) = self.job.take()
        {
            drop(work);
            self.job.end(Err(closed));
        }
    }
}

/// The job queue of one engine.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Jobs that nobody has taken yet.
    queue: Mutex<JobQueue>,
    /// Wakes the engine thread that does the jobs.
    pub(crate) wanted: WaitList,
}

#[derive(Debug, Default)]
struct JobQueue {
    jobs: VecDeque<Arc<Job>>,
    closed: bool,
}

impl Jobs {
    /// Appends a job and wakes the engine thread. Never blocks.
    pub(crate) fn push(&self, job: Arc<Job>) -> Result<()> {
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(Error::Closed);
            }
            queue.jobs.push_back(job);
        }
        self.wanted.notify_all();
        Ok(())
    }

    /// True once the thread has ended.
    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.lock().closed
    }

    /// Takes the oldest job.
    pub(crate) fn pop(&self) -> Option<Arc<Job>> {
        self.queue.lock().jobs.pop_front()
    }

    /// Closes the queue: jobs in it end with [`Error::Closed`], and no more are accepted.
    pub(crate) fn close(&self) {
        let left = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        for job in left {
            // One that was woken twice may be running, or have ended.
            if job.take().is_some() {
                job.end(Err(Error::Closed));
            }
        }
    }
}
