//! Reading values in chunks: one chunk in memory at a time.

use std::io;
use std::task::Waker;

use pando_device::{File, IoBuf};
use pando_format::checksum::crc32c;
use pando_format::chunks::{ChunkList, ChunkPart, ChunkRef, ChunkShape};
use pando_format::{Extent, StoredPage};
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::chunks::draft::Draft;
use crate::chunks::look::Found;
use crate::chunks::registry::{Registration, Registry};
use crate::chunks::room::{ChunkRoom, ChunkTurn};
use crate::chunks::writer::LargeValue;
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::table::Table;

/// Memory that a chunk takes in the list of a value that is open, and where it is kept from being
/// freed.
const CHUNK_BYTES: usize = size_of::<ChunkRef>() + 48;

impl Store {
    /// Bytes of a buffer for chunks of `shape`.
    pub(crate) fn chunk_buffer_bytes(&self, shape: ChunkShape) -> u64 {
        let block_bytes = self.space.block_bytes();
        u64::from(shape.blocks_of(0, block_bytes)) * block_bytes
    }

    /// A buffer for chunks of `shape`.
    pub(crate) fn chunk_buffer(&self, shape: ChunkShape) -> IoBuf {
        IoBuf::new(self.chunk_buffer_bytes(shape) as usize)
    }

    /// Reads chunk `index` of `list` and checks it; `buffer` holds its bytes then. The caller is
    /// registered. Blocks.
    pub(crate) fn read_chunk(
        &self,
        list: &ChunkList,
        index: usize,
        buffer: &mut IoBuf,
    ) -> Result<()> {
        self.read_named(list.shape, index, list.chunks[index], buffer)
    }

