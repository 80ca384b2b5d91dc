//! Those who wait for pages that are being read.

use std::task::Waker;

use pando_format::PageId;
use pando_sync::atomic::{AtomicUsize, Ordering, fence};
use pando_sync::{Mutex, Woken};

const WAITER_SHARDS: usize = if cfg!(any(pando_loom, pando_shuttle)) {
    2
} else {
    64
};

/// Wakers of those that wait for pages being read, by page.
#[derive(Debug)]
pub(crate) struct LoadWaiters {
    shards: Box<[Shard]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Length of `waiting`, readable without the lock.
    count: AtomicUsize,
    waiting: Mutex<Vec<(PageId, Waker)>>,
}

impl LoadWaiters {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..WAITER_SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    /// False if it was registered already.
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
        // SeqCst: pairs with the fence in wake. Either the waker is seen there, or the changed
        // page word is seen by the look that follows here.
        fence(Ordering::SeqCst);
        is_new
    }

    pub(crate) fn remove(&self, page: PageId, waker: &Waker) {
        let shard = &self.shards[page.index() % WAITER_SHARDS];
        let mut waiting = shard.waiting.lock();
        waiting.retain(|(known, other)| *known != page || !other.will_wake(waker));
        shard.count.store(waiting.len(), Ordering::Relaxed);
    }

    pub(crate) fn of(&self, page: PageId) -> Vec<Waker> {
        let waiting = self.shards[page.index() % WAITER_SHARDS].waiting.lock();
        let of_page = waiting.iter().filter(|(known, _)| *known == page);
        of_page.map(|(_, waker)| waker.clone()).collect()
    }

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
