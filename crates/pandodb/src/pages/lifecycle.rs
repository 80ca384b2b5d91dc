//! The phases of a store's life: what is allowed now, and the only transitions between phases.
//!
//! | phase | entered by | forbids |
//! |---|---|---|
//! | opening | [`Lifecycle::default`] | waiting for room on a full disk: opening fails |
//! | serving | [`Lifecycle::serve`] | |
//! | closing | [`Lifecycle::close`] | commits and compactions; waits for room end soon |
//! | ended | [`Lifecycle::end`] | waiting for a thread of the engine |
//!
//! In any phase the store may be
//!
//! | | entered by | forbids |
//! |---|---|---|
//! | poisoned, for good | [`Lifecycle::poison`] | every write, and waiting for one |
//! | short of room | [`Lifecycle::begin_shortage`], until each has ended | puts; deletes continue |
//! | without checkpoints | [`Lifecycle::stall_checkpoint`] | waiting for a checkpoint |
//!
//! A caller that changes something here wakes the threads that wait for it; [`Lifecycle`] does not.

use pando_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, time};

/// How long writes wait for room after closing has begun (decision 037), in milliseconds.
const DISK_FULL_WAIT_MS: u64 = 10_000;

/// The phases, in their order; none repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Opening,
    Serving,
    Closing,
    Ended,
}

/// The state of a store: its phase, and what the module lists as possible in any phase.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// A [`Phase`].
    phase: AtomicU8,
    /// Set after `poison`, and never reset.
    poisoned: AtomicBool,
    /// The first cause of the poison.
    poison: Mutex<Option<String>>,
    /// Number of writes of pages that have found the disk full and wait for room.
    shortages: AtomicU64,
    /// True while a checkpoint waits for room for its own records, which name its pages.
    checkpoint_stalled: AtomicBool,
    /// When writes stop waiting for room, in milliseconds of the steady clock; 0 for never.
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
        // Release: a thread that sees the phase sees what was done before it began.
        self.phase.fetch_max(to as u8, Ordering::AcqRel);
    }

    /// Enters the serving phase: the engine's threads run, and a write that finds the disk full may
    /// wait for room.
    pub(crate) fn serve(&self) {
        self.advance(Phase::Serving);
    }

    /// Enters the closing phase: no commit begins from here on. Returns when waiting for room ends,
    /// in milliseconds of the steady clock.
    pub(crate) fn close(&self) -> u64 {
        self.advance(Phase::Closing);
        let until = time::steady_ms() + DISK_FULL_WAIT_MS;
        self.disk_full_deadline.store(until, Ordering::Relaxed);
        until
    }

    /// Enters the ended phase: the engine's threads end.
    pub(crate) fn end(&self) {
        self.advance(Phase::Ended);
    }

    /// False while the store is being opened.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_at_least(Phase::Serving)
    }

    /// True once no commit may begin.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_at_least(Phase::Closing)
    }

    /// True once the engine's threads end: do not wait for them.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_at_least(Phase::Ended)
    }

    /// True if a write that found the disk full may wait for room.
    pub(crate) fn waits_for_space(&self) -> bool {
        let until = self.disk_full_deadline.load(Ordering::Relaxed);
        self.is_serving() && !self.is_ended() && (until == 0 || time::steady_ms() < until)
    }

    /// Poisons the store: nothing is written from here on. Keeps the first cause; returns true if
    /// this is it.
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

    /// True once the store is poisoned; [`Lifecycle::cause`] is known then.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        // Acquire: pairs with the Release in poison.
        self.poisoned.load(Ordering::Acquire)
    }

    /// Returns the first cause of the poison, or an empty string.
    pub(crate) fn cause(&self) -> String {
        self.poison.lock().clone().unwrap_or_default()
    }

    /// Notes that a write of pages waits for room. Returns true if it is the only one.
    pub(crate) fn begin_shortage(&self) -> bool {
        // Relaxed: as in is_short.
        self.shortages.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Notes that a write of pages has stopped waiting for room. Returns true if it was the last
    /// one.
    pub(crate) fn end_shortage(&self) -> bool {
        // Relaxed: as in begin_shortage.
        let before = self.shortages.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait for room ends once");
        before == 1
    }

    /// True while pages cannot be written for lack of room.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: for callers that would dirty more pages it is a hint. Whoever waits has
        // registered before, and those that change it notify afterwards: the fences of the wait
        // lists order the two.
        self.shortages.load(Ordering::Relaxed) > 0
    }

    /// Notes whether a checkpoint waits for room for its own records. Returns true if that is a
    /// change.
    pub(crate) fn stall_checkpoint(&self, stalled: bool) -> bool {
        // Relaxed: as in is_short.
        self.checkpoint_stalled.swap(stalled, Ordering::Relaxed) != stalled
    }

    /// True while a checkpoint cannot finish for lack of room.
    pub(crate) fn is_checkpoint_stalled(&self) -> bool {
        // Relaxed: as in is_short.
        self.is_short() || self.checkpoint_stalled.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the wall clock it would go on for as long as somebody sets that back.
    #[test]
    fn waiting_for_room_ends_by_the_steady_clock() {
        let life = Lifecycle::default();
        life.serve();
        assert!(life.waits_for_space());
        let begun = time::steady_ms();
        let until = life.close();
        let soonest = begun + DISK_FULL_WAIT_MS;
        assert!((soonest..=time::steady_ms() + DISK_FULL_WAIT_MS).contains(&until));
        assert!(life.waits_for_space());
        life.end();
        assert!(!life.waits_for_space());
    }
}
