//! The keys whose lists, sorted sets and streams a command has written: clients may wait for them.

/// Capacity in bytes that is kept for the next command.
const KEPT_BYTES: usize = 1024;

/// Keys that have got elements, with the numbers of their databases.
#[derive(Debug, Default)]
pub(crate) struct Pushed {
    bytes: Vec<u8>,
    /// Database of a key, and where it ends in `bytes`.
    keys: Vec<(usize, usize)>,
    /// Whole databases were emptied.
    has_all: bool,
}

impl Pushed {
    /// Adds a key, unless it was the last one.
    #[inline]
    pub(crate) fn add(&mut self, database: usize, key: &[u8]) {
        if let Some((of, last)) = self.iter().next_back()
            && (of, last) == (database, key)
        {
            return;
        }
        self.bytes.extend_from_slice(key);
        self.keys.push((database, self.bytes.len()));
    }

    /// Adds all keys.
    pub(crate) fn add_all(&mut self) {
        self.has_all = true;
    }

    /// Returns true if it has all keys.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.has_all
    }

    /// Returns the number of keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &[u8])> {
        (0..self.keys.len()).map(|place| {
            let start = place.checked_sub(1).map_or(0, |before| self.keys[before].1);
            let (database, end) = self.keys[place];
            (database, &self.bytes[start..end])
        })
    }

    /// Removes all keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.has_all = false;
        if self.keys.is_empty() {
            return;
        }
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Self::default();
        }
        self.bytes.clear();
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_once_in_a_row() {
        let mut pushed = Pushed::default();
        assert!(pushed.is_empty() && pushed.iter().next().is_none());
        for (database, key) in [(0, "a"), (0, "a"), (0, ""), (1, ""), (1, "long"), (0, "a")] {
            pushed.add(database, key.as_bytes());
        }
        let all: Vec<_> = pushed.iter().collect();
        let expected: [(usize, &[u8]); 5] =
            [(0, b"a"), (0, b""), (1, b""), (1, b"long"), (0, b"a")];
        assert_eq!(all, expected);
        pushed.clear();
        assert!(pushed.is_empty());
    }
}
