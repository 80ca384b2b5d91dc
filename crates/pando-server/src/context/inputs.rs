//! Collections that a command combines, as SINTER and ZUNIONSTORE do.
//!
//! A packed one is read at once. Of a large one no more than its length is, until the command knows
//! what it needs: an intersection needs of each input no more than the elements that are left of
//! the smallest one, and a difference those that are left of the first one.

use std::ops::Range;

use super::{Collection, Context, Interrupted, Part, replies};
use crate::data::keyspace::ValueType;
use crate::data::tree_head::TreeHead;

/// By how much faster the rows of a large collection are read one after the other than by name.
const ROWS_OF_NAME: usize = 8;

/// A collection that argument `at` names.
#[derive(Debug)]
pub(crate) struct Input {
    at: usize,
    pub(crate) value_type: ValueType,
    length: usize,
    content: Content,
    /// What scores are multiplied with; 1 at first.
    pub(crate) weight: f64,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a command has few inputs, and those are packed in most"
)]
pub(super) enum Content {
    /// It is packed, and was read.
    Packed(Collection),
    /// Its elements have rows of their own.
    Large(TreeHead),
}

impl Input {
    /// Returns the number of its elements.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns which argument names it.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the bytes that it takes in memory, about.
    fn memory(&self) -> usize {
        let read = match &self.content {
            Content::Packed(packed) => packed.strings.bytes(),
            Content::Large(_) => 0,
        };
        size_of::<Self>() + read
    }

    /// Returns what was read of it.
    pub(super) fn content(&self) -> &Content {
        &self.content
    }
}

impl Context<'_> {
    /// Looks at the collections that these arguments name. Each must have one of these types; it is
    /// an empty one of the first if the key has none. Counts hits and misses.
    ///
    /// # Errors
    /// A refusal if they take more memory than a reply may: a key may be named again and again.
    pub(crate) fn inputs(
        &mut self,
        places: Range<usize>,
        types: &[ValueType],
    ) -> Result<Vec<Input>, Interrupted> {
        let most = self.engine().reply_bytes_max;
        let (mut inputs, mut bytes) = (Vec::new(), 0);
        for at in places {
            let input = self.input(at, types)?;
            bytes += input.memory();
            if bytes > most {
                return Err(replies::TOO_MANY_LONG_SETS.into());
            }
            inputs.push(input);
        }
        Ok(inputs)
    }

    fn input(&mut self, at: usize, types: &[ValueType]) -> Result<Input, Interrupted> {
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
                content: Content::Large(head),
                weight: 1.0,
            });
        }
        let packed = self.decoded(found, value_type, &Part::All)?;
        Ok(Input {
            at,
            value_type,
            length: packed.len(),
            content: Content::Packed(packed),
            weight: 1.0,
        })
    }

    /// Returns all of an input.
    pub(crate) fn whole_input(&mut self, input: Input) -> Result<Collection, Interrupted> {
        match input.content {
            Content::Packed(packed) => Ok(packed),
            Content::Large(_) => self.large_input((input.at, input.value_type), &Part::All),
        }
    }

    /// Returns at least those elements of an input that have one of these names, which differ.
    pub(crate) fn named_input(
        &mut self,
        input: Input,
        names: &[&[u8]],
    ) -> Result<Collection, Interrupted> {
        let is_few = names.len() < input.length / ROWS_OF_NAME;
        match input.content {
            Content::Large(_) if is_few => {
                self.large_input((input.at, input.value_type), &Part::Named(names))
            }
            _ => self.whole_input(input),
        }
    }

    fn large_input(
        &mut self,
        (at, value_type): (usize, ValueType),
        part: &Part<'_>,
    ) -> Result<Collection, Interrupted> {
        let found = self.find_partly(self.argument(at))?;
        let is_there = found.row.is_some_and(|row| row.value_type == value_type);
        match is_there {
            true => self.decoded(found, value_type, part),
            // It has changed since its length was read.
            false if self.data().batch.is_none() => Err(Interrupted::ReadsMany),
            false => Err(Interrupted::Torn),
        }
    }
}
