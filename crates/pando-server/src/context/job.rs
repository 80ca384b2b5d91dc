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

impl Job {
    /// Returns a job without a result; `waker` is woken when it gets one.
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Rank::Leaf, (None, waker)),
        })
    }

    /// Records the result and wakes the connection.
    pub(crate) fn finish(&self, result: Result<(), String>) {
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
