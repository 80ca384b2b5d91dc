//! In which order locks are taken: the one list of ranks, and the check that it is kept.
//!
//! A thread that holds a lock waits for locks of later ranks only: then no two threads can wait for
//! each other. Debug builds check that whenever a lock is waited for; release builds keep no rank,
//! and the model checkers find what it forbids as a deadlock. [`crate::Mutex::try_lock`] never
//! waits, so it may come out of turn; what it has taken counts for the locks behind it.
//!
//! The reasons for the order are in `crates/pandodb/ARCHITECTURE.md`, "Lock order", whose numbers
//! stand here, too.

/// What a lock guards. Who holds one takes later ones only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// 0: of whoever calls a store; whole operations run under it. None of the engine's own.
    Caller,
    /// 0: the listener of a recovery, while it is called.
    RecoveryListener,
    /// 1: a whole compaction, or the end of a store.
    Compacting,
    /// 1: the files of checkpoints, for a whole checkpoint.
    CheckpointFiles,
    /// 3: who closes the gate.
    GateClosing,
    /// 3: the reads in flight of an event loop; tried inside the gate.
    Reads,
    /// 5: a sync of the data file.
    DataSync,
    /// 5: log files that are being made.
    LogPreparation,
    /// 5: the end of the log in memory.
    LogTail,
    /// 5: batches that are appended and not yet applied.
    AppliedQueue,
    /// 6: the length of the data file.
    FileLength,
    /// 6: what is discarded of the data file.
    Discards,
    /// 6: where the lowest free places may be.
    LowCursor,
    /// 6: the number of blocks.
    SpaceResizing,
    /// 6: a core's magazine of extents, while it is filled or emptied.
    MagazineFilling,
    /// 6: one group of blocks.
    BlockGroup,
    /// 7: images of pages whose writes have begun.
    StartedImages,
    /// 7: buffers for images of pages.
    ImageBuffers,
    /// 8: a file of the device in memory, around one of its pieces.
    MemoryFile,
    /// 8: anything under which nothing is locked.
    Leaf,
}

pub(crate) use check::{Holding, Ranked};

#[cfg(all(debug_assertions, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod check {
    use std::cell::Cell;

    use super::Rank;

    const RANKS: usize = Rank::Leaf as usize + 1;

    thread_local! {
        /// How many locks of each rank the thread holds.
        static HELD: [Cell<u32>; RANKS] = const { [const { Cell::new(0) }; RANKS] };
    }

    /// The rank of a lock.
    #[derive(Debug)]
    pub(crate) struct Ranked(Rank);

    impl Ranked {
        pub(crate) fn new(rank: Rank) -> Self {
            Self(rank)
        }

        /// The thread is about to wait for the lock.
        #[track_caller]
        pub(crate) fn check(&self) {
            // A thread that ends counts no more.
            let _ = HELD.try_with(|held| {
                let same_or_later = &held[self.0 as usize..];
                let last = same_or_later.iter().rposition(|count| count.get() > 0);
                // One that unwinds has told what is wrong.
                if let Some(place) = last.filter(|_| !std::thread::panicking()) {
                    let later = place + self.0 as usize;
                    panic!(
                        "{:?} (rank {}) is waited for with a lock of rank {later} in hand",
                        self.0, self.0 as usize
                    );
                }
            });
        }

        /// The thread has taken the lock.
        pub(crate) fn taken(&self) -> Holding {
            let _ = HELD.try_with(|held| {
                let count = &held[self.0 as usize];
                count.set(count.get() + 1);
            });
            Holding(self.0)
        }
    }

    /// A lock that the thread holds, until dropped.
    #[derive(Debug)]
    pub(crate) struct Holding(Rank);

    impl Holding {
        /// What is given up for a while and taken again behind [`Ranked::check`].
        pub(crate) fn ranked(&self) -> Ranked {
            Ranked(self.0)
        }
    }

    impl Drop for Holding {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let count = &held[self.0 as usize];
                count.set(count.get() - 1);
            });
        }
    }
}

/// The same where nothing is checked.
#[cfg(not(all(debug_assertions, not(any(pando_loom, pando_shuttle, pando_audit)))))]
mod check {
    use super::Rank;

    #[derive(Debug)]
    pub(crate) struct Ranked;

    impl Ranked {
        #[inline]
        pub(crate) fn new(_rank: Rank) -> Self {
            Self
        }

        #[inline]
        pub(crate) fn check(&self) {}

        #[inline]
        pub(crate) fn taken(&self) -> Holding {
            Holding
        }
    }

    #[derive(Debug)]
    pub(crate) struct Holding;

    impl Holding {
        #[inline]
        pub(crate) fn ranked(&self) -> Ranked {
            Ranked
        }
    }

    // No byte of a lock is spent on it.
    const _: () = assert!(size_of::<Ranked>() == 0 && size_of::<Holding>() == 0);
}

#[cfg(all(
    test,
    debug_assertions,
    not(any(pando_loom, pando_shuttle, pando_audit))
))]
mod tests {
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

    #[test]
    #[should_panic(expected = "Compacting (rank 2) is waited for with a lock of rank 8")]
    fn an_earlier_lock_under_a_later_one_panics() {
        let (compacting, tail) = (
            Mutex::new(Rank::Compacting, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let _tail = tail.lock();
        let _compacting = compacting.lock();
    }

    #[test]
    #[should_panic(expected = "Leaf (rank 19) is waited for with a lock of rank 19")]
    fn a_leaf_under_a_leaf_panics() {
        let (one, other) = (Mutex::new(Rank::Leaf, ()), RwLock::new(Rank::Leaf, ()));
        let _one = one.lock();
        let _other = other.read();
    }

    #[test]
    #[should_panic(expected = "is waited for with a lock of rank 19")]
    fn a_writer_is_checked_too() {
        let (leaf, file) = (
            Mutex::new(Rank::Leaf, ()),
            RwLock::new(Rank::MemoryFile, ()),
        );
        let _leaf = leaf.lock();
        let _file = file.write();
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
    #[should_panic(expected = "DataSync (rank 6) is waited for with a lock of rank 8")]
    fn what_was_tried_counts_for_those_behind_it() {
        let (sync, tail) = (
            Mutex::new(Rank::DataSync, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let _tail = tail.try_lock();
        let _sync = sync.lock();
    }

    /// Who waits for a condition holds the lock no more, and takes it again behind a check.
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
    #[should_panic(expected = "DataSync (rank 6) is waited for")]
    fn a_condition_waited_for_with_a_later_lock_in_hand_panics() {
        let (sync, tail) = (
            Mutex::new(Rank::DataSync, ()),
            Mutex::new(Rank::LogTail, ()),
        );
        let guard = sync.lock();
        let _tail = tail.lock();
        let short = std::time::Duration::from_millis(1);
        let _guard = Condvar::new().wait_timeout(guard, short);
    }
}
