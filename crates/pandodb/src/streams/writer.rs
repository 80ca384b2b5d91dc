//! Writes a value in chunks, piece by piece, with one chunk in memory at a time.

use std::task::Waker;

use pando_device::{File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::checksum::crc32c;
use pando_format::chunks::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, ChunkPart, ChunkShape, VALUE_BYTES_MAX,
};
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::blobs::room::{ChunkRoom, ChunkTurn};
use crate::blobs::staged::StagedBlob;
use crate::blobs::value::LargeValue;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::streams::old_bytes::OldBytes;

/// Chunks per memory budget: the chunks of ten values on their way in and out are a small part of
/// it.
const CHUNKS_OF_BUDGET: u64 = 256;
/// Smallest chunk size that is chosen automatically.
const CHUNK_BYTES_LEAST: u64 = 64 << 10;

/// A value of a known length on its way in; see [`crate::Db::value_writer`]. Dropped before its
/// end, it leaves nothing behind.
#[derive(Debug)]
pub struct ValueWriter {
    engine: Shared,
    staged: StagedBlob,
    /// The chunk that is being filled. Has room for the longest chunk; empty until the first bytes
    /// come.
    buffer: IoBuf,
    /// Turn for the buffer.
    turn: Option<ChunkTurn>,
    /// Bytes of the chunk so far.
    filled: usize,
    /// A chunk could not be stored: its bytes, and therefore the value, are lost.
    failed: bool,
}

impl Engine {
    /// Returns the chunk size for new values: a power of two.
    pub(crate) fn chunk_bytes(&self) -> u32 {
        let most = u64::from(EXTENT_BLOCKS_MAX) * self.store.space.block_bytes();
        let most = most.min(u64::from(CHUNK_BYTES_MAX));
        let share = self.options.max_memory / CHUNKS_OF_BUDGET;
        let bytes = self.options.chunk_bytes.unwrap_or_else(|| {
            let share = share.clamp(CHUNK_BYTES_LEAST, most.max(CHUNK_BYTES_LEAST));
            1 << share.ilog2()
        });
        let bytes = bytes.clamp(u64::from(CHUNK_BYTES_MIN), most);
        1 << bytes.ilog2()
    }
}

impl ValueWriter {
    /// Begins a value of `bytes` bytes.
    pub(crate) fn new(engine: &Shared, bytes: u64) -> Result<Self> {
        Self::with_chunk_bytes(engine, bytes, engine.chunk_bytes())
    }

    /// As [`ValueWriter::new`], with a given chunk size: that of the value that is changed.
    pub(crate) fn with_chunk_bytes(engine: &Shared, bytes: u64, chunk_bytes: u32) -> Result<Self> {
        engine.check_writable()?;
        if bytes == 0 {
            return Err(Error::InvalidValue {
                what:
                    "it has no bytes, and such a value has one at least; an empty one is put whole"
                        .into(),
            });
        }
        let Some(shape) = ChunkShape::new(bytes, chunk_bytes) else {
            return Err(Error::ValueTooLong {
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                limit: usize_of(VALUE_BYTES_MAX),
            });
        };
        Ok(Self {
            engine: engine.clone(),
            staged: StagedBlob::new(&engine.store.space, shape),
            buffer: IoBuf::default(),
            turn: None,
            filled: 0,
            failed: false,
        })
    }

    /// Number of bytes of the value so far.
    fn position(&self) -> u64 {
        let stored = self.staged.parts.len() as u64 * u64::from(self.staged.shape.chunk_bytes);
        // The last chunk may be shorter.
        (stored + self.filled as u64).min(self.staged.shape.bytes)
    }

    /// Number of bytes of the value that are still missing.
    pub fn missing(&self) -> u64 {
        self.staged.shape.bytes - self.position()
    }

    /// Number of bytes that the current chunk still takes.
    fn room(&self) -> usize {
        self.staged.shape.bytes_of(self.staged.parts.len()) - self.filled
    }

    /// Returns true if a chunk is full and waits for [`ValueWriter::store`].
    pub(crate) fn is_full(&self) -> bool {
        self.filled > 0 && self.room() == 0
    }

    /// Returns true once there is room for its buffer; until then `waker` is woken when there is.
    pub(crate) fn poll_room(&mut self, waker: &Waker) -> bool {
        if !self.buffer.is_empty() {
            return true;
        }
        let engine = &self.engine;
        let bytes = engine.store.chunk_buffer_bytes(self.staged.shape);
        let turn = self
            .turn
            .get_or_insert_with(|| ChunkRoom::ask(&engine.incoming, bytes, waker));
        turn.poll(waker)
    }

    /// Makes the buffer, if there is none. A blocking caller is counted, and waits for nobody.
    fn prepare(&mut self) {
        if self.buffer.is_empty() {
            let engine = &self.engine;
            let bytes = engine.store.chunk_buffer_bytes(self.staged.shape);
            self.turn
                .get_or_insert_with(|| ChunkRoom::count(&engine.incoming, bytes));
            self.buffer = engine.store.chunk_buffer(self.staged.shape);
        }
    }

