//! Readers of values in chunks, with one chunk in memory at a time.

use std::io;
use std::ops::Range;
use std::task::Waker;

use pando_device::IoBuf;
use pando_format::cast::usize_of;
use pando_format::chunks::{BlobRef, ChunkRef, ChunkShape};
use pando_sync::Arc;

use crate::blobs::readers::{Registration, Registry};
use crate::blobs::room::{ChunkRoom, ChunkTurn};
use crate::blobs::staged::StagedBlob;
use crate::blobs::value::LargeValue;
use crate::engine::Shared;
use crate::error::Result;
use crate::kept::settled::KeptBlob;
use crate::pages::store::Store;
use crate::streams::old_bytes::OldBytes;

/// Memory that each chunk of an open value takes: in its blob reference, and in the registry, which
/// keeps it from being freed.
const CHUNK_BYTES: usize = size_of::<ChunkRef>() + 48;

/// Most bytes for which blocks of a chunk are read, and not all of it.
const PART_BYTES_MAX: u64 = 16 << 10;

/// A value as it was when it was opened, whatever happens to its key since: see
/// [`crate::Table::get_reader`]. Its chunks stay on disk as long as this lives; it also keeps the
/// files of a closed store open. Only a large value that was opened at a settled snapshot may be
/// lost: with [`crate::Error::SnapshotEnded`], when the disk is full or the store is closed.
#[derive(Debug)]
pub struct ValueStream {
    engine: Shared,
    /// The head of the value, or all of a value in pages.
    head: Vec<u8>,
    /// None for a value in pages. Boxed, since most opened values are in pages.
    chunks: Option<Box<ChunkCursor>>,
    /// Next byte of [`io::Read`].
    position: u64,
}

/// The part of a stream that only values in chunks need.
#[derive(Debug)]
struct ChunkCursor {
    source: ChunkSource,
    /// Empty until the first chunk is read.
    buffer: IoBuf,
    /// Turn for the buffer.
    turn: Option<ChunkTurn>,
    /// Which bytes the buffer holds, of one chunk; the head is not counted.
    loaded: Range<u64>,
}

/// Where the chunks are found.
#[derive(Debug)]
enum ChunkSource {
    /// Through the blob reference of a leaf.
    Stored(BlobRef, Registration),
    /// In a value that was handed over. The registration by place was made before any record named
    /// the extents: they are neither freed nor moved as long as this lives. Chunks that it keeps of
    /// another value are kept by the staged blob.
    Handed(Arc<StagedBlob>, Registration),
    /// In a checkpoint that is kept for a settled snapshot.
    Kept(KeptBlob),
}

impl ChunkSource {
    fn shape(&self) -> ChunkShape {
        match self {
            Self::Stored(blob, _) => blob.shape,
            Self::Handed(staged, _) => staged.shape,
            Self::Kept(kept) => kept.blob.shape,
        }
    }

    /// Reads and checks chunk `index`. Blocks.
    fn read(&self, store: &Store, index: usize, buffer: &mut IoBuf) -> Result<()> {
        match self {
            Self::Stored(blob, _) => store.read_chunk(blob, index, buffer),
            Self::Handed(staged, _) => store.read_part(staged, index, buffer),
            Self::Kept(kept) => kept.read_chunk(index, buffer),
        }
    }

    /// Returns chunk `index`, if it has a page id.
    fn named(&self, index: usize) -> Option<ChunkRef> {
        match self {
            Self::Stored(blob, _) => blob.chunks.get(index).copied(),
            Self::Handed(staged, _) => staged.kept_at(index),
            Self::Kept(_) => None,
        }
    }

    /// Reads and checks the chunk that has the byte at `offset`, or, for a reader who wants few
    /// bytes, blocks of it. Returns which bytes `buffer` has then. Blocks.
    fn load(
        &self,
        engine: &Shared,
        (offset, most): (u64, u64),
        buffer: &mut IoBuf,
    ) -> Result<Range<u64>> {
        let (store, shape) = (&engine.store, self.shape());
        let chunk_bytes = u64::from(shape.chunk_bytes);
        let index = usize_of(offset / chunk_bytes);
        let start = offset - offset % chunk_bytes;
        let bytes = shape.bytes_of(index);
        let wants_part = most <= PART_BYTES_MAX && bytes as u64 >= 4 * PART_BYTES_MAX;
        let named = self.named(index).filter(|_| wants_part);
        if let Some(chunk) = named
            && let Some(sums) = engine.block_sums.get(chunk)
        {
            let from = usize_of(offset - start);
            let part = from..bytes.min(from + usize_of(most));
            let read = store.read_blocks((shape, index), (chunk, &sums), part, buffer);
            if let Some(read) = read {
                return Ok(start + read.start as u64..start + read.end as u64);
            }
        }
        self.read(store, index, buffer)?;
        assert_eq!(buffer.len(), bytes, "the chunk is whole");
        if let Some(chunk) = named {
            engine.block_sums.put(chunk, buffer);
        }
        Ok(start..start + bytes as u64)
    }
}

