//! What stands in the way of the expiry cleaner: a full disk, damage, and whatever else fails. It
//! keeps away from that for a while, and does what can be done meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use pandodb::Error;

use super::keyspace::entry_key;

/// Number of rounds through the databases after which what failed is tried again: some ten seconds,
/// if there is nothing else to do.
const ROUNDS: u32 = 100;
/// Most keys and collections that are kept away from.
const DAMAGED_MAX: usize = 100_000;
/// Most errors that are logged.
const TOLD_MAX: usize = 100;

/// What the cleaner keeps away from.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    /// The disk is full: nothing is done that needs room for longer than a moment.
    full: bool,
    /// By number of the database: the last expiry entry, time and stored key, that was looked at
    /// since the disk is full. Those up to there need room.
    behind: BTreeMap<usize, (u64, Vec<u8>)>,
    /// Databases and stored keys that cannot be read.
    damaged: BTreeSet<(usize, Vec<u8>)>,
    /// Databases and ids of collections that were given up and cannot be read.
    damaged_collections: BTreeSet<(usize, u64)>,
    /// Databases in which nothing can be done.
    closed: BTreeSet<usize>,
    /// A batch of this size or more was refused.
    refused: Option<usize>,
    /// Number of rounds until all that is tried again; 0 if there is nothing.
    rounds: u32,
    told: BTreeSet<String>,
}

impl Obstacles {
    /// Notes that the disk is full. Returns false if that was known.
    pub(crate) fn is_newly_full(&mut self) -> bool {
        self.begin();
        !std::mem::replace(&mut self.full, true)
    }

    /// True if nothing may be done that needs room.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Notes that all due entries up to this one were removed, or need room.
    pub(crate) fn look_behind(&mut self, database: usize, entry: &(u64, Vec<u8>)) {
        if self.full {
            self.behind.insert(database, entry.clone());
        }
    }

    /// Returns the key from which on expiry entries of the database are looked at, if there is one.
    pub(crate) fn first_entry(&self, database: usize) -> Option<Vec<u8>> {
        let (time, stored) = self.behind.get(&database)?;
        let mut key = Vec::new();
        entry_key(&mut key, *time, stored);
        key.push(0);
        Some(key)
    }

    /// Keeps away from a key.
    pub(crate) fn add_key(&mut self, database: usize, stored: &[u8]) {
        self.begin();
        match self.damaged.len() < DAMAGED_MAX {
            true => drop(self.damaged.insert((database, stored.to_vec()))),
            false => self.close(database),
        }
    }

    /// Keeps away from a collection that was given up.
    pub(crate) fn add_collection(&mut self, database: usize, id: u64) {
        self.begin();
        match self.damaged_collections.len() < DAMAGED_MAX {
            true => drop(self.damaged_collections.insert((database, id))),
            false => self.close(database),
        }
    }

    /// Keeps away from a database.
    pub(crate) fn close(&mut self, database: usize) {
        self.begin();
        self.closed.insert(database);
    }

    /// Returns whether it keeps away from a key.
    pub(crate) fn has_key(&self, database: usize, stored: &[u8]) -> bool {
        !self.damaged.is_empty() && self.damaged.contains(&(database, stored.to_vec()))
    }

    /// Returns whether it keeps away from a collection.
    pub(crate) fn has_collection(&self, database: usize, id: u64) -> bool {
        self.damaged_collections.contains(&(database, id))
    }

    /// Returns whether it keeps away from a database.
    pub(crate) fn is_closed(&self, database: usize) -> bool {
        self.closed.contains(&database)
    }

    /// Notes that a batch of `size` was refused: later ones stay below.
    pub(crate) fn refuse(&mut self, size: usize) {
        self.begin();
        self.refused = Some(size);
    }

    /// Returns the size of the next batch that is to have at most `size` of `most`.
    pub(crate) fn limit(&self, size: usize, most: usize) -> usize {
        let size = size.min(most);
        let refused = self.refused.unwrap_or(usize::MAX);
        size.min(refused.div_ceil(2).max(1))
    }

    /// Notes that a round through all databases has ended.
    pub(crate) fn end_round(&mut self) {
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 {
            *self = Self {
                told: std::mem::take(&mut self.told),
                ..Self::default()
            };
        }
    }

    /// Logs an error, once.
    pub(crate) fn tell(&mut self, database: usize, error: &Error) {
        if matches!(error, Error::Full { .. } | Error::Closed) {
            return;
        }
        if self.told.len() < TOLD_MAX && self.told.insert(error.to_string()) {
            tracing::warn!(database, %error, "expired data that cannot be removed stays");
        }
    }

    fn begin(&mut self) {
        if self.rounds == 0 {
            self.rounds = ROUNDS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_after_some_rounds() {
        let mut obstacles = Obstacles::default();
        assert!(obstacles.is_newly_full() && !obstacles.is_newly_full());
        obstacles.look_behind(3, &(7, b"key".to_vec()));
        obstacles.add_key(3, b"damaged");
        obstacles.add_collection(3, 5);
        obstacles.close(4);
        obstacles.refuse(9);
        for _ in 1..ROUNDS {
            obstacles.end_round();
            assert!(obstacles.is_full() && obstacles.is_closed(4) && !obstacles.is_closed(3));
            assert!(obstacles.has_key(3, b"damaged") && obstacles.has_collection(3, 5));
            assert!(!obstacles.has_key(4, b"damaged") && !obstacles.has_collection(4, 5));
            let first = obstacles.first_entry(3).expect("it begins behind one");
            let mut key = Vec::new();
            entry_key(&mut key, 7, b"key");
            assert!(first > key && first.starts_with(&key));
            assert_eq!(obstacles.first_entry(4), None);
            assert_eq!((obstacles.limit(64, 64), obstacles.limit(2, 64)), (5, 2));
        }
        obstacles.end_round();
        assert!(!obstacles.is_full() && !obstacles.is_closed(4));
        assert!(!obstacles.has_key(3, b"damaged") && !obstacles.has_collection(3, 5));
        assert_eq!(obstacles.first_entry(3), None);
        assert_eq!(obstacles.limit(128, 64), 64);
    }

    #[test]
    fn a_refused_batch_of_two_is_tried_with_one() {
        let mut obstacles = Obstacles::default();
        obstacles.refuse(2);
        assert_eq!(obstacles.limit(2, 64), 1);
        obstacles.refuse(3);
        assert_eq!(obstacles.limit(3, 64), 2);
    }

    #[test]
    fn an_error_is_told_once() {
        let mut obstacles = Obstacles::default();
        obstacles.tell(0, &Error::Poisoned { cause: "x".into() });
        obstacles.tell(1, &Error::Full { what: "x".into() });
        assert_eq!(obstacles.told.len(), 1);
        obstacles.tell(1, &Error::Poisoned { cause: "x".into() });
        assert_eq!(obstacles.told.len(), 1);
    }
}
