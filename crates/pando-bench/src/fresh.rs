//! Numbers of keys that are inserted while others read: each thread has numbers of its own.
//!
//! The row-th insert of thread t of T is key `start + row * T + t`, so no counter is shared. Each
//! thread publishes in a cache line of its own how many keys it has inserted. Others read these
//! lines once in [`LOOK_CALLS`] calls, so that they know of each key after a while, and of their
//! own keys at once. A key that a view knows is in the store, and a read that does not find it is
//! wrong.

use pando_format::cast::usize_of;
use pando_sync::CachePadded;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::random::Random;

/// Number of calls between two reads of the other threads' counts.
const LOOK_CALLS: u32 = 64;

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// The first number.
    start: u64,
    /// Number of keys that each thread has inserted; written by that thread alone.
    done: Vec<CachePadded<AtomicU64>>,
}

impl Fresh {
    /// Creates numbers from `start` on, for `threads` threads.
    pub(crate) fn new(start: u64, threads: usize) -> Self {
        Self {
            start,
            done: (0..threads).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Returns the first number that no thread has used.
    pub(crate) fn end(&self) -> u64 {
        // Relaxed: the threads have ended.
        let rows = self.done.iter().map(|done| done.load(Ordering::Relaxed));
        self.number(rows.max().unwrap_or(0), 0)
    }

    fn number(&self, row: u64, thread: usize) -> u64 {
        self.start + row * self.done.len() as u64 + thread as u64
    }
}

/// What one thread knows of the inserted keys.
#[derive(Debug)]
pub(crate) struct View<'a> {
    fresh: &'a Fresh,
    thread: usize,
    /// Number of keys that each thread has inserted, as far as this thread knows.
    counts: Vec<u64>,
    total: u64,
    calls_left: u32,
}

impl<'a> View<'a> {
    /// Returns the view of thread `thread`, which knows of no inserted key.
    pub(crate) fn new(fresh: &'a Fresh, thread: usize) -> Self {
        Self {
            fresh,
            thread,
            counts: vec![0; fresh.done.len()],
            total: 0,
            calls_left: 0,
        }
    }

    /// Reads the counts of the other threads, once in several calls.
    pub(crate) fn look(&mut self) {
        if let Some(left) = self.calls_left.checked_sub(1) {
            self.calls_left = left;
            return;
        }
        self.calls_left = LOOK_CALLS - 1;
        for (count, done) in self.counts.iter_mut().zip(&self.fresh.done) {
            // Acquire: pairs with the Release in `inserted`; the keys were put into the store
            // before that.
            *count = done.load(Ordering::Acquire);
        }
        self.total = self.counts.iter().sum();
    }

    /// Returns the number of the key that this thread inserts next.
    pub(crate) fn next(&self) -> u64 {
        self.fresh.number(self.counts[self.thread], self.thread)
    }

    /// Records that the key [`View::next`] is in the store.
    pub(crate) fn inserted(&mut self) {
        self.counts[self.thread] += 1;
        self.total += 1;
        // Release: pairs with the Acquire in `look`.
        self.fresh.done[self.thread].store(self.counts[self.thread], Ordering::Release);
    }

    /// Returns the number of known keys.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of the key at `rank`, counted from 0 for the newest. Ranks go round the
    /// threads, beginning with this one; returns `None` if the thread at this rank has no such key.
    pub(crate) fn newest(&self, rank: u64) -> Option<u64> {
        let threads = self.counts.len() as u64;
        let thread = usize_of((self.thread as u64 + rank) % threads);
        let row = self.counts[thread].checked_sub(rank / threads + 1)?;
        Some(self.fresh.number(row, thread))
    }

    /// Returns the number of a random known key, each with the same probability. There must be one.
    pub(crate) fn any(&self, random: &mut Random) -> u64 {
        let mut index = random.below(self.total);
        for (thread, count) in self.counts.iter().enumerate() {
            match index.checked_sub(*count) {
                Some(rest) => index = rest,
                None => return self.fresh.number(index, thread),
            }
        }
        unreachable!("an index below the sum of all counts")
    }

    /// Returns true if `number` is one that this workload inserts.
    pub(crate) fn is_fresh(&self, number: u64) -> bool {
        number >= self.fresh.start
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Fresh, LOOK_CALLS, View};
    use crate::random::Random;

    #[test]
    fn threads_number_their_own_and_nothing_comes_twice() {
        let fresh = Fresh::new(100, 3);
        let mut seen = BTreeSet::new();
        for (thread, inserts) in [(0, 2), (1, 5), (2, 0)] {
            let mut view = View::new(&fresh, thread);
            for _ in 0..inserts {
                assert!(seen.insert(view.next()));
                view.inserted();
            }
        }
        assert_eq!(seen, BTreeSet::from([100, 101, 103, 104, 107, 110, 113]));
        assert_eq!(fresh.end(), 115, "past the last row");
        assert_eq!(Fresh::new(7, 2).end(), 7);
    }

    #[test]
    fn own_keys_are_known_at_once_and_those_of_others_after_a_while() {
        let fresh = Fresh::new(10, 2);
        let (mut one, mut other) = (View::new(&fresh, 0), View::new(&fresh, 1));
        other.look();
        one.inserted();
        assert_eq!((one.total(), one.newest(0)), (1, Some(10)));
        for _ in 0..LOOK_CALLS - 1 {
            other.look();
        }
        assert_eq!((other.total(), other.newest(1)), (0, None));
        other.look();
        assert_eq!((other.total(), other.newest(1)), (1, Some(10)));
        assert_eq!(other.newest(0), None, "it has inserted none of its own");
    }

    /// A thread draws only keys that were inserted, and all of them.
    #[test]
    fn any_key_that_is_known_is_there() {
        let fresh = Fresh::new(0, 3);
        let mut all = BTreeSet::new();
        for thread in 0..3 {
            let mut view = View::new(&fresh, thread);
            for _ in 0..=thread {
                all.insert(view.next());
                view.inserted();
            }
        }
        let (mut view, mut random) = (View::new(&fresh, 0), Random::new(1, 1));
        view.look();
        let drawn: BTreeSet<_> = (0..500).map(|_| view.any(&mut random)).collect();
        assert_eq!(drawn, all);
        let newest: BTreeSet<_> = (0..9).filter_map(|rank| view.newest(rank)).collect();
        assert_eq!(newest, all);
    }
}
