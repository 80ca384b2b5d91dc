//! The keys whose values a command has written: clients may have to forget them.
//!
//! They are noted while a command runs, if somebody tracks keys at that moment. Who begins to track
//! between the run and its commit would not learn of it; so it is noted, too, that keys were not
//! ([`Written::is_partial`]), and then the commit tells everybody to forget everything.

use std::ops::Range;

/// Capacity in bytes that is kept for the next command.
const KEPT_BYTES: usize = 1024;
/// Memory from which on all keys count as written.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The keys that a command, or an open transaction, has written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
    /// Whole databases were emptied, or there are too many keys.
    has_all: bool,
    /// Keys were written while nobody tracked any, and are not here.
    is_partial: bool,
}

impl Written {
    /// Adds a key, unless it was the last one.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.keys().next_back() == Some(key) || self.has_all {
            return;
        }
        if self.memory() + key.len() > BYTES_MAX {
            return self.add_all();
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Adds a key that nobody can have asked for yet, without its name.
    #[inline]
    pub(crate) fn add_unseen(&mut self) {
        self.is_partial = true;
    }

    /// Adds all keys.
    pub(crate) fn add_all(&mut self) {
        *self = Self {
            has_all: true,
            ..Self::default()
        };
    }

    /// Moves all keys of `other` here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.is_partial |= other.is_partial;
        if other.has_all {
            self.add_all();
        }
        other.keys().for_each(|key| self.add(key));
        other.clear();
    }

    /// Returns true if it has all keys.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all
    }

    /// Returns true if keys were written that are not here.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty() && !self.is_partial && !self.has_all
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the keys in the order in which they were written.
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.keys_at(0..self.len())
    }

    /// Returns the keys at these places.
    pub(crate) fn keys_at(&self, places: Range<usize>) -> impl DoubleEndedIterator<Item = &[u8]> {
        places.map(|place| {
            let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..self.ends[place]]
        })
    }

    /// Returns the memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..])
    }

    /// Removes all keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.has_all, self.is_partial) = (false, false);
        if self.ends.is_empty() {
            return;
        }
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Self::default();
        }
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_once_in_a_row_and_too_many_are_all() {
        let mut written = Written::default();
        for key in ["a", "a", "", "long", "a"] {
            written.add(key.as_bytes());
        }
        let mut all = Written::default();
        all.append(&mut written);
        assert!(written.is_empty() && !all.is_empty());
        let keys: Vec<_> = all.keys().collect();
        assert_eq!(keys, [&b"a"[..], b"", b"long", b"a"]);
        written.add_unseen();
        all.append(&mut written);
        assert!(all.is_partial() && !all.has_all());
        for number in 0..BYTES_MAX / 8 {
            all.add(&number.to_be_bytes());
        }
        assert!(all.has_all() && all.keys().next().is_none());
        all.clear();
        assert!(all.is_empty());
    }
}
