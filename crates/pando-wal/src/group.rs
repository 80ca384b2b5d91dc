//! Group commit: at most one flush is in flight, and one of its waiters leads it.
//!
//! # Protocol
//!
//! ```text
//!            try_lead                       flush ends
//!   idle ----------------> flushing ------------------------> idle (durable has grown)
//!                             |  flush fails or panics
//!                             +-----------------------------> failed, for ever
//! ```
//!
//! A waiter that finds no flush in flight leads. The leader *gathers*: it yields until as many
//! committers have joined as were active lately (the size of the batch decides, not the speed of
//! flushes), at most [`GATHER_YIELDS`] times and for at most [`GATHER_MAX`] committers. A lone
//! committer never yields. The other waiters yield for about the time of one flush if many are
//! active, since a sleep costs two system calls; otherwise they sleep at once.
//!
//! # No lost wake-up
//!
//! A sleeper registers, fences, and then reads `durable`, `failed` and `flushing`. The end of a
//! flush changes these, fences, and then reads the list ([`Sleepers::wake`]). So either the sleeper
//! sees that it is finished or may lead, or the end of the flush sees the sleeper. Every end of a
//! turn wakes one sleeper that may lead, whether the turn has flushed or not: the duty to flush is
//! passed on, never dropped.

use std::task::Waker;

use pando_format::Lsn;
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{thread, time};

use crate::parking::Parking;
use crate::sleepers::Sleepers;

/// Maximum number of yields of a leader that gathers.
const GATHER_YIELDS: usize = if cfg!(any(pando_loom, pando_shuttle)) {
    1
} else {
    16
};
/// Maximum number of committers that a leader waits for.
const GATHER_MAX: usize = 24;
/// With more active committers than this, waiters yield before they sleep.
const ACTIVE_FEW: usize = 4;

/// The group is poisoned: nothing becomes durable from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed;

/// Tells whether a waiter is a committer, which leaders expect to return with another commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Committer,
    Background,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Group {
    /// LSN up to which everything is durable. Written only by the leader.
    durable: AtomicU64,
    /// Last LSN of the flush in flight. Written only by the leader.
    in_flight: AtomicU64,
    /// A leader has the turn. Set by [`Group::try_lead`], cleared by the end of the turn.
    flushing: AtomicBool,
    /// Set once and never cleared.
    failed: AtomicBool,
    /// Number of committers that wait for the flush after the one in flight.
    joined: AtomicUsize,
    /// Number of recently active committers: those of the last batch, and those that joined while
    /// it was flushed. Written only by the leader.
    expected: AtomicUsize,
    /// Number of committers of the flush in flight. Written only by the leader.
    batch: AtomicUsize,
    /// Duration of the last flush, in nanoseconds. Written only by the leader.
    flush_ns: AtomicU64,
    sleepers: Sleepers,
}

/// The right to flush. Its end, also by a panic, passes the duty on.
struct Turn<'a> {
    group: &'a Group,
    completed: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.completed {
            // Release: pairs with the Acquire in try_lead: the next leader sees our buffers.
            self.group.flushing.store(false, Ordering::Release);
            self.group.sleepers.wake(self.group.durable());
        } else {
            self.group.fail();
        }
    }
}

impl Group {
    /// Returns the state of a log that is durable up to `start`, and that nobody flushes.
    pub(crate) fn new(start: Lsn) -> Self {
        Self {
            durable: AtomicU64::new(start.0),
            in_flight: AtomicU64::new(start.0),
            flushing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            joined: AtomicUsize::new(0),
            expected: AtomicUsize::new(1),
            batch: AtomicUsize::new(0),
            flush_ns: AtomicU64::new(0),
            sleepers: Sleepers::new(),
        }
    }

    /// Returns the LSN up to which everything survives a crash.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        // Acquire: pairs with the Release in lead.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns whether a flush has failed.
    #[inline]
    pub(crate) fn failed(&self) -> bool {
        // Acquire: pairs with the Release in fail, so the caller sees the reason of the failure.
        self.failed.load(Ordering::Acquire)
    }

    /// The part of [`Group::fail`] that wakes nobody.
    pub(crate) fn note_failure(&self) {
        // Release: pairs with the Acquire in failed.
        self.failed.store(true, Ordering::Release);
    }

    /// Poisons the group: nothing becomes durable from now on. Wakes all waiters.
    pub(crate) fn fail(&self) {
        self.note_failure();
        self.sleepers.wake(Lsn(u64::MAX));
    }

