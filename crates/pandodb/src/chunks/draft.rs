//! Extents of a value that no log record names yet. They belong to the operation that wrote them,
//! which gives them back when it fails or is dropped; from the moment a record names them they
//! belong to the log and to the pages of the batch.

use pando_device::File;
use pando_format::chunks::{ChunkList, ChunkPart, ChunkRef, ChunkShape, NewChunk};
use pando_format::{Extent, StoredPage};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicBool, Ordering};

use crate::chunks::registry::Registration;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::halt::{Step, Stop};
use crate::store::pause;

/// Checkpoints that are waited for when the disk is full: the first makes room of what is retired,
/// the second of what was freed meanwhile.
const CHECKPOINTS_MAX: u32 = 2;

/// How long garbage is waited for on a full disk: a few tenths of a second.
const GARBAGE_TURNS: u32 = 4096;

/// The chunks of a value so far.
#[derive(Debug)]
pub(crate) struct Draft {
    engine: Shared,
    pub(crate) shape: ChunkShape,
    pub(crate) parts: Vec<ChunkPart>,
    /// What the parts are that stay, by their places, ascending.
    kept: Vec<(usize, ChunkRef)>,
    /// Keeps those that stay from being freed, for whoever reads this value before it is put.
    base: Option<Registration>,
    /// A log record names the extents: they are not this operation's any more.
    named: AtomicBool,
}

impl Draft {
    pub(crate) fn new(engine: &Shared, shape: ChunkShape) -> Self {
        Self {
            engine: engine.clone(),
            shape,
            parts: Vec::with_capacity(shape.count()),
            kept: Vec::new(),
            base: None,
            named: AtomicBool::new(false),
        }
    }

    pub(crate) fn engine(&self) -> &Shared {
        &self.engine
    }

    /// Writes the next chunk: `bytes` up to the end of its last block, zeros behind the chunk.
    /// Blocks for room and for the write, not for a sync.
    pub(crate) fn push(&mut self, bytes: &[u8], checksum: u32) -> Result<()> {
        assert!(!self.is_named(), "a record names it as it was");
        assert!(
            self.parts.len() < self.shape.count(),
            "the value has no more"
        );
        let block_bytes = self.engine.space.block_bytes();
        let blocks = self.shape.blocks_of(self.parts.len(), block_bytes);
        assert_eq!(bytes.len() as u64, u64::from(blocks) * block_bytes);
        let extent = self.engine.run_of_blocks(blocks)?;
        assert_eq!(extent.blocks, blocks, "a run of another length");
        let block = extent.block;
        self.parts
            .push(ChunkPart::New(NewChunk { block, checksum }));
        let written = self
            .engine
            .data
            .write_at(bytes, u64::from(block) * block_bytes);
        written.map_err(Error::io("writing a chunk"))?;
        let statistics = &self.engine.statistics;
        statistics.tick(Ticker::ChunkWrites, 1);
        statistics.tick(Ticker::ChunkWriteBytes, bytes.len() as u64);
        Ok(())
    }

    /// Makes the chunks durable. Blocks.
    pub(crate) fn sync(&self) -> Result<()> {
        self.engine.check_writable()?;
        let synced = self.engine.sync_data("syncing chunks");
        synced.map_err(|error| self.engine.poisoned_by(&error))
    }

    /// The next chunk is that of the same place of the value before, `chunk`, which `base` keeps.
    pub(crate) fn keep(&mut self, chunk: ChunkRef, base: &Registration) {
        assert!(
            self.parts.len() < self.shape.count(),
            "the value has no more"
        );
        self.kept.push((self.parts.len(), chunk));
        self.parts.push(ChunkPart::Kept);
        self.base.get_or_insert_with(|| base.again());
    }

    /// The chunk of the value before that stays at `index`, if one does.
    pub(crate) fn kept_at(&self, index: usize) -> Option<ChunkRef> {
        let found = self.kept.binary_search_by_key(&index, |(index, _)| *index);
        found.ok().map(|place| self.kept[place].1)
    }

