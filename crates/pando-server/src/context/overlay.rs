//! Uncommitted changes of one EXEC, for those of its commands that read a whole database (KEYS,
//! SCAN, DBSIZE). Reads of single keys see them through the batch.

use std::collections::BTreeMap;

use crate::data::keyspace::DATABASES;

/// Number of changes that are kept as they came. Most EXECs and scripts make fewer, and none of
/// them reads a whole database: a tree of them would be made for nothing.
const RECENT_MAX: usize = 64;
/// Bytes of their keys.
const RECENT_BYTES_MAX: usize = 16 * 1024;

/// A change that is kept as it came; its keys follow those of the one before.
#[derive(Debug)]
struct Recent {
    database: usize,
    /// Length of the stored key.
    stored: usize,
    /// Length of the user key; `None` if the key was deleted.
    key: Option<usize>,
}

/// Changes of one EXEC.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    cleared: [bool; DATABASES],
    /// By database and stored key: the user key, or `None` if the key was deleted.
    keys: BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>,
    /// The last changes, which are not in `keys` yet.
    recent: Vec<Recent>,
    /// Their keys.
    bytes: Vec<u8>,
}

impl Overlay {
    /// Forgets all, and keeps some memory for what comes next.
    #[cfg(feature = "scripts")]
    pub(crate) fn reset(&mut self) {
        self.cleared = [false; DATABASES];
        self.keys.clear();
        self.recent.clear();
        self.bytes.clear();
        self.bytes.shrink_to(RECENT_BYTES_MAX);
    }

    /// Records that the row at `stored`, of the user key `key`, was written.
    pub(crate) fn put(&mut self, database: usize, stored: &[u8], key: &[u8]) {
        self.bytes.extend_from_slice(stored);
        self.bytes.extend_from_slice(key);
        self.add(Recent {
            database,
            stored: stored.len(),
            key: Some(key.len()),
        });
    }

    /// Records that the row at `stored` was deleted.
    pub(crate) fn delete(&mut self, database: usize, stored: &[u8]) {
        self.bytes.extend_from_slice(stored);
        self.add(Recent {
            database,
            stored: stored.len(),
            key: None,
        });
    }

    fn add(&mut self, recent: Recent) {
        self.recent.push(recent);
        if self.recent.len() >= RECENT_MAX || self.bytes.len() >= RECENT_BYTES_MAX {
            self.settle();
        }
    }

    /// Puts the last changes into `keys`, in the order in which they came.
    fn settle(&mut self) {
        let mut rest = &self.bytes[..];
        for recent in self.recent.drain(..) {
            let (stored, behind) = rest.split_at(recent.stored);
            let (key, behind) = behind.split_at(recent.key.unwrap_or(0));
            rest = behind;
            let key = recent.key.map(|_| key.to_vec());
            self.keys.insert((recent.database, stored.to_vec()), key);
        }
        self.bytes.clear();
    }

    /// Records that the whole database was emptied; drops its earlier changes.
    pub(crate) fn clear(&mut self, database: usize) {
        self.settle();
        self.cleared[database] = true;
        self.keys.retain(|(of, _), _| *of != database);
    }

    /// Returns true if the EXEC has emptied the database.
    pub(crate) fn is_cleared(&self, database: usize) -> bool {
        self.cleared[database]
    }

    /// Returns true if the EXEC has replaced or deleted the row that the store has at `stored`.
    pub(crate) fn hides(&mut self, database: usize, stored: &[u8]) -> bool {
        self.settle();
        self.cleared[database] || self.keys.contains_key(&(database, stored.to_vec()))
    }

    /// Iterates over the stored keys of `database` that were changed, with the user key of those
    /// that exist.
    pub(crate) fn touched(
        &mut self,
        database: usize,
    ) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.settle();
        self.keys
            .range((database, Vec::new())..(database + 1, Vec::new()))
            .map(|((_, stored), key)| (stored.as_slice(), key.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares it with a tree that has each change at once.
    #[test]
    fn the_last_change_of_a_key_counts() {
        let (mut overlay, mut all) = (Overlay::default(), BTreeMap::new());
        for number in 0..5 * RECENT_MAX {
            let database = number % 2;
            let stored = format!("stored {}", number * 7 % 31).into_bytes();
            let key = format!("key {number}").into_bytes();
            let is_deleted = number % 5 == 0;
            match is_deleted {
                true => overlay.delete(database, &stored),
                false => overlay.put(database, &stored, &key),
            }
            all.insert((database, stored), (!is_deleted).then_some(key));
            if number == 3 * RECENT_MAX + 5 {
                overlay.clear(1);
                all.retain(|(of, _), _| *of != 1);
            }
            if number % 50 == 0 || number == 5 * RECENT_MAX - 1 {
                for of in 0..2 {
                    let found = overlay.touched(of);
                    let found: Vec<_> = found
                        .map(|(stored, key)| (stored.to_vec(), key.map(<[u8]>::to_vec)))
                        .collect();
                    let expected = all.iter().filter(|((number, _), _)| *number == of);
                    let expected = expected.map(|((_, stored), key)| (stored.clone(), key.clone()));
                    assert_eq!(found, expected.collect::<Vec<_>>());
                }
            }
        }
        assert!(overlay.is_cleared(1) && !overlay.is_cleared(0));
        overlay.put(0, b"new", b"key");
        assert!(overlay.hides(0, b"new") && !overlay.hides(0, b"other"));
        assert!(overlay.hides(1, b"other"));
    }
}
