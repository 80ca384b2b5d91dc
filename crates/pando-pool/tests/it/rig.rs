//! A pool whose device is a map from extents to bytes, with a simple space allocator.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::page::{HEADER_WORDS, PageKind};
use pando_format::{Compression, Extent, Lsn, PageDecoder, PageEncoder, PageId, PageSize, TreeId};
use pando_pool::{
    Attempt, CheckImages, Content, ImageFacts, LoadStart, Pool, PoolOptions, Resource, Restart,
};
use pando_stats::Statistics;
use pando_sync::gate::GateGuard;
use pando_sync::{Arc, Mutex, Rank};

pub(crate) const TREE: TreeId = TreeId(20);
pub(crate) const VALUE_WORD: usize = HEADER_WORDS;

pub(crate) struct Rig {
    pub(crate) pool: Pool,
    block_bytes: usize,
    disk: Mutex<Disk>,
}

#[derive(Default)]
struct Disk {
    blocks: BTreeMap<u32, Vec<u8>>,
    /// Blocks that are in use and must not be written again.
    owned: BTreeSet<u32>,
}

fn nothing_to_prepare(_image: &mut [u8]) -> ImageFacts {
    ImageFacts::default()
}

/// A page with this value fails the check before it is written.
pub(crate) const BAD_VALUE: u64 = u64::MAX;

fn check(page: &[u8]) -> Result<(), &'static str> {
    match pando_format::bytes::u64_at(page, VALUE_WORD * 8) {
        BAD_VALUE => Err("has a bad value"),
        _ => Ok(()),
    }
}

/// Options of a pool with very many page ids.
pub(crate) fn options(
    frames: usize,
    page_bytes: usize,
    block_bytes: usize,
    compression: Compression,
) -> PoolOptions {
    PoolOptions {
        page_size: PageSize::new(page_bytes).unwrap(),
        frames,
        page_ids_max: 100_000,
        images: 4,
        block_bytes,
        compression,
        prepare_image: nothing_to_prepare,
        check_page: check,
        check_images: CheckImages::Rebuilt,
        content: Content::Checked,
        statistics: Arc::new(Statistics::new()),
    }
}

impl Rig {
    pub(crate) fn new(frames: usize) -> Self {
        Self::compressed(frames, 4096, 4096, Compression::None)
    }

    pub(crate) fn compressed(
        frames: usize,
        page_bytes: usize,
        block_bytes: usize,
        compression: Compression,
    ) -> Self {
        Self::of(options(frames, page_bytes, block_bytes, compression))
    }

    pub(crate) fn of(options: PoolOptions) -> Self {
        Self {
            block_bytes: options.block_bytes,
            pool: Pool::new(options).unwrap(),
            disk: Mutex::new(Rank::Leaf, Disk::default()),
        }
    }

