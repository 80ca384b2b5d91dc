//! Free page ids. Freed ids are reused first, then comes the next id that was never used.

use pando_format::PageId;
use pando_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pando_sync::{CachePadded, Mutex, Rank};

/// The free page ids.
#[derive(Debug)]
pub struct PageIds {
    /// Ids that were used and freed. The last one is taken first.
    free: Mutex<Vec<u32>>,
    /// The first id that was never used; all greater ones were not either. Written under `free`,
    /// read without it.
    next: AtomicU32,
    limit: u32,
    /// Number of ids that can still be taken. Written under `free`. It has cache lines of its own,
    /// since every commit reads it.
    available: CachePadded<AtomicU64>,
}

impl PageIds {
    /// Makes the ids below `limit`, none of which is taken; [`PageId::NONE`] is never an id.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(PageId::NONE.0);
        Self {
            free: Mutex::new(Rank::Leaf, Vec::new()),
            next: AtomicU32::new(0),
            limit,
            available: CachePadded(AtomicU64::new(u64::from(limit))),
        }
    }

    /// Returns one past the largest id in use or in the free list.
    pub fn high_water(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the number of ids that there are, used or not.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of ids that can still be taken. A caller that has seen other reservations
    /// end sees the ids taken under them counted. Takes no lock.
    pub fn available(&self) -> u64 {
        // Relaxed: an operation that takes an id ends its reservation afterwards, and that has an
        // ordering of its own.
        self.available.load(Ordering::Relaxed)
    }

    /// Updates `available` after a change of `free` or `next`.
    fn count(&self, free: &[u32]) {
        let unused = u64::from(self.limit - self.next.load(Ordering::Relaxed));
        let count = free.len() as u64 + unused;
        // Relaxed: stored under the lock, so the last store is the newest count; see available.
        self.available.store(count, Ordering::Relaxed);
    }

    /// Forgets the free ids above the largest used one, and sorts the others so that the smallest
    /// is taken first. Returns one past the largest used id.
    pub fn trim(&self) -> u32 {
        let mut free = self.free.lock();
        free.sort_unstable_by(|one, two| two.cmp(one));
        let mut next = self.next.load(Ordering::Relaxed);
        let top = free.iter().take_while(|id| {
            let is_last = **id + 1 == next;
            next -= u32::from(is_last);
            is_last
        });
        let top = top.count();
        free.drain(..top);
        self.next.store(next, Ordering::Relaxed);
        self.count(&free);
        next
    }

    /// Takes a free id, None when the limit is reached.
    pub(crate) fn take(&self) -> Option<PageId> {
        let mut free = self.free.lock();
        if let Some(id) = free.pop() {
            self.count(&free);
            return Some(PageId(id));
        }
        let next = self.next.load(Ordering::Relaxed);
        if next >= self.limit {
            return None;
        }
        self.next.store(next + 1, Ordering::Relaxed);
        self.count(&free);
        Some(PageId(next))
    }

    /// Gives back an id whose page word is free.
    pub(crate) fn give_back(&self, page: PageId) {
        let mut free = self.free.lock();
        free.push(page.0);
        self.count(&free);
    }

    /// At open: makes the ids below `high_water` free for which `used` is false.
    pub(crate) fn restore(&self, high_water: u32, used: impl Fn(PageId) -> bool) {
        let mut free = self.free.lock();
        assert!(
            free.is_empty() && self.high_water() == 0,
            "restored once, before any use"
        );
        self.next.store(high_water, Ordering::Relaxed);
        free.extend((0..high_water).rev().filter(|id| !used(PageId(*id))));
        self.count(&free);
    }
}