    /// Takes bytes as long as the chunk has room; returns how many. Never blocks.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        self.prepare();
        let count = bytes.len().min(self.room());
        self.buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }

    /// Takes the next bytes of the value. Blocks for room and for the device whenever a chunk is
    /// full.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Poisoned`], [`Error::Closed`]: then the value is
    /// lost; [`Error::InvalidValue`] if it was lost before; [`Error::ValueTooLong`] if there are
    /// more bytes than were announced.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check_failed()?;
        if bytes.len() as u64 > self.missing() {
            return Err(Error::ValueTooLong {
                bytes: bytes.len(),
                limit: usize_of(self.missing()),
            });
        }
        while !bytes.is_empty() {
            let count = self.take(bytes);
            bytes = &bytes[count..];
            self.store_if_full()?;
        }
        Ok(())
    }

    fn store_if_full(&mut self) -> Result<()> {
        if self.is_full() { self.store() } else { Ok(()) }
    }

    /// Writes the full chunk. Blocks.
    pub(crate) fn store(&mut self) -> Result<()> {
        let whole = std::mem::take(&mut self.filled);
        let index = self.staged.parts.len();
        assert_eq!(whole, self.staged.shape.bytes_of(index), "a chunk is whole");
        let checksum = crc32c(&self.buffer[..whole]);
        let block_bytes = self.engine.store.space.block_bytes();
        let stored = usize_of((whole as u64).next_multiple_of(block_bytes));
        self.buffer[whole..stored].fill(0);
        let written = self.write_chunk(stored, checksum);
        self.failed |= written.is_err();
        written
    }

    /// Writes the first `stored` bytes of the buffer, which are whole blocks. Blocks for room and
    /// for the write, but does not sync.
    fn write_chunk(&mut self, stored: usize, checksum: u32) -> Result<()> {
        let engine = &self.engine;
        let block_bytes = engine.store.space.block_bytes();
        let (shape, index) = (self.staged.shape, self.staged.parts.len());
        let blocks = shape.blocks_of(index, block_bytes);
        assert_eq!(stored as u64, u64::from(blocks) * block_bytes);
        let extent = engine.run_of_blocks(blocks)?;
        assert_eq!(extent.blocks, blocks, "a run of another length");
        self.staged.push(extent.block, checksum);
        let place = u64::from(extent.block) * block_bytes;
        let written = engine.store.data.write_at(&self.buffer[..stored], place);
        written.map_err(Error::io("writing a chunk"))?;
        engine.store.statistics.tick(Ticker::ChunkWrites, 1);
        engine
            .store
            .statistics
            .tick(Ticker::ChunkWriteBytes, stored as u64);
        Ok(())
    }

    /// Fails if a chunk could not be stored before.
    fn check_failed(&self) -> Result<()> {
        match self.failed {
            true => Err(Error::InvalidValue {
                what: "a part of it could not be written".into(),
            }),
            false => Ok(()),
        }
    }

    /// Takes the bytes up to `until` from the value that is being replaced, and zeros beyond its
    /// end. Unchanged chunks are kept without being read. Blocks.
    pub(crate) fn copy_old(&mut self, old: &OldBytes, until: u64) -> Result<()> {
        assert!(
            until <= self.staged.shape.bytes,
            "a value of another length"
        );
        let chunk_bytes = u64::from(self.staged.shape.chunk_bytes);
        while self.position() < until {
            let position = self.position();
            let index = self.staged.parts.len();
            let start = index as u64 * chunk_bytes;
            let end = start + self.staged.shape.bytes_of(index) as u64;
            assert!(
                (start..end).contains(&position),
                "a position in another chunk"
            );
            if position == start && end <= until && old.has_chunk(self.staged.shape, index) {
                let (chunk, base) = old.chunk(index);
                self.staged.keep(chunk, base);
                continue;
            }
            let count = usize_of(end.min(until) - position);
            self.prepare();
            let place = &mut self.buffer[self.filled..self.filled + count];
            old.copy(&self.engine.store, position, place)?;
            self.filled += count;
            self.store_if_full()?;
        }
        Ok(())
    }

    /// Makes the value durable. Blocks.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the sync fails. [`Error::InvalidValue`] if bytes are missing, or a
    /// part could not be written.
    pub fn finish(self) -> Result<LargeValue> {
        self.finish_with_head(Vec::new())
    }

    /// As [`ValueWriter::finish`], with a head: bytes that come before all others. They are stored
    /// with the key: replacing them leaves the chunks as they are.
    ///
    /// # Errors
    /// As [`ValueWriter::finish`]; [`Error::ValueTooLong`] for a head of more than 64 KiB.
    pub fn finish_with_head(self, head: Vec<u8>) -> Result<LargeValue> {
        let engine = self.engine.clone();
        let staged = self.into_staged()?;
        let any_new = staged.parts.iter().any(|part| *part != ChunkPart::Kept);
        if any_new {
            engine.check_writable()?;
            let synced = engine.store.sync_data("syncing chunks");
            synced.map_err(|error| engine.poisoned_by(&error))?;
        }
        let value = LargeValue {
            staged: Arc::new(staged),
            head: Vec::new(),
        };
        value.with_head(head)
    }

    /// Returns the chunks of the value, which may not be durable yet.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if bytes are missing, or a part could not be written.
    pub(crate) fn into_staged(self) -> Result<StagedBlob> {
        self.check_failed()?;
        if self.missing() > 0 {
            return Err(Error::InvalidValue {
                what: format!("{} bytes are missing", self.missing()),
            });
        }
        assert_eq!(self.filled, 0, "the last bytes were not stored");
        assert_eq!(
            self.staged.parts.len(),
            self.staged.shape.count(),
            "the value has all of its chunks"
        );
        Ok(self.staged)
    }
}
