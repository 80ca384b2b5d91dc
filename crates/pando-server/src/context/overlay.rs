//! Uncommitted changes of one EXEC, for those of its commands that read a whole database (KEYS,
//! SCAN, DBSIZE). Reads of single keys see them through the batch.

use std::collections::BTreeMap;

use crate::data::keyspace::DATABASES;

/// Changes of one EXEC.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    cleared: [bool; DATABASES],
    /// By database and stored key: the user key, or `None` if the key was deleted.
    keys: BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>,
}

impl Overlay {
    /// Records that the row at `stored`, of the user key `key`, was written.
    pub(crate) fn put(&mut self, database: usize, stored: &[u8], key: &[u8]) {
        self.keys
            .insert((database, stored.to_vec()), Some(key.to_vec()));
    }

    /// Records that the row at `stored` was deleted.
    pub(crate) fn delete(&mut self, database: usize, stored: &[u8]) {
        self.keys.insert((database, stored.to_vec()), None);
    }

    /// Records that the whole database was emptied; drops its earlier changes.
    pub(crate) fn clear(&mut self, database: usize) {
        self.cleared[database] = true;
        self.keys.retain(|(of, _), _| *of != database);
    }

    /// Returns true if the EXEC has emptied the database.
    pub(crate) fn is_cleared(&self, database: usize) -> bool {
        self.cleared[database]
    }

    /// Returns true if the EXEC has replaced or deleted the row that the store has at `stored`.
    pub(crate) fn hides(&self, database: usize, stored: &[u8]) -> bool {
        self.cleared[database] || self.keys.contains_key(&(database, stored.to_vec()))
    }

    /// Iterates over the stored keys of `database` that were changed, with the user key of those
    /// that exist.
    pub(crate) fn touched(&self, database: usize) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.keys
            .range((database, Vec::new())..(database + 1, Vec::new()))
            .map(|((_, stored), key)| (stored.as_slice(), key.as_deref()))
    }
}
