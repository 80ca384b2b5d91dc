//! The pages of a store: pool, data file and space, with fetching, applying and poisoning. Knows
//! nothing of commits; the engine and recovery stand on it.

use pando_device::{AnyDevice, AnyFile, Device};
use pando_format::PageEncoder;
use pando_pool::{LoadTicket, Pool, Resource};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicU32, AtomicU64};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, WaitList, thread};

use crate::blobs::readers::Registry;
use crate::error::{Error, Result};
use crate::pages::data_sync::DataSyncs;
use crate::pages::failures::FailedReads;
use crate::pages::lifecycle::Lifecycle;
use crate::space::keeper::SpaceKeeper;
use crate::tables::state::Tables;

/// Tries without a pause.
pub(crate) const SPIN_TURNS: u32 = 16;
/// Tries without a pause, or with a yield between them; later ones sleep.
const YIELD_TURNS: u32 = 256;
/// For so long.
pub(crate) const SLEEP: Duration = Duration::from_micros(50);

/// Pages in memory and on disk.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) device: AnyDevice,
    /// Made durable by [`Store::sync_data`] alone.
    pub(crate) data: AnyFile,
    pub(crate) data_syncs: DataSyncs,
    pub(crate) pool: Pool,
    /// Shared with values that no key has yet, which give their extents back.
    pub(crate) space: Arc<SpaceKeeper>,
    /// Compressors that nobody uses at the moment: as many as there were writers at a time.
    pub(crate) encoders: Mutex<Vec<PageEncoder>>,
    pub(crate) tables: Tables,
    /// Readers of chunks, and what waits for them.
    pub(crate) registry: Arc<Registry>,
    pub(crate) statistics: Arc<Statistics>,
    /// The number of the next write that is put aside.
    pub(crate) aside_number: AtomicU32,
    /// Errors for those who waited for somebody else's read.
    pub(crate) failed_reads: FailedReads,
    /// The first tree id that was never given out.
    pub(crate) next_tree: AtomicU64,
    /// Those who wait for a checkpoint, as long as it does not wait for room itself.
    pub(crate) room_waiters: WaitList,
    pub(crate) life: Lifecycle,
}

/// While it lives, a write of pages waits for room.
#[derive(Debug)]
pub(crate) struct RoomWait<'a>(&'a Store);

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        if self.0.life.end_shortage() {
            tracing::info!("pages wait for room no more");
            self.0.tell_of_room();
        }
    }
}

impl Store {
    pub(crate) fn new(
        device: AnyDevice,
        data: AnyFile,
        pool: Pool,
        space: SpaceKeeper,
        next_tree: u32,
        tables_bytes: u64,
    ) -> Self {
        let statistics = pool.options().statistics.clone();
        Self {
            device,
            data,
            data_syncs: DataSyncs::default(),
            pool,
            space: Arc::new(space),
            encoders: Mutex::new(Rank::Leaf, Vec::new()),
            tables: Tables::new(tables_bytes),
            registry: Arc::default(),
            statistics,
            aside_number: AtomicU32::new(0),
            failed_reads: FailedReads::default(),
            next_tree: AtomicU64::new(u64::from(next_tree)),
            room_waiters: WaitList::new(),
            life: Lifecycle::default(),
        }
    }

    /// Blocks of a page; its image has fewer when it is compressed.
    pub(crate) fn page_blocks(&self) -> u32 {
        (self.pool.page_size().bytes() as u64 / self.space.block_bytes()) as u32
    }

    /// Blocks that dirty pages and images in flight are going to need at most: how far they
    /// compress is not known before.
    pub(crate) fn committed_blocks(&self) -> u64 {
        let epochs = self.pool.epochs();
        (epochs.dirty_total() + epochs.images_total()) * u64::from(self.page_blocks())
    }

    /// True if `pages` more may become dirty: a quarter of the pool is left to readers, by dirty
    /// pages and by copies for a checkpoint, which may be held up. Large batches count as an eighth
    /// of the rest; what they need beyond it they write back themselves.
    pub(crate) fn dirty_room(&self, pages: u64) -> bool {
        let taken = self.pool.epochs().dirty_total() + self.pool.copies() as u64;
        self.has_room_for(taken, pages)
    }

    /// True if `pages` more may become dirty, or be copied, when so many frames are.
    fn has_room_for(&self, taken: u64, pages: u64) -> bool {
        let limit = self.pool.frames() as u64 * 3 / 4;
        taken + pages.min(limit / 8) <= limit
    }

    /// True if the next batch may have to wait for clean frames.
    pub(crate) fn is_dirty_high(&self) -> bool {
        !self.dirty_room(u64::MAX)
    }

