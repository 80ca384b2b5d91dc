//! Board of failed reads, from which every thread that waited for a read learns of its error.
//!
//! A thread that reads a page reads it for all others that miss it meanwhile. If the read fails,
//! its error is posted here before the claim ends and the waiters are woken. Each waiter finds the
//! error instead of reading the page again. The board is bounded: a waiter whose entry is gone
//! reads the page itself and gets an error of its own. Threads that did not wait for the read never
//! get its error.

use std::collections::VecDeque;
use std::task::Waker;

use pando_format::PageId;
use pando_sync::Mutex;
use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::Error;

/// Largest number of failures that are kept.
const FAILURES_MAX: usize = 64;

/// One failed read.
#[derive(Debug)]
struct Failure {
    /// Counts from 1; never repeats.
    number: u64,
    page: PageId,
    error: Error,
    /// Wakers that were registered for the page and have not been told yet.
    untold: Vec<Waker>,
}

/// The board of failed reads of one store.
#[derive(Debug, Default)]
pub(crate) struct FailedReads {
    /// Failures so far: the number of the newest. Written under `list`.
    count: AtomicU64,
    /// Number of wakers in `list` that have not been told yet. Written under `list`.
    untold: AtomicUsize,
    /// Ordered by number.
    list: Mutex<VecDeque<Failure>>,
}

impl FailedReads {
    /// Returns the number of failed reads so far. Take it before a wait, and give it to
    /// [`FailedReads::since`].
    pub(crate) fn now(&self) -> u64 {
        // Relaxed: a number that is too old can only find a failure that happened just before the
        // wait.
        self.count.load(Ordering::Relaxed)
    }

    /// Posts the failure of `page`, for the wakers in `waiting`. The caller ends the claim after
    /// this.
    pub(crate) fn post(&self, page: PageId, error: Error, waiting: Vec<Waker>) {
        let mut list = self.list.lock();
        if list.len() >= FAILURES_MAX
            && let Some(oldest) = list.pop_front()
        {
            let before = self
                .untold
                .fetch_sub(oldest.untold.len(), Ordering::Relaxed);
            assert!(before >= oldest.untold.len(), "waiting wakers are counted");
        }
        assert!(list.len() < FAILURES_MAX, "the board is bounded");
        let number = self.count.load(Ordering::Relaxed) + 1;
        self.untold.fetch_add(waiting.len(), Ordering::Relaxed);
        list.push_back(Failure {
            number,
            page,
            error,
            untold: waiting,
        });
        // Relaxed: waiters read it after they have seen the change of the page word, which follows
        // and publishes this.
        self.count.store(number, Ordering::Relaxed);
    }

    /// Returns the error of a read of `page` that failed after [`FailedReads::now`] returned
    /// `number`.
    pub(crate) fn since(&self, page: PageId, number: u64) -> Option<Error> {
        if self.now() == number {
            return None;
        }
        let list = self.list.lock();
        let newest = list.iter().rev().find(|failure| failure.page == page)?;
        (newest.number > number).then(|| newest.error.clone())
    }

    /// Returns the number of failures of `page` on the board.
    #[cfg(test)]
    pub(crate) fn count_of(&self, page: PageId) -> usize {
        let list = self.list.lock();
        list.iter().filter(|failure| failure.page == page).count()
    }

    /// Returns the error of a read of `page` that `waker` was registered for; each failure is told
    /// once.
    pub(crate) fn tell(&self, page: PageId, waker: &Waker) -> Option<Error> {
        if self.untold.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut list = self.list.lock();
        for failure in list.iter_mut().filter(|failure| failure.page == page) {
            if let Some(at) = failure.untold.iter().position(|one| one.will_wake(waker)) {
                failure.untold.swap_remove(at);
                let before = self.untold.fetch_sub(1, Ordering::Relaxed);
                assert!(before > 0, "waiting wakers are counted");
                return Some(failure.error.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(what: usize) -> Error {
        Error::Full {
            what: what.to_string(),
        }
    }

    /// A failed read is reported to the requests that waited for it, and to no later ones.
    #[test]
    fn a_failure_is_found_by_those_who_waited_and_by_nobody_later() {
        let board = FailedReads::default();
        let before = board.now();
        let waker = pando_sync::thread_waker();
        board.post(PageId(3), full(0), vec![waker.clone()]);
        assert!(board.since(PageId(3), before).is_some());
        assert!(board.since(PageId(4), before).is_none());
        assert!(board.since(PageId(3), board.now()).is_none());
        assert!(board.tell(PageId(3), Waker::noop()).is_none());
        assert!(board.tell(PageId(3), &waker).is_some());
        assert!(
            board.tell(PageId(3), &waker).is_none(),
            "a failure is reported once"
        );
    }

    #[test]
    fn the_board_is_bounded() {
        let board = FailedReads::default();
        for number in 0..1000 {
            board.post(
                PageId(number as u32),
                full(number),
                vec![Waker::noop().clone()],
            );
        }
        assert_eq!(board.list.lock().len(), FAILURES_MAX);
        assert_eq!(board.untold.load(Ordering::Relaxed), FAILURES_MAX);
        assert!(board.since(PageId(1), 0).is_none());
        assert!(board.since(PageId(999), 0).is_some());
    }
}
