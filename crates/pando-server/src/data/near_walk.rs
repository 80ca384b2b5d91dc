//! The members of a large sorted set that lie near a place, read by threads.
//!
//! The ranges of geohashes that a search looks at, their order and what lies in the shape are those
//! of `context/tree/near.rs`, which reads them on a loop.

use std::ops::{Bound, Range};

use pandodb::{Snapshot, Table};

use super::elements::{self, Kind};
use super::shape::Around;
use super::shown_rows::Broken;

/// Rows that are read in one turn, at most.
const ROWS: usize = 16 << 10;

/// A member that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearMember<'m> {
    /// From the center, in the unit of the search.
    pub(crate) distance: f64,
    pub(crate) score: f64,
    pub(crate) name: &'m [u8],
}

/// What is looked for.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) around: Around,
    /// The scores of members that may lie there, in ascending order.
    pub(crate) ranges: Vec<Range<f64>>,
}

/// Reads the members.
#[derive(Debug)]
pub(crate) struct NearWalk {
    members: Table,
    id: u64,
    /// The moment that is read; `None`: each turn as it is.
    snapshot: Option<Snapshot>,
    search: Search,
    /// The range that is read, and where it goes on, if that is not its beginning.
    range: usize,
    from: Option<Vec<u8>>,
    /// Number of members that were found.
    found: usize,
}

impl NearWalk {
    /// Returns one over the members of the sorted set `id`.
    pub(crate) fn new((members, id): (Table, u64), search: Search) -> Self {
        Self {
            members,
            id,
            snapshot: None,
            search,
            range: 0,
            from: None,
            found: 0,
        }
    }

    /// Makes it read the moment of `snapshot`.
    pub(crate) fn at(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Goes back to the beginning.
    pub(crate) fn rewind(&mut self) {
        (self.range, self.from, self.found) = (0, None, 0);
    }

    /// Hands members to `take`, until that returns false, or others are to have their turn, or none
    /// is left. Returns whether some may be. Blocks.
    pub(crate) fn walk(
        &mut self,
        mut take: impl FnMut(NearMember<'_>) -> Result<bool, Broken>,
    ) -> Result<bool, Broken> {
        let around = self.search.around;
        let start = elements::start(self.id, Kind::Score);
        let key = |score| [&start[..], &elements::ordered(score)].concat();
        let mut left = ROWS;
        while let Some(range) = self.search.ranges.get(self.range) {
            let (first, until) = (key(range.start), key(range.end));
            let from = match &self.from {
                Some(last) => Bound::Excluded(&last[..]),
                None => Bound::Included(&first[..]),
            };
            let bounds = (from, Bound::Included(&until[..]));
            let mut rows = match &self.snapshot {
                Some(snapshot) => snapshot.range(&self.members, bounds),
                None => self.members.range(bounds),
            };
            while let Some(row) = rows.next_ref() {
                let (key, value) = row?;
                let mut has_room = true;
                if let Some(distance) = around.distance(elements::score_of(key)?) {
                    let (score, name) = elements::decode_score(key, value)?;
                    self.found += 1;
                    has_room = take(NearMember {
                        distance,
                        score,
                        name,
                    })?;
                }
                left -= 1;
                if self.found == around.enough {
                    self.range = self.search.ranges.len();
                    return Ok(false);
                }
                if !has_room || left == 0 {
                    self.from = Some(key.to_vec());
                    return Ok(true);
                }
            }
            (self.range, self.from) = (self.range + 1, None);
        }
        Ok(false)
    }
}