    /// The same by dirty pages alone: the cleaner's threshold. Copies are not made fewer by what it
    /// does about dirty pages, which empties clean frames, too.
    pub(crate) fn is_cleaning_due(&self) -> bool {
        !self.has_room_for(self.pool.epochs().dirty_total(), u64::MAX)
    }

    /// Nothing is written from here on. Keeps the first cause; wakes all that wait.
    pub(crate) fn poison(&self, cause: impl std::fmt::Display) {
        if self.life.poison(&cause) {
            tracing::error!(%cause, "the store takes no writes until it is opened again");
        }
        self.pool.frame_waiters().notify_all();
        self.pool.image_waiters().notify_all();
        self.pool.work().notify_all();
        self.space.waiters().notify_all();
        self.space.growth.notify_all();
        self.room_waiters.notify_all();
        self.registry.work.notify_all();
    }

    /// Poisons, and says so: for changes that have begun and cannot end.
    pub(crate) fn poisoned_by(&self, cause: &Error) -> Error {
        self.poison(cause);
        self.poison_error()
    }

    /// # Errors
    /// [`Error::Poisoned`]; that of the device in a forked child, which has no engine threads.
    #[inline]
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_process()?;
        if self.life.is_poisoned() {
            Err(self.poison_error())
        } else {
            Ok(())
        }
    }

    /// For whatever waits for threads of the engine.
    ///
    /// # Errors
    /// [`Error::Io`] in a forked child, which has none of them.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        self.device
            .check_process()
            .map_err(Error::io("use a store in a forked child"))
    }

    #[cold]
    fn poison_error(&self) -> Error {
        Error::Poisoned {
            cause: self.life.cause(),
        }
    }

    /// A checkpoint waits for room for what names its pages, or goes on.
    pub(crate) fn stall_checkpoint(&self, stalled: bool) {
        if self.life.stall_checkpoint(stalled) {
            match stalled {
                true => tracing::warn!("the disk or a quota is full: a checkpoint waits for room"),
                false => tracing::info!("the checkpoint waits for room no more"),
            }
            self.tell_of_room();
        }
    }

    /// What a commit is told while pages cannot be written.
    pub(crate) fn shortage_error(&self) -> Error {
        Error::Full {
            what: "pages cannot be written, the disk or a quota is full; make room".into(),
        }
    }

    /// A write of pages waits for room from here on, until what is returned is dropped.
    pub(crate) fn wait_for_room(&self) -> RoomWait<'_> {
        if self.life.begin_shortage() {
            tracing::warn!("the disk or a quota is full: pages wait for room, puts are refused");
        }
        self.tell_of_room();
        RoomWait(self)
    }

    /// Whether pages can be written has changed. Who waits looks again.
    fn tell_of_room(&self) {
        self.pool.image_waiters().notify_all();
        self.pool.work().notify_all();
        self.space.waiters().notify_all();
        self.room_waiters.notify_all();
    }

    /// Makes durable what was written to the data file before the call. Blocks.
    ///
    /// # Errors
    /// What the device reports: the store is poisoned then. That the store is poisoned.
    pub(crate) fn sync_data(&self, during: &'static str) -> Result<()> {
        let check = || self.check_poison();
        let fail = |error: &Error| self.poison(error);
        self.data_syncs.sync(&self.data, during, check, fail)
    }

    /// Where the stored bytes of a page begin in the data file, and how many they are.
    pub(crate) fn place_of(&self, ticket: &LoadTicket) -> Result<(u64, usize)> {
        let extent = ticket.stored().extent;
        if extent.blocks > self.page_blocks() {
            return Err(Error::CorruptPage {
                page: ticket.page(),
                extent: Some(extent),
                what: format!(
                    "{} blocks long; a page has {} at most",
                    extent.blocks,
                    self.page_blocks()
                ),
            });
        }
        let block_bytes = self.space.block_bytes();
        let bytes = u64::from(extent.blocks) * block_bytes;
        Ok((u64::from(extent.block) * block_bytes, bytes as usize))
    }
}

/// What counts the steps that wait for `resource`.
pub(crate) fn ticker_of(resource: Resource) -> Ticker {
    match resource {
        Resource::Images => Ticker::RestartsImages,
        _ => Ticker::RestartsFrames,
    }
}

/// A pause that grows with the number of turns.
pub(crate) fn pause(turns: &mut u32) {
    *turns += 1;
    if *turns < SPIN_TURNS {
        thread::spin_loop();
    } else if *turns < YIELD_TURNS {
        thread::yield_now();
    } else {
        thread::park_timeout(SLEEP);
    }
}
