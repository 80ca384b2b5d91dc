//! The unchanged bytes of a value that is being changed.

use pando_format::cast::usize_of;
use pando_format::chunks::{BlobRef, ChunkRef, ChunkShape};
use pando_sync::Arc;

use crate::blobs::readers::Registration;
use crate::blobs::staged::StagedBlob;
use crate::error::Result;
use crate::kept::settled::KeptBlob;
use crate::pages::store::Store;

/// Where a value that is being changed takes its unchanged bytes from, its head excluded.
#[derive(Debug)]
pub(crate) enum OldBytes {
    /// A value in pages, or none.
    Value(Vec<u8>),
    Chunks(BlobRef, Registration),
    /// A value that was handed over and that no leaf has yet: chunks that it keeps of another value
    /// can stay, its new chunks have to be copied.
    Handed(
        Arc<StagedBlob>,
        #[expect(dead_code, reason = "it keeps the chunks")] Registration,
    ),
    /// A value of a kept checkpoint: all of its chunks have to be copied.
    Kept(KeptBlob),
}

impl OldBytes {
    /// Number of bytes, head excluded.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Value(value) => value.len() as u64,
            Self::Chunks(blob, _) => blob.shape.bytes,
            Self::Handed(staged, _) => staged.shape.bytes,
            Self::Kept(kept) => kept.blob.shape.bytes,
        }
    }

    /// Returns true if chunk `index` of a value of `shape` can stay as it is.
    pub(crate) fn has_chunk(&self, shape: ChunkShape, index: usize) -> bool {
        let old = match self {
            Self::Chunks(blob, _) => blob.shape,
            Self::Handed(staged, _) if staged.kept_at(index).is_some() => staged.shape,
            Self::Value(_) | Self::Handed(..) | Self::Kept(_) => return false,
        };
        old.chunk_bytes == shape.chunk_bytes && old.bytes_of(index) == shape.bytes_of(index)
    }

    /// Returns chunk `index`, which can stay, and the registration that keeps it.
    pub(crate) fn chunk(&self, index: usize) -> (ChunkRef, &Registration) {
        match self {
            Self::Chunks(blob, registration) => (blob.chunks[index], registration),
            Self::Handed(staged, _) => {
                let chunk = staged.kept_at(index).expect("it can stay");
                (chunk, staged.base().expect("something keeps what stays"))
            }
            Self::Value(_) | Self::Kept(_) => unreachable!("it has no chunk that could stay"),
        }
    }

    /// Returns the chunk size of a value in chunks.
    pub(crate) fn chunk_bytes(&self) -> Option<u32> {
        match self {
            Self::Value(_) => None,
            Self::Chunks(blob, _) => Some(blob.shape.chunk_bytes),
            Self::Handed(staged, _) => Some(staged.shape.chunk_bytes),
            Self::Kept(kept) => Some(kept.blob.shape.chunk_bytes),
        }
    }

    /// Copies bytes from `offset` on, and zeros beyond the end. Must not cross the end of a chunk.
    /// Blocks.
    pub(crate) fn copy(&self, store: &Store, offset: u64, out: &mut [u8]) -> Result<()> {
        match self {
            Self::Value(value) => {
                let from = value.get(usize_of(offset)..).unwrap_or_default();
                let count = from.len().min(out.len());
                out[..count].copy_from_slice(&from[..count]);
                out[count..].fill(0);
            }
            Self::Chunks(..) | Self::Handed(..) | Self::Kept(_) => {
                let shape = match self {
                    Self::Chunks(blob, _) => blob.shape,
                    Self::Handed(staged, _) => staged.shape,
                    Self::Kept(kept) => kept.blob.shape,
                    Self::Value(_) => unreachable!("it lies in chunks"),
                };
                let chunk_bytes = u64::from(shape.chunk_bytes);
                let index = usize_of(offset / chunk_bytes);
                if index >= shape.count() {
                    out.fill(0);
                    return Ok(());
                }
                let mut buffer = store.chunk_buffer(shape);
                match self {
                    Self::Chunks(blob, _) => store.read_chunk(blob, index, &mut buffer)?,
                    Self::Handed(staged, _) => store.read_part(staged, index, &mut buffer)?,
                    Self::Kept(kept) => kept.read_chunk(index, &mut buffer)?,
                    Self::Value(_) => unreachable!("it lies in chunks"),
                }
                let from = buffer
                    .get(usize_of(offset % chunk_bytes)..)
                    .unwrap_or_default();
                assert!(
                    out.len() as u64 <= chunk_bytes - offset % chunk_bytes,
                    "bytes of one chunk at a time"
                );
                let count = from.len().min(out.len());
                out[..count].copy_from_slice(&from[..count]);
                out[count..].fill(0);
            }
        }
        Ok(())
    }
}
