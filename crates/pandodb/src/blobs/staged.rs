//! Extents of a value that no log record names yet. They belong to the operation that wrote them,
//! which gives them back when it fails or is dropped. From the moment at which a record names them,
//! they belong to the log and to the pages of the batch.

use pando_format::chunks::{BlobRef, ChunkPart, ChunkRef, ChunkShape, NewChunk};
use pando_format::{Extent, StoredPage};
use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, Ordering};

use crate::blobs::readers::Registration;
use crate::space::keeper::SpaceKeeper;

/// The chunks of a value so far.
#[derive(Debug)]
pub(crate) struct StagedBlob {
    space: Arc<SpaceKeeper>,
    /// Decides where each chunk ends; fixed before the first one.
    pub(crate) shape: ChunkShape,
    /// The chunks so far, in order.
    pub(crate) parts: Vec<ChunkPart>,
    /// The kept chunks, by their index in `parts`, ascending.
    kept: Vec<(usize, ChunkRef)>,
    /// Keeps the kept chunks from being freed, for whoever reads this value before it is put.
    base: Option<Registration>,
    /// A log record names the extents: they no longer belong to this operation.
    named: AtomicBool,
}

impl StagedBlob {
    /// Makes one without chunks, for a value of `shape`.
    pub(crate) fn new(space: &Arc<SpaceKeeper>, shape: ChunkShape) -> Self {
        Self {
            space: space.clone(),
            shape,
            parts: Vec::with_capacity(shape.count()),
            kept: Vec::new(),
            base: None,
            named: AtomicBool::new(false),
        }
    }

    /// The space that its extents are from.
    pub(crate) fn space(&self) -> &Arc<SpaceKeeper> {
        &self.space
    }

    /// Appends a new chunk, in an extent at `block` that belongs to this operation.
    pub(crate) fn push(&mut self, block: u32, checksum: u32) {
        assert!(!self.is_named(), "a record names it already");
        assert!(
            self.parts.len() < self.shape.count(),
            "the value has no more chunks"
        );
        self.parts
            .push(ChunkPart::New(NewChunk { block, checksum }));
    }

    /// Appends `chunk`, which stays at the same place of the value before; `base` keeps it.
    pub(crate) fn keep(&mut self, chunk: ChunkRef, base: &Registration) {
        assert!(
            self.parts.len() < self.shape.count(),
            "the value has no more chunks"
        );
        self.kept.push((self.parts.len(), chunk));
        self.parts.push(ChunkPart::Kept);
        self.base.get_or_insert_with(|| base.again());
    }

    /// Returns the chunk of the value before that stays at `index`, if one does.
    pub(crate) fn kept_at(&self, index: usize) -> Option<ChunkRef> {
        let found = self.kept.binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|place| self.kept[place].1)
    }

    /// Returns what keeps the chunks that stay, if any do.
    pub(crate) fn base(&self) -> Option<&Registration> {
        self.base.as_ref()
    }

    /// Returns the first blocks of its new chunks.
    pub(crate) fn new_blocks(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().filter_map(|part| match part {
            ChunkPart::New(chunk) => Some(chunk.block),
            ChunkPart::Kept => None,
        })
    }

    /// Returns the chunks, if all of them are those of the value before.
    pub(crate) fn all_kept(&self) -> Option<Vec<ChunkRef>> {
        let are_all = self.kept.len() == self.shape.count();
        are_all.then(|| self.kept.iter().map(|(_, chunk)| *chunk).collect())
    }

    /// Returns true if it keeps no chunk of the value before.
    pub(crate) fn is_new(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns true if `blob` has all chunks that are to stay, each in its place.
    pub(crate) fn fits(&self, blob: &BlobRef) -> bool {
        let stays = |index: usize, chunk: &ChunkRef| {
            blob.shape.bytes_of(index) == self.shape.bytes_of(index)
                && blob.chunks.get(index) == Some(chunk)
        };
        blob.shape.chunk_bytes == self.shape.chunk_bytes
            && self.kept.iter().all(|(index, chunk)| stays(*index, chunk))
    }

    /// Returns where its chunks are stored, all of which are new, for callers that give them ids.
    pub(crate) fn stored(&self) -> impl Iterator<Item = StoredPage> {
        let block_bytes = self.space.block_bytes();
        let new = self.parts.iter().enumerate();
        new.filter_map(move |(index, part)| match part {
            ChunkPart::New(chunk) => Some(chunk.stored(self.shape, index, block_bytes)),
            ChunkPart::Kept => None,
        })
    }

    /// Marks that a log record names the extents. Returns false if one did before.
    #[must_use]
    pub(crate) fn name(&self) -> bool {
        // AcqRel: of two batches with the same value, only one names it.
        !self.named.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark back: the batch that was about to name the extents is refused.
    pub(crate) fn take_back_name(&self) {
        // Release: pairs with the Acquire in is_named.
        let was_named = self.named.swap(false, Ordering::Release);
        assert!(was_named, "no record was about to name it");
    }

    /// Returns true once a log record names the extents.
    pub(crate) fn is_named(&self) -> bool {
        // Acquire: pairs with the AcqRel in name.
        self.named.load(Ordering::Acquire)
    }
}

impl Drop for StagedBlob {
    fn drop(&mut self) {
        if self.is_named() {
            return;
        }
        let block_bytes = self.space.block_bytes();
        let own = self.parts.iter().enumerate().filter_map(|(index, part)| {
            let ChunkPart::New(chunk) = part else {
                return None;
            };
            Some(Extent {
                block: chunk.block,
                blocks: self.shape.blocks_of(index, block_bytes),
            })
        });
        self.space.free_all(own);
    }
}
