//! `alloc` under 4 KiB random overwrites of a store whose pages are all in memory: the product's
//! pool and log, with the blocks of images from one allocator or another.
//!
//! An overwrite logs the page's new content, changes the page under its latch, and notes it. After
//! each [`BATCH`] of them the thread writes its pages back as the engine does: copy, checksum, a
//! block for each, and the blocks of the images before given back. Images are dropped where the
//! device would take them; the log is kept, in memory. So what is left is what a fast device
//! would leave: the processor's time of all of it, of which allocation is a part.

use pando_device::MemoryDevice;
use pando_format::cast::{u32_of, usize_of};
use pando_format::log::RecordKind;
use pando_format::page::{HEADER_WORDS, PageKind};
use pando_format::{Compression, Extent, FrameIndex, Lsn, PageEncoder, PageId, PageSize, TreeId};
use pando_pool::page_table::Place;
use pando_pool::{Attempt, CheckImages, Content, Image, ImageFacts, Pool, PoolOptions, Restart};
use pando_stats::Statistics;
use pando_sync::gate::GateGuard;
use pando_sync::{Arc, thread};
use pando_wal::{Acknowledge, FlushMethod, Log, LogOptions};

use super::options::AblationOptions;
use crate::alloc::allocator::Allocator;
use crate::alloc::state::State;
use crate::error::{Error, Result};
use crate::phase::{self, Calls, Done, Observer, Phase};
use crate::random::Random;
use crate::record::Record;

/// Name of the workload in records.
pub(super) const WORKLOAD: &str = "overwrite";
/// Pages that a thread writes back at a time.
const BATCH: usize = 64;
/// Bytes of the log's files, and of one of them.
const LOG_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u32 = 16 << 20;
const LOG_BUFFER_BYTES: usize = 4 << 20;
const TREE: TreeId = TreeId(1);

/// What a thread or the builder does when a step has to be repeated: everything is in memory, so
/// only another thread can be in the way.
fn retry<T>(mut attempt: impl FnMut() -> Attempt<T>) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(Restart::Conflict) => thread::yield_now(),
            Err(other) => return Err(wrong(format!("{other:?}"))),
        }
    }
}

fn wrong(what: String) -> Error {
    Error::Wrong {
        workload: WORKLOAD,
        what,
    }
}

fn of_log(error: pando_wal::Error) -> Error {
    wrong(format!("the log: {error}"))
}

fn nothing_to_prepare(_image: &mut [u8]) -> ImageFacts {
    ImageFacts::default()
}

fn everything_is_fine(_page: &[u8]) -> std::result::Result<(), &'static str> {
    Ok(())
}

/// Pages in memory, their log, and the allocator of their blocks.
pub(super) struct Overwritten<A> {
    pool: Pool,
    log: Log<MemoryDevice>,
    allocator: A,
    pages: Vec<PageId>,
    page_bytes: usize,
}

