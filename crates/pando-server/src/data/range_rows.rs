//! The rows of a new sorted set that has neighbours of another one. They are those of one moment if
//! the head of that is the same before they are read and when the new one is named.

use std::ops::{Bound, Range};

use pandodb::Table;

use super::combination::Merged;
use super::elements::{self, Kind};
use super::new_members::NewMembers;
use super::new_rows::{NewRows, NextRows};

/// Reads the members, and makes the rows.
#[derive(Debug)]
pub(crate) struct RangeRows {
    members: Table,
    /// The other sorted set.
    id: u64,
    /// The rank of the first one, if that was not looked for yet.
    first: Option<usize>,
    /// Where those begin that were not read yet; `None` behind the last one.
    from: Option<Bound<Vec<u8>>>,
    /// Members that are left.
    left: usize,
    made: NewMembers,
}

impl RangeRows {
    /// Returns those of the members at `ranks` of the sorted set `id`.
    pub(crate) fn new((members, id): (Table, u64), ranks: Range<usize>, made: NewMembers) -> Self {
        Self {
            members,
            id,
            first: Some(ranks.start),
            from: None,
            left: ranks.len(),
            made,
        }
    }
}

impl NewRows for RangeRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        if let Some(first) = self.first.take() {
            let start = elements::start(self.id, Kind::Score);
            let key = self.members.key_from(&start, first as u64);
            let key = key.map_err(|error| error.to_string())?;
            // None, if others have removed some meanwhile.
            let key = key.filter(|key| key.starts_with(&start));
            self.from = key.map(Bound::Included);
        }
        let Some(from) = self.from.take() else {
            return Ok(false);
        };
        let end = elements::behind(self.id, Kind::Score);
        let from = from.as_ref().map(|key| &key[..]);
        let mut left = self.members.range((from, Bound::Excluded(&end[..])));
        while self.left > 0
            && let Some(row) = left.next_ref()
        {
            let (key, value) = row.map_err(|error| error.to_string())?;
            let decoded = elements::decode_score(key, value);
            let (score, name) = decoded.map_err(|_| "the row of a member is damaged")?;
            self.left -= 1;
            if !self.made.add((name, score), rows)? {
                self.from = Some(Bound::Excluded(key.to_vec()));
                break;
            }
        }
        Ok(self.from.is_some())
    }

    fn merged(&mut self) -> Option<Merged> {
        Some(self.made.merged())
    }
}
