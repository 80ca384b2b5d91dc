//! Counts steps of threads that might wait forever, so that such a test fails instead of hanging.

use pando_sync::time::{self, Duration};
use pando_sync::{Condvar, Mutex};

/// If no step is done for this long, all threads wait for each other.
const QUIET: Duration = Duration::from_secs(60);

/// The number of steps done by all threads together.
#[derive(Default)]
pub(crate) struct Progress {
    steps: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    /// Counts one more step.
    pub(crate) fn step(&self) {
        *self.steps.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until `all` steps are done. Panics if no step is done for a long time; the waiting
    /// threads are then abandoned, so that the test ends.
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
