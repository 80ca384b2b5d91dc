//! Buffers for the keys of pending operations, kept by core.

use pando_sync::{CoreLocal, Mutex, Rank};

/// Buffers that a core keeps for later keys.
pub(crate) const KEPT_MAX: usize = 256;

/// Buffers of keys that no operation needs now, by core.
#[derive(Debug)]
pub(crate) struct KeyBuffers {
    spare: CoreLocal<Mutex<Vec<Vec<u8>>>>,
}

impl Default for KeyBuffers {
    fn default() -> Self {
        Self {
            // With all its room: giving a buffer back allocates nothing.
            spare: CoreLocal::new("key buffers", |_| {
                Mutex::new(Rank::Leaf, Vec::with_capacity(KEPT_MAX))
            }),
        }
    }
}

impl KeyBuffers {
    /// An empty one.
    pub(crate) fn take(&self) -> Vec<u8> {
        let here = self.spare.here().lock().pop();
        // A task that ends on another core than it began leaves its buffer there.
        let other = || self.spare.iter().find_map(|spare| spare.lock().pop());
        here.or_else(other).unwrap_or_default()
    }

    /// Takes one back.
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
