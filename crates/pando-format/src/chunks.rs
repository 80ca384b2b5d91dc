//! Very large values: a head, followed by chunks of equal size.
//!
//! A chunk is a run of blocks with bytes of one value and nothing else: it has no header, and zeros
//! up to the end of its last block. It has a page id and a page word (state `STATE_CHUNK`), whose
//! tag is the low bits of its checksum, but never a frame. The blob reference of a value names its
//! chunks. It is the value of a slot with the flag C:
//!
//! ```text
//!   0..4   bytes in the chunks, at most VALUE_BYTES_MAX
//!   4..8   bytes of a chunk: a power of two; only the last one may be shorter
//!   8..12  bytes of the head
//!  12..    for each chunk: u32 page id, u32 CRC-32C of its bytes
//!   ..     the head: the first bytes of the value, of any length
//! ```
//! A blob reference that is too long for its leaf lies in overflow pages, as a value of its length
//! would.

use crate::bytes::{Reader, u32_at};
use crate::cast::{u32_of, usize_of};
use crate::{Damage, Extent, PageId, StoredKind, StoredPage};

/// Maximum length in bytes of a value in chunks, without its head.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Minimum size of a chunk in bytes.
pub const CHUNK_BYTES_MIN: u32 = 4096;
/// Maximum size of a chunk in bytes.
pub const CHUNK_BYTES_MAX: u32 = 1 << 20;
/// Maximum length of a head in bytes.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// How a value is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkShape {
    /// Bytes in all chunks together, 1 to [`VALUE_BYTES_MAX`].
    pub bytes: u64,
    /// Bytes of each chunk except the last.
    pub chunk_bytes: u32,
}

impl ChunkShape {
    /// Makes the shape, if it is possible.
    pub fn new(bytes: u64, chunk_bytes: u32) -> Option<Self> {
        let valid = (1..=VALUE_BYTES_MAX).contains(&bytes)
            && chunk_bytes.is_power_of_two()
            && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
        valid.then_some(Self { bytes, chunk_bytes })
    }

    /// Returns the number of chunks.
    pub fn count(self) -> usize {
        usize_of(self.bytes.div_ceil(u64::from(self.chunk_bytes)))
    }

    /// Returns the length of chunk `index` in bytes, 0 after the last one.
    pub fn bytes_of(self, index: usize) -> usize {
        let start = index as u64 * u64::from(self.chunk_bytes);
        let left = self.bytes.saturating_sub(start);
        usize_of(left.min(u64::from(self.chunk_bytes)))
    }

    /// Returns the length of chunk `index` in blocks.
    pub fn blocks_of(self, index: usize, block_bytes: u64) -> u32 {
        u32_of((self.bytes_of(index) as u64).div_ceil(block_bytes))
    }
}

/// A chunk in a blob reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    /// Its page id.
    pub page: PageId,
    /// CRC-32C of its bytes.
    pub checksum: u32,
}

/// The blob reference of a value, which its leaf stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    /// How the value is cut.
    pub shape: ChunkShape,
    /// Its chunks, in order.
    pub chunks: Vec<ChunkRef>,
    /// The bytes of the value before those of the chunks.
    pub head: Vec<u8>,
}

impl BlobRef {
    /// Returns the length of the whole value in bytes.
    pub fn value_bytes(&self) -> u64 {
        self.head.len() as u64 + self.shape.bytes
    }

    /// Appends the encoded blob reference to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.chunks.len(), self.shape.count());
        let sizes = [
            u32::try_from(self.shape.bytes).expect("shapes have at most 512 MiB"),
            self.shape.chunk_bytes,
            u32::try_from(self.head.len()).expect("heads are short"),
        ];
        out.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.page.0.to_le_bytes());
            out.extend_from_slice(&chunk.checksum.to_le_bytes());
        }
        out.extend_from_slice(&self.head);
    }

    /// Reads a blob reference.
    ///
    /// # Errors
    /// [`Damage`] when the lengths in it contradict each other or its own length.
    pub fn decode(blob: &[u8]) -> Result<Self, Damage> {
        let damage = || Damage::new(format!("blob reference of {} bytes", blob.len()));
        let mut reader = Reader::new(blob);
        let mut size = || reader.u32().ok_or_else(damage);
        let (bytes, chunk_bytes, head_bytes) = (size()?, size()?, size()? as usize);
        let shape = ChunkShape::new(u64::from(bytes), chunk_bytes).ok_or_else(damage)?;
        let entries = reader
            .take(shape.count() * ENTRY_BYTES)
            .ok_or_else(damage)?;
        if reader.remaining() != head_bytes || head_bytes > HEAD_BYTES_MAX {
            return Err(damage());
        }
        let head = reader.take(head_bytes).ok_or_else(damage)?;
        let chunks = entries.as_chunks::<ENTRY_BYTES>().0;
        Ok(Self {
            shape,
            chunks: chunks
                .iter()
                .map(|entry| ChunkRef {
                    page: PageId(u32_at(entry, 0)),
                    checksum: u32_at(entry, 4),
                })
                .collect(),
            head: head.to_vec(),
        })
    }
}

