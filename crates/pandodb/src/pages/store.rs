//! The pages of a store: pool, data file and free space, with fetching, applying and poisoning.
//! Knows nothing of commits; the engine and recovery are built on it.

use pando_device::{AnyDevice, AnyFile, Device};
use pando_format::PageEncoder;
use pando_format::cast::{u32_of, usize_of};
use pando_pool::{LoadTicket, Pool, Resource};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicU32, AtomicU64};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, WaitList, thread};

use crate::blobs::readers::Registry;
use crate::error::{Error, Result};
use crate::files::format_version::FormatVersion;
use crate::files::reserve::{MappingReserve, MappingSize};
use crate::pages::data_sync::DataSyncs;
use crate::pages::failures::FailedReads;
use crate::pages::handed_over::{HandedOver, PlacedImage};
use crate::pages::lifecycle::Lifecycle;
use crate::pages::told_notes::ToldNotes;
use crate::pages::uncounted_leaks::UncountedLeaks;
use crate::space::freed_room::FreedRoom;
use crate::space::held::HeldBlocks;
use crate::space::id_turns::IdNeed;
use crate::space::keeper::SpaceKeeper;
use crate::space::urgency::IDS_FOR_DELETES;
use crate::tables::state::Tables;

/// Number of attempts without a pause.
pub(crate) const SPIN_TURNS: u32 = 16;
/// Number of attempts without sleep: after [`SPIN_TURNS`] a yield follows each; later ones sleep.
const YIELD_TURNS: u32 = 256;
/// Length of such a sleep.
pub(crate) const SLEEP: Duration = Duration::from_micros(50);

/// Pages in memory and on disk.
#[derive(Debug)]
pub(crate) struct Store {
    /// The device of all files of the store.
    pub(crate) device: AnyDevice,
    /// What of its notes was logged.
    pub(crate) told_notes: ToldNotes,
    /// The data file. Only [`Store::sync_data`] makes it durable.
    pub(crate) data: AnyFile,
    /// Lets threads share syncs of the data file.
    pub(crate) data_syncs: DataSyncs,
    pub(crate) pool: Pool,
    page_blocks: u32,
    /// Allocator of blocks. Shared with values that have no key yet, which return their extents to
    /// it.
    pub(crate) space: Arc<SpaceKeeper>,
    /// Blocks that only kept checkpoints use. Shared with those.
    pub(crate) held_blocks: Arc<HeldBlocks>,
    /// Compressors that are not in use: as many as there were concurrent writers.
    pub(crate) encoders: Mutex<Vec<PageEncoder>>,
    pub(crate) tables: Tables,
    /// Readers of chunks, and garbage that waits for them.
    pub(crate) registry: Arc<Registry>,
    /// Room that a checkpoint gives back.
    pub(crate) freed_room: FreedRoom,
    /// The pool's, which all parts of the store count in.
    pub(crate) statistics: Arc<Statistics>,
    /// Number of the next write that is put aside.
    pub(crate) aside_number: AtomicU32,
    /// Errors for threads that waited for a read of another thread.
    pub(crate) failed_reads: FailedReads,
    /// Leaks whose rows could not be read.
    pub(crate) uncounted_leaks: UncountedLeaks,
    /// The lowest number of a tree that was never used.
    pub(crate) next_tree: AtomicU64,
    pub(crate) format: FormatVersion,
    /// Waiters for a checkpoint, or for the room that it makes in the log; woken when a checkpoint
    /// or a write of pages begins or stops waiting for room, and at the end of each checkpoint.
    pub(crate) room_waiters: WaitList,
    handed_over: HandedOver,
    /// Room for the next merge of the mapping.
    pub(crate) mapping_reserve: MappingReserve,
    /// Phase and poison, and whether writes wait for room.
    pub(crate) life: Lifecycle,
}

