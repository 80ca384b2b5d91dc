//! How many commands of a connection may run together.
//!
//! While all is in memory, as many as a pipeline run has. Where pages are missing a pipeline run
//! does its work in vain: behind a command that waited they begin small, and double with each that
//! did not.

/// Most commands of a pipeline run.
pub(crate) const COMMANDS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipelineQuota(u8);

impl Default for PipelineQuota {
    fn default() -> Self {
        Self(COMMANDS_MAX as u8)
    }
}

impl PipelineQuota {
    /// True if more than one command may run at a time.
    #[inline]
    pub(crate) fn allows_several(self) -> bool {
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
    fn a_wait_makes_pipeline_runs_begin_small() {
        let mut quota = PipelineQuota::default();
        assert_eq!(quota.most(), COMMANDS_MAX);
        quota.note(5, true);
        assert_eq!(quota.most(), 5);
        quota.note(5, false);
        assert_eq!(quota.most(), 10);
        quota.note(0, true);
        assert!(!quota.allows_several());
        for most in [2, 4, 8, 16, 32, 64, 64] {
            quota.grow();
            assert_eq!(quota.most(), most);
        }
        quota.shrink();
        assert!(!quota.allows_several());
    }
}
