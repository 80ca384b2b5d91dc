//! A rate limit for the lines of one kind of event: what peers can cause at will must not fill a
//! disk.

use pando_sync::atomic::{AtomicU64, Ordering};

/// Maximum number of lines of one kind per second.
const LINES_PER_SECOND: u64 = 10;
/// Bits of the count in the state word; the second is stored above them.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The rate limit of one kind of event.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    /// The current second, and the number of events in it.
    state: AtomicU64,
    /// Number of events that were dropped since the last line.
    left_out: AtomicU64,
}

impl Limit {
    /// Decides whether an event at `now_ms` is logged. Returns `None` if not; else the number of
    /// events that were dropped before it.
    pub(crate) fn admit(&self, now_ms: u64) -> Option<u64> {
        let second = now_ms / 1000;
        let mut admitted = false;
        let _ = self
            .state
            // Relaxed throughout: the counts guard nothing.
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                let count = match state >> COUNT_BITS == second {
                    true => state & COUNT_MASK,
                    false => 0,
                };
                admitted = count < LINES_PER_SECOND;
                admitted.then_some(second << COUNT_BITS | (count + 1))
            });
        if admitted {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_ten_lines_and_the_next_says_how_many_are_missing() {
        let limit = Limit::default();
        let admitted = (0..35).filter(|_| limit.admit(5_500).is_some()).count();
        assert_eq!(admitted, 10);
        assert_eq!(limit.admit(6_000), Some(25));
        assert_eq!(limit.admit(6_001), Some(0));
    }
}
