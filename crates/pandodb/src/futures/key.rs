//! The key of a pending operation: short ones lie in the future, longer ones in a pooled buffer.

use pando_format::cast::low_u8;

use crate::engine::Shared;

/// Longest key that is stored in the future itself.
const INLINE_BYTES: usize = 32;

const _: () = assert!(
    INLINE_BYTES <= u8::MAX as usize,
    "their lengths have 8 bits"
);

/// An owned copy of a key.
#[derive(Debug)]
pub(super) struct Key {
    engine: Shared,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Pooled(Vec<u8>),
}

impl Key {
    /// Copies a key. A long one goes to a buffer of the engine's pool, which gets it back on drop.
    pub(super) fn new(engine: &Shared, key: &[u8]) -> Self {
        let bytes = if key.len() <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            bytes[..key.len()].copy_from_slice(key);
            let len = low_u8(key.len() as u64);
            Bytes::Inline { len, bytes }
        } else {
            let mut buffer = engine.key_buffers.take();
            buffer.extend_from_slice(key);
            Bytes::Pooled(buffer)
        };
        Self {
            engine: engine.clone(),
            bytes,
        }
    }

    /// The engine that the key's operation works on.
    pub(super) fn engine(&self) -> &Shared {
        &self.engine
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Pooled(bytes) => bytes,
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Bytes::Pooled(bytes) = &mut self.bytes {
            self.engine.key_buffers.give_back(std::mem::take(bytes));
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use crate::Db;

    use super::*;
    use crate::state::key_buffers::KEPT_MAX;

    /// Keys of up to 32 bytes are stored in place, and longer ones use pooled buffers.
    #[test]
    fn long_keys_come_out_of_the_pool_and_go_back() {
        let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
        let engine = db.engine();
        for len in [0, 1, 31, 32, 33, 100, 500] {
            let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let before = engine.key_buffers.count();
            let keys: Vec<Key> = (0..3).map(|_| Key::new(engine, &text)).collect();
            assert!(keys.iter().all(|key| key.bytes() == text));
            drop(keys);
            let after = engine.key_buffers.count();
            assert_eq!(after, if len <= 32 { before } else { 3 });
        }
        let keys: Vec<Key> = (0..3000).map(|_| Key::new(engine, &[7; 64])).collect();
        drop(keys);
        assert!(engine.key_buffers.count() >= 3);
        let cores = pando_sync::core_count();
        assert!(engine.key_buffers.count() <= KEPT_MAX * cores, "bounded");
    }
}