    /// Enters the gate.
    pub(crate) fn pass(&self) -> GateGuard<'_> {
        loop {
            if let Some(guard) = self.pool.gate().try_enter() {
                return guard;
            }
            pando_sync::thread::yield_now();
        }
    }

    pub(crate) fn free(&self, page: PageId) {
        self.drive(|| {
            let guard = self.pass();
            self.pool.free_unread(&self.pool.apply_token(&guard), page)
        });
    }

    /// Writes images that writers have started, and the dirty pages in `frames`.
    pub(crate) fn write_back(&self, frames: &[pando_format::FrameIndex]) {
        let mut images = Vec::new();
        self.pool.take_started_images(&mut images, usize::MAX);
        images.extend(
            frames
                .iter()
                .filter_map(|frame| self.pool.image_of(*frame, None)),
        );
        for mut image in images {
            self.pool
                .seal_image(&mut image, &mut PageEncoder::default())
                .unwrap();
            let extent = self.store(image.bytes());
            while let Err(back) = self.pool.complete_image(image, extent) {
                image = back;
                pando_sync::thread::yield_now();
            }
        }
        for extent in self.pool.epochs().take_free_now() {
            self.release(extent);
        }
    }

    pub(crate) fn store(&self, bytes: &[u8]) -> Extent {
        assert_eq!(bytes.len() % self.block_bytes, 0);
        let blocks = (bytes.len() / self.block_bytes) as u32;
        let mut disk = self.disk.lock();
        let free = |block: &u32| (*block..*block + blocks).all(|one| !disk.owned.contains(&one));
        let block = (0..).find(free).unwrap();
        disk.owned.extend(block..block + blocks);
        disk.blocks.insert(block, bytes.to_vec());
        Extent { block, blocks }
    }

    pub(crate) fn release(&self, extent: Extent) {
        for block in extent.block..extent.block + extent.blocks {
            assert!(
                self.disk.lock().owned.remove(&block),
                "{extent:?} was freed twice"
            );
        }
    }

    pub(crate) fn owned(&self) -> usize {
        self.disk.lock().owned.len()
    }

    /// Returns all stored images that are in use.
    pub(crate) fn stored_images(&self) -> Vec<Vec<u8>> {
        let disk = self.disk.lock();
        let owned = |(block, _): &(&u32, _)| disk.owned.contains(block);
        disk.blocks
            .iter()
            .filter(owned)
            .map(|(_, bytes)| bytes.clone())
            .collect()
    }

    pub(crate) fn corrupt(&self, extent: Extent) {
        self.disk.lock().blocks.get_mut(&extent.block).unwrap()[1000] ^= 1;
    }

    /// Does what a blocking driver does after a restart.
    pub(crate) fn serve(&self, restart: Restart) {
        match restart {
            Restart::Conflict => pando_sync::thread::yield_now(),
            Restart::Fault(page) => match self.pool.begin_load(page) {
                Ok(LoadStart::Claimed(ticket)) => {
                    let block = ticket.stored().extent.block;
                    let bytes = self.disk.lock().blocks[&block].clone();
                    self.pool
                        .finish_load(ticket, &bytes, &mut PageDecoder::default())
                        .unwrap();
                }
                Ok(_) => pando_sync::thread::yield_now(),
                Err(restart) => self.serve(restart),
            },
            Restart::Wait(Resource::Frames | Resource::Images) => {
                let mut dirty = Vec::new();
                self.pool.sweep(self.pool.frames() * 2, 4, &mut dirty);
                dirty.truncate(4);
                self.write_back(&dirty);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn drive<T>(&self, mut step: impl FnMut() -> Attempt<T>) -> T {
        loop {
            match step() {
                Ok(value) => return value,
                Err(restart) => self.serve(restart),
            }
        }
    }

    pub(crate) fn create(&self, value: u64) -> PageId {
        self.drive(|| {
            let mut page = self.pool.allocate(
                &self.pool.apply_token(&self.pass()),
                TREE,
                PageKind::Leaf,
                0,
            )?;
            page.modify(&self.pool.apply_token(&self.pass()))?
                .store(VALUE_WORD, value);
            Ok(page.page())
        })
    }

    pub(crate) fn read(&self, page: PageId) -> u64 {
        self.drive(|| {
            let seen = self.pool.optimistic(page, 0)?;
            let value = seen.words().load(VALUE_WORD);
            seen.validate()?;
            seen.touch();
            Ok(value)
        })
    }

    pub(crate) fn write(&self, page: PageId, value: u64) {
        self.drive(|| {
            let mut latched = self.pool.exclusive(page)?;
            latched
                .modify(&self.pool.apply_token(&self.pass()))?
                .store(VALUE_WORD, value);
            Ok(())
        });
    }

    /// Does what a checkpoint does: closes the epoch, writes what was dirty in it, and frees what
    /// only earlier checkpoints used. Returns the mapping changes. Runs `between` after the gate is
    /// open again.
    pub(crate) fn checkpoint(&self, c: Lsn, between: impl Fn()) -> Vec<(PageId, u64)> {
        let closing = self.pool.epochs().current();
        self.pool.epochs().advance(&self.pool.gate().close(), c);
        between();
        let all: Vec<_> = (0..self.pool.frames() as u32)
            .map(pando_format::FrameIndex)
            .collect();
        while self.pool.epochs().dirty(closing) > 0 || self.pool.epochs().images(closing) > 0 {
            let mut images = Vec::new();
            self.pool.take_started_images(&mut images, usize::MAX);
            images.extend(
                all.iter()
                    .filter_map(|f| self.pool.image_of(*f, Some(closing))),
            );
            for mut image in images {
                self.pool
                    .seal_image(&mut image, &mut PageEncoder::default())
                    .unwrap();
                let extent = self.store(image.bytes());
                while let Err(back) = self.pool.complete_image(image, extent) {
                    image = back;
                }
            }
        }
        let pairs = self.pool.epochs().take_pairs(closing);
        let retired = self.pool.epochs().take_retired(closing);
        for extent in retired
            .into_iter()
            .chain(self.pool.epochs().take_free_now())
        {
            self.release(extent);
        }
        pairs
    }

    /// Returns the value of the page in the image that `word` names.
    pub(crate) fn stored_value(&self, word: u64) -> u64 {
        let stored = pando_format::StoredPage::decode(word).unwrap();
        let disk = self.disk.lock();
        let image = &disk.blocks[&stored.extent.block];
        assert_eq!(
            image.len(),
            stored.extent.blocks as usize * self.block_bytes
        );
        let mut decoder = PageDecoder::default();
        let page = decoder
            .decode(image, self.pool.page_size(), self.block_bytes)
            .unwrap();
        pando_format::bytes::u64_at(page, VALUE_WORD * 8)
    }
}
