//! Buffers for keys of pending operations, kept per core.

use pando_sync::{CoreLocal, Mutex, Rank};

/// Largest number of buffers that a core keeps.
pub(crate) const KEPT_MAX: usize = 256;

/// Buffers that no operation uses now, per core.
#[derive(Debug)]
pub(crate) struct KeyBuffers {
    /// Empty buffers, at most [`KEPT_MAX`] per core.
    spare: CoreLocal<Mutex<Vec<Vec<u8>>>>,
}

impl Default for KeyBuffers {
    fn default() -> Self {
        Self {
            // With full capacity, so that returning a buffer allocates nothing.
            spare: CoreLocal::new("key buffers", |_| {
                Mutex::new(Rank::Leaf, Vec::with_capacity(KEPT_MAX))
            }),
        }
    }
}

impl KeyBuffers {
    /// Returns an empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let here = self.spare.here().lock().pop();
        // A task that ends on another core than it began on leaves its buffer there.
        let other = || self.spare.iter().find_map(|spare| spare.lock().pop());
        let buffer = here.or_else(other).unwrap_or_default();
        debug_assert!(buffer.is_empty(), "it has the key of another operation");
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare = self.spare.here().lock();
        if spare.len() < KEPT_MAX {
            spare.push(buffer);
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.spare.iter().map(|spare| spare.lock().len()).sum()
    }
}
