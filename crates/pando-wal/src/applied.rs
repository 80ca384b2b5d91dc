//! Tracks up to which LSN batches are applied to the tree without a gap.
//!
//! LSNs enter the queue in order, under the tail's lock, and are marked in any order. `applied` is
//! the LSN at or below which every batch is marked. It only grows.

use std::collections::VecDeque;
use std::task::Waker;

use pando_format::Lsn;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, SequenceWaiters};

#[derive(Debug)]
struct Entry {
    lsn: u64,
    marked: bool,
}

/// See the module. A thread that checks for waiters only reads their cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Applied {
    /// Written under `queue`, read without it.
    applied: AtomicU64,
    /// LSNs that were reserved and are above `applied`, in order.
    queue: Mutex<VecDeque<Entry>>,
    waiters: SequenceWaiters,
}

impl Applied {
    /// Returns the state of a log whose records up to `start` are all applied.
    pub(crate) fn new(start: Lsn) -> Self {
        Self {
            applied: AtomicU64::new(start.0),
            queue: Mutex::new(Rank::AppliedQueue, VecDeque::new()),
            waiters: SequenceWaiters::new(),
        }
    }

    /// Enters `lsn`, which is greater than all earlier ones. The caller holds the tail's lock.
    pub(crate) fn reserve_in_order(&self, lsn: Lsn) {
        let mut queue = self.queue.lock();
        debug_assert!(queue.back().is_none_or(|entry| entry.lsn < lsn.0));
        queue.push_back(Entry {
            lsn: lsn.0,
            marked: false,
        });
    }

    /// Marks the batch of `lsn` as applied to the tree.
    ///
    /// # Panics
    /// When `lsn` was not reserved or is marked already.
    pub(crate) fn mark(&self, lsn: Lsn) {
        let mut queue = self.queue.lock();
        // Most batches are applied in the order of their records. The first of the queue is never
        // marked: it would have left it.
        if queue.front().is_none_or(|first| first.lsn != lsn.0) {
            let place = queue.binary_search_by(|entry| entry.lsn.cmp(&lsn.0));
            let entry = place.ok().and_then(|place| queue.get_mut(place));
            let entry = entry.expect("only a reserved batch is applied, and once");
            assert!(!entry.marked, "{lsn} is applied twice");
            entry.marked = true;
            return;
        }
        queue.pop_front();
        let mut reached = lsn.0;
        while let Some(next) = queue.front().filter(|next| next.marked) {
            reached = next.lsn;
            queue.pop_front();
        }
        // Relaxed: only written under the lock, which this thread holds.
        let before = self.applied.load(Ordering::Relaxed);
        debug_assert!(before < reached, "applied only grows");
        debug_assert!(queue.front().is_none_or(|next| next.lsn > reached));
        // Release: pairs with the Acquire in applied. Stored under the lock, so that it only grows.
        self.applied.store(reached, Ordering::Release);
        drop(queue);
        self.waiters.notify(reached);
    }

    /// Returns the LSN at or below which every batch is applied to the tree.
    #[inline]
    pub(crate) fn applied(&self) -> Lsn {
        // Acquire: pairs with the Release in mark, so the caller sees the changes of these batches.
        Lsn(self.applied.load(Ordering::Acquire))
    }

    /// Returns true if `applied` has reached `lsn`. Otherwise `waker` is woken when it does.
    pub(crate) fn request(&self, lsn: Lsn, waker: &Waker) -> bool {
        if self.applied() >= lsn {
            return true;
        }
        self.waiters.register(lsn.0, waker);
        self.applied() >= lsn
    }

    /// Wakes all waiters, because the log is poisoned.
    pub(crate) fn wake_all(&self) {
        self.waiters.notify(u64::MAX);
    }
}
