//! The queue of finished requests, from the threads that serve them to the one event loop that
//! reaps them.
//!
//! One lock guards everything, and is held for a push or for a drain of at most 64. Wake-ups happen
//! after the lock is released, and only when the queue was empty before (or is not empty after a
//! reap), so that a burst of completions wakes once.

use std::collections::VecDeque;
use std::task::{Wake, Waker};

use pando_sync::time::{self, Duration};
use pando_sync::{Condvar, Mutex, Rank, WakerArc};

use crate::device::{Completion, REAP_MAX};

#[derive(Debug)]
struct Queue {
    done: VecDeque<Completion>,
    /// A thread is in [`Completions::wait`]. Avoids notifications without a waiter, which cost a
    /// system call.
    waiting: bool,
    /// The channel's waker was woken since the last wait.
    woken: bool,
}

/// Finished requests of one channel.
#[derive(Debug)]
pub(crate) struct Completions {
    queue: Mutex<Queue>,
    /// Notified when `queue` gets a completion or the waker is woken, if a thread waits.
    filled: Condvar,
    notify: Waker,
}

impl Completions {
    /// Returns an empty queue with room for `depth` completions. Wakes `notify` when it gets one
    /// while it is empty, and at a reap that leaves some.
    pub(crate) fn new(depth: usize, notify: Waker) -> Self {
        Self {
            queue: Mutex::new(
                Rank::Leaf,
                Queue {
                    done: VecDeque::with_capacity(depth),
                    waiting: false,
                    woken: false,
                },
            ),
            filled: Condvar::new(),
            notify,
        }
    }

    /// Adds a finished request, and wakes the loop if it may sleep.
    pub(crate) fn push(&self, completion: Completion) {
        let mut queue = self.queue.lock();
        let was_empty = queue.done.is_empty();
        queue.done.push_back(completion);
        let waiting = queue.waiting;
        drop(queue);
        if waiting {
            self.filled.notify_one();
        }
        if was_empty {
            self.notify.wake_by_ref();
        }
    }

    /// Moves up to [`REAP_MAX`] finished requests to `completions`, and returns their number.
    pub(crate) fn reap(&self, completions: &mut Vec<Completion>) -> usize {
        let mut queue = self.queue.lock();
        let count = queue.done.len().min(REAP_MAX);
        completions.extend(queue.done.drain(..count));
        let left = !queue.done.is_empty();
        drop(queue);
        if left {
            self.notify.wake_by_ref();
        }
        count
    }

    /// Blocks until the queue is not empty, `timeout` has passed, or the waker is woken.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let deadline = timeout.and_then(|timeout| time::now().checked_add(timeout));
        let mut queue = self.queue.lock();
        while queue.done.is_empty() && !queue.woken {
            queue.waiting = true;
            queue = match deadline {
                None => self.filled.wait(queue),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(time::now());
                    if left.is_zero() {
                        break;
                    }
                    self.filled.wait_timeout(queue, left)
                }
            };
        }
        queue.waiting = false;
        queue.woken = false;
    }
}

#[cfg(test)]
impl Completions {
    /// Runs `case` with the queue locked, as if another thread were pushing.
    pub(crate) fn while_locked(&self, case: impl FnOnce()) {
        let _queue = self.queue.lock();
        case();
    }
}

/// The channel's own waker: ends a wait, and does not notify the event loop.
impl Wake for Completions {
    fn wake(self: WakerArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        let mut queue = self.queue.lock();
        queue.woken = true;
        let waiting = queue.waiting;
        drop(queue);
        if waiting {
            self.filled.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_sync::thread;

    #[test]
    fn a_wake_ends_the_wait_that_runs_or_the_next_one() {
        let completions = WakerArc::new(Completions::new(1, Waker::noop().clone()));
        let waker = Waker::from(completions.clone());
        let limit = Duration::from_secs(10);
        let start = time::now();
        waker.wake_by_ref();
        completions.wait(Some(limit));
        let waiter = thread::spawn({
            let completions = completions.clone();
            move || completions.wait(Some(limit))
        });
        while !completions.queue.lock().waiting {
            thread::yield_now();
        }
        waker.wake();
        waiter.join().unwrap();
        assert!(start.elapsed() < limit, "a wait has not been ended");
        assert!(!completions.queue.lock().woken);
    }
}
