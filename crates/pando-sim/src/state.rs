//! The part of a store that belongs to one thread, and a fingerprint of it that is cheap to
//! maintain: the exclusive or of the hashes of its entries.
//!
//! Every entry has one owner, the only thread that ever writes it, so that a thread's commits can
//! be checked without the others. Table `own3.x` belongs to thread 3; in shared tables the last
//! byte of a key names its owner, so that leaves are shared although entries are not.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A table and a key in it.
pub type Place = (String, Vec<u8>);

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// One change of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Sets the value of an entry.
    Put(Place, Vec<u8>),
    /// Removes an entry.
    Delete(Place),
    /// Empties a table.
    Clear(String),
    /// Removes a table.
    Drop(String),
    /// Creates a table.
    Create(String),
}

impl Effect {
    /// Returns the table that it changes.
    pub fn table(&self) -> &str {
        match self {
            Self::Put((table, _), _) | Self::Delete((table, _)) => table,
            Self::Clear(table) | Self::Drop(table) | Self::Create(table) => table,
        }
    }
}

/// Returns the name of a table of thread `owner`.
pub fn own_table(owner: usize, number: usize) -> String {
    format!("own{owner}.{number}")
}

/// Returns the name of a table that all threads share.
pub fn shared_table(number: usize) -> String {
    format!("shared.{number}")
}

/// Returns the thread that a table belongs to, if it belongs to one.
pub fn table_owner(table: &str) -> Option<usize> {
    table.strip_prefix("own")?.split_once('.')?.0.parse().ok()
}

/// Returns the thread that an entry belongs to; `None` for an entry that no thread can have
/// written.
pub fn owner(table: &str, key: &[u8]) -> Option<usize> {
    match table_owner(table) {
        Some(owner) => Some(owner),
        None => key.last()?.checked_sub(b'0').map(usize::from),
    }
}

/// Entries and tables of one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    tables: BTreeSet<String>,
    entries: BTreeMap<Place, Vec<u8>>,
    print: u64,
}

fn print_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl State {
    /// Returns the fingerprint: equal states have the same one, and different states different
    /// ones.
    pub fn print(&self) -> u64 {
        self.print
    }

    /// Returns the value at `place`.
    pub fn get(&self, place: &Place) -> Option<&Vec<u8>> {
        self.entries.get(place)
    }

    /// Iterates over the entries of a table, in order.
    pub fn table<'s>(&'s self, table: &'s str) -> impl Iterator<Item = (&'s Place, &'s Vec<u8>)> {
        let from = (table.to_owned(), Vec::new());
        self.entries
            .range(from..)
            .take_while(move |((name, _), _)| name == table)
    }

    /// Returns all entries.
    pub fn entries(&self) -> &BTreeMap<Place, Vec<u8>> {
        &self.entries
    }

    /// Returns the tables of this thread that exist.
    pub fn tables(&self) -> &BTreeSet<String> {
        &self.tables
    }

    /// Applies a change.
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put(place, value) => self.put(place.clone(), value.clone()),
            Effect::Delete(place) => self.delete(place),
            Effect::Clear(table) => self.clear(table),
            Effect::Drop(table) => {
                self.clear(table);
                if self.tables.remove(table) {
                    self.print ^= print_of(table);
                }
            }
            Effect::Create(table) => {
                if self.tables.insert(table.clone()) {
                    self.print ^= print_of(table);
                }
            }
        }
    }

    fn put(&mut self, place: Place, value: Vec<u8>) {
        self.print ^= print_of((&place, &value));
        if let Some(old) = self.entries.insert(place.clone(), value) {
            self.print ^= print_of((&place, &old));
        }
    }

    fn delete(&mut self, place: &Place) {
        if let Some(old) = self.entries.remove(place) {
            self.print ^= print_of((place, &old));
        }
    }

    fn clear(&mut self, table: &str) {
        let places: Vec<Place> = self.table(table).map(|(place, _)| place.clone()).collect();
        for place in &places {
            self.delete(place);
        }
    }

    /// Describes the first few differences between this state, which is expected, and `found`.
    pub fn differences(&self, found: &Self) -> String {
        let mut lines = Vec::new();
        let show = |value: Option<&Vec<u8>>| match value {
            Some(value) => format!("{} bytes of {:?}", value.len(), value.first()),
            None => "nothing".to_owned(),
        };
        for place in self.entries.keys().chain(found.entries.keys()) {
            let (expected, actual) = (self.get(place), found.get(place));
            if expected != actual && lines.len() < 8 {
                lines.push(format!(
                    "{} {:?}: {} expected, {} found",
                    place.0,
                    String::from_utf8_lossy(&place.1),
                    show(expected),
                    show(actual)
                ));
            }
        }
        for table in self.tables.symmetric_difference(&found.tables) {
            lines.push(format!("table {table} is there in one of them"));
        }
        lines.join("\n  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        (own_table(0, 1), key.into())
    }

    #[test]
    fn fingerprints_follow_content_and_not_the_way_to_it() {
        let mut one = State::default();
        one.apply(&Effect::Create(own_table(0, 1)));
        one.apply(&Effect::Put(place("a"), b"1".to_vec()));
        one.apply(&Effect::Put(place("b"), b"2".to_vec()));
        one.apply(&Effect::Put(place("a"), b"3".to_vec()));
        let mut other = State::default();
        other.apply(&Effect::Put(place("b"), b"2".to_vec()));
        assert_ne!(one.print(), other.print());
        other.apply(&Effect::Put(place("a"), b"3".to_vec()));
        assert_ne!(one.print(), other.print(), "the table counts");
        other.apply(&Effect::Create(own_table(0, 1)));
        assert_eq!(one, other);
        one.apply(&Effect::Clear(own_table(0, 1)));
        assert!(one.differences(&other).contains("nothing expected"));
        one.apply(&Effect::Drop(own_table(0, 1)));
        assert_eq!(one, State::default());
    }

    #[test]
    fn every_entry_has_an_owner() {
        assert_eq!(owner("own12.3", b"x"), Some(12));
        assert_eq!(owner("shared.0", b"x2"), Some(2));
        assert_eq!(owner("shared.0", b""), None);
    }
}
