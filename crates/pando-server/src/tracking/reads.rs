//! The keys that the commands of an EXEC or of a script have read, for a client that tracks.

use std::collections::HashSet;

/// Memory from which on all keys count as read.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Memory of a key besides its bytes, about.
const KEY_BYTES: usize = 48;

/// Keys that were read.
#[derive(Debug, Default, Clone)]
pub(crate) struct TrackedReads {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
    has_all: bool,
}

impl TrackedReads {
    /// Returns the memory that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.has_all || self.keys.contains(key) {
            return;
        }
        self.bytes += key.len() + KEY_BYTES;
        if self.bytes > BYTES_MAX {
            *self = Self {
                has_all: true,
                ..Self::default()
            };
            return;
        }
        self.keys.insert(key.into());
    }

    /// Returns true if more was read than it knows: the client must forget everything.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all
    }

    /// Returns true if `key` was read, or may have been.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.has_all || self.keys.contains(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &key[..])
    }
}
