//! What a commit checks with its stripes held, before it appends its record: that what the batch
//! has read is still so.

use crate::commit::second_look::{SecondLook, Seen};
use crate::commit::state_check::StateCheck;
use crate::engine::Engine;
use crate::wait::reason::Step;
use crate::writes::set::WriteSet;
use crate::writes::stripes::Locked;

/// How the reads of a batch are checked, besides its watches and the trees of its tables.
#[derive(Debug)]
pub(crate) enum Check<'c, 't> {
    /// By stamps: a stripe that has changed since counts as a conflict.
    Stamps,
    /// By stamps, and by the values themselves where these have changed.
    Look(&'c mut SecondLook<'t>),
    /// By the versions since the snapshot that a transaction reads.
    State(&'c mut StateCheck<'t>),
}

impl<'t> Check<'_, 't> {
    /// Returns the check of a transaction.
    pub(crate) fn state(&mut self) -> Option<&mut StateCheck<'t>> {
        match self {
            Self::State(check) => Some(check),
            Self::Stamps | Self::Look(_) => None,
        }
    }

    /// Returns the second look.
    pub(crate) fn look(&mut self) -> Option<&mut SecondLook<'t>> {
        match self {
            Self::Look(look) => Some(look),
            Self::Stamps | Self::State(_) => None,
        }
    }
}

impl Engine {
    /// Returns what has changed since the batch has read it: Some(true) for something that was
    /// watched, Some(false) for something else. The caller is inside the gate, or has closed it,
    /// and holds the stripes of the batch.
    #[inline]
    pub(crate) fn find_conflict(
        &self,
        set: &WriteSet,
        locked: &Locked<'_>,
        check: &mut Check<'_, '_>,
    ) -> Step<Option<bool>> {
        let unchanged = |stamp| {
            assert!(locked.holds(stamp), "the stripe of a read is not held");
            self.stripes.unchanged_held(stamp)
        };
        if set.is_flag_set() {
            return Ok(Some(false));
        }
        // A second look sees what was read, not what was watched.
        if let Some(watched) = set.changed(unchanged)
            && (watched
                || set.watched.has_other_trees()
                || self.look_again(set, locked, check.look())? != Seen::Same)
        {
            return Ok(Some(watched));
        }
        let Some(check) = check.state() else {
            return Ok(None);
        };
        Ok(check.finds_conflict(self, set)?.then_some(false))
    }

    /// Compares the values read with the current ones, if the caller passed a second look.
    pub(crate) fn look_again(
        &self,
        set: &WriteSet,
        locked: &Locked<'_>,
        look: Option<&mut SecondLook<'_>>,
    ) -> Step<Seen> {
        look.map_or(Ok(Seen::Unknown), |look| look.run(self, set, locked))
    }
}
