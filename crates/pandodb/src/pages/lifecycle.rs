//! The life of a store: what may be done now, and the only ways from one phase to the next.
//!
//! | phase | entered by | forbids |
//! |---|---|---|
//! | opening | [`Lifecycle::default`] | waiting for room on a full disk: who opens is told |
//! | serving | [`Lifecycle::serve`] | |
//! | closing | [`Lifecycle::close`] | commits and compactions; room is waited for not much longer |
//! | ended | [`Lifecycle::end`] | waiting for a thread of the engine |
//!
//! In any phase the store may be
//!
//! | | entered by | forbids |
//! |---|---|---|
//! | poisoned, for good | [`Lifecycle::poison`] | every write, and waiting for one |
//! | short of room | [`Lifecycle::begin_shortage`], until each has ended | puts; deletes go on |
//! | without checkpoints | [`Lifecycle::stall_checkpoint`] | waiting for a checkpoint |
//!
//! Whoever changes something here wakes those who wait for it: that is the store's part.

use pando_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, time};

/// How long room is waited for after closing has begun, in milliseconds.
const DISK_FULL_WAIT_MS: u64 = 10_000;

/// Phases follow each other in this order; none comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Opening,
    Serving,
    Closing,
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// A [`Phase`].
    phase: AtomicU8,
    poisoned: AtomicBool,
    /// The first cause.
    poison: Mutex<Option<String>>,
    /// Writes of pages that have found the disk full and wait for room.
    shortages: AtomicU64,
    /// A checkpoint waits for room for what names its pages.
    checkpoint_stalled: AtomicBool,
    /// When waiting for room ends, in milliseconds since 1970; 0 for never.
    disk_full_deadline: AtomicU64,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Opening as u8),
            poisoned: AtomicBool::new(false),
            poison: Mutex::new(Rank::Leaf, None),
            shortages: AtomicU64::new(0),
            checkpoint_stalled: AtomicBool::new(false),
            disk_full_deadline: AtomicU64::new(0),
        }
    }
}

impl Lifecycle {
    fn is_at_least(&self, phase: Phase) -> bool {
        // Acquire: pairs with the Release in advance.
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    fn advance(&self, to: Phase) {
        // Release: whoever sees the phase sees what was done before it.
        self.phase.fetch_max(to as u8, Ordering::AcqRel);
    }

    /// The engine's threads run: who finds the disk full may wait for room.
    pub(crate) fn serve(&self) {
        self.advance(Phase::Serving);
    }

    /// No commit begins any more. Returns when waiting for room ends, in milliseconds since 1970.
    pub(crate) fn close(&self) -> u64 {
        self.advance(Phase::Closing);
        let until = time::unix_ms() + DISK_FULL_WAIT_MS;
        self.disk_full_deadline.store(until, Ordering::Relaxed);
        until
    }

    /// The engine's threads end.
    pub(crate) fn end(&self) {
        self.advance(Phase::Ended);
    }

    /// False while the store is opened.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_at_least(Phase::Serving)
    }

    /// True once no commit may begin.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_at_least(Phase::Closing)
    }

    /// True once the engine's threads end: nobody waits for them.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_at_least(Phase::Ended)
    }

    /// True if a write that found the disk full may wait for room.
    pub(crate) fn waits_for_space(&self) -> bool {
        let until = self.disk_full_deadline.load(Ordering::Relaxed);
        self.is_serving() && !self.is_ended() && (until == 0 || time::unix_ms() < until)
    }

    /// Nothing is written from here on. Keeps the first cause; true if this is it.
    pub(crate) fn poison(&self, cause: impl std::fmt::Display) -> bool {
        let is_first = {
            let mut poison = self.poison.lock();
            let is_first = poison.is_none();
            poison.get_or_insert_with(|| cause.to_string());
            is_first
        };
        // Release: pairs with the Acquire in is_poisoned.
        self.poisoned.store(true, Ordering::Release);
        is_first
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        // Acquire: pairs with the Release in poison.
        self.poisoned.load(Ordering::Acquire)
    }

    /// The first cause of the poison.
    pub(crate) fn cause(&self) -> String {
        self.poison.lock().clone().unwrap_or_default()
    }

    /// A write of pages waits for room. True if it is the first.
    pub(crate) fn begin_shortage(&self) -> bool {
        // Relaxed: a hint, as in is_short.
        self.shortages.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// It waits no more. True if it was the last.
    pub(crate) fn end_shortage(&self) -> bool {
        // Relaxed: as in begin_shortage.
        let before = self.shortages.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait for room ends once");
        before == 1
    }

    /// True while pages cannot be written for want of room.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: a hint for who would make more pages dirty.
        self.shortages.load(Ordering::Relaxed) > 0
    }

    /// A checkpoint waits for room for what names its pages, or goes on. True if that is new.
    pub(crate) fn stall_checkpoint(&self, stalled: bool) -> bool {
        // Relaxed: a hint, as in is_checkpoint_stalled.
        self.checkpoint_stalled.swap(stalled, Ordering::Relaxed) != stalled
    }

    /// True while a checkpoint does not end for want of room.
    pub(crate) fn is_checkpoint_stalled(&self) -> bool {
        // Relaxed: a hint for who would wait for one.
        self.is_short() || self.checkpoint_stalled.load(Ordering::Relaxed)
    }
}
