//! Where the elements are that a command names.

use std::collections::HashMap;

use super::Collection;
use crate::data::packed::strings_of_one;

/// Number of names from which on a hash table is worth its making.
const NAMES_OF_TABLE: usize = 8;

/// Names of elements, and the place of each that a collection has. One pass over the collection
/// finds all of them, so many names in a large collection are no product of both.
pub(crate) enum Named<'a> {
    Few(Vec<(&'a [u8], Option<usize>)>),
    Many(HashMap<&'a [u8], Option<usize>>),
}

impl<'a> Named<'a> {
    fn new(names: &[&'a [u8]]) -> Self {
        let slots = names.iter().map(|name| (*name, None));
        match names.len() < NAMES_OF_TABLE {
            true => Self::Few(slots.collect()),
            false => Self::Many(slots.collect()),
        }
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<usize>> {
        match self {
            // Of a name that was given twice, the first slot is used.
            Self::Few(names) => {
                let slot = names.iter_mut().find(|(other, _)| *other == name);
                slot.map(|(_, place)| place)
            }
            Self::Many(names) => names.get_mut(name),
        }
    }

    /// Returns the place of the first string of the element `name`, one of the names; `None`: the
    /// collection has none.
    pub(crate) fn find(&mut self, name: &[u8]) -> Option<usize> {
        self.slot(name).and_then(|place| *place)
    }

    /// As [`Named::find`], but it is not found again.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<usize> {
        self.slot(name).and_then(Option::take)
    }

    /// Notes that the element `name`, one of the names, is at `place` now.
    pub(crate) fn set(&mut self, name: &[u8], place: usize) {
        let slot = self.slot(name);
        *slot.expect("it is one of the names") = Some(place);
    }

    /// Returns the places of all that was found, in any order.
    pub(crate) fn places(&self) -> Vec<usize> {
        match self {
            Self::Few(names) => names.iter().filter_map(|(_, place)| *place).collect(),
            Self::Many(names) => names.values().filter_map(|place| *place).collect(),
        }
    }
}

impl Collection {
    /// Finds the elements with these names.
    pub(crate) fn named<'a>(&self, names: &[&'a [u8]]) -> Named<'a> {
        let mut named = Named::new(names);
        let of_one = strings_of_one(self.value_type);
        for (number, string) in self.strings.iter().step_by(of_one).enumerate() {
            if let Some(slot) = named.slot(string) {
                *slot = Some(number * of_one);
            }
        }
        named
    }

    /// Removes the elements at these places, all of which exist. Returns their number.
    pub(crate) fn remove_at(&mut self, places: &[usize]) -> i64 {
        let of_one = strings_of_one(self.value_type);
        let mut kept = vec![true; self.in_memory()];
        for place in places {
            kept[place / of_one] = false;
        }
        let before = self.len();
        self.strings.retain(|place| kept[place / of_one]);
        i64::try_from(before - self.len()).unwrap_or(i64::MAX)
    }

    /// Removes the elements with these names. Returns their number.
    pub(crate) fn remove_named(&mut self, names: &[&[u8]]) -> i64 {
        let places = self.named(names).places();
        match places.is_empty() {
            true => 0,
            false => self.remove_at(&places),
        }
    }
}
