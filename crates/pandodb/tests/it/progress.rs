//! Steps of threads that may come to wait for ever: a test of them fails instead of hanging.

use pando_sync::time::{self, Duration};
use pando_sync::{Condvar, Mutex};

/// Nobody ends anything for as long: all wait for each other.
const QUIET: Duration = Duration::from_secs(60);

/// Steps that were done, by all threads together.
#[derive(Default)]
pub(crate) struct Progress {
    steps: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    /// Counts one more.
    pub(crate) fn step(&self) {
        *self.steps.lock() += 1;
        self.changed.notify_all();
    }

    /// Returns when `all` steps are done. Fails as soon as nobody does any: threads that wait for
    /// ever are left behind, so that the test ends.
    pub(crate) fn wait_for(&self, all: u64) {
        let mut steps = self.steps.lock();
        while *steps < all {
            let (before, begun) = (*steps, time::now());
            while *steps == before {
                let Some(left) = QUIET.checked_sub(begun.elapsed()) else {
                    panic!("stuck after {before} of {all} steps");
                };
                steps = self.changed.wait_timeout(steps, left);
            }
        }
    }
}
