//! The members of a set: where one is, and where a new one goes.

use pando_resp::parse_integer;
use std::collections::HashSet;

use crate::context::{Collection, Found};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;

/// Longest intset, as Redis has it by default: `set-max-intset-entries`.
const INTSET_MEMBERS_MAX: usize = 512;
/// Longest listpack in members: `set-max-listpack-entries`.
const LISTPACK_MEMBERS_MAX: usize = 128;
/// Longest member in a listpack: `set-max-listpack-value`.
const LISTPACK_BYTES_MAX: usize = 64;
/// Number of members to be looked for from which on an index is worth its making.
const MEMBERS_OF_INDEX: usize = 8;

/// A set with a way to find its members.
pub(super) struct Members {
    pub(super) set: Collection,
    /// All members, if that pays.
    index: Option<HashSet<Vec<u8>>>,
}

impl Members {
    /// Wraps a set in which about `asked` members are looked for.
    pub(super) fn new(set: Collection, asked: usize) -> Self {
        let mut members = Self { set, index: None };
        if asked >= MEMBERS_OF_INDEX && members.set.encoding != Encoding::Intset {
            members.make_index();
        }
        members
    }

    /// Returns an empty set that replaces what `found` describes.
    pub(super) fn replacing(found: Found, asked: usize) -> Self {
        // What is replaced gives nothing to the new set but the entry that has to go.
        let found = Found {
            row: None,
            entry: found.entry,
            ..Found::default()
        };
        Self::new(Collection::new(found, ValueType::Set), asked)
    }

    fn make_index(&mut self) {
        let strings = self.set.strings.iter();
        self.index = Some(strings.map(<[u8]>::to_vec).collect());
    }

    pub(super) fn len(&self) -> usize {
        self.set.strings.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.set.strings.iter()
    }

    pub(super) fn has(&self, member: &[u8]) -> bool {
        match (&self.index, self.set.encoding) {
            (Some(index), _) => index.contains(member),
            (None, Encoding::Intset) => {
                self.intset_place(member).is_some_and(|place| place.is_ok())
            }
            (None, _) => self.set.strings.find(member, 1).is_some(),
        }
    }

    /// Returns the place of a number in an intset, or the one where it belongs; `None` for a member
    /// that is no number.
    fn intset_place(&self, member: &[u8]) -> Option<Result<usize, usize>> {
        let number = parse_integer(member)?;
        let strings = &self.set.strings;
        let (mut low, mut high) = (0, strings.len());
        while low < high {
            let middle = (low + high) / 2;
            // Of damaged rows as well: what is no number is before all numbers.
            match parse_integer(strings.at(middle)).cmp(&Some(number)) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(Ok(middle)),
            }
        }
        Some(Err(low))
    }

    /// Adds a member. Returns false if it was there.
    pub(super) fn add(&mut self, member: &[u8]) -> bool {
        if self.set.encoding == Encoding::Intset {
            match self.intset_place(member) {
                Some(Ok(_)) => return false,
                Some(Err(place)) => {
                    self.set.strings.insert(place, member);
                    if self.len() > INTSET_MEMBERS_MAX {
                        self.set.encoding = Encoding::Hashtable;
                        self.make_index();
                    }
                    return true;
                }
                None => {
                    self.set.encoding = Encoding::Listpack;
                    self.make_index();
                }
            }
        }
        let is_new = match &mut self.index {
            Some(index) => index.insert(member.to_vec()),
            None => !self.has(member),
        };
        if is_new {
            self.set.strings.push(member);
            if self.len() > LISTPACK_MEMBERS_MAX || member.len() > LISTPACK_BYTES_MAX {
                self.set.encoding = Encoding::Hashtable;
            }
        }
        is_new
    }

    /// Removes a member. Returns false if it was not there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let place = match self.set.encoding {
            Encoding::Intset => self.intset_place(member).and_then(Result::ok),
            _ => self.set.strings.find(member, 1),
        };
        if let Some(index) = &mut self.index {
            index.remove(member);
        }
        if let Some(place) = place {
            self.set.strings.remove(place..place + 1);
        }
        place.is_some()
    }
}
