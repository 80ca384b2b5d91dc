//! How many commands of a connection may run together.
//!
//! While all is in memory, as many as a burst has. Where pages are missing a burst does its work
//! in vain: behind a command that waited they begin small, and double with each that did not.

/// Most commands of a burst.
pub(crate) const COMMANDS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance(u8);

impl Default for Allowance {
    fn default() -> Self {
        Self(COMMANDS_MAX as u8)
    }
}

impl Allowance {
    /// True if more than one command may run at a time.
    #[inline]
    pub(crate) fn allows_bursts(self) -> bool {
        self.0 > 1
    }

    pub(super) fn most(self) -> usize {
        usize::from(self.0)
    }

    /// A command has ended without a wait.
    #[inline]
    pub(crate) fn grow(&mut self) {
        self.0 = self.0.saturating_mul(2).min(COMMANDS_MAX as u8);
    }

    /// Of `count` commands together `done` were run; `cut`: another one could not be.
    pub(super) fn note(&mut self, done: usize, cut: bool) {
        match cut {
            true => self.0 = u8::try_from(done.clamp(1, COMMANDS_MAX)).unwrap_or(1),
            false => self.grow(),
        }
    }

    /// A command has to wait.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        self.0 = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_makes_bursts_begin_small() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.most(), COMMANDS_MAX);
        allowance.note(5, true);
        assert_eq!(allowance.most(), 5);
        allowance.note(5, false);
        assert_eq!(allowance.most(), 10);
        allowance.note(0, true);
        assert!(!allowance.allows_bursts());
        for most in [2, 4, 8, 16, 32, 64, 64] {
            allowance.grow();
            assert_eq!(allowance.most(), most);
        }
        allowance.shrink();
        assert!(!allowance.allows_bursts());
    }
}