impl ValueStream {
    /// Makes a stream of a value in pages.
    pub(crate) fn of_value(engine: &Shared, value: Vec<u8>) -> Self {
        Self {
            engine: engine.clone(),
            head: value,
            chunks: None,
            position: 0,
        }
    }

    /// Makes a stream of a value that a leaf has, with the registration that keeps its chunks.
    pub(crate) fn of_chunks(
        engine: &Shared,
        mut blob: BlobRef,
        registration: Registration,
    ) -> Self {
        let head = std::mem::take(&mut blob.head);
        Self::of_source(engine, head, ChunkSource::Stored(blob, registration))
    }

    /// Makes a stream of a value that a kept checkpoint has.
    pub(crate) fn of_kept(engine: &Shared, mut kept: KeptBlob) -> Self {
        let head = std::mem::take(&mut kept.blob.head);
        Self::of_source(engine, head, ChunkSource::Kept(kept))
    }

    /// Makes a stream of a value that was handed over and is not put yet. Whoever replaces that
    /// value later leaves its chunks to this stream.
    pub(crate) fn of_handed(engine: &Shared, value: &LargeValue) -> Self {
        let staged = value.staged.clone();
        let registration = Registry::read_by_place(&engine.store.registry, staged.new_blocks());
        let source = ChunkSource::Handed(staged, registration);
        Self::of_source(engine, value.head.clone(), source)
    }

    fn of_source(engine: &Shared, head: Vec<u8>, source: ChunkSource) -> Self {
        Self {
            engine: engine.clone(),
            head,
            chunks: Some(Box::new(ChunkCursor {
                source,
                buffer: IoBuf::default(),
                turn: None,
                loaded: 0..0,
            })),
            position: 0,
        }
    }

