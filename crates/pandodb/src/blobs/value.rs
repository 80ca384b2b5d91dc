//! A value in chunks that no key has yet.

use pando_format::TreeId;
use pando_format::chunks::{ChunkPart, HEAD_BYTES_MAX};
use pando_format::log::BatchWriter;
use pando_sync::Arc;

use crate::blobs::staged::StagedBlob;
use crate::error::{Error, Result};

/// A value whose bytes are durable and which no key has yet: see [`crate::Batch::put_large`]. If it
/// is dropped with all its clones, it leaves nothing behind. Chunks that no key has are only handed
/// over by [`crate::ValueWriter::finish`], which syncs them: no record names bytes that were not
/// synced.
#[derive(Debug, Clone)]
pub struct LargeValue {
    /// The chunks; clones of the value share them.
    pub(crate) staged: Arc<StagedBlob>,
    /// Bytes before those of the chunks, stored with the key.
    pub(crate) head: Vec<u8>,
}

impl LargeValue {
    /// Number of bytes of the value, including its head.
    pub fn len(&self) -> u64 {
        self.head.len() as u64 + self.staged.shape.bytes
    }

    /// Returns false: a value in chunks has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the same value with another head.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`] for a head of more than 64 KiB.
    pub fn with_head(&self, head: Vec<u8>) -> Result<Self> {
        if head.len() > HEAD_BYTES_MAX {
            return Err(Error::ValueTooLong {
                bytes: head.len(),
                limit: HEAD_BYTES_MAX,
            });
        }
        let staged = self.staged.clone();
        Ok(Self { staged, head })
    }

    /// Bytes of memory that it takes.
    pub fn idle_bytes(&self) -> usize {
        let part = size_of::<ChunkPart>();
        size_of::<StagedBlob>() + self.head.len() + self.staged.parts.len() * part
    }

    /// Number of chunks that are new.
    pub(crate) fn new_chunks(&self) -> u64 {
        let is_new = |part: &&ChunkPart| **part != ChunkPart::Kept;
        self.staged.parts.iter().filter(is_new).count() as u64
    }

    /// Number of bytes of the blob reference that a leaf will hold.
    pub(crate) fn blob_ref_bytes(&self) -> usize {
        pando_format::chunks::blob_ref_bytes(self.staged.shape, self.head.len())
    }

    /// Appends the put of this value to a record.
    pub(crate) fn append_to(&self, record: &mut BatchWriter, tree: TreeId, key: &[u8]) {
        let staged = &self.staged;
        record.put_chunks(tree, key, &self.head, staged.shape, &staged.parts);
    }
}
