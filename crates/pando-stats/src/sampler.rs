//! Which operations are timed where timing all of them would cost too much.

use std::cell::Cell;

use crate::statistics::IS_OFF;

thread_local! {
    /// Operations of this thread that are not timed before the next one that is.
    static LEFT: [Cell<u32>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
    /// All are timed.
    static ALL: Cell<bool> = const { Cell::new(false) };
    /// State of the generator that spreads them.
    static STATE: Cell<u32> = const { Cell::new(0x9e37_79b9) };
}

const KINDS: usize = 3;

/// Kinds of operations whose turns are counted apart.
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
    /// One of so many operations is timed, in the long run; which one is left to chance, so that
    /// no rhythm of operations meets that of the turns.
    pub const fn period(self) -> u32 {
        match self {
            Self::Gets => 128,
            Self::Writes | Self::Commands => 16,
        }
    }

    /// True if the operation that begins is to be timed. The first of a thread is. Never in models,
    /// which must repeat themselves.
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

    /// From here on all operations of this thread are timed, or as few as ever. Returns what was
    /// before.
    pub fn all(timed: bool) -> bool {
        let before = ALL.replace(timed);
        for kind in [Self::Gets, Self::Writes, Self::Commands] {
            LEFT.with(|left| left[kind as usize].set(kind.gap()));
        }
        before
    }

    /// Operations to leave out: 0 to two periods less two, each as likely.
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
