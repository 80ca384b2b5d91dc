//! Ids that no page has: freed ones first, then the next that was never used.

use pando_format::PageId;
use pando_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pando_sync::{CachePadded, Mutex, Rank};

/// The free page ids.
#[derive(Debug)]
pub struct PageIds {
    free: Mutex<Vec<u32>>,
    /// Ids from here on were never used. Written under `free`; relaxed readers.
    next: AtomicU32,
    limit: u32,
    /// How many can still be taken. Written under `free`; on lines of its own, since each commit
    /// looks at it.
    available: CachePadded<AtomicU64>,
}

impl PageIds {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(PageId::NONE.0);
        Self {
            free: Mutex::new(Rank::Leaf, Vec::new()),
            next: AtomicU32::new(0),
            limit,
            available: CachePadded(AtomicU64::new(u64::from(limit))),
        }
    }

    /// One past the largest id ever used.
    pub fn high_water(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// How many ids can still be taken: at least what is left of them for whoever has seen the end
    /// of what others were reserved. Takes no lock.
    pub fn available(&self) -> u64 {
        // Relaxed: who takes an id ends its reservation afterwards, with an order of its own.
        self.available.load(Ordering::Relaxed)
    }

    /// `free` or `next` has changed.
    fn count(&self, free: &[u32]) {
        let unused = u64::from(self.limit - self.next.load(Ordering::Relaxed));
        let count = free.len() as u64 + unused;
        // Relaxed: under the lock, so that the last one stays; see available.
        self.available.store(count, Ordering::Relaxed);
    }

    /// Forgets the free ids behind the largest one that is used, and hands the least out first from
    /// here on. Returns one past the largest that is used.
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

    pub(crate) fn give_back(&self, page: PageId) {
        let mut free = self.free.lock();
        free.push(page.0);
        self.count(&free);
    }

    /// At open: ids below `high_water` for which `used` is false are free.
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
