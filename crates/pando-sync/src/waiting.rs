//! Waiting: lists of wakers that cost nothing when nobody waits.
//!
//! Everything that waits in the engine registers a [`Waker`] and looks again: a blocking thread
//! registers [`thread_waker`] and calls [`park`], an event loop registers the waker of the
//! connection, a future the waker of its task.
//!
//! # The ordering argument
//!
//! Waiter:   register (count += 1 under the lock); `fence(SeqCst)`; look at the condition; park.
//! Notifier: change the condition; `fence(SeqCst)`; read the count; wake if it is not zero.
//!
//! Of the two fences one comes first in the single total order. If the waiter's does, the notifier
//! reads a count that includes it and wakes it. If the notifier's does, the waiter's look sees the
//! changed condition. Without either fence both may read the old value: the lost wake-up.

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

/// A waker that ends the [`park`] of the calling thread. Made once for each thread.
pub fn thread_waker() -> Waker {
    #[cfg(not(any(pando_loom, pando_shuttle)))]
    {
        thread_local! {
            static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
        }
        WAKER.with(|cell| {
            cell.borrow_mut()
                .get_or_insert_with(|| Waker::from(Arc::new(ThreadWake(thread::current()))))
                .clone()
        })
    }
    #[cfg(any(pando_loom, pando_shuttle))]
    {
        let _: Option<RefCell<()>> = None;
        Waker::from(Arc::new(ThreadWake(thread::current())))
    }
}

/// Blocks the thread until its [`thread_waker`] is woken; may return early, so callers look again.
/// The caller holds no latch.
pub fn park() {
    assert_none(&[Kind::Latch]);
    thread::park();
}

/// Wakers that are taken off a list under one hold of its lock.
const WOKEN_MAX: usize = 16;

/// Wakers taken off a list under its lock, to be woken without it: some at a time, so that no
/// memory is allocated for them.
#[derive(Debug, Default)]
pub struct Woken {
    wakers: [Option<Waker>; WOKEN_MAX],
}

impl Woken {
    /// Most wakers that one holds.
    pub const MAX: usize = WOKEN_MAX;

    /// Takes over `wakers`, of which there are at most [`Woken::MAX`].
    pub fn fill(&mut self, wakers: impl Iterator<Item = Waker>) {
        for (place, waker) in self.wakers.iter_mut().zip(wakers) {
            *place = Some(waker);
        }
    }

    /// Wakes them. True if it was full: there may be more to take off the list.
    pub fn wake(&mut self) -> bool {
        let full = self.wakers.iter().all(Option::is_some);
        for waker in self.wakers.iter_mut().filter_map(Option::take) {
            waker.wake();
        }
        full
    }
}

/// Wakers of those that wait for one condition.
#[derive(Debug, Default)]
pub struct WaitList {
    /// Length of `waiting`, readable without the lock.
    count: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

impl WaitList {
    /// A list nobody waits in.
    pub fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            waiting: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `waker` (once). The caller looks at the condition *after* this returns.
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

    /// True if somebody may wait. The caller has changed the condition before.
    #[inline]
    fn somebody_waits(&self) -> bool {
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Wakes everybody who registered before the condition changed.
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
                // Others may have taken some: they wake them.
                left = if count == 0 { 0 } else { left - count };
            }
            woken.wake();
        }
    }

    /// Takes everybody off the list, without waking anybody.
    pub fn forget_all(&self) {
        if self.count.load(Ordering::Relaxed) != 0 {
            let mut waiting = self.waiting.lock();
            waiting.clear();
            self.count.store(0, Ordering::Relaxed);
        }
    }

    /// Wakes the one that waits longest.
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
                waker.wake();
            }
        }
    }
}

/// Wakers of those that wait until a growing number has reached theirs.
#[derive(Debug, Default)]
pub struct SequenceWaiters {
    count: AtomicUsize,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl SequenceWaiters {
    /// A list nobody waits in.
    pub fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            waiting: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `waker`, to be woken when the number reaches `target`. The caller looks at the number
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

    /// Wakes everybody whose number is at most `reached`. The caller has published it before.
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
