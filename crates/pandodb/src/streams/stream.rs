//! Reading values in chunks: one chunk in memory at a time.

use std::io;
use std::task::Waker;

use pando_device::IoBuf;
use pando_format::chunks::{BlobRef, ChunkRef, ChunkShape};
use pando_sync::Arc;

use crate::blobs::readers::{Registration, Registry};
use crate::blobs::room::{ChunkRoom, ChunkTurn};
use crate::blobs::staged::StagedBlob;
use crate::blobs::value::LargeValue;
use crate::engine::Shared;
use crate::error::Result;
use crate::pages::store::Store;
use crate::streams::old_bytes::OldBytes;

/// Memory that a chunk takes in the blob reference of a value that is open, and where it is kept
/// from being freed.
const CHUNK_BYTES: usize = size_of::<ChunkRef>() + 48;

/// A value as it was when it was opened, whatever happens to its key since: see
/// [`crate::Table::get_reader`]. What it needs stays on disk as long as it lives; it also keeps the
/// files of a store open that is closed.
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
    /// By the blob reference of a leaf.
    Stored(BlobRef, Registration),
    /// In a value that was handed over. Registered since before any record named its extents, by
    /// their places: they are not freed as long as this lives, and nobody moves them. What stays of
    /// another value is kept by the staged.
    Handed(Arc<StagedBlob>, Registration),
}

impl Source {
    fn shape(&self) -> ChunkShape {
        match self {
            Self::Stored(blob, _) => blob.shape,
            Self::Handed(staged, _) => staged.shape,
        }
    }

    fn read(&self, store: &Store, index: usize, buffer: &mut IoBuf) -> Result<()> {
        match self {
            Self::Stored(blob, _) => store.read_chunk(blob, index, buffer),
            Self::Handed(staged, _) => store.read_part(staged, index, buffer),
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
        mut blob: BlobRef,
        registration: Registration,
    ) -> Self {
        let head = std::mem::take(&mut blob.head);
        Self::of_source(engine, head, Source::Stored(blob, registration))
    }

    /// The bytes of a value that was handed over and is not put yet: whoever replaces it afterwards
    /// leaves its chunks to this.
    pub(crate) fn of_handed(engine: &Shared, value: &LargeValue) -> Self {
        let staged = value.staged.clone();
        let registration = Registry::read_by_place(&engine.store.registry, staged.new_blocks());
        let source = Source::Handed(staged, registration);
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
            Some(Source::Stored(blob, registration)) => {
                let source = Source::Stored(blob.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
            Some(Source::Handed(staged, registration)) => {
                let source = Source::Handed(staged.clone(), registration.again());
                Self::of_source(&self.engine, self.head.clone(), source)
            }
        }
    }

    /// Bytes of memory that it takes while no piece of it is loaded.
    pub fn idle_bytes(&self) -> usize {
        let blob = self.blob_ref().map_or(0, |blob| blob.chunks.len());
        let chunks = self.chunks.as_ref().map_or(0, |_| size_of::<Chunks>());
        size_of::<Self>() + self.head.len() + chunks + blob * CHUNK_BYTES
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

    /// The blob reference of a large value that a leaf names, its head left out.
    pub(crate) fn blob_ref(&self) -> Option<&BlobRef> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(Source::Stored(blob, _)) => Some(blob),
            _ => None,
        }
    }

    /// The chunks of a value that was handed over.
    pub(crate) fn handed(&self) -> Option<&Arc<StagedBlob>> {
        match self.chunks.as_ref().map(|chunks| &chunks.source) {
            Some(Source::Handed(staged, _)) => Some(staged),
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
        let bytes = engine.store.chunk_buffer_bytes(chunks.source.shape());
        let turn = chunks
            .turn
            .get_or_insert_with(|| ChunkRoom::ask(&engine.outgoing, bytes, waker));
        turn.poll(waker)
    }

    /// The value as what another one is made of, its head left out.
    pub(crate) fn into_old(self) -> OldBytes {
        match self.chunks.map(|chunks| chunks.source) {
            Some(Source::Stored(blob, registration)) => OldBytes::Chunks(blob, registration),
            Some(Source::Handed(staged, registration)) => OldBytes::Handed(staged, registration),
            None => OldBytes::Value(self.head),
        }
    }

    /// Copies bytes from `offset` on into `buffer`: as many as it takes or there are. Blocks.
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
                let bytes = self.engine.store.chunk_buffer_bytes(shape);
                let outgoing = &self.engine.outgoing;
                // Who blocks is counted, and waits for nobody.
                chunks
                    .turn
                    .get_or_insert_with(|| ChunkRoom::count(outgoing, bytes));
                chunks.buffer = self.engine.store.chunk_buffer(shape);
            }
            chunks
                .source
                .read(&self.engine.store, index, &mut chunks.buffer)?;
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
