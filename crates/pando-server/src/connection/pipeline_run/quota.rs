//! How many commands of a connection may run together.
//!
//! While all pages are in memory, a pipeline run takes as many commands as it can. Where pages are
//! missing, it does part of its work in vain: so the quota is small after a command that waited,
//! and doubles with each command that did not.

/// Maximum number of commands in a pipeline run.
pub(crate) const COMMANDS_MAX: usize = QUOTA_MAX as usize;

const QUOTA_MAX: u8 = 64;

/// Number of pipeline runs without commands that may show all of a collection, after one that had
/// to run alone.
const ALONE: u8 = 64;

/// The quota of one connection; see the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipelineQuota {
    most: u8,
    /// Number of further runs without commands that may show all of a collection: it was a large
    /// one, and each try to run them together would be in vain.
    alone: u8,
}

impl Default for PipelineQuota {
    fn default() -> Self {
        Self {
            most: QUOTA_MAX,
            alone: 0,
        }
    }
}

impl PipelineQuota {
    /// Returns true if more than one command may run at a time.
    #[inline]
    pub(crate) fn allows_several(self) -> bool {
        self.most > 1
    }

    pub(super) fn most(self) -> usize {
        usize::from(self.most)
    }

    /// Returns true if a command that may show all of a collection may run together with others.
    pub(super) fn shows_all(self) -> bool {
        self.alone == 0
    }

    /// Notes that a command that may show all of a collection has to run alone.
    pub(super) fn note_large(&mut self) {
        self.alone = ALONE;
    }

    /// Notes that a run was tried.
    pub(super) fn note_try(&mut self) {
        self.alone = self.alone.saturating_sub(1);
    }

    /// Raises the quota after a command that did not wait.
    #[inline]
    pub(crate) fn grow(&mut self) {
        self.most = self.most.saturating_mul(2).min(QUOTA_MAX);
    }

    /// Adjusts the quota after a pipeline run of which `done` commands were run; `cut`: the next
    /// command could not be run.
    pub(super) fn note(&mut self, done: usize, cut: bool) {
        match cut {
            true => self.most = u8::try_from(done.clamp(1, COMMANDS_MAX)).unwrap_or(1),
            false => self.grow(),
        }
    }

    /// Lowers the quota, since a command has to wait.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        self.most = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a run that was cut off, the quota is the number of commands that it ran, and then it
    /// doubles.
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
