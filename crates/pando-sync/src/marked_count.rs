//! A count whose falls somebody can wait for, and that costs nothing more while nobody waits.
//!
//! # The ordering argument
//!
//! The mark that somebody waits is the top bit of the count itself, so both are seen at the same
//! moment. Waiter: put the waker on the list; set the mark; read the count; park. Who lowers the
//! count gets the mark with the count before. Of the two read-modify-writes of one word one comes
//! first: if it is the waiter's, the other one sees the mark; if it is the one that lowers the
//! count, the waiter reads the lower count.
//!
//! Whoever sees the mark takes it away and then wakes the whole list. The mark was set after the
//! waker was put on the list (`Release` there, `Acquire` here), so no waker whose mark is taken
//! away is missed. A mark that is set in between stays, and the next fall wakes once more.
//!
//! Something beside the count may be waited for as well, as with a [`WaitList`]: the waiter sets
//! the mark, fences, and reads the other thing; who changes that fences and reads the mark, in
//! [`MarkedCount::tell`], afterwards.

use std::task::Waker;

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::waiting::WaitList;

/// Somebody may wait.
const MARK: u64 = 1 << 63;

/// A count, and those that wait until it is lower.
#[derive(Debug, Default)]
pub struct MarkedCount {
    /// The count, and [`MARK`].
    word: AtomicU64,
    waiters: WaitList,
}

impl MarkedCount {
    /// Returns the count.
    #[inline]
    pub fn get(&self) -> u64 {
        // SeqCst: callers look at other numbers before or afterwards.
        self.word.load(Ordering::SeqCst) & !MARK
    }

    /// Returns the count, unless somebody may wait.
    #[inline]
    pub fn get_unmarked(&self) -> Option<u64> {
        // SeqCst: as above.
        let word = self.word.load(Ordering::SeqCst);
        (word < MARK).then_some(word)
    }

    /// Adds `more`.
    ///
    /// # Panics
    /// When that is more than can be counted.
    #[inline]
    pub fn add(&self, more: u64) {
        let before = self.word.fetch_add(more, Ordering::SeqCst);
        if before.wrapping_add(more) >= MARK {
            assert!(more < MARK - (before & !MARK), "more than there can be");
        }
    }

    /// Takes `less` away, and wakes who waits. What the caller has done before is seen by whoever
    /// sees the lower count.
    ///
    /// # Panics
    /// When there is less.
    #[inline]
    pub fn take_away(&self, less: u64) {
        let before = self.word.fetch_sub(less, Ordering::SeqCst);
        // One look at both: there was less, or somebody waits.
        if before.wrapping_sub(less) >= MARK {
            assert!(before & !MARK >= less, "it was given back twice");
            self.wake();
        }
    }

    /// Wakes who waits. The caller has changed something else for which they wait.
    pub fn tell(&self) {
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        if self.get_unmarked().is_none() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // First the mark: see the module's argument.
        self.word.fetch_and(!MARK, Ordering::SeqCst);
        self.waiters.notify_all();
    }

    /// Has `waker` woken at the next fall. The caller looks at the count *after* this returns.
    pub fn register(&self, waker: &Waker) {
        self.waiters.register(waker);
        self.word.fetch_or(MARK, Ordering::SeqCst);
        // SeqCst: pairs with the fence in tell.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::Arc;
    use crate::atomic::AtomicU32;

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_fall_wakes_once_and_the_mark_is_not_counted() {
        let count = MarkedCount::default();
        count.add(3);
        let counted = Arc::new(Counted::default());
        let woken = || counted.0.load(Ordering::Relaxed);
        count.register(&Waker::from(counted.clone()));
        assert_eq!((count.get(), count.get_unmarked()), (3, None));
        count.add(4);
        assert_eq!((count.get(), woken()), (7, 0));
        count.take_away(2);
        assert_eq!((count.get_unmarked(), woken()), (Some(5), 1));
        count.take_away(5);
        count.tell();
        assert_eq!((count.get_unmarked(), woken()), (Some(0), 1));
        count.register(&Waker::from(counted.clone()));
        count.tell();
        assert_eq!((count.get_unmarked(), woken()), (Some(0), 2));
    }

    #[test]
    #[should_panic = "given back twice"]
    fn what_is_not_there_is_not_given_back() {
        let count = MarkedCount::default();
        count.add(1);
        count.take_away(2);
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-sync --lib marked_count`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use crate::{Arc, park, thread, thread_waker};

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn wait(is_over: impl Fn() -> bool, count: &MarkedCount) {
        let waker = thread_waker();
        while !is_over() {
            count.register(&waker);
            if is_over() {
                return;
            }
            park();
        }
    }

    /// Loom reports a schedule in which somebody waits for ever.
    #[test]
    fn each_waiter_is_woken() {
        check(|| {
            let count = Arc::new(MarkedCount::default());
            count.add(2);
            let waiters = [1, 2].map(|limit| {
                let count = count.clone();
                thread::spawn(move || wait(|| count.get() < limit, &count))
            });
            count.take_away(1);
            count.take_away(1);
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }

    /// As reservations of page ids, which have a count of their own.
    #[test]
    fn who_waits_for_another_number_is_told() {
        check(|| {
            let count = Arc::new(MarkedCount::default());
            let other = Arc::new(AtomicU64::new(1));
            let waiter = thread::spawn({
                let (count, other) = (count.clone(), other.clone());
                move || wait(|| other.load(Ordering::SeqCst) == 0, &count)
            });
            other.fetch_sub(1, Ordering::SeqCst);
            count.tell();
            waiter.join().unwrap();
        });
    }
}
