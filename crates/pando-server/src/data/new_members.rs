//! The rows of a new set or sorted set that are made one member after the other, as members are
//! found that need not be in memory together.

use pando_resp::parse_integer;

use super::combination::Merged;
use super::elements::ElementKeys;
use super::new_rows::NextRows;
use super::packed::Strings;

/// Bytes of a result up to which it is handed on, and no rows are made of it.
const LITTLE_BYTES: usize = 32 * 1024;

/// The order in which members are added. Rows in another one are written behind all others, sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// That of the rows by name. Members of sets come in no other.
    ByName,
    /// That of the rows by score, or the opposite one.
    ByScore,
    /// Neither.
    Mixed,
}

/// Makes the rows.
#[derive(Debug)]
pub(crate) struct NewMembers {
    keys: ElementKeys,
    id: u64,
    /// The result is a sorted set.
    is_scored: bool,
    arrival: Arrival,
    /// Bytes of the longest element that has a row.
    element_bytes_max: usize,
    merged: Merged,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl NewMembers {
    /// For the collection `id`, a sorted set or a set.
    pub(crate) fn new(
        (keys, id): (ElementKeys, u64),
        (is_scored, arrival): (bool, Arrival),
        element_bytes_max: usize,
    ) -> Self {
        Self {
            keys,
            id,
            is_scored,
            arrival,
            element_bytes_max,
            merged: Merged {
                little: Some(Strings::default()),
                ..Merged::default()
            },
            key: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Returns what is known of those that were added.
    pub(crate) fn merged(&self) -> Merged {
        self.merged.clone()
    }

    /// Adds a member. Returns false if there are rows enough for a transaction.
    pub(crate) fn add(
        &mut self,
        (name, score): (&[u8], f64),
        rows: &mut NextRows,
    ) -> Result<bool, String> {
        let score = score.to_le_bytes();
        let value = match self.is_scored {
            true => &score[..],
            false => &[],
        };
        let (bytes, most) = (name.len() + value.len(), self.element_bytes_max);
        if bytes > most {
            return Err(format!(
                "an element of {bytes} bytes is too long: the most is {most}"
            ));
        }
        self.merged.count += 1;
        self.merged.longest = self.merged.longest.max(name.len());
        self.merged.has_others |= parse_integer(name).is_none();
        let Some(little) = &mut self.merged.little else {
            return self.add_rows(name, value, rows);
        };
        little.push(name);
        if self.is_scored {
            little.push(value);
        }
        if little.bytes() < LITTLE_BYTES {
            return Ok(true);
        }
        let all = self.merged.little.take().unwrap_or_default();
        let mut has_room = true;
        let mut strings = all.iter();
        while let Some(name) = strings.next() {
            let value = match self.is_scored {
                true => strings.next().unwrap_or_default(),
                false => &[],
            };
            has_room = self.add_rows(name, value, rows)?;
        }
        Ok(has_room)
    }

    fn add_rows(&mut self, name: &[u8], value: &[u8], rows: &mut NextRows) -> Result<bool, String> {
        self.keys.name(self.id, name, &mut self.key);
        self.keys.value(name, (value, None), &mut self.row);
        let mut has_room = match self.arrival {
            Arrival::ByName => rows.push(&self.key, &self.row),
            Arrival::ByScore | Arrival::Mixed => rows.push_later(&self.key, &self.row)?,
        };
        if let Ok(score) = value.try_into().map(f64::from_le_bytes) {
            self.keys.score(self.id, score, name, &mut self.key);
            self.keys.score_value(score, name, &mut self.row);
            has_room = match self.arrival {
                Arrival::ByScore => rows.push(&self.key, &self.row),
                Arrival::ByName | Arrival::Mixed => rows.push_later(&self.key, &self.row)?,
            };
        }
        Ok(has_room)
    }
}
