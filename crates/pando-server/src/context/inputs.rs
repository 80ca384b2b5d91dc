//! Collections that a command combines, as SINTER and ZUNIONSTORE do.
//!
//! A packed one is read at once. Of a large one no more than its length is, until the command knows
//! what it needs: an intersection needs of each input no more than the elements that are left of
//! the smallest one, and a difference those that are left of the first one.

use super::{Collection, Context, Interrupted, Part, replies};
use crate::data::keyspace::ValueType;

/// Most names that are looked for one by one: without a turn for others, and each is kept as read
/// until the commit.
const NAMES_MAX: usize = 8192;
/// By how much faster the rows of a large collection are read one after the other.
const ROWS_OF_NAME: usize = 8;

/// A collection that argument `at` names.
#[derive(Debug)]
pub(crate) struct Input {
    at: usize,
    pub(crate) value_type: ValueType,
    length: usize,
    /// All of it; `None` if it is large.
    whole: Option<Collection>,
}

impl Input {
    /// Returns the number of its elements.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Context<'_> {
    /// Looks at the collection that argument `at` names, which must have one of these types; an
    /// empty one of the first if the key has none. Counts hits and misses.
    pub(crate) fn input(&mut self, at: usize, types: &[ValueType]) -> Result<Input, Interrupted> {
        let found = self.read_partly(self.argument(at))?;
        let value_type = found.row.map_or(types[0], |row| row.value_type);
        if !types.contains(&value_type) {
            return Err(replies::WRONG_TYPE.into());
        }
        if let Some(head) = self.tree_head(&found)? {
            return Ok(Input {
                at,
                value_type,
                length: head.len(),
                whole: None,
            });
        }
        let whole = self.decoded(found, value_type, &Part::All)?;
        Ok(Input {
            at,
            value_type,
            length: whole.len(),
            whole: Some(whole),
        })
    }

    /// Returns all of an input.
    pub(crate) fn whole_input(&mut self, input: Input) -> Result<Collection, Interrupted> {
        match input.whole {
            Some(whole) => Ok(whole),
            None => self.large_input(&input, &Part::All),
        }
    }

    /// Returns at least those elements of an input that have one of these names, which differ.
    pub(crate) fn named_input(
        &mut self,
        input: Input,
        names: &[&[u8]],
    ) -> Result<Collection, Interrupted> {
        let is_few = names.len() <= NAMES_MAX && names.len() < input.length / ROWS_OF_NAME;
        match is_few && input.whole.is_none() {
            true => self.large_input(&input, &Part::Named(names)),
            false => self.whole_input(input),
        }
    }

    fn large_input(&mut self, input: &Input, part: &Part<'_>) -> Result<Collection, Interrupted> {
        let found = self.find_partly(self.argument(input.at))?;
        let value_type = found.row.map(|row| row.value_type);
        match value_type == Some(input.value_type) {
            true => self.decoded(found, input.value_type, part),
            // It has changed since its length was read.
            false if self.data().batch.is_none() => Err(Interrupted::ReadsMany),
            false => Err(Interrupted::Torn),
        }
    }
}
