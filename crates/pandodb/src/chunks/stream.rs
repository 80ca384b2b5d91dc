//! Reading values in chunks: one chunk in memory at a time.

use std::io;

use pando_device::{File, IoBuf};
use pando_format::checksum::crc32c;
use pando_format::chunks::{ChunkList, ChunkPart, ChunkRef, ChunkShape};
use pando_format::{Extent, StoredPage};
use pando_stats::Ticker;

use crate::chunks::draft::Draft;
use crate::chunks::look::Found;
use crate::chunks::registry::Registration;
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::table::Table;

impl Store {
    /// A buffer for chunks of `shape`.
    pub(crate) fn chunk_buffer(&self, shape: ChunkShape) -> IoBuf {
        let block_bytes = self.space.block_bytes();
        IoBuf::new((u64::from(shape.blocks_of(0, block_bytes)) * block_bytes) as usize)
    }

    /// Reads chunk `index` of `list` and checks it; `buffer` holds its bytes then. The caller is
    /// registered. Blocks.
    pub(crate) fn read_chunk(
        &self,
        list: &ChunkList,
        index: usize,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        let chunk = list.chunks[index];
        let damaged = |extent, what: String| Error::CorruptPage {
            page: chunk.page,
            extent,
            what,
        };
        let blocks = list.shape.blocks_of(index, self.space.block_bytes());
        let Some(stored) = self.pool.chunk(chunk.page) else {
            return Err(damaged(None, "a list names it, and it is no chunk".into()));
        };
        if stored.extent.blocks != blocks || stored.tag != StoredPage::tag_of(chunk.checksum) {
            let what = format!(
                "its list expects {blocks} blocks and {:#010x}",
                chunk.checksum
            );
            return Err(damaged(Some(stored.extent), what));
        }
        let bytes = list.shape.bytes_of(index);
        let read = self.read_extent(stored.extent, bytes, chunk.checksum, buffer);
        read.map_err(|what| damaged(Some(stored.extent), what))
    }

    /// Reads chunk `index` of a value that no record names yet. Blocks.
    pub(crate) fn read_part(&self, draft: &Draft, index: usize, buffer: &mut IoBuf) -> Result<()> {
        let ChunkPart::New(chunk) = draft.parts[index] else {
            return Err(Error::InvalidValue {
                what: "a part of it is that of another value".into(),
            });
        };
        let extent = Extent {
            block: chunk.block,
            blocks: draft.shape.blocks_of(index, self.space.block_bytes()),
        };
        let bytes = draft.shape.bytes_of(index);
        let read = self.read_extent(extent, bytes, chunk.checksum, buffer);
        read.map_err(|what| Error::corrupt(format!("chunk at {extent:?}"), what))
    }

    /// Reads `bytes` bytes of a chunk and checks them.
    fn read_extent(
        &self,
        extent: Extent,
        bytes: usize,
        checksum: u32,
        buffer: &mut IoBuf,
    ) -> std::result::Result<(), String> {
        let block_bytes = self.space.block_bytes();
        buffer.set_len((u64::from(extent.blocks) * block_bytes) as usize);
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

    /// Replaces `out` by a whole value. Blocks.
    pub(crate) fn read_list(&self, list: &ChunkList, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        out.reserve_exact(list.value_bytes() as usize);
        out.extend_from_slice(&list.head);
        let mut buffer = self.chunk_buffer(list.shape);
        for index in 0..list.chunks.len() {
            self.read_chunk(list, index, &mut buffer)?;
            out.extend_from_slice(&buffer);
        }
        Ok(())
    }
}

/// A value as it was when it was opened, whatever happens to its key since: see
/// [`Table::get_reader`]. What it needs stays on disk as long as it lives; it also keeps the files
/// of a store open that is closed.
#[derive(Debug)]
pub struct ValueStream {
    engine: Shared,
    /// The first bytes of the value, or all of them.
    head: Vec<u8>,
    chunks: Option<Chunks>,
    position: u64,
}

#[derive(Debug)]
struct Chunks {
    list: ChunkList,
    registration: Registration,
    buffer: IoBuf,
    /// The chunk that the buffer holds.
    loaded: Option<usize>,
}

impl ValueStream {
    pub(crate) fn of_value(engine: &Shared, value: Vec<u8>) -> Self {
        Self {
            engine: engine.clone(),
            head: value,
            chunks: None,
            position: 0,
        }
    }

    pub(crate) fn of_chunks(
        engine: &Shared,
        mut list: ChunkList,
        registration: Registration,
    ) -> Self {
        Self {
            engine: engine.clone(),
            head: std::mem::take(&mut list.head),
            chunks: Some(Chunks {
                list,
                registration,
                buffer: IoBuf::default(),
                loaded: None,
            }),
            position: 0,
        }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        let chunks = self.chunks.as_ref();
        self.head.len() as u64 + chunks.map_or(0, |chunks| chunks.list.shape.bytes)
    }

    /// True for the empty value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first bytes of the value that lie with its key: all of a value that is not in chunks.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// True if the value lies in chunks.
    pub fn is_chunked(&self) -> bool {
        self.chunks.is_some()
    }

    pub(crate) fn engine(&self) -> &Shared {
        &self.engine
    }

    /// The list of a large value, its head left out.
    pub(crate) fn list(&self) -> Option<&ChunkList> {
        self.chunks.as_ref().map(|chunks| &chunks.list)
    }

    /// True if the bytes at `offset` are in memory, or none are there.
    pub(crate) fn has_piece(&self, offset: u64) -> bool {
        let Some(offset) = offset.checked_sub(self.head.len() as u64) else {
            return true;
        };
        self.chunks.as_ref().is_none_or(|chunks| {
            let index = offset / u64::from(chunks.list.shape.chunk_bytes);
            offset >= chunks.list.shape.bytes || chunks.loaded == Some(index as usize)
        })
    }

