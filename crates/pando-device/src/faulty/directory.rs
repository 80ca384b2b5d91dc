//! The directory that a device and its files share, with one lock.

use pando_sync::{Arc, Mutex, MutexGuard, Rank, thread};

use super::plan::{Fault, Operation};
use super::state::DirectoryState;
use crate::error::Result;

/// A handle of the directory.
#[derive(Debug, Clone)]
pub(super) struct Directory(Arc<Mutex<DirectoryState>>);

impl Directory {
    pub(super) fn new(state: DirectoryState) -> Self {
        Self(Arc::new(Mutex::new(Rank::Leaf, state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.0.lock()
    }

    /// Releases the lock and yields to other threads once.
    fn give_way<'a>(
        &'a self,
        state: MutexGuard<'a, DirectoryState>,
    ) -> Result<MutexGuard<'a, DirectoryState>> {
        drop(state);
        thread::yield_now();
        let state = self.lock();
        state.check_alive()?;
        Ok(state)
    }

    /// Counts an operation and calls `perform` under the lock, after the delay of its fault.
    pub(super) fn operate<T>(
        &self,
        operation: Operation,
        name: &str,
        perform: impl FnOnce(&mut DirectoryState, Option<Fault>) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        let fault = state.begin(operation, name)?;
        match fault {
            Some(Fault::Yield(times)) => {
                for _ in 0..times {
                    state = self.give_way(state)?;
                }
            }
            Some(Fault::CrashLater { changes, turns }) => {
                let end = state.changes.saturating_add(changes);
                let (mut seen, mut idle) = (state.changes, 0);
                while state.changes < end && idle < turns {
                    state = self.give_way(state)?;
                    idle = if state.changes == seen { idle + 1 } else { 0 };
                    seen = state.changes;
                }
                state.crashed = true;
                state.check_alive()?;
            }
            _ => {}
        }
        perform(&mut state, fault)
    }
}