    /// Opens the same value once more, as it was when this one was opened.
    pub fn reopen(&self) -> Self {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            None => Self::of_value(&self.engine, self.head.clone()),
            Some(ChunkSource::Stored(blob, registration)) => {
                let source = ChunkSource::Stored(blob.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
            Some(ChunkSource::Handed(staged, registration)) => {
                let source = ChunkSource::Handed(staged.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
            Some(ChunkSource::Kept(kept)) => {
                let source = ChunkSource::Kept(kept.clone());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
        }
    }

    /// Bytes of memory that it takes while no chunk of it is loaded.
    pub fn idle_bytes(&self) -> usize {
        let blob = match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(ChunkSource::Kept(kept)) => kept.blob.chunks.len(),
            _ => self.blob_ref().map_or(0, |blob| blob.chunks.len()),
        };
        let chunks = self.chunks.as_ref().map_or(0, |_| size_of::<ChunkCursor>());
        size_of::<Self>() + self.head.len() + chunks + blob * CHUNK_BYTES
    }

    /// Number of bytes of the value.
    pub fn len(&self) -> u64 {
        let chunks = self.chunks.as_ref();
        self.head.len() as u64 + chunks.map_or(0, |chunks| chunks.source.shape().bytes)
    }

    /// Returns true for an empty value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first bytes of the value, which are stored with its key: all of a value in
    /// pages.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns true if the value is in chunks.
    pub fn is_chunked(&self) -> bool {
        self.chunks.is_some()
    }

    /// Returns the places of the bytes of the chunk that has the byte at `place`, both without the
    /// head; an empty range at the end for a place far behind it. Without chunks all bytes are one.
    pub fn chunk_at(&self, place: u64) -> Range<u64> {
        match &self.chunks {
            None => 0..self.len(),
            Some(chunks) => {
                let shape = chunks.source.shape();
                let bytes = u64::from(shape.chunk_bytes);
                let start = (place - place % bytes).min(shape.bytes);
                start..(start + bytes).min(shape.bytes)
            }
        }
    }

    /// Returns the engine of the store that the value belongs to.
    pub(crate) fn engine(&self) -> &Shared {
        &self.engine
    }

    /// Returns the blob reference of a large value that a leaf has, without its head.
    pub(crate) fn blob_ref(&self) -> Option<&BlobRef> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(ChunkSource::Stored(blob, _)) => Some(blob),
            _ => None,
        }
    }

    /// Returns the chunks of a value that was handed over.
    pub(crate) fn handed(&self) -> Option<&Arc<StagedBlob>> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(ChunkSource::Handed(staged, _)) => Some(staged),
            _ => None,
        }
    }

    /// Returns what keeps the chunks of a large value.
    pub(crate) fn registration(&self) -> Option<&Registration> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(ChunkSource::Stored(_, registration) | ChunkSource::Handed(_, registration)) => {
                Some(registration)
            }
            Some(ChunkSource::Kept(_)) | None => None,
        }
    }

    /// Returns true if the bytes at `offset` are in memory, or do not exist.
    pub(crate) fn has_piece(&self, offset: u64) -> bool {
        let Some(offset) = offset.checked_sub(self.head.len() as u64) else {
            return true;
        };
        self.chunks.as_ref().is_none_or(|chunks| {
            offset >= chunks.source.shape().bytes || chunks.loaded.contains(&offset)
        })
    }

    /// Returns true once there is room for the buffer of its chunks; until then `waker` is woken
    /// when there is.
    pub(crate) fn poll_room(&mut self, waker: &Waker) -> bool {
        let Some(chunks) = &mut self.chunks else {
            return true;
        };
        let engine = &self.engine;
        let bytes = engine.store.chunk_buffer_bytes(chunks.source.shape());
        let turn = chunks
            .turn
            .get_or_insert_with(|| ChunkRoom::ask(&engine.outgoing, bytes, waker));
        turn.poll(waker)
    }

    /// Returns the value, without its head, as the basis of a changed one.
    pub(crate) fn into_old(self) -> OldBytes {
        match self.chunks.map(|chunks| chunks.source) {
            Some(ChunkSource::Stored(blob, registration)) => OldBytes::Chunks(blob, registration),
            Some(ChunkSource::Handed(staged, registration)) => {
                OldBytes::Handed(staged, registration)
            }
            Some(ChunkSource::Kept(kept)) => OldBytes::Kept(kept),
            None => OldBytes::Value(self.head),
        }
    }

    /// Copies bytes from `offset` on into `buffer`, as many as fit or exist; returns how many.
    /// Blocks.
    ///
    /// # Errors
    /// [`crate::Error::CorruptPage`] for a damaged chunk.
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

    /// Returns the bytes from `offset` to the end of the same chunk; none at the end of the value.
    /// Blocks.
    ///
    /// # Errors
    /// As [`ValueStream::read_at`].
    pub fn piece_at(&mut self, offset: u64) -> Result<&[u8]> {
        self.piece_of(offset, u64::MAX)
    }

    /// As [`ValueStream::piece_at`], for a reader that wants no more than `most` bytes: there may
    /// be fewer up to the end of the chunk.
    pub(crate) fn piece_of(&mut self, offset: u64, most: u64) -> Result<&[u8]> {
        let head_bytes = self.head.len() as u64;
        let Some(offset) = offset.checked_sub(head_bytes) else {
            return Ok(&self.head[usize_of(offset)..]);
        };
        let Some(chunks) = &mut self.chunks else {
            return Ok(&[]);
        };
        let shape = chunks.source.shape();
        if offset >= shape.bytes {
            return Ok(&[]);
        }
        if !chunks.loaded.contains(&offset) {
            chunks.loaded = 0..0;
            if chunks.buffer.is_empty() {
                let bytes = self.engine.store.chunk_buffer_bytes(shape);
                let outgoing = &self.engine.outgoing;
                // Blocking callers are counted, and wait for nobody.
                chunks
                    .turn
                    .get_or_insert_with(|| ChunkRoom::count(outgoing, bytes));
                chunks.buffer = self.engine.store.chunk_buffer(shape);
            }
            let wanted = (offset, most);
            chunks.loaded = chunks
                .source
                .load(&self.engine, wanted, &mut chunks.buffer)?;
        }
        Ok(&chunks.buffer[usize_of(offset - chunks.loaded.start)..])
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
