//! Members of a large sorted set that lie near a place, whose scores are geohashes.
//!
//! A search reads ranges of scores (decision 110). Only what lies in its shape is kept of a range:
//! so it takes memory for what it finds, or, if it wants the nearest ones of that, for about twice
//! as many of each range. A run that goes on after a wait has each range that it is done with as
//! what was found there.
//!
//! Many members are read by a thread, for a reply ([`Context::ask_for_near`], decision 130) or to
//! be stored ([`Context::put_near`], decision 129).

use std::hash::{Hash as _, Hasher as _};
use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::Lsn;

use super::merges::Stored;
use super::part::{Goal, Load};
use crate::context::row_source::Heading;
use crate::context::{Context, Interrupted, Run};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::near_rows::NearRows;
use crate::data::near_walk::{NearWalk, Search};
use crate::data::new_members::Arrival;
use crate::data::shape::Around;
use crate::data::shown_near::{NearRequest, Show};
use crate::data::tree_head::TreeHead;

/// The head of a large sorted set in which a member was read, if it was one, and the last swap of
/// its table before that.
pub(crate) type Seen = (Option<TreeHead>, Lsn);

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

    /// Returns true if a thread may show what a search finds in the large sorted set with this
    /// head, or store it.
    pub(crate) fn may_leave_near(
        &mut self,
        head: TreeHead,
        is_stored: bool,
    ) -> Result<bool, Interrupted> {
        match is_stored {
            true => {
                let members = self.members()?;
                Ok(self.is_as_stored(members, head.id))
            }
            false => Ok(self.has_moment_of_its_own()),
        }
    }

    /// Asks for what a search finds in the large sorted set at `key` to be read while it is sent;
    /// `seen` is what its center was read in, if that is the place of a member. Returns only if it
    /// is not to be: the command reads it itself.
    pub(crate) fn ask_for_near(
        &mut self,
        (key, head): (&[u8], TreeHead),
        seen: Option<Seen>,
        (search, show): (Search, Show),
    ) -> Run {
        if !self.may_reply_large()? {
            return Ok(());
        }
        if seen.is_some_and(|(seen, _)| seen != Some(head)) {
            return self.confirmed(head, Err(Interrupted::Torn));
        }
        let mut stored = Vec::new();
        self.engine().folder.store(key, &mut stored);
        let request = NearRequest {
            keys: self.database().keys.clone(),
            stored,
            members: self.members()?.clone(),
            seen: seen.map(|(_, last_swap)| (head, last_swap)),
            search,
            show,
            scratch: self.shared.scratch.clone(),
            version: self.session.version,
            now_ms: self.now_ms,
        };
        self.begin_request(Box::new(request), Heading::Array(1))
    }

    /// Makes what a search finds in the large sorted set with this head, which was read last, the
    /// value of `key`, with distances as scores if it `has_distances`; `None` if that is to be done
    /// in memory: no earlier run has begun, and it is no `must`, or the members are of the
    /// transaction's own, or it sees an earlier moment.
    pub(crate) fn put_near(
        &mut self,
        key: &[u8],
        head: TreeHead,
        (search, has_distances): (Search, bool),
        must: bool,
    ) -> Result<Option<Stored>, Interrupted> {
        let members = self.members()?.clone();
        let around = search.around;
        // Of those that are enough all are wanted.
        let order = around.order.filter(|order| order.count < around.enough);
        let mut hasher = self.progress.builds.hasher();
        (members.name(), members.last_swap()).hash(&mut hasher);
        (head.id, head.edition, head.count).hash(&mut hasher);
        // Shown numbers tell each double from all others.
        (format!("{around:?}"), has_distances).hash(&mut hasher);
        let identity = (ValueType::SortedSet, hasher.finish());
        let is_wanted = must || self.has_begun_members(identity);
        if !is_wanted || !self.is_as_stored(&members, head.id) {
            return Ok(None);
        }
        let scratch = self.shared.scratch_of_rows.clone();
        // Without an order they come by their geohashes, else by their distances.
        let arrival = match order.is_some() == has_distances {
            true => Arrival::ByScore,
            false => Arrival::Mixed,
        };
        let stored = self.put_members(key, identity, (None, arrival), |made| {
            let walk = NearWalk::new((members, head.id), search);
            Box::new(NearRows::new(walk, (order, scratch), (has_distances, made)))
        });
        stored.map(Some)
    }
}
