//! Storing a range of a large sorted set without reading it into memory: a thread reads the rows by
//! score, and writes those of the result (decisions 126 and 129).
//!
//! The thread finds the range by its ranks. What it reads are the rows of the head that the command
//! has read, for the reason that `copies.rs` gives.

use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;

use super::merges::Stored;
use crate::context::{Context, Interrupted};
use crate::data::keyspace::ValueType;
use crate::data::new_members::Arrival;
use crate::data::range_rows::RangeRows;
use crate::data::tree_head::TreeHead;

/// Elements from which on a thread stores a range. Fewer are sooner read and written at once.
const ELEMENTS_MIN: usize = 4096;

impl Context<'_> {
    /// Makes the elements at `ranks` of the large sorted set with this head, which was read last,
    /// the value of `key`; `None` if that is to be done in memory: they are few, which is no reason
    /// if it `must` be, or of the transaction's own, or it sees an earlier moment.
    pub(crate) fn put_range(
        &mut self,
        key: &[u8],
        (head, ranks): (TreeHead, Range<usize>),
        must: bool,
    ) -> Result<Option<Stored>, Interrupted> {
        let members = self.members()?.clone();
        let mut hasher = self.progress.builds.hasher();
        (members.name(), members.last_swap()).hash(&mut hasher);
        (head.id, head.edition, head.count, &ranks).hash(&mut hasher);
        let identity = (ValueType::SortedSet, hasher.finish());
        let limits = self
            .shared
            .settings
            .encoding_limits
            .of(ValueType::SortedSet);
        // A listpack has no negative zeros, so what may become one is made in memory.
        let is_long = ranks.len() >= ELEMENTS_MIN && ranks.len() > limits.elements;
        let is_wanted = must || is_long || self.has_begun_members(identity);
        if ranks.is_empty() || !is_wanted || !self.is_as_stored(&members, head.id) {
            return Ok(None);
        }
        let count = ranks.len();
        let how = (Some(count), Arrival::ByScore);
        let stored = self.put_members(key, identity, how, |made| {
            Box::new(RangeRows::new((members, head.id), ranks, made))
        });
        stored.map(Some)
    }
}
