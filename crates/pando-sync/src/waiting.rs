//! Waiting: lists of wakers, almost free when nobody waits.
//!
//! Every waiter in the engine registers a [`Waker`] and checks its condition again: a blocking
//! thread registers [`thread_waker`] and calls [`park`], an event loop registers the waker of the
//! connection, a future the waker of its task.
//!
//! # The ordering argument
//!
//! Waiter: register (count += 1 under the lock); `fence(SeqCst)`; read the condition; park.
//!
//! Notifier: change the condition; `fence(SeqCst)`; read the count; wake if it is not zero.
//!
//! One of the two fences comes first in the single total order. If it is the waiter's, the notifier
//! reads a count that includes the waiter, and wakes it. If it is the notifier's, the waiter's read
//! sees the changed condition. Without either fence both may read the old value, which is the lost
//! wake-up.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::held::{Kind, assert_none};
use crate::lock::Mutex;
use crate::rank::Rank;
use crate::thread::{self, Thread};

struct ThreadWake(Thread);

impl Wake for ThreadWake {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that ends the [`park`] of the calling thread. Each thread makes it once, and
/// again for each call when it ends and has forgotten it: what it keeps of others may still wait.
pub fn thread_waker() -> Waker {
    #[cfg(not(any(pando_loom, pando_shuttle)))]
    {
        thread_local! {
            static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
        }
        let make = || Waker::from(Arc::new(ThreadWake(thread::current())));
        WAKER
            .try_with(|cell| cell.borrow_mut().get_or_insert_with(make).clone())
            .unwrap_or_else(|_| make())
    }
    #[cfg(any(pando_loom, pando_shuttle))]
    {
        let _: Option<RefCell<()>> = None;
        Waker::from(Arc::new(ThreadWake(thread::current())))
    }
}

/// Blocks the thread until its [`thread_waker`] is woken. May return early, so callers check their
/// condition again. The caller holds no latch.
pub fn park() {
    assert_none(&[Kind::Latch]);
    thread::park();
}

/// Wakes `waker`. A panic in it ends here: it is that of whoever registered it, and the caller has
/// others to wake, and work of its own to go on with. The panic hook has told of it.
#[cfg(not(any(pando_loom, pando_shuttle)))]
pub fn wake(waker: Waker) {
    let waking = std::panic::AssertUnwindSafe(|| waker.wake());
    let _panicked = std::panic::catch_unwind(waking);
}

/// Wakes `waker`. Models see its panic.
#[cfg(any(pando_loom, pando_shuttle))]
pub fn wake(waker: Waker) {
    waker.wake();
}

/// Maximum number of wakers that are taken off a list while its lock is held once.
const WOKEN_MAX: usize = 16;

/// Wakers that were taken off a list under its lock, to be woken without it. Taking a few at a time
/// avoids an allocation.
#[derive(Debug, Default)]
pub struct Woken {
    wakers: [Option<Waker>; WOKEN_MAX],
}

impl Woken {
    /// Maximum number of wakers in one of these.
    pub const MAX: usize = WOKEN_MAX;

    /// Takes over `wakers`, of which there are at most [`Woken::MAX`].
    pub fn fill(&mut self, wakers: impl Iterator<Item = Waker>) {
        for (place, waker) in self.wakers.iter_mut().zip(wakers) {
            *place = Some(waker);
        }
    }

    /// Wakes them and becomes empty. Returns true if it was full, when there may be more wakers on
    /// the list.
    pub fn wake(&mut self) -> bool {
        let full = self.wakers.iter().all(Option::is_some);
        self.wakers
            .iter_mut()
            .filter_map(Option::take)
            .for_each(wake);
        full
    }
}

/// Wakers of all waiters for one condition.
#[derive(Debug, Default)]
pub struct WaitList {
    /// Length of `waiting`. Written under its lock, read without it.
    count: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

impl WaitList {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            waiting: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `waker`, unless it is on the list already. The caller checks the condition *after* this
    /// returns.
    pub fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.count.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        // SeqCst: pairs with the fence in notify_all and notify_one; see the module's argument.
        fence(Ordering::SeqCst);
    }