/// Returns the length in bytes of the blob reference of a value of `shape` with a head of
/// `head_bytes` bytes.
pub fn blob_ref_bytes(shape: ChunkShape, head_bytes: usize) -> usize {
    HEADER_BYTES + shape.count() * ENTRY_BYTES + head_bytes
}

/// A chunk in a log record, which names its place, since it has no id before its batch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewChunk {
    /// First block of its extent; its length follows from its bytes.
    pub block: u32,
    /// CRC-32C of its bytes.
    pub checksum: u32,
}

impl NewChunk {
    /// Returns the place of the chunk, which is the one at `index` of its value.
    pub fn stored(self, shape: ChunkShape, index: usize, block_bytes: u64) -> StoredPage {
        StoredPage {
            extent: Extent {
                block: self.block,
                blocks: shape.blocks_of(index, block_bytes),
            },
            tag: StoredPage::tag_of(self.checksum),
            names_chunks: false,
            kind: StoredKind::Chunk,
        }
    }
}

/// One chunk of the value of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPart {
    /// The chunk with the same index of the previous value of the key.
    Kept,
    /// A chunk that was written for this put.
    New(NewChunk),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob_ref(bytes: u64, chunk_bytes: u32, head: &[u8]) -> BlobRef {
        let shape = ChunkShape::new(bytes, chunk_bytes).unwrap();
        let chunk = |index| ChunkRef {
            page: PageId(index * 3),
            checksum: index ^ 0xdead_beef,
        };
        BlobRef {
            shape,
            chunks: (0..shape.count() as u32).map(chunk).collect(),
            head: head.to_vec(),
        }
    }

    /// A blob reference can be encoded and decoded, and any other length is an error.
    #[test]
    fn lists_survive_their_bytes() {
        for (bytes, chunk_bytes, head) in [
            (1, CHUNK_BYTES_MIN, &b""[..]),
            (VALUE_BYTES_MAX, CHUNK_BYTES_MAX, b"head"),
            (4096 * 3 + 1, 4096, b"h"),
            (4096 * 3, 4096, b""),
        ] {
            let blob = blob_ref(bytes, chunk_bytes, head);
            let mut encoded = Vec::new();
            blob.encode(&mut encoded);
            assert_eq!(encoded.len(), blob_ref_bytes(blob.shape, head.len()));
            assert_eq!(BlobRef::decode(&encoded), Ok(blob.clone()));
            let sum: usize = (0..blob.chunks.len()).map(|n| blob.shape.bytes_of(n)).sum();
            assert_eq!(sum as u64, bytes);
            for cut in [0, 1, 11, 12, encoded.len() - 1] {
                assert!(BlobRef::decode(&encoded[..cut]).is_err());
            }
            encoded.push(0);
            assert!(BlobRef::decode(&encoded).is_err());
        }
    }

    /// A shape without bytes, or with an invalid chunk size, cannot be made.
    #[test]
    fn impossible_shapes_are_none() {
        for (bytes, chunk_bytes) in [
            (0, 4096),
            (VALUE_BYTES_MAX + 1, 4096),
            (1, 0),
            (1, 2048),
            (1, 5000),
            (1, 2 << 20),
        ] {
            assert_eq!(ChunkShape::new(bytes, chunk_bytes), None);
        }
    }

    #[test]
    fn the_last_chunk_is_as_long_as_what_is_left() {
        let shape = ChunkShape::new(10_000, 4096).unwrap();
        assert_eq!(shape.count(), 3);
        let bytes: Vec<usize> = (0..4).map(|index| shape.bytes_of(index)).collect();
        assert_eq!(bytes, [4096, 4096, 1808, 0]);
        assert_eq!((shape.blocks_of(0, 512), shape.blocks_of(2, 512)), (8, 4));
    }
}