    /// The value as what another one is made of, its head left out.
    pub(crate) fn into_old(self) -> OldBytes {
        match self.chunks {
            Some(chunks) => OldBytes::Chunks(chunks.list, chunks.registration),
            None => OldBytes::Value(self.head),
        }
    }

    /// Copies bytes from `offset` on into `buffer`: as many as it takes or there are. Blocks.
    ///
    /// # Errors
    /// [`Error::CorruptPage`] for a damaged chunk.
    pub fn read_at(&mut self, mut offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let place = &mut buffer[done..];
            let piece = self.piece_at(offset)?;
            if piece.is_empty() {
                break;
            }
            let count = piece.len().min(place.len());
            place[..count].copy_from_slice(&piece[..count]);
            done += count;
            offset += count as u64;
        }
        Ok(done)
    }

    /// The bytes at `offset` and behind it that lie in the same chunk; empty at the end. Blocks.
    ///
    /// # Errors
    /// As [`ValueStream::read_at`].
    pub fn piece_at(&mut self, offset: u64) -> Result<&[u8]> {
        let head_bytes = self.head.len() as u64;
        let Some(offset) = offset.checked_sub(head_bytes) else {
            return Ok(&self.head[offset as usize..]);
        };
        let Some(chunks) = &mut self.chunks else {
            return Ok(&[]);
        };
        if offset >= chunks.list.shape.bytes {
            return Ok(&[]);
        }
        let chunk_bytes = u64::from(chunks.list.shape.chunk_bytes);
        let index = (offset / chunk_bytes) as usize;
        if chunks.loaded != Some(index) {
            chunks.loaded = None;
            if chunks.buffer.is_empty() {
                chunks.buffer = self.engine.chunk_buffer(chunks.list.shape);
            }
            self.engine
                .read_chunk(&chunks.list, index, &mut chunks.buffer)?;
            chunks.loaded = Some(index);
        }
        Ok(&chunks.buffer[(offset % chunk_bytes) as usize..])
    }
}

impl io::Read for ValueStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let position = self.position;
        let count = self.read_at(position, buffer).map_err(io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Where a value that is being changed takes its unchanged bytes from, its head left out.
#[derive(Debug)]
pub(crate) enum OldBytes {
    /// A value in pages, or none.
    Value(Vec<u8>),
    Chunks(
        ChunkList,
        #[expect(dead_code, reason = "it keeps the chunks")] Registration,
    ),
}

impl OldBytes {
    /// Bytes that it has.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Value(value) => value.len() as u64,
            Self::Chunks(list, _) => list.shape.bytes,
        }
    }

    /// True if chunk `index` of `shape` can stay as it is.
    pub(crate) fn has_chunk(&self, shape: ChunkShape, index: usize) -> bool {
        matches!(self, Self::Chunks(list, _)
            if list.shape.chunk_bytes == shape.chunk_bytes
                && list.shape.bytes_of(index) == shape.bytes_of(index))
    }

    /// Chunk `index`, which can stay.
    pub(crate) fn chunk(&self, index: usize) -> ChunkRef {
        match self {
            Self::Chunks(list, _) => list.chunks[index],
            Self::Value(_) => unreachable!("a value in pages has no chunk that could stay"),
        }
    }

    /// Copies bytes from `offset` on, zeros behind the end. Blocks.
    pub(crate) fn copy(&self, store: &Store, offset: u64, out: &mut [u8]) -> Result<()> {
        match self {
            Self::Value(value) => {
                let from = value.get(offset as usize..).unwrap_or_default();
                let count = from.len().min(out.len());
                out[..count].copy_from_slice(&from[..count]);
                out[count..].fill(0);
            }
            Self::Chunks(list, _) => {
                let chunk_bytes = u64::from(list.shape.chunk_bytes);
                let index = (offset / chunk_bytes) as usize;
                if index >= list.chunks.len() {
                    out.fill(0);
                    return Ok(());
                }
                let mut buffer = store.chunk_buffer(list.shape);
                store.read_chunk(list, index, &mut buffer)?;
                let from = buffer
                    .get((offset % chunk_bytes) as usize..)
                    .unwrap_or_default();
                // Callers ask for bytes of one chunk at a time.
                let count = from.len().min(out.len());
                out[..count].copy_from_slice(&from[..count]);
                out[count..].fill(0);
            }
        }
        Ok(())
    }
}

impl Table {
    /// Opens the value of `key` for reading it piece by piece, if it exists: as it is now, whatever
    /// is put or deleted meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_reader(&self, key: &[u8]) -> Result<Option<ValueStream>> {
        let engine = self.db.engine();
        let mut value = Vec::new();
        Ok(match engine.look(&self.state, key, &mut value)? {
            Found::Nothing => None,
            Found::Value => Some(ValueStream::of_value(engine, value)),
            Found::Chunks(list, registration) => {
                Some(ValueStream::of_chunks(engine, list, registration))
            }
        })
    }

    /// Copies bytes of the value of `key` from `offset` on into `buffer`; how many there were, if
    /// it exists. Of a value in chunks only the chunks are read in which the bytes lie. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_range(&self, key: &[u8], offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        let stream = self.get_reader(key)?;
        stream
            .map(|mut stream| stream.read_at(offset, buffer))
            .transpose()
    }

    /// Bytes of the value of `key`, if it exists. Reads none of a value in chunks. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn value_len(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.get_reader(key)?.map(|stream| stream.len()))
    }
}
