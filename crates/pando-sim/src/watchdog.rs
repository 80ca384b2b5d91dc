//! Ends a process that hangs: a test that waits forever says nothing.

use std::io::Write;

use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Condvar, Mutex, thread};

#[derive(Debug, Default)]
struct Shared {
    done: Mutex<bool>,
    changed: Condvar,
}

/// Aborts the process, with a text, unless dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
}

impl Watchdog {
    /// Begins to watch what `what` describes.
    pub fn new(limit: Duration, what: String) -> Self {
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        thread::spawn(move || {
            let began = time::now();
            let mut done = seen.done.lock();
            while !*done {
                let Some(left) = limit.checked_sub(began.elapsed()) else {
                    // Not eprintln: a test would keep it to itself.
                    let _ = writeln!(std::io::stderr(), "hangs since {limit:?}: {what}");
                    std::process::abort();
                };
                done = seen.changed.wait_timeout(done, left);
            }
        });
        Self { shared }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.shared.done.lock() = true;
        self.shared.changed.notify_all();
    }
}
