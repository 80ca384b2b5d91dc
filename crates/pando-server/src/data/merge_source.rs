//! A set or sorted set that is read in the order in which all of them have their members.

use std::collections::VecDeque;
use std::ops::Bound;

use pandodb::{Snapshot, Table};

use super::elements::{self, ElementKeys, Kind, name_tail};
use super::keyspace::RowError;
use super::packed::Strings;
use super::shown_rows::Broken;

/// Bytes of rows, about, that are read where a member is looked for that was not read yet.
const SOUGHT_BYTES: usize = 512;
/// By how much a page is larger than the one before it, up to the most.
const GROWTH: usize = 4;

/// Key and value of a row of [`Kind::Name`].
type Row = (Vec<u8>, Vec<u8>);

/// Members in the order of their hashes, in which the rows of large collections lie
/// (`elements.rs`).
#[derive(Debug)]
pub(crate) struct MergeSource {
    /// What was read and not passed yet.
    rows: VecDeque<Row>,
    /// The table and the id of a large collection; a packed one is in memory, all of it.
    large: Option<(Table, u64)>,
    /// Where that begins which was not read yet; `None`: there is nothing.
    from: Option<Bound<Vec<u8>>>,
    /// The moment that is read; `None`: each page as it is.
    snapshot: Option<Snapshot>,
    /// Bytes of rows, about, that are read at a time, at most.
    page_bytes_max: usize,
    /// As many the next time: few where one member is looked for, more with each page that follows.
    page_bytes: usize,
    /// Its members have scores; else 1 is that of each.
    is_scored: bool,
    /// What scores are multiplied with.
    weight: f64,
}

impl MergeSource {
    /// Returns the members of the large collection `id`, which are read when they are needed.
    pub(crate) fn of_rows(
        (members, id): (Table, u64),
        page_bytes_max: usize,
        (is_scored, weight): (bool, f64),
    ) -> Self {
        let from = Bound::Included(elements::start(id, Kind::Name).to_vec());
        Self {
            rows: VecDeque::new(),
            large: Some((members, id)),
            from: Some(from),
            snapshot: None,
            page_bytes_max,
            page_bytes: page_bytes_max,
            is_scored,
            weight,
        }
    }

    /// Makes it read the moment of `snapshot`.
    pub(crate) fn at(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Returns these members, each with what belongs to it.
    fn of_members<'m>(
        members: impl Iterator<Item = (&'m [u8], &'m [u8])>,
        keys: &ElementKeys,
        (is_scored, weight): (bool, f64),
    ) -> Self {
        let mut rows: Vec<Row> = members
            .map(|(name, value)| {
                let mut row = Row::default();
                keys.name(0, name, &mut row.0);
                keys.value(name, (value, None), &mut row.1);
                row
            })
            .collect();
        rows.sort();
        Self {
            rows: rows.into(),
            large: None,
            from: None,
            snapshot: None,
            page_bytes_max: 0,
            page_bytes: 0,
            is_scored,
            weight,
        }
    }

    /// Returns the members of a packed set; of a sorted set if it is scored.
    pub(crate) fn of_strings(
        strings: &Strings,
        keys: &ElementKeys,
        (is_scored, weight): (bool, f64),
    ) -> Self {
        let of_one = if is_scored { 2 } else { 1 };
        let members = (0..strings.len()).step_by(of_one).map(|place| {
            let value = match is_scored {
                true => strings.at(place + 1),
                false => &[],
            };
            (strings.at(place), value)
        });
        Self::of_members(members, keys, (is_scored, weight))
    }

    /// Returns what the score of the member in this row counts.
    pub(crate) fn score(&self, value: &[u8]) -> Result<f64, RowError> {
        if !self.is_scored {
            return Ok(self.weight);
        }
        let score = f64::from_le_bytes(value.try_into().map_err(|_| RowError::Damaged)?);
        match score.is_nan() {
            true => Err(RowError::Damaged),
            false => Ok(self.weight * score),
        }
    }

    /// Returns the place of the next member, if there is one.
    pub(crate) fn place(&mut self) -> Result<Option<&[u8]>, Broken> {
        if self.rows.is_empty() {
            self.read()?;
        }
        Ok(self.rows.front().map(|(key, _)| name_tail(key)))
    }

    /// Passes the next member, and returns its row.
    pub(crate) fn pop(&mut self) -> Result<Option<Row>, Broken> {
        if self.rows.is_empty() {
            self.read()?;
        }
        Ok(self.rows.pop_front())
    }

    /// Passes all members before `place`, and the one at it, whose row it returns.
    pub(crate) fn take(&mut self, place: &[u8]) -> Result<Option<Row>, Broken> {
        self.pass(place)?;
        match self.place()? {
            Some(next) if next == place => self.pop(),
            _ => Ok(None),
        }
    }

    /// Passes all members before `place`; those that were not read yet are not read.
    pub(crate) fn pass(&mut self, place: &[u8]) -> Result<(), Broken> {
        while let Some((key, _)) = self.rows.front() {
            if name_tail(key) >= place {
                return Ok(());
            }
            self.rows.pop_front();
        }
        if let (Some((_, id)), Some(from)) = (&self.large, &mut self.from) {
            let place = elements::name_key(*id, place);
            let (Bound::Included(next) | Bound::Excluded(next)) = &*from else {
                return Ok(());
            };
            if *next < place {
                *from = Bound::Included(place);
                self.page_bytes = SOUGHT_BYTES.min(self.page_bytes_max);
            }
            self.read()?;
        }
        Ok(())
    }

    /// Forgets what was read of a large collection and not passed yet, since it may be long until
    /// that is needed: then it is read again, as of the same moment.
    pub(crate) fn forget_ahead(&mut self) {
        if self.large.is_some()
            && let Some((key, _)) = self.rows.pop_front()
        {
            self.from = Some(Bound::Included(key));
            self.rows = VecDeque::new();
            self.page_bytes = SOUGHT_BYTES.min(self.page_bytes_max);
        }
    }

    /// Number of members that were read and not passed yet.
    #[cfg(test)]
    pub(crate) fn ahead(&self) -> usize {
        self.rows.len()
    }

    /// Reads more rows, if there are any.
    fn read(&mut self) -> Result<(), Broken> {
        let (Some((members, id)), Some(from)) = (&self.large, self.from.take()) else {
            return Ok(());
        };
        let end = elements::behind(*id, Kind::Name);
        let bounds = (from.as_ref().map(|key| &key[..]), Bound::Excluded(&end[..]));
        let mut bytes = 0;
        let mut next = None;
        let mut left = match &self.snapshot {
            Some(snapshot) => snapshot.range(members, bounds),
            None => members.range(bounds),
        };
        while let Some(row) = left.next_ref() {
            let (key, value) = row?;
            bytes += key.len() + value.len();
            self.rows.push_back((key.to_vec(), value.to_vec()));
            if bytes >= self.page_bytes {
                next = Some(Bound::Excluded(key.to_vec()));
                break;
            }
        }
        drop(left);
        self.page_bytes = (self.page_bytes * GROWTH).min(self.page_bytes_max);
        self.from = next;
        Ok(())
    }
}
