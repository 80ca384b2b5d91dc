//! Checksums of the blocks of chunks that were read before: a chunk has one checksum on disk, so
//! who wants a few bytes of it has to read it whole, but only once.
//!
//! They are kept by page id and checksum of the chunk. A page id may come to belong to another
//! chunk with the same checksum; then its blocks do not fit, and the chunk is read whole again. So
//! nothing has to be forgotten when a chunk is freed, and a move changes nothing.

use std::collections::HashMap;

use pando_format::PageId;
use pando_format::checksum::crc32c;
use pando_format::chunks::ChunkRef;
use pando_sync::{Arc, Mutex, Rank};

/// Bytes that have a checksum: whole blocks of any store.
pub(crate) const SUMMED_BYTES: usize = 4096;
/// Fraction of the memory budget for checksums.
const SHARE: u64 = 1024;
/// Memory that a chunk takes besides its checksums.
const CHUNK_BYTES: usize = 96;

/// In a `Vec`, since the counted pointers of the model checkers and of the audit hold no slices.
type Sums = Arc<Vec<u32>>;

/// The checksums of the chunks that were asked for last.
#[derive(Debug)]
pub(crate) struct BlockSums {
    bytes_max: usize,
    state: Mutex<State>,
}

/// Guarded by `BlockSums::state`. What was asked for since `recent` was empty is there; when that
/// has half of the room, what is in `older` goes.
#[derive(Debug, Default)]
struct State {
    recent: HashMap<(PageId, u32), Sums>,
    older: HashMap<(PageId, u32), Sums>,
    recent_bytes: usize,
}

impl BlockSums {
    /// Makes room for some, in a store with so much memory.
    pub(crate) fn new(max_memory: u64) -> Self {
        Self {
            bytes_max: usize::try_from(max_memory / SHARE).unwrap_or(usize::MAX),
            state: Mutex::new(Rank::Leaf, State::default()),
        }
    }

    /// Returns the checksums of the blocks of `chunk`, if they are known.
    pub(crate) fn get(&self, chunk: ChunkRef) -> Option<Sums> {
        let key = (chunk.page, chunk.checksum);
        let mut state = self.state.lock();
        if let Some(sums) = state.recent.get(&key) {
            return Some(sums.clone());
        }
        let sums = state.older.remove(&key)?;
        self.keep(&mut state, key, sums.clone());
        Some(sums)
    }

    /// Notes those of `chunk`, whose bytes were read and checked.
    pub(crate) fn put(&self, chunk: ChunkRef, bytes: &[u8]) {
        let sums = Arc::new(bytes.chunks(SUMMED_BYTES).map(crc32c).collect());
        self.keep(&mut self.state.lock(), (chunk.page, chunk.checksum), sums);
    }

    fn keep(&self, state: &mut State, key: (PageId, u32), sums: Sums) {
        let bytes = CHUNK_BYTES + size_of_val(sums.as_slice());
        if state.recent_bytes + bytes > self.bytes_max / 2 {
            state.older = std::mem::take(&mut state.recent);
            state.recent_bytes = 0;
        }
        if state.recent.insert(key, sums).is_none() {
            state.recent_bytes += bytes;
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    fn chunk(page: u32) -> ChunkRef {
        ChunkRef {
            page: PageId(page),
            checksum: page,
        }
    }

    #[test]
    fn what_was_asked_for_last_is_kept() {
        // Half of the room is for 16 chunks of ten blocks.
        let sums = BlockSums::new(2 * 16 * (CHUNK_BYTES as u64 + 40) * SHARE);
        let bytes = vec![7; 10 * SUMMED_BYTES - 5];
        for page in 0..200 {
            sums.put(chunk(page), &bytes);
            let known = sums.get(chunk(0)).expect("it is asked for all the time");
            assert_eq!(known.len(), 10);
            assert_eq!(known[9], crc32c(&bytes[..SUMMED_BYTES - 5]));
            let state = sums.state.lock();
            assert!(state.recent.len() + state.older.len() <= 32);
        }
        assert_eq!(sums.get(chunk(100)), None);
        assert!(sums.get(chunk(199)).is_some());
        let other = ChunkRef {
            checksum: 1,
            ..chunk(199)
        };
        assert_eq!(sums.get(other), None);
    }
}
