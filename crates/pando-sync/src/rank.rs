//! The order in which locks are taken: the only list of ranks, and the check of the order.
//!
//! A thread that holds a lock waits only for locks of later ranks, so no two threads can wait for
//! each other. Debug builds check that before each wait for a lock. Release builds store no rank,
//! and the model checkers report violations as deadlocks. [`crate::Mutex::try_lock`] never waits,
//! so it may be called out of order; a lock taken by it counts for later locks.
//!
//! The reasons for the order are in `crates/pandodb/ARCHITECTURE.md`, "Lock order", whose numbers
//! stand here, too.

/// What a lock guards. A thread that holds a lock takes only later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// 0: locks of callers of a store, which hold them during whole operations. The engine has none
    /// of this rank.
    Caller,
    /// 0: the listener of a recovery, while it is called.
    RecoveryListener,
    /// 1: held for a whole compaction, or while a store is closed.
    Compacting,
    /// 1: the files of checkpoints, for a whole checkpoint.
    CheckpointFiles,
    /// 1: locks that wakers of callers take. The thread that makes checkpoints calls wakers with
    /// the one before in hand; no thread does with a later one.
    Waker,
    /// 3: the closer of the gate.
    GateClosing,
    /// 3: the reads in flight of an event loop; tried inside the gate.
    Reads,
    /// 4: waits for locks of transactions, while one begins.
    LockGraph,
    /// 4: the locks of some stripes (`LockTable` of pandodb).
    LockShard,
    /// 5: a sync of the data file.
    DataSync,
    /// 5: log files that are being made.
    LogPreparation,
    /// 5: the end of the log in memory.
    LogTail,
    /// 5: batches that are appended and not yet applied.
    AppliedQueue,
    /// 6: the length of the data file (`sizing` of pandodb's `SpaceKeeper`).
    FileLength,
    /// 6: the files that are kept for the next merge of the mapping (`MappingReserve`).
    MappingReserve,
    /// 6: the discarded parts of the data file (`Discards`).
    Discards,
    /// 6: where the lowest free places may be (`low_cursor` of `SpaceKeeper`).
    LowCursor,
    /// 6: the number of blocks (`resizing` of pando-space's `Space`).
    SpaceResizing,
    /// 6: a core's magazine of extents, while it is filled or emptied (`Magazine`).
    MagazineFilling,
    /// 6: the free blocks of one group (`Slot::group` of `Space`).
    BlockGroup,
    /// 7: images of pages whose writes have begun.
    StartedImages,
    /// 7: buffers for images of pages.
    ImageBuffers,
    /// 8: a file of the device in memory, around one of its pieces.
    MemoryFile,
    /// 8: the turn of the one who publishes events of keys.
    Notifying,
    /// 8: the subscribers of some channels of the server, or its monitors, while a message goes to
    /// them.
    Channels,
    /// 8: the subscribers of its patterns, inside the one before.
    Patterns,
    /// 8: the open engine of the server, while its durability is changed.
    ServedEngine,
    /// 8: any lock under which no other lock is taken.
    Leaf,
}

pub(crate) use check::{Holding, Ranked};

#[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod check {
    use std::cell::Cell;

    use super::Rank;

    const RANKS: usize = Rank::Leaf as usize + 1;

    thread_local! {
        /// Number of locks of each rank that the thread holds, and the rank once it has held one.
        static HELD: [Cell<(u32, Option<Rank>)>; RANKS] =
            const { [const { Cell::new((0, None)) }; RANKS] };
    }

    /// The rank of a lock.
    #[derive(Debug)]
    pub(crate) struct Ranked(Rank);

    impl Ranked {
        /// Makes the rank of one lock.
        pub(crate) fn new(rank: Rank) -> Self {
            Self(rank)
        }

        /// Panics if the thread, which is about to wait for this lock, holds a lock of the same
        /// rank or a later one.
        #[track_caller]
        pub(crate) fn check(&self) {
            // A thread that ends no longer counts.
            let _ = HELD.try_with(|held| {
                let same_or_later = held[self.0 as usize..].iter().map(Cell::get);
                let last = same_or_later.rev().find(|(count, _)| *count > 0);
                // A thread that unwinds has reported its problem already.
                if let Some((_, Some(later))) = last.filter(|_| !std::thread::panicking()) {
                    panic!(
                        "{:?} is waited for with {later:?} in hand, which is no earlier",
                        self.0
                    );
                }
            });
        }

        /// Counts the lock as taken by the thread.
        pub(crate) fn taken(&self) -> Holding {
            let _ = HELD.try_with(|held| {
                let place = &held[self.0 as usize];
                place.set((place.get().0 + 1, Some(self.0)));
            });
            Holding(self.0)
        }
    }

    /// A lock that the thread holds, until dropped.
    #[derive(Debug)]
    pub(crate) struct Holding(Rank);

    impl Holding {
        /// Returns the rank, for a lock that is released for a while and taken again after
        /// [`Ranked::check`].
        pub(crate) fn ranked(&self) -> Ranked {
            Ranked(self.0)
        }
    }

    impl Drop for Holding {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let place = &held[self.0 as usize];
                place.set((place.get().0 - 1, Some(self.0)));
            });
        }
    }
}