impl<A: Allocator> Overwritten<A> {
    /// As many pages as `options.max_memory` holds, each with a block of `allocator`, which is made
    /// as full as `state` says before.
    pub(super) fn new(options: &AblationOptions, state: &State, allocator: A) -> Result<Self> {
        state.build(&allocator)?;
        let page_bytes = options.page_bytes;
        let page_size = PageSize::new(page_bytes)
            .ok_or_else(|| Error::option("page-size", "is no size of a page"))?;
        let count = (usize_of(options.max_memory) / page_bytes).max(2 * BATCH);
        let images = 2 * BATCH * options.thread_counts().iter().max().unwrap_or(&1);
        let statistics = Arc::new(Statistics::new());
        let pool = Pool::new(PoolOptions {
            page_size,
            // No page is ever evicted.
            frames: 2 * count,
            page_ids_max: count,
            images,
            block_bytes: page_bytes,
            compression: Compression::None,
            prepare_image: nothing_to_prepare,
            check_page: everything_is_fine,
            check_images: CheckImages::Rebuilt,
            content: Content::Checked,
            statistics: statistics.clone(),
        })
        .map_err(|source| Error::Io {
            during: "mapping memory".to_owned(),
            source,
        })?;
        let log_options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            segments: u32_of(LOG_BYTES / u64::from(SEGMENT_BYTES)),
            file_bytes: SEGMENT_BYTES,
            buffer_bytes: LOG_BUFFER_BYTES,
            identity: [7; 16],
            incarnation: 1,
            signature: 1,
            start: Lsn(0),
            flush_method: FlushMethod::Buffered,
        };
        let device = MemoryDevice::new(2 * LOG_BYTES);
        let log = Log::open(device, log_options, statistics).map_err(of_log)?;
        log.make_all_files().map_err(of_log)?;
        let store = Self {
            pages: Self::allocate(&pool, count)?,
            pool,
            log,
            allocator,
            page_bytes,
        };
        store.end_epoch()?;
        Ok(store)
    }

    fn allocate(pool: &Pool, count: usize) -> Result<Vec<PageId>> {
        let guard = enter(pool);
        let token = pool.apply_token(&guard);
        let allocate = || {
            let mut page = pool.allocate(&token, TREE, PageKind::Leaf, 0)?;
            page.modify(&token)?;
            Ok(page.page())
        };
        (0..count).map(|_| retry(allocate)).collect()
    }

    /// Runs a turn: this many overwrites, or for this long, by this many threads.
    pub(super) fn measure(
        &self,
        options: &AblationOptions,
        state: &State,
        threads: usize,
        observer: &mut dyn Observer,
    ) -> Result<Record> {
        let phase = Phase {
            name: WORKLOAD,
            threads,
            beside: false,
            total: options.total(),
            duration: options.duration,
            warmup: options.warmup,
            interval: None,
            rate: None,
            call_ops: 1,
        };
        let make = |index: usize| Ok(Writer::new(self, options.seed, index));
        let measured = phase::run(&phase, make, observer, &mut || ())?;
        self.end_epoch()?;
        let mut record = Record::new(WORKLOAD, "ours", threads, options.seed);
        record.set_measured(&measured);
        record.fill_percent = Some(state.fill_percent);
        record.fragmented = Some(state.fragmented);
        record.size_bytes = Some(options.size_bytes);
        record.page_size = Some(self.page_bytes);
        record.max_memory = Some(options.max_memory);
        Ok(record)
    }

    /// What a checkpoint does for the pool and the allocator, while nobody writes.
    fn end_epoch(&self) -> Result<()> {
        let epochs = self.pool.epochs();
        let closing = epochs.current();
        epochs.advance(&self.pool.gate().close(), self.log.reserved_end());
        let mut encoder = PageEncoder::default();
        while epochs.dirty(closing) > 0 {
            for pages in self.pages.chunks(BATCH) {
                let images = pages
                    .iter()
                    .filter_map(|page| self.pool.image_of(self.frame_of(*page)?, Some(closing)));
                self.write_back(images.collect(), &mut encoder)?;
            }
        }
        drop(epochs.take_pairs(closing));
        self.free(epochs.take_retired(closing));
        Ok(())
    }

    fn frame_of(&self, page: PageId) -> Option<FrameIndex> {
        match self.pool.table().get(page) {
            Place::Resident(frame) => Some(frame),
            _ => None,
        }
    }

    fn write_back(&self, mut images: Vec<Image>, encoder: &mut PageEncoder) -> Result<()> {
        for image in &mut images {
            let sealed = self.pool.seal_image(image, encoder);
            sealed.map_err(|bad| wrong(format!("{}: {}", bad.page, bad.what)))?;
        }
        for mut image in images {
            let block = self
                .allocator
                .allocate()
                .ok_or_else(|| wrong("no block is free".to_owned()))?;
            // Here the device would take what the image holds.
            let extent = Extent { block, blocks: 1 };
            while let Err(again) = self.pool.complete_image(image, extent) {
                image = again;
                thread::yield_now();
            }
        }
        self.free(self.pool.epochs().take_free_now());
        Ok(())
    }

    fn free(&self, extents: Vec<Extent>) {
        for extent in extents {
            self.allocator.free(extent.block);
        }
    }

    fn log(&self, payload: &[u8]) -> Result<Lsn> {
        loop {
            if let Some(reservation) = self.log.try_reserve(payload.len()).map_err(of_log)? {
                let lsn = self.log.append(
                    reservation,
                    RecordKind::Batch,
                    Acknowledge::WhenDurable,
                    payload,
                );
                self.log.mark_applied(lsn);
                return Ok(lsn);
            }
            self.log.flush_now().map_err(of_log)?;
            // As if a checkpoint had followed: the files are used again.
            self.log.truncate_below(self.log.durable());
        }
    }
}

