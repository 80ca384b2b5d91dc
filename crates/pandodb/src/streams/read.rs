//! Reads and checks single chunks.

use std::ops::Range;

use pando_device::{File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::checksum::crc32c;
use pando_format::chunks::{BlobRef, ChunkPart, ChunkRef, ChunkShape};
use pando_format::{Extent, StoredPage};
use pando_stats::Ticker;

use crate::blobs::block_sums::SUMMED_BYTES;
use crate::blobs::staged::StagedBlob;
use crate::error::{Error, Result};
use crate::pages::store::Store;

impl Store {
    /// Size of a buffer for chunks of `shape`: whole blocks.
    pub(crate) fn chunk_buffer_bytes(&self, shape: ChunkShape) -> u64 {
        let block_bytes = self.space.block_bytes();
        u64::from(shape.blocks_of(0, block_bytes)) * block_bytes
    }

    /// Makes a buffer for chunks of `shape`.
    pub(crate) fn chunk_buffer(&self, shape: ChunkShape) -> IoBuf {
        IoBuf::new(usize_of(self.chunk_buffer_bytes(shape)))
    }

    /// Reads chunk `index` of `blob` and checks it; then `buffer` holds its bytes. The caller is
    /// registered as a reader of it. Blocks.
    pub(crate) fn read_chunk(
        &self,
        blob: &BlobRef,
        index: usize,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        self.read_named(blob.shape, index, blob.chunks[index], buffer)
    }

    /// Reads `chunk`, which is chunk `index` of a value of `shape`.
    fn read_named(
        &self,
        shape: ChunkShape,
        index: usize,
        chunk: ChunkRef,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        let damaged = |extent, what: String| Error::CorruptPage {
            page: chunk.page,
            extent,
            what,
        };
        let blocks = shape.blocks_of(index, self.space.block_bytes());
        loop {
            let Some(stored) = self.pool.chunk(chunk.page) else {
                return Err(damaged(
                    None,
                    "a blob reference names it, and it is no chunk".into(),
                ));
            };
            if stored.extent.blocks != blocks || stored.tag != StoredPage::tag_of(chunk.checksum) {
                let what = format!(
                    "its blob reference expects {blocks} blocks and {:#010x}",
                    chunk.checksum
                );
                return Err(damaged(Some(stored.extent), what));
            }
            let bytes = shape.bytes_of(index);
            let read = self.read_extent(stored.extent, bytes, chunk.checksum, buffer);
            // If the chunk was moved in the meantime, its old place may have been overwritten or
            // truncated: read it again.
            if self.pool.chunk(chunk.page) == Some(stored) {
                if read.is_err() {
                    self.check_process()?;
                }
                return read.map_err(|what| damaged(Some(stored.extent), what));
            }
        }
    }

    /// Reads the bytes at `part` of `chunk`, which is chunk `index` of a value of `shape`, with
    /// whole blocks around them, and checks them by `sums`. Returns which bytes `buffer` has then;
    /// `None` if they cannot be told to be those of the chunk, which is to be read whole. Blocks.
    pub(crate) fn read_blocks(
        &self,
        (shape, index): (ChunkShape, usize),
        (chunk, sums): (ChunkRef, &[u32]),
        part: Range<usize>,
        buffer: &mut IoBuf,
    ) -> Option<Range<usize>> {
        let block_bytes = self.space.block_bytes();
        let stored = self.pool.chunk(chunk.page)?;
        if stored.extent.blocks != shape.blocks_of(index, block_bytes)
            || stored.tag != StoredPage::tag_of(chunk.checksum)
        {
            return None;
        }
        let first = part.start / SUMMED_BYTES;
        let from = first * SUMMED_BYTES;
        let to = shape
            .bytes_of(index)
            .min(part.end.next_multiple_of(SUMMED_BYTES));
        buffer.set_len((to - from).next_multiple_of(usize_of(block_bytes)));
        let offset = u64::from(stored.extent.block) * block_bytes + from as u64;
        self.data.read_at(buffer, offset).ok()?;
        buffer.set_len(to - from);
        // If the chunk was moved in the meantime, its old place may have been overwritten.
        let is_there = self.pool.chunk(chunk.page) == Some(stored);
        let sums = sums.get(first..)?;
        let blocks = buffer.chunks(SUMMED_BYTES).map(crc32c);
        if !is_there
            || !blocks.eq(sums
                .iter()
                .copied()
                .take((to - from).div_ceil(SUMMED_BYTES)))
        {
            return None;
        }
        self.statistics.tick(Ticker::ChunkReads, 1);
        self.statistics
            .tick(Ticker::ChunkReadBytes, buffer.len() as u64);
        Some(from..to)
    }

    /// Reads chunk `index` of a value that was handed over. If a record may name its extents by
    /// now, the caller registered as a reader before that. Blocks.
    pub(crate) fn read_part(
        &self,
        staged: &StagedBlob,
        index: usize,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        let ChunkPart::New(chunk) = staged.parts[index] else {
            let kept = staged.kept_at(index).expect("it is known by its place");
            return self.read_named(staged.shape, index, kept, buffer);
        };
        let extent = Extent {
            block: chunk.block,
            blocks: staged.shape.blocks_of(index, self.space.block_bytes()),
        };
        let bytes = staged.shape.bytes_of(index);
        let read = self.read_extent(extent, bytes, chunk.checksum, buffer);
        read.map_err(|what| Error::corrupt(format!("chunk at {extent:?}"), what))
    }

    /// Reads `bytes` bytes of a chunk and checks them. Blocks.
    pub(crate) fn read_extent(
        &self,
        extent: Extent,
        bytes: usize,
        checksum: u32,
        buffer: &mut IoBuf,
    ) -> std::result::Result<(), String> {
        let block_bytes = self.space.block_bytes();
        let stored = u64::from(extent.blocks) * block_bytes;
        assert!(bytes as u64 <= stored, "a chunk ends within its extent");
        buffer.set_len(usize_of(stored));
        let offset = u64::from(extent.block) * block_bytes;
        let read = self.data.read_at(buffer, offset);
        read.map_err(|error| format!("reading it: {error}"))?;
        buffer.set_len(bytes);
        let actual = crc32c(buffer);
        if actual != checksum {
            return Err(format!(
                "checksum: expected {checksum:#010x}, actual {actual:#010x}"
            ));
        }
        self.statistics.tick(Ticker::ChunkReads, 1);
        self.statistics
            .tick(Ticker::ChunkReadBytes, buffer.len() as u64);
        Ok(())
    }

    /// Replaces `out` by a whole value. The caller is registered as a reader of it. Blocks.
    pub(crate) fn read_blob(&self, blob: &BlobRef, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        out.reserve_exact(usize_of(blob.value_bytes()));
        out.extend_from_slice(&blob.head);
        let mut buffer = self.chunk_buffer(blob.shape);
        for index in 0..blob.chunks.len() {
            self.read_chunk(blob, index, &mut buffer)?;
            out.extend_from_slice(&buffer);
        }
        assert_eq!(
            out.len() as u64,
            blob.value_bytes(),
            "its chunks add up to the value"
        );
        Ok(())
    }
}
