//! Work that engine threads do for others: the caller leaves a job and waits for its end.

use std::collections::VecDeque;
use std::task::Waker;

use pando_format::Lsn;
use pando_sync::{Arc, Mutex, Rank, WaitList};

use crate::error::{Error, Result};
use crate::writes::set::WriteSet;

/// A batch that creates, drops or empties tables: applied with the gate closed.
#[derive(Debug)]
pub(crate) struct Job {
    state: Mutex<JobState>,
    ended: WaitList,
}

#[derive(Debug)]
enum JobState {
    Waiting(Box<WriteSet>),
    Running,
    Ended(Result<JobEnd>),
}

/// How a job ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobEnd {
    Committed(Lsn),
    /// Something that the batch had read has changed.
    Conflict {
        watched: bool,
    },
}

impl Job {
    pub(crate) fn new(writes: WriteSet) -> Self {
        Self {
            state: Mutex::new(Rank::Leaf, JobState::Waiting(Box::new(writes))),
            ended: WaitList::new(),
        }
    }

    pub(crate) fn take(&self) -> Option<Box<WriteSet>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, JobState::Running) {
            JobState::Waiting(writes) => Some(writes),
            other => {
                *state = other;
                None
            }
        }
    }

    pub(crate) fn end(&self, result: Result<JobEnd>) {
        let before = std::mem::replace(&mut *self.state.lock(), JobState::Ended(result));
        assert!(!matches!(before, JobState::Ended(_)), "a job ends once");
        self.ended.notify_all();
    }

    /// How it ended, once it has.
    pub(crate) fn result(&self) -> Option<Result<JobEnd>> {
        match &*self.state.lock() {
            JobState::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Registers `waker` for the end; true if it has come.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.ended.register(waker);
        self.result().is_some()
    }
}

/// The queue of one engine.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    /// The engine thread that does the jobs.
    pub(crate) wanted: WaitList,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    closed: bool,
}

impl Jobs {
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

    pub(crate) fn pop(&self) -> Option<Arc<Job>> {
        self.queue.lock().jobs.pop_front()
    }

    /// No job is taken any more; those that wait end with [`Error::Closed`].
    pub(crate) fn close(&self) {
        let left = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.jobs)
        };
        for job in left {
            job.end(Err(Error::Closed));
        }
    }
}