/// Enters the gate of `pool`, which nobody closes while threads write.
fn enter(pool: &Pool) -> GateGuard<'_> {
    let guard = pool.gate().try_enter();
    guard.expect("epochs end between the turns")
}

/// One thread.
struct Writer<'a, A> {
    store: &'a Overwritten<A>,
    random: Random,
    /// Pages to write back.
    changed: Vec<PageId>,
    content: Vec<u8>,
    encoder: PageEncoder,
}

impl<'a, A: Allocator> Writer<'a, A> {
    fn new(store: &'a Overwritten<A>, seed: u64, index: usize) -> Self {
        Self {
            store,
            random: Random::new(seed, index as u64),
            changed: Vec::with_capacity(BATCH),
            content: vec![0; store.page_bytes],
            encoder: PageEncoder::default(),
        }
    }

    fn overwrite(&mut self) -> Result<()> {
        let store = self.store;
        let count = store.pages.len() as u64;
        let page = store.pages[usize_of(self.random.below(count))];
        let value = self.random.next();
        self.content[..8].copy_from_slice(&value.to_le_bytes());
        store.log(&self.content)?;
        let words = store.page_bytes / 8;
        let guard = enter(&store.pool);
        let token = store.pool.apply_token(&guard);
        retry(|| {
            let mut latched = store.pool.exclusive(page)?;
            let mut changed = latched.modify(&token)?;
            for word in HEADER_WORDS..words {
                changed.store(word, value);
            }
            Ok(())
        })?;
        self.changed.push(page);
        Ok(())
    }

    fn write_back(&mut self) -> Result<()> {
        let pool = &self.store.pool;
        let images = self
            .changed
            .drain(..)
            .filter_map(|page| pool.image_of(self.store.frame_of(page)?, None));
        let images = images.collect();
        self.store.write_back(images, &mut self.encoder)
    }
}

impl<A: Allocator> Calls for Writer<'_, A> {
    fn call(&mut self, _limit: u64) -> Result<Option<Done>> {
        self.overwrite()?;
        if self.changed.len() == BATCH {
            self.write_back()?;
        }
        Ok(Some(Done { ops: 1, found: 0 }))
    }

    fn end(&mut self) -> Result<()> {
        self.write_back()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pando_sync::Mutex;
    use pando_sync::time::Duration;

    use super::*;
    use crate::ablation::Ablation;
    use crate::alloc::allocator::ours;

    struct Quiet;

    impl Observer for Quiet {
        fn progress(&mut self, _workload: &str, _share: f64, _ops_per_s: f64) {}
        fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}
        fn record(&mut self, _record: &Record) -> Result<()> {
            Ok(())
        }
    }

    /// An allocator that checks that no block is given out twice.
    struct Counted<A>(A, Mutex<BTreeSet<u32>>);

    impl<A: Allocator> Allocator for Counted<A> {
        fn allocate(&self) -> Option<u32> {
            let block = self.0.allocate()?;
            assert!(self.1.lock().insert(block), "{block} is handed out twice");
            Some(block)
        }

        fn free(&self, block: u32) {
            assert!(self.1.lock().remove(&block), "{block} was not handed out");
            self.0.free(block);
        }

        fn mark(&self, start: u32, count: u32) -> Result<()> {
            self.0.mark(start, count)
        }
    }

    #[test]
    fn each_page_has_one_block_after_all_its_overwrites() {
        let options = AblationOptions {
            size_bytes: 1 << 30,
            max_memory: 1 << 20,
            num: Some(30_000),
            ..AblationOptions::new(Ablation::Alloc)
        };
        let state = State {
            blocks: 1 << 18,
            fill_percent: 90,
            fragmented: true,
            seed: 1,
        };
        let allocator = Counted(ours(state.blocks), Mutex::default());
        let store = Overwritten::new(&options, &state, allocator).unwrap();
        assert_eq!(store.pages.len(), 256);
        assert_eq!(store.allocator.1.lock().len(), 256);
        for threads in [1, 3] {
            let record = store
                .measure(&options, &state, threads, &mut Quiet)
                .unwrap();
            assert_eq!(record.ops, 30_000);
            assert_eq!(record.fill_percent, Some(90));
        }
        // The last checkpoint still names the old images. The next one frees them.
        store.end_epoch().unwrap();
        assert_eq!(store.allocator.1.lock().len(), 256);
    }
}
