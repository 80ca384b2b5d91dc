//! Helpers: engine threads that carry out operations of futures and of streams as blocking calls
//! (decision 012).

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Arc, Mutex, Rank, WaitList, park, thread_waker};

use crate::error::{Error, Result};

type Task<C> = Box<dyn FnOnce(&C) + Send>;

/// Queue of operations for a helper thread, which runs them with a `C`.
pub(crate) struct Helper<C> {
    /// Tasks that have not begun.
    queue: Mutex<HelperQueue<C>>,
    /// Where the helper thread waits for work.
    wanted: WaitList,
}

struct HelperQueue<C> {
    tasks: VecDeque<Task<C>>,
    /// The thread is running a task that it has taken from `tasks`.
    running: bool,
    closed: bool,
}

impl<C> Default for Helper<C> {
    fn default() -> Self {
        let queue = HelperQueue {
            tasks: VecDeque::new(),
            running: false,
            closed: false,
        };
        Self {
            queue: Mutex::new(Rank::Leaf, queue),
            wanted: WaitList::new(),
        }
    }
}

impl<C> std::fmt::Debug for Helper<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pending = self.pending();
        f.debug_struct("Helper").field("pending", &pending).finish()
    }
}

impl<C> Helper<C> {
    /// Number of operations that have not ended: 0 at rest.
    pub(crate) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.tasks.len() + usize::from(queue.running)
    }

    /// Closes the queue: no further operation begins, and queued ones end with [`Error::Closed`].
    pub(crate) fn close(&self) {
        let left = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.tasks)
        };
        // Dropping the tasks drops their promises, so do it outside the lock.
        drop(left);
        self.wanted.notify_all();
    }

    fn push(&self, task: Task<C>) {
        let refused = {
            let mut queue = self.queue.lock();
            if queue.closed {
                Some(task)
            } else {
                queue.tasks.push_back(task);
                None
            }
        };
        drop(refused);
        self.wanted.notify_all();
    }
}

/// The place where a future finds the result of its operation.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// Set once; taken by the future.
    result: Mutex<Option<Result<T>>>,
    end: Arc<AnswerEnd>,
}

/// Whether an answer is there, for whoever waits for it.
#[derive(Debug, Default)]
pub(crate) struct AnswerEnd {
    is_there: AtomicBool,
    /// Where they wait.
    waiters: WaitList,
}

impl AnswerEnd {
    /// Notes that it is there, and wakes those that wait.
    fn set(&self) {
        // Release: pairs with the Acquire in register.
        self.is_there.store(true, Ordering::Release);
        self.waiters.notify_all();
    }

    /// Registers `waker` for the answer; returns true if it is there already.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.waiters.register(waker);
        self.is_there.load(Ordering::Acquire)
    }
}

impl<T> Answer<T> {
    /// Returns what says whether it is there.
    pub(crate) fn end(&self) -> &Arc<AnswerEnd> {
        &self.end
    }

    /// Returns the result, once, if it is there.
    pub(crate) fn take(&self) -> Option<Result<T>> {
        self.result.lock().take()
    }

    /// Returns the result, once; until then `waker` is woken when there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<T>> {
        if let Some(result) = self.result.lock().take() {
            return Poll::Ready(result);
        }
        self.end.register(waker);
        // Once more, for a result that arrived before the registration.
        match self.result.lock().take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

/// The duty to store a result: dropping it without one stores [`Error::Closed`].
struct Promise<T>(Arc<Answer<T>>);

impl<T> Promise<T> {
    fn keep(&self, result: Result<T>) {
        let mut place = self.0.result.lock();
        assert!(place.is_none(), "one answer");
        *place = Some(result);
        drop(place);
        self.0.end.set();
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        // The future may have taken the result already, or may be gone.
        if Arc::strong_count(&self.0) > 1 && self.0.result.lock().is_none() {
            self.keep(Err(Error::Closed));
        }
    }
}

impl<C> Helper<C> {
    /// Has the helper run `operation`, unless nobody has the answer any longer when its turn comes:
    /// those that are given up must not pile up behind one that takes long.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&C) -> Result<T> + Send + 'static,
    ) -> Arc<Answer<T>> {
        let answer = Arc::new(Answer {
            result: Mutex::new(Rank::Leaf, None),
            end: Arc::default(),
        });
        let promise = Promise(answer.clone());
        self.push(Box::new(move |context| {
            if Arc::strong_count(&promise.0) == 1 {
                return;
            }
            let result = operation(context);
            promise.keep(result);
        }));
        answer
    }

    /// Loop of the helper's thread.
    pub(crate) fn run(&self, context: &C) {
        loop {
            let task = {
                let mut queue = self.queue.lock();
                let task = queue.tasks.pop_front();
                queue.running = task.is_some();
                if task.is_none() && queue.closed {
                    return;
                }
                task
            };
            if let Some(task) = task {
                task(context);
                continue;
            }
            self.wanted.register(&thread_waker());
            let queue = self.queue.lock();
            let sleeps = queue.tasks.is_empty() && !queue.closed;
            drop(queue);
            if sleeps {
                park();
            }
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use pando_sync::atomic::AtomicU64;
    use pando_sync::thread;

    use super::*;

    /// Of two operations the helper runs the one that somebody waits for.
    #[test]
    fn what_nobody_waits_for_does_not_begin() {
        let helper = Helper::<AtomicU64>::default();
        let runs = AtomicU64::new(0);
        let ask = || helper.ask(|runs: &AtomicU64| Ok(runs.fetch_add(1, Ordering::SeqCst)));
        let (given_up, wanted) = (ask(), ask());
        drop(given_up);
        thread::scope(|scope| {
            let running = scope.spawn(|| helper.run(&runs));
            while wanted.take().is_none() {
                thread::yield_now();
            }
            helper.close();
            running.join().unwrap();
        });
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}
