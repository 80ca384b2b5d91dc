//! How a descent comes by its nodes: freely, or under shared latches once that failed too often.
//!
//! [`Approach`] has a method for each step of a point read, and what it does by default is what the
//! product does; measurements put another way in the place of one step and keep the others. All of
//! it is resolved when a read is compiled: what nobody puts in its place costs nothing.
//!
//! A reader that always loses against writers (a scan copies a whole leaf, which somebody changes
//! every microsecond) makes no progress by trying again. So after some tries it takes a share of
//! the latch of each node on its way, the root's first, and keeps them to the end of the attempt:
//! nobody changes what it reads, and all its validations succeed. What still ends such an attempt
//! is a page that is missing, or a latch that is taken whenever it is looked at (decision 021).

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool, Restart, Shared};
use pando_stats::Ticker;
use pando_sync::atomic::AtomicU64;
use pando_sync::thread;

use crate::node::search::Spot;
use crate::node::view::{LEVEL_MAX, Node};
use crate::tree::{Start, Tree};

/// Times that a read is tried before it takes latches.
pub(crate) const FREE_TRIES: u32 = 8;
/// From this one on the processor is left to others in between: a writer may have been preempted.
const TRIES_WITHOUT_YIELD: u32 = 3;

/// The steps of a read.
pub trait Approach<'p>: Sized {
    /// Looks up `page`, as [`Pool::optimistic`].
    ///
    /// # Errors
    /// As [`Pool::optimistic`].
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>>;

    /// Where a point read of `key` begins: at the root.
    ///
    /// # Errors
    /// As [`Approach::look`].
    #[inline]
    fn begin(&mut self, tree: &Tree, pool: &'p Pool, key: &[u8]) -> Attempt<Start<'p>> {
        let _ = key;
        let node = self.look(pool, tree.root, 0)?;
        Ok(Start { node, level: None })
    }

    /// Index of the child of the inner node `here` that covers `key`.
    #[inline]
    fn child_for(&mut self, here: Optimistic<'p>, node: &Node<'p, AtomicU64>, key: &[u8]) -> usize {
        let _ = here;
        node.child_for(key)
    }

    /// Where in the leaf `here` the key is.
    #[inline]
    fn find(&mut self, here: Optimistic<'p>, node: &Node<'p, AtomicU64>, key: &[u8]) -> Spot {
        let _ = here;
        node.find_in_leaf(key)
    }

    /// Counts a use of the inner node `here`.
    #[inline]
    fn touch_inner(&mut self, here: Optimistic<'p>) {
        here.touch_inner();
    }

    /// Counts a use of `here`, where the descent ends.
    #[inline]
    fn touch(&mut self, here: Optimistic<'p>) {
        here.touch();
    }
}

/// Under no latch: writes nothing.
#[derive(Debug)]
pub struct Freely;

impl<'p> Approach<'p> for Freely {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        pool.optimistic(page, hint)
    }

    #[inline]
    fn find(&mut self, here: Optimistic<'p>, node: &Node<'p, AtomicU64>, key: &[u8]) -> Spot {
        let candidate = ask_for_record(here, node, key);
        node.find_at(candidate, key)
    }
}

/// Lines of a record that are asked for at once.
const RECORD_LINES: usize = 3;

/// Asks for the record of the leaf `here` that may be the key's: its entry.
#[inline]
pub(crate) fn ask_for_record(
    here: Optimistic<'_>,
    node: &Node<'_, AtomicU64>,
    key: &[u8],
) -> usize {
    let candidate = node.candidate(key);
    here.prefetch_words::<RECORD_LINES>(node.slot(candidate).offset());
    candidate
}

/// Under shared latches, of all nodes from the root on.
#[derive(Debug, Default)]
pub(crate) struct Latched<'p> {
    shares: [Option<Shared<'p>>; LEVEL_MAX as usize + 1],
    len: usize,
}

impl<'p> Approach<'p> for Latched<'p> {
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        let shared = pool.shared(page, hint)?;
        let Some(place) = self.shares.get_mut(self.len) else {
            return Err(Restart::Damaged(page, "lies too deep"));
        };
        self.len += 1;
        Ok(place.insert(shared).seen())
    }
}

/// Tries a read freely, and after [`FREE_TRIES`] conflicts once under latches.
#[inline]
pub(crate) fn insist<'p, T>(
    pool: &'p Pool,
    mut attempt: impl FnMut(Option<&mut Latched<'p>>) -> Attempt<T>,
) -> Attempt<T> {
    match attempt(None) {
        Err(Restart::Conflict) => insist_again(pool, attempt),
        done => done,
    }
}

/// After the first conflict. Apart, so that what is rare costs a read without one nothing.
#[cold]
#[inline(never)]
fn insist_again<'p, T>(
    pool: &'p Pool,
    mut attempt: impl FnMut(Option<&mut Latched<'p>>) -> Attempt<T>,
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
    let done = attempt(Some(&mut Latched::default()));
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
