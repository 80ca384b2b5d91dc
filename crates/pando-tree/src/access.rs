//! How a descent accesses its nodes: optimistically, or under shared latches once that has failed
//! too often.
//!
//! A reader that always loses against writers (a scan copies a whole leaf that somebody changes
//! every microsecond) makes no progress by trying again. So after some tries it takes a share of
//! the latch of each node on its path, the root's first, and keeps the shares until the end of the
//! attempt: nobody changes what it reads, and all its validations succeed. Only a missing page, or
//! a latch that is taken at every try, still ends such an attempt (decision 021).

use pando_format::PageId;
use pando_pool::{Attempt, HintedFrame, Optimistic, Pool, Restart, Shared};
use pando_stats::Ticker;
use pando_sync::atomic::AtomicU64;
use pando_sync::thread;

use crate::node::search::Candidate;
use crate::node::view::{LEVEL_MAX, Node};

/// Number of optimistic tries of a read before it takes latches.
pub(crate) const FREE_TRIES: u32 = 8;
/// Number of tries after which the thread yields between tries: a writer may have been preempted.
const TRIES_WITHOUT_YIELD: u32 = 3;

/// How a descent looks up nodes.
pub(crate) trait Access<'p> {
    /// Looks up `page` as [`Pool::optimistic_in`] does.
    fn look(
        &mut self,
        pool: &'p Pool,
        page: PageId,
        hinted: Option<HintedFrame<'p>>,
    ) -> Attempt<Optimistic<'p>>;
}

/// Optimistic access: takes no latch and writes nothing.
#[derive(Debug)]
pub(crate) struct OptimisticAccess;

impl<'p> Access<'p> for OptimisticAccess {
    #[inline]
    fn look(
        &mut self,
        pool: &'p Pool,
        page: PageId,
        hinted: Option<HintedFrame<'p>>,
    ) -> Attempt<Optimistic<'p>> {
        pool.optimistic_in(page, hinted)
    }
}

/// Number of lines of a record that are prefetched at once.
const RECORD_LINES: usize = 3;

/// Looks for the entry of the leaf `here` that may be the key's, and prefetches its record.
#[inline]
pub(crate) fn ask_for_record(
    here: Optimistic<'_>,
    node: &Node<'_, AtomicU64>,
    key: &[u8],
) -> Candidate {
    let candidate = node.candidate(key);
    if let Some(record) = candidate.record() {
        here.prefetch_words::<RECORD_LINES>(record);
    }
    candidate
}

/// Access under shared latches of all nodes from the root on.
#[derive(Debug, Default)]
pub(crate) struct SharedAccess<'p> {
    shares: [Option<Shared<'p>>; LEVEL_MAX as usize + 1],
    len: usize,
}

impl<'p> Access<'p> for SharedAccess<'p> {
    fn look(
        &mut self,
        pool: &'p Pool,
        page: PageId,
        hinted: Option<HintedFrame<'p>>,
    ) -> Attempt<Optimistic<'p>> {
        let shared = pool.shared(page, hinted.map_or(0, |hinted| hinted.hint()))?;
        let Some(place) = self.shares.get_mut(self.len) else {
            return Err(Restart::Damaged(page, "lies too deep"));
        };
        self.len += 1;
        Ok(place.insert(shared).seen())
    }
}

/// Tries a read optimistically, and after [`FREE_TRIES`] conflicts once under latches.
#[inline]
pub(crate) fn retry_then_latch<'p, T>(
    pool: &'p Pool,
    mut attempt: impl FnMut(Option<&mut SharedAccess<'p>>) -> Attempt<T>,
) -> Attempt<T> {
    match attempt(None) {
        Err(Restart::Conflict) => retry_again(pool, attempt),
        done => done,
    }
}

/// Continues after the first conflict. Out of line, so that this rare case costs other reads
/// nothing.
#[cold]
#[inline(never)]
fn retry_again<'p, T>(
    pool: &'p Pool,
    mut attempt: impl FnMut(Option<&mut SharedAccess<'p>>) -> Attempt<T>,
) -> Attempt<T> {
    for turn in 1..FREE_TRIES {
        pause(pool, turn);
        match attempt(None) {
            Err(Restart::Conflict) => {}
            done => return done,
        }
    }
    pause(pool, FREE_TRIES);
    pool.statistics().tick(Ticker::RestartsPessimistic, 1);
    let done = attempt(Some(&mut SharedAccess::default()));
    if matches!(done, Err(Restart::Conflict)) {
        pool.statistics().tick(Ticker::Restarts, 1);
    }
    done
}

#[cold]
fn pause(pool: &Pool, turn: u32) {
    pool.statistics().tick(Ticker::Restarts, 1);
    if turn < TRIES_WITHOUT_YIELD {
        thread::spin_loop();
    } else {
        thread::yield_now();
    }
}
