//! Waiters for pages that are being read.

use std::task::Waker;

use pando_format::PageId;
use pando_sync::atomic::{AtomicUsize, Ordering, fence};
use pando_sync::{Mutex, Woken};

const WAITER_SHARDS: usize = if cfg!(any(pando_loom, pando_shuttle)) {
    2
} else {
    64
};

/// Wakers of waiters for pages that are being read, sharded by page.
#[derive(Debug)]
pub(crate) struct LoadWaiters {
    shards: Box<[Shard]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Length of `waiting`. Written under its lock, read without it.
    count: AtomicUsize,
    waiting: Mutex<Vec<(PageId, Waker)>>,
}

impl LoadWaiters {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..WAITER_SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// Registers `waker` for `page`. Returns false if it was registered already.
    pub(crate) fn register(&self, page: PageId, waker: &Waker) -> bool {
        let shard = &self.shards[page.index() % WAITER_SHARDS];
        let mut waiting = shard.waiting.lock();
        let is_new = !waiting
            .iter()
            .any(|(known, other)| *known == page && other.will_wake(waker));
        if is_new {
            waiting.push((page, waker.clone()));
        }
        shard.count.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        // SeqCst: pairs with the fence in wake. Either wake sees the waker, or the caller's next
        // load of the page word sees the change.
        fence(Ordering::SeqCst);
        is_new
    }

    /// Removes `waker` from the waiters of `page`.
    pub(crate) fn remove(&self, page: PageId, waker: &Waker) {
        let shard = &self.shards[page.index() % WAITER_SHARDS];
        let mut waiting = shard.waiting.lock();
        waiting.retain(|(known, other)| *known != page || !other.will_wake(waker));
        shard.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Returns the wakers registered for `page`.
    pub(crate) fn of(&self, page: PageId) -> Vec<Waker> {
        let waiting = self.shards[page.index() % WAITER_SHARDS].waiting.lock();
        let of_page = waiting.iter().filter(|(known, _)| *known == page);
        of_page.map(|(_, waker)| waker.clone()).collect()
    }

    /// Wakes and removes all waiters of `page`. The caller has changed the page word before.
    pub(crate) fn wake(&self, page: PageId) {
        let shard = &self.shards[page.index() % WAITER_SHARDS];
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        if shard.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        loop {
            let mut woken = Woken::default();
            {
                let mut waiting = shard.waiting.lock();
                let taken = waiting.extract_if(.., |(other, _)| *other == page);
                woken.fill(taken.take(Woken::MAX).map(|(_, waker)| waker));
                shard.count.store(waiting.len(), Ordering::Relaxed);
            }
            if !woken.wake() {
                return;
            }
        }
    }
}