/// Counts a write of pages as waiting for room until it is dropped.
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
    /// Returns a store in the opening phase, without tables.
    pub(crate) fn new(
        device: AnyDevice,
        data: AnyFile,
        pool: Pool,
        space: SpaceKeeper,
        (version, next_tree): (u32, u32),
        tables_bytes: u64,
    ) -> Self {
        let statistics = pool.options().statistics.clone();
        let ids_max = pool.page_ids().limit();
        let page_blocks = u32_of(pool.page_size().bytes() as u64 / space.block_bytes());
        Self {
            mapping_reserve: MappingReserve::new(device.clone(), ids_max.into()),
            device,
            told_notes: ToldNotes::default(),
            data,
            data_syncs: DataSyncs::default(),
            pool,
            page_blocks,
            space: Arc::new(space),
            held_blocks: Arc::default(),
            encoders: Mutex::new(Rank::Leaf, Vec::new()),
            tables: Tables::new(tables_bytes),
            registry: Arc::default(),
            freed_room: FreedRoom::default(),
            statistics,
            aside_number: AtomicU32::new(0),
            failed_reads: FailedReads::default(),
            uncounted_leaks: UncountedLeaks::default(),
            next_tree: AtomicU64::new(u64::from(next_tree)),
            format: FormatVersion::new(version),
            room_waiters: WaitList::new(),
            handed_over: HandedOver::new(),
            life: Lifecycle::default(),
        }
    }

    /// Returns what the next mapping must have room for.
    pub(crate) fn mapping_size(&self) -> MappingSize {
        MappingSize {
            pages: self.pool.page_ids().high_water().into(),
            free_pages: self.space.space().free_units(),
            tables: self.tables.number() as u64,
        }
    }

    /// Keeps room for the next merge of the mapping, if the disk has it. May grow files.
    pub(crate) fn keep_mapping_room(&self) {
        // Too little room is counted: it refuses puts that need new pages.
        let _less = self.mapping_reserve.extend(self.mapping_size());
    }

    /// As [`Store::keep_mapping_room`], also for all ids of `need`: chunks have their blocks before
    /// their ids, and may be more than the pages for which room is kept ahead of time.
    pub(crate) fn keep_mapping_room_for(&self, need: &IdNeed) {
        let mut size = self.mapping_size();
        size.free_pages += need.ids + self.ids_kept();
        let _less = self.mapping_reserve.extend(size);
    }

    /// Number of page ids that are given out to deletes only.
    #[inline]
    fn ids_kept(&self) -> u64 {
        self.pool.epochs().freed_total() + IDS_FOR_DELETES
    }

    /// Number of page ids that may be given out for `need`, some of which others have reserved.
    #[inline]
    pub(crate) fn ids_for(&self, need: &IdNeed) -> u64 {
        let without_room = self.mapping_reserve.ids_without_room();
        let available = self.ids_at_most(need.urgent);
        available.saturating_sub(without_room * u64::from(!need.urgent))
    }

    /// Number of page ids that may be given out if a merge of the mapping has room. As many as were
    /// freed since the last checkpoint are not among them, as replay frees none, and neither are
    /// the last ones; but a delete may have both, which hardly ever takes one.
    #[inline]
    pub(crate) fn ids_at_most(&self, urgent: bool) -> u64 {
        let kept = self.ids_kept() * u64::from(!urgent);
        self.pool.page_ids().available().saturating_sub(kept)
    }

    /// True if a caller without reservations has to wait for the end of one. If pages wait for
    /// room, that may take long, and the caller is refused.
    pub(crate) fn awaits_ids(&self, need: &IdNeed) -> bool {
        let available = || self.ids_for(need);
        !self.life.is_short() && self.space.awaits_ids(need, available)
    }

    /// Blocks of an uncompressed page; a compressed image has fewer.
    pub(crate) fn page_blocks(&self) -> u32 {
        self.page_blocks
    }

    /// Largest number of blocks that dirty pages and images in flight may need: how well they
    /// compress is not known before. Replay may need as many again for pages that were changed, and
    /// then freed, since the last checkpoint: it changes and keeps them.
    pub(crate) fn committed_blocks(&self) -> u64 {
        let epochs = self.pool.epochs();
        let dirty = epochs.dirty_total() + epochs.images_total();
        (dirty + epochs.freed_changed_total()) * u64::from(self.page_blocks())
    }

    /// True if `pages` more pages may become dirty. Dirty pages and copies for a checkpoint, which
    /// may be delayed, leave a quarter of the pool to readers. A large batch counts as at most an
    /// eighth of the limit; it writes back itself what it needs beyond that.
    pub(crate) fn dirty_room(&self, pages: u64) -> bool {
        let taken = self.pool.epochs().dirty_total() + self.pool.copies() as u64;
        self.has_room_for(taken, pages)
    }

    /// True if pages cannot be written for lack of room, and a change that dirties `pages` pages at
    /// most has to be refused: unless it is `urgent`, as deletes are, and needs nothing that only
    /// room on the disk brings, neither frames nor copies for a running checkpoint.
    pub(crate) fn is_too_short_for(&self, pages: u64, urgent: bool) -> bool {
        let copies = self.pool.copies() as u64 + pages;
        let fits = || self.dirty_room(pages) && copies <= self.pool.copies_max() as u64;
        self.life.is_short() && !(urgent && fits())
    }

    /// True if `pages` more frames may become dirty or be copied when `taken` are already.
    fn has_room_for(&self, taken: u64, pages: u64) -> bool {
        let limit = self.pool.frames_in_use_max() as u64 * 3 / 4;
        taken + pages.min(limit / 8) <= limit
    }

    /// True if the next batch may have to wait for clean frames.
    pub(crate) fn is_dirty_high(&self) -> bool {
        !self.dirty_room(u64::MAX)
    }

    /// As [`Store::is_dirty_high`], but counts dirty pages only: the threshold of the cleaner. Its
    /// work on dirty pages does not reduce copies, and would evict clean frames as well.
    pub(crate) fn is_cleaning_due(&self) -> bool {
        !self.has_room_for(self.pool.epochs().dirty_total(), u64::MAX)
    }

    /// Poisons the store: nothing is written from here on. Keeps the first cause; wakes all
    /// waiters.
    pub(crate) fn poison(&self, cause: impl std::fmt::Display) {
        if self.life.poison(&cause) {
            tracing::error!(%cause, "the store takes no writes until it is opened again");
        }
        // Batches that are in the log can still be applied, and so be read.
        self.pool.end_checkpoints();
        self.pool.frame_waiters().notify_all();
        self.pool.image_waiters().notify_all();
        self.pool.work().notify_all();
        self.space.waiters().notify_all();
        self.space.growth.notify_all();
        self.room_waiters.notify_all();
        self.registry.work.notify_all();
    }

    /// Poisons the store and returns that error: for changes that have begun and cannot be
    /// completed.
    pub(crate) fn poisoned_by(&self, cause: &Error) -> Error {
        self.poison(cause);
        self.poison_error()
    }

    /// Checks that the store may write.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::Io`] in a forked child, which has no engine threads.
    #[inline]
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_process()?;
        if self.life.is_poisoned() {
            Err(self.poison_error())
        } else {
            Ok(())
        }
    }

    /// Checks that this is the process that opened the store; call it before waiting for engine
    /// threads.
    ///
    /// # Errors
    /// [`Error::Io`] in a forked child, which has no engine threads.
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

    /// Notes whether a checkpoint waits for room for its own records, and the error that says so;
    /// logs a change and wakes waiters.
    pub(crate) fn stall_checkpoint(&self, waits_for: Option<&Error>) {
        if self.life.stall_checkpoint(waits_for.is_some()) {
            match waits_for {
                Some(error) => tracing::warn!(%error, "a checkpoint waits for room"),
                None => tracing::info!("the checkpoint waits for room no more"),
            }
            self.tell_of_room();
        }
    }

    /// Returns the error of a commit while pages cannot be written.
    pub(crate) fn shortage_error(&self) -> Error {
        Error::Full {
            what: "pages cannot be written: the disk or a quota is full, or files may not be so \
                   long (ulimit -f); make room"
                .into(),
        }
    }

    /// Counts a write of pages as waiting for room until the result is dropped.
    pub(crate) fn wait_for_room(&self) -> RoomWait<'_> {
        if self.life.begin_shortage() {
            tracing::warn!(
                "the disk or a quota is full, or files may not be so long (ulimit -f): pages wait \
                 for room, puts are refused"
            );
        }
        self.tell_of_room();
        RoomWait(self)
    }

    /// Leaves `images`, which wait for room, to whoever waits for it. The caller counts as waiting
    /// until this returns.
    pub(crate) fn hand_over(&self, images: Vec<PlacedImage>) {
        // The wait of the images themselves, until they are taken over. Before, since they may be
        // taken at once.
        self.life.begin_shortage();
        if !self.handed_over.add(images) {
            self.life.end_shortage();
        }
        self.pool.work().notify_all();
    }

    /// Takes over the images that were left by [`Store::hand_over`], with their wait for room.
    pub(crate) fn take_over(&self) -> Option<(Vec<PlacedImage>, RoomWait<'_>)> {
        let images = self.handed_over.take();
        (!images.is_empty()).then(|| (images, RoomWait(self)))
    }

    /// Wakes all waiters for room: whether pages can be written has changed.
    fn tell_of_room(&self) {
        self.pool.image_waiters().notify_all();
        self.pool.work().notify_all();
        self.space.waiters().notify_all();
        self.room_waiters.notify_all();
    }

    /// Makes durable what was written to the data file before the call. Blocks.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; the error of the device, which poisons the store.
    pub(crate) fn sync_data(&self, during: &'static str) -> Result<()> {
        let check = || self.check_poison();
        let fail = |error: &Error| self.poison(error);
        self.data_syncs.sync(&self.data, during, check, fail)
    }

    /// Returns the offset of a page's stored bytes in the data file, and their number.
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
        Ok((u64::from(extent.block) * block_bytes, usize_of(bytes)))
    }
}

/// Returns the ticker that counts steps that wait for `resource`.
pub(crate) fn ticker_of(resource: Resource) -> Ticker {
    match resource {
        Resource::Images => Ticker::RestartsImages,
        _ => Ticker::RestartsFrames,
    }
}

/// Pauses; the pause grows with the number of `turns`, which it counts.
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
