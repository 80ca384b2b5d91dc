//! The members of a set: where one is, and where a new one goes.

use pando_resp::parse_integer;
use std::collections::HashSet;

use crate::context::Collection;
use crate::data::packed::{Encoding, Strings};

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

    fn make_index(&mut self) {
        let strings = self.set.strings.iter();
        self.index = Some(strings.map(<[u8]>::to_vec).collect());
    }

    pub(super) fn len(&self) -> usize {
        self.set.len()
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
                    if self.len() > self.set.limits.integers {
                        self.set.encoding = Encoding::Hashtable;
                        self.make_index();
                    }
                    return true;
                }
                None => {
                    let most = self.set.limits.bytes;
                    let fit = self.iter().all(|member| member.len() <= most);
                    self.set.encoding = match fit {
                        true => Encoding::Listpack,
                        false => Encoding::Hashtable,
                    };
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
            let most = self.set.limits;
            if self.len() > most.elements || member.len() > most.bytes {
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

/// Returns the set of these members, which differ; `empty` has none.
pub(in crate::commands) fn of_all(empty: Collection, members: &Strings) -> Collection {
    let mut all = Members::new(empty, 0);
    members.iter().for_each(|member| {
        all.add(member);
    });
    all.set
}
