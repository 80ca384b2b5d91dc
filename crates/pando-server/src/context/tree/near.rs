//! Members of a large sorted set that lie near a place, whose scores are geohashes.
//!
//! A search reads ranges of scores (decision 110). Only what lies in its shape is kept of a range:
//! so it takes memory for what it finds, or, if it wants the nearest ones of that, for about twice as
//! many of each range. A run that goes on after a wait has each range that it is done with as what
//! was found there.

use std::ops::{Bound, Range};

use pando_sync::Arc;

use super::part::{Goal, Load};
use crate::context::{Context, Interrupted};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::shape::Around;
use crate::data::tree_head::TreeHead;

/// Members that were found, in the order of their scores.
pub(crate) struct Near(Arc<Load>);

impl Near {
    pub(crate) fn len(&self) -> usize {
        self.0.strings.len() / 2
    }

    /// Returns their scores and names.
    pub(crate) fn members(&self) -> impl Iterator<Item = Result<(f64, &[u8]), RowError>> {
        let strings = &self.0.strings;
        (0..self.len()).map(|at| {
            let score = strings.at(2 * at + 1).try_into();
            let score = score.map_err(|_| RowError::Damaged)?;
            Ok((f64::from_le_bytes(score), strings.at(2 * at)))
        })
    }
}

impl Context<'_> {
    /// Reads which members of the large sorted set with this head, which was read last, lie in a
    /// shape, of those whose scores are in `range`, or at its end.
    ///
    /// # Errors
    /// A refusal if what it finds is longer than a reply may be.
    pub(crate) fn near(
        &mut self,
        head: TreeHead,
        range: Range<f64>,
        around: Around,
    ) -> Result<Near, Interrupted> {
        let members = self.members()?;
        let start = elements::start(head.id, Kind::Score);
        let key = |score| [&start[..], &elements::ordered(score)].concat();
        let goal = Goal {
            from: Bound::Included(key(range.start)),
            until: Some(key(range.end)),
            count: usize::MAX,
            around: Some(around),
            ..self.goal(ValueType::SortedSet, head)
        };
        let load = self.load_around(members, goal);
        self.confirmed(head, load).map(Near)
    }
}
