//! Ends a process that hangs, since a test that waits forever reports nothing, or in which a thread
//! of an engine panics (`panics`).

use std::io::Write;

use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Condvar, Mutex, thread};

use crate::panics::RunningCase;

/// Number of looks at the clock before the time is over. On a machine that is overloaded, or was
/// stopped for a while, this thread is late just as the threads that it watches, and a late look
/// counts only once.
const STEPS: u32 = 600;

#[derive(Debug, Default)]
struct Completion {
    done: Mutex<bool>,
    changed: Condvar,
}

/// Aborts the process with a message, unless it is dropped in time and no engine panics before.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Completion>,
    _case: RunningCase,
}

impl Watchdog {
    /// Starts to watch the work that `what` describes.
    pub fn new(limit: Duration, what: String) -> Self {
        let case = RunningCase::new(what.clone());
        let shared = Arc::new(Completion::default());
        let seen = shared.clone();
        thread::spawn(move || {
            let (step, mut left) = (limit / STEPS, STEPS);
            let mut done = seen.done.lock();
            while !*done {
                let began = time::now();
                done = seen.changed.wait_timeout(done, step);
                left -= u32::from(began.elapsed() >= step);
                if left == 0 && !*done {
                    // Not `eprintln`, since the test harness would capture it.
                    let _ = writeln!(std::io::stderr(), "hangs since {limit:?}: {what}");
                    std::process::abort();
                }
            }
        });
        Self {
            shared,
            _case: case,
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.shared.done.lock() = true;
        self.shared.changed.notify_all();
    }
}