    /// Reads `chunk`, the one at `index` of a value of `shape`.
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
                return Err(damaged(None, "a list names it, and it is no chunk".into()));
            };
            if stored.extent.blocks != blocks || stored.tag != StoredPage::tag_of(chunk.checksum) {
                let what = format!(
                    "its list expects {blocks} blocks and {:#010x}",
                    chunk.checksum
                );
                return Err(damaged(Some(stored.extent), what));
            }
            let bytes = shape.bytes_of(index);
            let read = self.read_extent(stored.extent, bytes, chunk.checksum, buffer);
            // Moved meanwhile, its place may have been written over, or cut off.
            if self.pool.chunk(chunk.page) == Some(stored) {
                return read.map_err(|what| damaged(Some(stored.extent), what));
            }
        }
    }

    /// Reads chunk `index` of a value that was handed over. Whoever does so when a record may name
    /// its extents is registered since before. Blocks.
    pub(crate) fn read_part(&self, draft: &Draft, index: usize, buffer: &mut IoBuf) -> Result<()> {
        let ChunkPart::New(chunk) = draft.parts[index] else {
            let kept = draft.kept_at(index).expect("it is known by its place");
            return self.read_named(draft.shape, index, kept, buffer);
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
        buffer.set_len(stored as usize);
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
        assert_eq!(
            out.len() as u64,
            list.value_bytes(),
            "its chunks add up to the value"
        );
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
    /// Boxed: most values that are opened have none.
    chunks: Option<Box<Chunks>>,
    position: u64,
}

#[derive(Debug)]
struct Chunks {
    source: Source,
    /// Empty until the first one is read.
    buffer: IoBuf,
    /// Room for it.
    turn: Option<ChunkTurn>,
    /// The chunk that the buffer holds.
    loaded: Option<usize>,
}

/// Where chunks are found.
#[derive(Debug)]
enum Source {
    /// By the list of a leaf.
    Stored(ChunkList, Registration),
    /// In a value that was handed over. Registered since before any record named its extents, by
    /// their places: they are not freed as long as this lives, and nobody moves them. What stays of
    /// another value is kept by the draft.
    Handed(Arc<Draft>, Registration),
}

impl Source {
    fn shape(&self) -> ChunkShape {
        match self {
            Self::Stored(list, _) => list.shape,
            Self::Handed(draft, _) => draft.shape,
        }
    }

    fn read(&self, store: &Store, index: usize, buffer: &mut IoBuf) -> Result<()> {
        match self {
            Self::Stored(list, _) => store.read_chunk(list, index, buffer),
            Self::Handed(draft, _) => store.read_part(draft, index, buffer),
        }
    }
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
        let head = std::mem::take(&mut list.head);
        Self::of_source(engine, head, Source::Stored(list, registration))
    }

    /// The bytes of a value that was handed over and is not put yet: whoever replaces it afterwards
    /// leaves its chunks to this.
    pub(crate) fn of_handed(engine: &Shared, value: &LargeValue) -> Self {
        let draft = value.draft.clone();
        let registration = Registry::read_by_place(&engine.registry, draft.new_blocks());
        let source = Source::Handed(draft, registration);
        Self::of_source(engine, value.head.clone(), source)
    }

    fn of_source(engine: &Shared, head: Vec<u8>, source: Source) -> Self {
        Self {
            engine: engine.clone(),
            head,
            chunks: Some(Box::new(Chunks {
                source,
                buffer: IoBuf::default(),
                turn: None,
                loaded: None,
            })),
            position: 0,
        }
    }

    /// The same value once more, as it was when this one was opened.
    pub fn reopen(&self) -> Self {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            None => Self::of_value(&self.engine, self.head.clone()),
            Some(Source::Stored(list, registration)) => {
                let source = Source::Stored(list.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
            Some(Source::Handed(draft, registration)) => {
                let source = Source::Handed(draft.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
        }
    }

    /// Bytes of memory that it takes while no piece of it is loaded.
    pub fn idle_bytes(&self) -> usize {
        let list = self.list().map_or(0, |list| list.chunks.len());
        let chunks = self.chunks.as_ref().map_or(0, |_| size_of::<Chunks>());
        size_of::<Self>() + self.head.len() + chunks + list * CHUNK_BYTES
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        let chunks = self.chunks.as_ref();
        self.head.len() as u64 + chunks.map_or(0, |chunks| chunks.source.shape().bytes)
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

    /// The list of a large value that a leaf names, its head left out.
    pub(crate) fn list(&self) -> Option<&ChunkList> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(Source::Stored(list, _)) => Some(list),
            _ => None,
        }
    }

    /// The chunks of a value that was handed over.
    pub(crate) fn handed(&self) -> Option<&Arc<Draft>> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(Source::Handed(draft, _)) => Some(draft),
            _ => None,
        }
    }

    /// What keeps the chunks of a large value.
    pub(crate) fn registration(&self) -> Option<&Registration> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(Source::Stored(_, registration) | Source::Handed(_, registration)) => {
                Some(registration)
            }
            None => None,
        }
    }

    /// True if the bytes at `offset` are in memory, or none are there.
    pub(crate) fn has_piece(&self, offset: u64) -> bool {
        let Some(offset) = offset.checked_sub(self.head.len() as u64) else {
            return true;
        };
        self.chunks.as_ref().is_none_or(|chunks| {
            let shape = chunks.source.shape();
            let index = offset / u64::from(shape.chunk_bytes);
            offset >= shape.bytes || chunks.loaded == Some(index as usize)
        })
    }

    /// True once there is room for the buffer that its chunks need; until then `waker` is woken
    /// when that changes.
    pub(crate) fn poll_room(&mut self, waker: &Waker) -> bool {
        let Some(chunks) = &mut self.chunks else {
            return true;
        };
        let engine = &self.engine;
        let bytes = engine.chunk_buffer_bytes(chunks.source.shape());
        let turn = chunks
            .turn
            .get_or_insert_with(|| ChunkRoom::ask(&engine.outgoing, bytes, waker));
        turn.poll(waker)
    }

    /// The value as what another one is made of, its head left out.
    pub(crate) fn into_old(self) -> OldBytes {
        match self.chunks.map(|chunks| chunks.source) {
            Some(Source::Stored(list, registration)) => OldBytes::Chunks(list, registration),
            Some(Source::Handed(draft, registration)) => OldBytes::Handed(draft, registration),
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
        let shape = chunks.source.shape();
        if offset >= shape.bytes {
            return Ok(&[]);
        }
        let chunk_bytes = u64::from(shape.chunk_bytes);
        let index = (offset / chunk_bytes) as usize;
        if chunks.loaded != Some(index) {
            chunks.loaded = None;
            if chunks.buffer.is_empty() {
                let bytes = self.engine.chunk_buffer_bytes(shape);
                let outgoing = &self.engine.outgoing;
                // Who blocks is counted, and waits for nobody.
                chunks
                    .turn
                    .get_or_insert_with(|| ChunkRoom::count(outgoing, bytes));
                chunks.buffer = self.engine.chunk_buffer(shape);
            }
            chunks
                .source
                .read(&self.engine, index, &mut chunks.buffer)?;
            assert_eq!(
                chunks.buffer.len(),
                shape.bytes_of(index),
                "the chunk is whole"
            );
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
    Chunks(ChunkList, Registration),
    /// A value that was handed over and that no leaf has yet: what it keeps of another one can
    /// stay, what is new of it is copied.
    Handed(
        Arc<Draft>,
        #[expect(dead_code, reason = "it keeps the chunks")] Registration,
    ),
}

impl OldBytes {
    /// Bytes that it has.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Value(value) => value.len() as u64,
            Self::Chunks(list, _) => list.shape.bytes,
            Self::Handed(draft, _) => draft.shape.bytes,
        }
    }

    /// True if chunk `index` of `shape` can stay as it is.
    pub(crate) fn has_chunk(&self, shape: ChunkShape, index: usize) -> bool {
        let old = match self {
            Self::Value(_) => return false,
            Self::Chunks(list, _) => list.shape,
            Self::Handed(draft, _) if draft.kept_at(index).is_some() => draft.shape,
            Self::Handed(..) => return false,
        };
        old.chunk_bytes == shape.chunk_bytes && old.bytes_of(index) == shape.bytes_of(index)
    }

    /// Chunk `index`, which can stay, and what keeps it.
    pub(crate) fn chunk(&self, index: usize) -> (ChunkRef, &Registration) {
        match self {
            Self::Chunks(list, registration) => (list.chunks[index], registration),
            Self::Handed(draft, _) => {
                let chunk = draft.kept_at(index).expect("it can stay");
                (chunk, draft.base().expect("something keeps what stays"))
            }
            Self::Value(_) => unreachable!("a value in pages has no chunk that could stay"),
        }
    }

    /// Bytes of the chunks of a value in chunks.
    pub(crate) fn chunk_bytes(&self) -> Option<u32> {
        match self {
            Self::Value(_) => None,
            Self::Chunks(list, _) => Some(list.shape.chunk_bytes),
            Self::Handed(draft, _) => Some(draft.shape.chunk_bytes),
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
            Self::Chunks(..) | Self::Handed(..) => {
                let shape = match self {
                    Self::Chunks(list, _) => list.shape,
                    Self::Handed(draft, _) => draft.shape,
                    Self::Value(_) => unreachable!("it lies in chunks"),
                };
                let chunk_bytes = u64::from(shape.chunk_bytes);
                let index = (offset / chunk_bytes) as usize;
                if index >= shape.count() {
                    out.fill(0);
                    return Ok(());
                }
                let mut buffer = store.chunk_buffer(shape);
                match self {
                    Self::Chunks(list, _) => store.read_chunk(list, index, &mut buffer)?,
                    Self::Handed(draft, _) => store.read_part(draft, index, &mut buffer)?,
                    Self::Value(_) => unreachable!("it lies in chunks"),
                }
                let from = buffer
                    .get((offset % chunk_bytes) as usize..)
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