/// The same for builds that check nothing.
#[cfg(not(all(debug_assertions, not(any(pando_loom, pando_shuttle, pando_audit)))))]
mod check {
    use super::Rank;

    /// Takes no memory.
    #[derive(Debug)]
    pub(crate) struct Ranked;

    impl Ranked {
        /// Ignores the rank.
        #[inline]
        pub(crate) fn new(_rank: Rank) -> Self {
            Self
        }

        /// Checks nothing.
        #[inline]
        pub(crate) fn check(&self) {}

        /// Records nothing.
        #[inline]
        pub(crate) fn taken(&self) -> Holding {
            Holding
        }
    }

    /// Takes no memory.
    #[derive(Debug)]
    pub(crate) struct Holding;

    impl Holding {
        /// Returns a rank that is not checked.
        #[inline]
        pub(crate) fn ranked(&self) -> Ranked {
            Ranked
        }
    }

    // Ranks take no memory in these builds.
    const _: () = assert!(size_of::<Ranked>() == 0 && size_of::<Holding>() == 0);
}

#[cfg(all(
    test,
    debug_assertions,
    not(any(pando_loom, pando_shuttle, pando_audit))
))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Rank;
    use crate::{Condvar, Mutex, RwLock};

    #[test]
    fn locks_in_order_are_taken_and_given_back_in_any() {
        let first = Mutex::new(Rank::Compacting, 1);
        let second = Mutex::new(Rank::LogTail, 2);
        let leaf = RwLock::new(Rank::Leaf, 3);
        for _ in 0..2 {
            let one = first.lock();
            let two = second.lock();
            drop(one);
            let three = leaf.read();
            drop(two);
            assert_eq!(*three, 3);
        }
        drop(leaf.write());
        drop(second.lock());
        drop(first.lock());
    }

    /// Waits for a lock as `wait` does, and requires the panic that names `waited_for` and the
    /// latest lock in hand.
    fn is_refused(waited_for: Rank, in_hand: Rank, wait: impl FnOnce()) {
        let refusal = catch_unwind(AssertUnwindSafe(wait)).expect_err("the wait is out of order");
        let expected =
            format!("{waited_for:?} is waited for with {in_hand:?} in hand, which is no earlier");
        assert_eq!(refusal.downcast_ref(), Some(&expected));
    }

    #[test]
    fn an_earlier_lock_under_a_later_one_panics() {
        let (compacting, tail) = (
            Mutex::new(Rank::Compacting, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let _tail = tail.lock();
        is_refused(Rank::Compacting, Rank::LogTail, || drop(compacting.lock()));
    }

    #[test]
    fn a_leaf_under_a_leaf_panics() {
        let (one, other) = (Mutex::new(Rank::Leaf, ()), RwLock::new(Rank::Leaf, ()));
        let _one = one.lock();
        is_refused(Rank::Leaf, Rank::Leaf, || drop(other.read()));
    }

    #[test]
    fn a_writer_is_checked_too() {
        let (leaf, file) = (
            Mutex::new(Rank::Leaf, ()),
            RwLock::new(Rank::MemoryFile, ()),
        );
        let _leaf = leaf.lock();
        is_refused(Rank::MemoryFile, Rank::Leaf, || drop(file.write()));
    }

    #[test]
    fn one_that_is_tried_may_come_out_of_turn() {
        let (early, late) = (Mutex::new(Rank::Reads, ()), Mutex::new(Rank::LogTail, ()));
        let _late = late.lock();
        assert!(early.try_lock().is_some());
        assert!(
            late.try_lock().is_none(),
            "and is not counted when it is not taken"
        );
    }

    #[test]
    fn what_was_tried_counts_for_those_behind_it() {
        let (sync, tail) = (
            Mutex::new(Rank::DataSync, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let _tail = tail.try_lock();
        is_refused(Rank::DataSync, Rank::LogTail, || drop(sync.lock()));
    }

    /// A thread that waits for a condition does not hold the lock, and takes it again after a
    /// check.
    #[test]
    fn a_condition_gives_the_lock_up_for_a_while() {
        let (leaf, changed) = (Mutex::new(Rank::Leaf, ()), Condvar::new());
        let short = std::time::Duration::from_millis(1);
        let guard = changed.wait_timeout(leaf.lock(), short);
        drop(guard);
        let guard = leaf.lock();
        drop(guard);
    }

    #[test]
    fn a_condition_waited_for_with_a_later_lock_in_hand_panics() {
        let (sync, tail) = (
            Mutex::new(Rank::DataSync, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let guard = sync.lock();
        let _tail = tail.lock();
        let short = std::time::Duration::from_millis(1);
        let changed = Condvar::new();
        is_refused(Rank::DataSync, Rank::LogTail, || {
            drop(changed.wait_timeout(guard, short));
        });
    }
}
