//! Sampling: chooses the operations that are timed where timing all of them would cost too much.

use std::cell::Cell;

use crate::statistics::IS_OFF;

thread_local! {
    /// Number of operations of this thread before the next one that is timed, by kind.
    static LEFT: [Cell<u32>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
    /// All operations of this thread are timed.
    static ALL: Cell<bool> = const { Cell::new(false) };
    /// State of the random generator that spreads the timed operations.
    static STATE: Cell<u32> = const { Cell::new(0x9e37_79b9) };
}

const KINDS: usize = 3;

/// Kinds of operations, which are sampled separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Sampled {
    /// Point reads: one of 128.
    Gets = 0,
    /// Calls that write: one of 16.
    Writes = 1,
    /// Commands of the server: one of 16.
    Commands = 2,
}

impl Sampled {
    /// Returns the mean number of operations for each one that is timed. The choice is random, so
    /// that it does not follow a rhythm of the operations.
    pub const fn period(self) -> u32 {
        match self {
            Self::Gets => 128,
            Self::Writes | Self::Commands => 16,
        }
    }

    /// Returns whether the operation that begins is to be timed. The first one of a thread is.
    /// Always false in models, which must be repeatable.
    #[inline]
    pub fn is_due(self) -> bool {
        if IS_OFF || cfg!(any(pando_loom, pando_shuttle)) {
            return false;
        }
        LEFT.with(|left| {
            let left = &left[self as usize];
            let (next, is_due) = left.get().overflowing_sub(1);
            left.set(next);
            is_due && {
                left.set(self.gap());
                true
            }
        })
    }

    /// Makes all operations of this thread be timed from now on, or only the sampled ones. Returns
    /// the previous setting.
    pub fn all(timed: bool) -> bool {
        let before = ALL.replace(timed);
        for kind in [Self::Gets, Self::Writes, Self::Commands] {
            LEFT.with(|left| left[kind as usize].set(kind.gap()));
        }
        before
    }

    /// Returns the number of operations to leave out: uniform from 0 to twice the period less two.
    #[cold]
    fn gap(self) -> u32 {
        if ALL.get() {
            return 0;
        }
        // A xorshift generator.
        let mut state = STATE.get();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        STATE.set(state);
        state % (2 * self.period() - 1)
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_no_statistics))))]
mod tests {
    use super::*;

    #[test]
    fn all_operations_are_timed_while_somebody_asks_for_it() {
        let count = || (0..1000).filter(|_| Sampled::Gets.is_due()).count();
        assert!(count() < 100);
        assert!(!Sampled::all(true));
        assert_eq!(count(), 1000);
        assert!(Sampled::all(false));
        assert!(count() < 100);
    }

    #[test]
    fn one_operation_of_each_period_is_timed_whatever_the_rhythm() {
        for kind in [Sampled::Gets, Sampled::Writes] {
            let due: Vec<bool> = (0..128_000).map(|_| kind.is_due()).collect();
            assert!(due[0], "the first of a thread");
            for rhythm in [1, 2, 7, 16, 64, 128] {
                let timed = due.iter().step_by(rhythm).filter(|due| **due).count();
                let expected = due.len() / rhythm / kind.period() as usize;
                let is_near = timed * 2 > expected && timed < expected * 2 + 8;
                assert!(is_near, "{timed} for {expected} of every {rhythm}");
            }
        }
    }
}