    /// Returns whether somebody may wait. The caller has changed the condition before.
    #[inline]
    fn somebody_waits(&self) -> bool {
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Wakes all waiters that registered before the condition changed. The caller has changed it
    /// before.
    #[inline]
    pub fn notify_all(&self) {
        if self.somebody_waits() {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let mut left = self.waiting.lock().len();
        while left > 0 {
            let mut woken = Woken::default();
            {
                let mut waiting = self.waiting.lock();
                let count = left.min(waiting.len()).min(WOKEN_MAX);
                woken.fill(waiting.drain(..count));
                self.count.store(waiting.len(), Ordering::Relaxed);
                // Other notifiers may have taken some wakers, and wake them.
                left = if count == 0 { 0 } else { left - count };
            }
            woken.wake();
        }
    }

    /// Removes all waiters from the list without waking them.
    pub fn forget_all(&self) {
        if self.count.load(Ordering::Relaxed) != 0 {
            let mut waiting = self.waiting.lock();
            waiting.clear();
            self.count.store(0, Ordering::Relaxed);
        }
    }

    /// Wakes the waiter that has waited longest.
    #[inline]
    pub fn notify_one(&self) {
        if self.somebody_waits() {
            let first = {
                let mut waiting = self.waiting.lock();
                let first = if waiting.is_empty() {
                    None
                } else {
                    Some(waiting.remove(0))
                };
                self.count.store(waiting.len(), Ordering::Relaxed);
                first
            };
            if let Some(waker) = first {
                wake(waker);
            }
        }
    }
}

/// Wakers of waiters that each wait until a growing number reaches their target.
#[derive(Debug, Default)]
pub struct SequenceWaiters {
    /// Length of `waiting`. Written under its lock, read without it.
    count: AtomicUsize,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl SequenceWaiters {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            waiting: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `waker`, to be woken when the number reaches `target`. The caller reads the number
    /// *after* this returns.
    pub fn register(&self, target: u64, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        match waiting.iter_mut().find(|(_, known)| known.will_wake(waker)) {
            Some(entry) => entry.0 = entry.0.min(target),
            None => waiting.push((target, waker.clone())),
        }
        self.count.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        // SeqCst: pairs with the fence in notify; see the module's argument.
        fence(Ordering::SeqCst);
    }

    /// Wakes all waiters whose target is at most `reached`. The caller has published the number
    /// before.
    #[inline]
    pub fn notify(&self, reached: u64) {
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) != 0 {
            self.wake_up_to(reached);
        }
    }

    #[cold]
    fn wake_up_to(&self, reached: u64) {
        loop {
            let mut woken = Woken::default();
            {
                let mut waiting = self.waiting.lock();
                let reached = |(target, _): &mut (u64, Waker)| *target <= reached;
                let taken = waiting.extract_if(.., reached).map(|(_, waker)| waker);
                woken.fill(taken.take(WOKEN_MAX));
                self.count.store(waiting.len(), Ordering::Relaxed);
            }
            if !woken.wake() {
                return;
            }
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::AtomicBool;

    #[test]
    fn a_registered_thread_is_woken() {
        let list = Arc::new(WaitList::new());
        let ready = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let (list, ready) = (list.clone(), ready.clone());
            move || {
                loop {
                    list.register(&thread_waker());
                    if ready.load(Ordering::Acquire) {
                        return;
                    }
                    park();
                }
            }
        });
        ready.store(true, Ordering::Release);
        while !waiter.is_finished() {
            list.notify_all();
            thread::yield_now();
        }
        waiter.join().unwrap();
    }

    #[test]
    fn sequence_waiters_wake_only_those_reached() {
        let waiters = SequenceWaiters::new();
        waiters.register(10, &thread_waker());
        waiters.notify(9);
        assert_eq!(waiters.waiting.lock().len(), 1);
        waiters.notify(10);
        assert_eq!(waiters.waiting.lock().len(), 0);
    }
}