    /// Closes the batch that ends at `newest`. Committers that join from now on wait for the next
    /// one. Only the leader calls this.
    pub(crate) fn batch_closed(&self, newest: Lsn) {
        // Relaxed: only leaders write it, and each leader has seen the writes of the previous one.
        assert!(self.flushing.load(Ordering::Relaxed), "only a leader does");
        assert!(
            self.durable() <= newest,
            "a batch ends behind what is durable"
        );
        // Relaxed: figures for gathering, nothing depends on them.
        self.in_flight.store(newest.0, Ordering::Relaxed);
        let batch = self.joined.swap(0, Ordering::Relaxed);
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Blocks until `target` is durable. Flushes with `flush` when nobody else does. `flush` calls
    /// [`Group::batch_closed`] and returns the LSN that is durable, or `None` on failure.
    pub(crate) fn wait(
        &self,
        target: Lsn,
        role: Role,
        mut flush: impl FnMut() -> Option<Lsn>,
    ) -> Result<(), Failed> {
        if self.durable() >= target {
            return Ok(());
        }
        if role == Role::Committer {
            self.join(target);
        }
        let mut yield_until = self.yield_until();
        let mut parking = None;
        loop {
            if self.durable() >= target {
                return Ok(());
            }
            if self.failed() {
                return Err(Failed);
            }
            if let Some(turn) = self.try_lead() {
                self.lead(turn, target, &mut flush);
            } else if yield_until.is_some_and(|end| time::now() < end) {
                thread::yield_now();
            } else {
                yield_until = None;
                self.sleep(target, parking.get_or_insert_with(Parking::new));
            }
        }
    }

    /// Returns true if `target` is durable. Otherwise `waker` is woken when it is. The caller makes
    /// sure that some thread leads.
    pub(crate) fn request(&self, target: Lsn, waker: &Waker) -> Result<bool, Failed> {
        if self.durable() >= target {
            return Ok(true);
        }
        if self.sleepers.register(target, false, waker) {
            self.join(target);
        }
        if self.durable() >= target {
            return Ok(true);
        }
        if self.failed() {
            return Err(Failed);
        }
        Ok(false)
    }

    fn join(&self, target: Lsn) {
        // Relaxed: figures for gathering, nothing depends on them.
        if target.0 > self.in_flight.load(Ordering::Relaxed) {
            self.joined.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the time until which a committer yields instead of sleeping, `None` if it sleeps at
    /// once.
    fn yield_until(&self) -> Option<time::Instant> {
        // Relaxed: figures of the last flush, nothing depends on them.
        if self.expected.load(Ordering::Relaxed) <= ACTIVE_FEW {
            return None;
        }
        let flush = time::Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed));
        Some(time::now() + flush)
    }

    fn try_lead(&self) -> Option<Turn<'_>> {
        // Relaxed: only a hint that saves waiters the exclusive access below.
        if self.flushing.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: pairs with the Release in Turn::drop.
        let free = self
            .flushing
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        free.then(|| Turn {
            group: self,
            completed: false,
        })
    }

    fn lead(&self, mut turn: Turn<'_>, target: Lsn, flush: &mut impl FnMut() -> Option<Lsn>) {
        if self.durable() >= target || self.failed() {
            turn.completed = true;
            return;
        }
        self.gather();
        let began = time::now();
        let Some(durable) = flush() else {
            return;
        };
        if self.failed() {
            return;
        }
        assert!(durable > self.durable(), "the durable LSN only grows");
        assert!(durable >= target, "a flush covers who leads it");
        // Relaxed: written by this thread, which leads.
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        assert_eq!(
            durable.0, in_flight,
            "what was flushed is the batch that was closed"
        );
        // Relaxed: figures for gathering and yielding, nothing depends on them.
        let active = self.batch.load(Ordering::Relaxed) + self.joined.load(Ordering::Relaxed);
        self.expected.store(active, Ordering::Relaxed);
        let elapsed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.flush_ns.store(elapsed, Ordering::Relaxed);
        // Release: pairs with the Acquire in durable.
        self.durable.store(durable.0, Ordering::Release);
        turn.completed = true;
    }

    fn gather(&self) {
        // Relaxed: a figure of the last flush.
        let wanted = self.expected.load(Ordering::Relaxed).min(GATHER_MAX);
        for _ in 0..GATHER_YIELDS {
            // Relaxed: a late count costs one more yield.
            if self.joined.load(Ordering::Relaxed) >= wanted {
                return;
            }
            thread::yield_now();
        }
    }

    fn sleep(&self, target: Lsn, parking: &Parking) {
        self.sleepers.register(target, true, parking.waker());
        // Relaxed: ordered by the fence in register.
        let flushing = self.flushing.load(Ordering::Relaxed);
        if flushing && self.durable() < target && !self.failed() {
            parking.park();
        }
    }
}
