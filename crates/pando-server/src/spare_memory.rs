//! Memory that the server has freed, and that the allocator keeps: it is given back when it has
//! become much.
//!
//! A thousand connections that send a megabyte each take a gigabyte, for as long as they need it.
//! Afterwards their buffers are free, but most of them stay resident (`pando_sync::free_memory`):
//! so a crowd of a moment would count for as long as the server runs. How much the allocator keeps
//! is not known, but it is a part of what is resident and not counted as used. If that is much, the
//! allocator is asked: at once when it has changed, and else in pauses that become longer, since it
//! may be something else, or in use by a crowd that is still there.

use pando_sync::give_back_free_memory;
use pando_sync::time::{Duration, Instant};

use crate::report::memory_use::{MemoryUse, resident_bytes};
use crate::shared::Shared;

/// Time between two looks, and the first pause behind one that had the allocator asked.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The allocator is asked if at least so much is not in use,
const SPARE_BYTES: u64 = 32 << 20;
/// and at once if that has changed by so much.
const CHANGE_BYTES: u64 = 16 << 20;

/// When the allocator was asked, and what it kept.
#[derive(Debug)]
pub(crate) struct SpareMemory {
    next_look: Option<Instant>,
    /// The allocator is asked again then, if nothing changes.
    next_question: Option<Instant>,
    pause: Duration,
    /// What was resident and not in use behind the last question.
    kept: u64,
}

impl Default for SpareMemory {
    fn default() -> Self {
        Self {
            next_look: None,
            next_question: None,
            pause: PAUSE,
            kept: 0,
        }
    }
}

impl SpareMemory {
    /// Returns the time until the next look.
    pub(crate) fn until_next_look(&self, now: Instant) -> Duration {
        let until = self.next_look.map(|at| at.saturating_duration_since(now));
        until.unwrap_or(PAUSE).max(Duration::from_millis(1))
    }

    /// Looks whether much is not in use, if it is time; has the allocator give that back.
    pub(crate) fn look(&mut self, now: Instant, shared: &Shared) {
        if self.next_look.is_some_and(|at| now < at) {
            return;
        }
        self.next_look = now.checked_add(PAUSE);
        let spare = spare_bytes(shared);
        if self.asks(now, spare) {
            give_back_free_memory();
            self.note(now, spare, spare_bytes(shared));
        }
    }

    /// Returns true if the allocator is to be asked, since `spare` bytes are not in use.
    fn asks(&self, now: Instant, spare: u64) -> bool {
        let is_time = self.next_question.is_none_or(|at| at <= now);
        spare >= SPARE_BYTES && (is_time || spare.abs_diff(self.kept) >= CHANGE_BYTES)
    }

    /// Notes that the allocator was asked when `before` bytes were not in use, and that `kept` are
    /// left.
    fn note(&mut self, now: Instant, before: u64, kept: u64) {
        self.pause = match before.saturating_sub(kept) >= CHANGE_BYTES {
            true => PAUSE,
            false => (self.pause * 2).min(PAUSE_MAX),
        };
        self.next_question = now.checked_add(self.pause);
        self.kept = kept;
    }
}

fn spare_bytes(shared: &Shared) -> u64 {
    resident_bytes().saturating_sub(MemoryUse::new(shared).used())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_stays_is_asked_for_in_longer_and_longer_pauses() {
        let mut memory = SpareMemory::default();
        let begun = pando_sync::time::now();
        assert!(!memory.asks(begun, 31 * MIB));
        let questions = (0..1000_u64).filter(|second| {
            let now = begun + Duration::from_secs(*second);
            let asks = memory.asks(now, 40 * MIB);
            if asks {
                memory.note(now, 40 * MIB, 40 * MIB);
            }
            asks
        });
        let questions: Vec<u64> = questions.collect();
        assert_eq!(questions, [0, 10, 30, 70, 150, 310, 610, 910]);
    }

    #[test]
    fn what_changes_is_asked_for_at_once() {
        let mut memory = SpareMemory::default();
        let begun = pando_sync::time::now();
        memory.note(begun, 100 * MIB, 100 * MIB);
        assert!(!memory.asks(begun, 115 * MIB));
        assert!(memory.asks(begun, 116 * MIB));
        assert!(memory.asks(begun, 84 * MIB));
        assert!(!memory.asks(begun, 20 * MIB));
        // What has helped is tried again soon.
        memory.note(begun, 116 * MIB, 40 * MIB);
        assert!(memory.asks(begun + PAUSE, 40 * MIB));
    }
}
