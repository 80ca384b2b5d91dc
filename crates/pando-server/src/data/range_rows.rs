//! The rows of a new sorted set that has neighbours of another one. They are those of one moment if
//! the head of that is the same before they are read and when the new one is named.

use std::ops::Bound;

use pandodb::Table;

use super::combination::Merged;
use super::elements::{self, Kind, START_BYTES};
use super::new_members::NewMembers;
use super::new_rows::{NewRows, NextRows};

/// Reads the members, and makes the rows.
#[derive(Debug)]
pub(crate) struct RangeRows {
    members: Table,
    /// Where those begin that were not read yet; `None` behind the last one.
    from: Option<Bound<Vec<u8>>>,
    /// Behind all rows of the other one.
    end: [u8; START_BYTES],
    /// Members that are left.
    left: usize,
    made: NewMembers,
}

impl RangeRows {
    /// Returns those of `count` members of the sorted set `id`, from the one on whose row by its
    /// score has the key `first`.
    pub(crate) fn new(
        (members, id): (Table, u64),
        (first, count): (Vec<u8>, usize),
        made: NewMembers,
    ) -> Self {
        Self {
            members,
            from: Some(Bound::Included(first)),
            end: elements::behind(id, Kind::Score),
            left: count,
            made,
        }
    }
}

impl NewRows for RangeRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        let Some(from) = self.from.take() else {
            return Ok(false);
        };
        let from = from.as_ref().map(|key| &key[..]);
        let mut left = self.members.range((from, Bound::Excluded(&self.end[..])));
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
