//! The queue of finished reads between those who read and the one event loop that reaps.
//!
//! Everything is under one lock, which is held for a push or a drain of at most 64. Waking happens
//! after the lock is released, and only when the queue was empty before (or stays non-empty after a
//! reap), so that a burst of completions wakes once.

use std::collections::VecDeque;
use std::task::Waker;

use pando_sync::time::{self, Duration};
use pando_sync::{Condvar, Mutex};

use crate::device::{Completion, REAP_MAX};

#[derive(Debug)]
struct Queue {
    done: VecDeque<Completion>,
    /// Somebody is in [`Completions::wait`]: a notification of nobody costs a system call.
    waiting: bool,
}

/// Finished reads of one channel.
#[derive(Debug)]
pub(crate) struct Completions {
    queue: Mutex<Queue>,
    filled: Condvar,
    notify: Waker,
}

impl Completions {
    pub(crate) fn new(depth: usize, notify: Waker) -> Self {
        Self {
            queue: Mutex::new(Queue {
                done: VecDeque::with_capacity(depth),
                waiting: false,
            }),
            filled: Condvar::new(),
            notify,
        }
    }

    /// Hands a finished read over, and wakes the loop if it may have gone to sleep.
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

    /// Moves up to [`REAP_MAX`] finished reads to `completions`.
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

    /// Blocks until the queue is not empty or the time is over.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let deadline = timeout.and_then(|timeout| time::now().checked_add(timeout));
        let mut queue = self.queue.lock();
        while queue.done.is_empty() {
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
    }
}