    /// What keeps the chunks that stay, if any do.
    pub(crate) fn base(&self) -> Option<&Registration> {
        self.base.as_ref()
    }

    /// First blocks of its own chunks.
    pub(crate) fn new_blocks(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().filter_map(|part| match part {
            ChunkPart::New(chunk) => Some(chunk.block),
            ChunkPart::Kept => None,
        })
    }

    /// True if nothing of the value before stays.
    pub(crate) fn is_new(&self) -> bool {
        self.kept.is_empty()
    }

    /// True if `list` has all chunks that are to stay, each in its place.
    pub(crate) fn fits(&self, list: &ChunkList) -> bool {
        let stays = |index: usize, chunk: &ChunkRef| {
            list.shape.bytes_of(index) == self.shape.bytes_of(index)
                && list.chunks.get(index) == Some(chunk)
        };
        list.shape.chunk_bytes == self.shape.chunk_bytes
            && self.kept.iter().all(|(index, chunk)| stays(*index, chunk))
    }

    /// Where its chunks lie, all of them new, for those that give them ids.
    pub(crate) fn stored(&self) -> impl Iterator<Item = StoredPage> {
        let block_bytes = self.engine.space.block_bytes();
        let new = self.parts.iter().enumerate();
        new.filter_map(move |(index, part)| match part {
            ChunkPart::New(chunk) => Some(chunk.stored(self.shape, index, block_bytes)),
            ChunkPart::Kept => None,
        })
    }

    /// From here on a log record names the extents. False if one did before.
    #[must_use]
    pub(crate) fn name(&self) -> bool {
        // AcqRel: of two batches with the same value one names it.
        !self.named.swap(true, Ordering::AcqRel)
    }

    /// No record names the extents: the batch that was about to is refused.
    pub(crate) fn take_back_name(&self) {
        // Release: pairs with the Acquire in is_named.
        let was_named = self.named.swap(false, Ordering::Release);
        assert!(was_named, "the name of another is taken back");
    }

    /// True once a log record names the extents.
    pub(crate) fn is_named(&self) -> bool {
        // Acquire: pairs with the AcqRel in name.
        self.named.load(Ordering::Acquire)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_named() {
            return;
        }
        let block_bytes = self.engine.space.block_bytes();
        let own = self.parts.iter().enumerate().filter_map(|(index, part)| {
            let ChunkPart::New(chunk) = part else {
                return None;
            };
            Some(Extent {
                block: chunk.block,
                blocks: self.shape.blocks_of(index, block_bytes),
            })
        });
        self.engine.space.free_all(own);
    }
}

impl Engine {
    /// So many free blocks in a row. Blocks until there are.
    pub(crate) fn run_of_blocks(&self, blocks: u32) -> Result<Extent> {
        let mut checkpoints = 0;
        loop {
            match self.block(|_| self.try_run_of_blocks(blocks)) {
                Err(full @ Error::Full { .. }) if checkpoints < CHECKPOINTS_MAX => {
                    checkpoints += 1;
                    self.wait_for_garbage();
                    // Other values are read and written by the same thread.
                    if !self.checkpoint_if_room()? {
                        return Err(full);
                    }
                }
                other => return other,
            }
        }
    }

    /// Lets the maintenance thread free what nobody reads, for a while: then it is retired, and the
    /// next checkpoint gives it back.
    fn wait_for_garbage(&self) {
        let mut turns = 0;
        while self.registry.is_wanted() && turns < GARBAGE_TURNS && !self.is_stopping() {
            pause(&mut turns);
        }
    }

    pub(crate) fn try_run_of_blocks(&self, blocks: u32) -> Step<Extent> {
        self.check_writable()?;
        match self.space.try_take_run(blocks, || self.committed_blocks()) {
            Some(Some(extent)) => Ok(extent),
            _ if self.space.is_full() => Err(self.space.full_error().into()),
            Some(None) => Err(Stop::Run(blocks).into()),
            None => Err(Stop::Blocks(blocks.into()).into()),
        }
    }
}
