//! The pages of a store: pool, data file and space, with fetching, applying and poisoning. Knows
//! nothing of commits; the engine and recovery stand on it.

use pando_device::{AnyDevice, AnyFile, Device};
use pando_format::chunks::ChunkList;
use pando_format::lost::AsideChange;
use pando_format::{Lsn, PageDecoder, PageEncoder, PageId};
use pando_pool::{LoadError, LoadStart, LoadTicket, Marks, Pool, Resource, Restart, Stay};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, Mutex, Rank, WaitList, park, thread, thread_waker};
use pando_tree::{LeafFill, Scratch, Tree};

use crate::chunks::registry::Registry;
use crate::data_sync::DataSyncs;
use crate::error::{Error, Result};
use crate::failures::FailedReads;
use crate::fetcher::reap_own;
use crate::halt::ticker_of;
use crate::read_context::ReadContext;
use crate::space_keeper::SpaceKeeper;
use crate::tables::Tables;

/// How long close waits for room on a full disk, in milliseconds.
const PATIENCE_MS: u64 = 10_000;
/// Tries without a pause, with a yield, and then with a sleep between them.
const SPIN_TURNS: u32 = 16;
const YIELD_TURNS: u32 = 256;
/// Pages that a step has missed before it helps to write back.
const FAULTS_BEFORE_HELP: u32 = 8;
const SLEEP: Duration = Duration::from_micros(50);

/// Pages in memory and on disk.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) device: AnyDevice,
    /// Made durable by [`Store::sync_data`] alone.
    pub(crate) data: AnyFile,
    pub(crate) data_syncs: DataSyncs,
    pub(crate) pool: Pool,
    pub(crate) space: SpaceKeeper,
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
    poisoned: AtomicBool,
    poison: Mutex<Option<String>>,
    /// The store is being closed: background threads end.
    pub(crate) stopping: AtomicBool,
    /// The engine's threads run: who finds the disk full may wait for room.
    pub(crate) serving: AtomicBool,
    /// Writes of pages that have found the disk full and wait for room.
    stuck: AtomicU64,
    /// A checkpoint waits for room for what names its pages.
    unnamed: AtomicBool,
    /// Those who wait for a checkpoint, as long as it does not wait for room itself.
    pub(crate) stuck_waiters: WaitList,
    /// When waiting for room ends, in milliseconds since 1970; 0 for never. Set by close.
    patient_until: AtomicU64,
}

/// While it lives, a write of pages waits for room.
#[derive(Debug)]
pub(crate) struct RoomWait<'a>(&'a Store);

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        // Relaxed: as in wait_for_room.
        let before = self.0.stuck.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait for room ends once");
        if before == 1 {
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
            space,
            encoders: Mutex::new(Rank::Leaf, Vec::new()),
            tables: Tables::new(tables_bytes),
            registry: Arc::default(),
            statistics,
            aside_number: AtomicU32::new(0),
            failed_reads: FailedReads::default(),
            next_tree: AtomicU64::new(u64::from(next_tree)),
            poisoned: AtomicBool::new(false),
            poison: Mutex::new(Rank::Leaf, None),
            stopping: AtomicBool::new(false),
            serving: AtomicBool::new(false),
            stuck: AtomicU64::new(0),
            unnamed: AtomicBool::new(false),
            stuck_waiters: WaitList::new(),
            patient_until: AtomicU64::new(0),
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
        let first = {
            let mut poison = self.poison.lock();
            let first = poison.is_none().then(|| cause.to_string());
            if first.is_some() {
                poison.clone_from(&first);
            }
            first
        };
        if let Some(cause) = first {
            tracing::error!(%cause, "the store takes no writes until it is opened again");
        }
        // Release: pairs with the Acquire in check_poison.
        self.poisoned.store(true, Ordering::Release);
        self.pool.frame_waiters().notify_all();
        self.pool.image_waiters().notify_all();
        self.pool.work().notify_all();
        self.space.waiters().notify_all();
        self.space.growth.notify_all();
        self.stuck_waiters.notify_all();
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
        // Acquire: pairs with the Release in poison.
        if self.poisoned.load(Ordering::Acquire) {
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
        let cause = self.poison.lock().clone().unwrap_or_default();
        Error::Poisoned { cause }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// False while the store is opened.
    pub(crate) fn is_serving(&self) -> bool {
        // Acquire: pairs with the Release of the opening that has ended.
        self.serving.load(Ordering::Acquire)
    }

    /// True if a write that found the disk full may wait for room: not while the store is opened,
    /// whose caller is told so, and not for long while it is closed.
    pub(crate) fn is_patient(&self) -> bool {
        let until = self.patient_until.load(Ordering::Relaxed);
        self.is_serving() && !self.is_stopping() && (until == 0 || time::unix_ms() < until)
    }

    /// The store is being closed: waiting for room ends soon. Returns when, in milliseconds since
    /// 1970.
    pub(crate) fn end_patience(&self) -> u64 {
        let until = time::unix_ms() + PATIENCE_MS;
        self.patient_until.store(until, Ordering::Relaxed);
        until
    }

    /// True while pages cannot be written for want of room.
    pub(crate) fn is_stuck(&self) -> bool {
        // Relaxed: a hint for who would make more pages dirty.
        self.stuck.load(Ordering::Relaxed) > 0
    }

    /// True while a checkpoint does not end for want of room.
    pub(crate) fn is_checkpoint_stuck(&self) -> bool {
        // Relaxed: a hint for who would wait for one.
        self.is_stuck() || self.unnamed.load(Ordering::Relaxed)
    }

    /// A checkpoint waits for room for what names its pages, or goes on.
    pub(crate) fn set_unnamed(&self, unnamed: bool) {
        // Relaxed: as above.
        if self.unnamed.swap(unnamed, Ordering::Relaxed) != unnamed {
            match unnamed {
                true => tracing::warn!("the disk or a quota is full: a checkpoint waits for room"),
                false => tracing::info!("the checkpoint waits for room no more"),
            }
            self.tell_of_room();
        }
    }

    /// What a commit is told while pages cannot be written.
    pub(crate) fn stuck_error(&self) -> Error {
        Error::Full {
            what: "pages cannot be written, the disk or a quota is full; make room".into(),
        }
    }

    /// A write of pages waits for room from here on, until what is returned is dropped.
    pub(crate) fn wait_for_room(&self) -> RoomWait<'_> {
        // Relaxed: a hint, as in is_stuck.
        if self.stuck.fetch_add(1, Ordering::Relaxed) == 0 {
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
        self.stuck_waiters.notify_all();
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

    /// Reads a page that was missed, or waits for whoever reads it and learns of its error. Blocks.
    pub(crate) fn fetch(&self, page: PageId) -> Result<()> {
        let mut turns = 0;
        let before = self.failed_reads.now();
        loop {
            match self.pool.begin_load(page) {
                Ok(LoadStart::Claimed(ticket)) => return self.read_claimed(ticket),
                Ok(LoadStart::Resident | LoadStart::Free) => return Ok(()),
                Ok(LoadStart::Loading) => {
                    if !self.pool.wait_for_load(page, &thread_waker()) {
                        if reap_own(self) {
                            thread::park_timeout(SLEEP);
                        } else {
                            park();
                        }
                    }
                    if let Some(error) = self.failed_reads.since(page, before) {
                        return Err(error);
                    }
                }
                Err(restart) => self.serve(restart, &mut turns)?,
            }
        }
    }

    /// Reads the page of a claim. Blocks.
    pub(crate) fn read_claimed(&self, ticket: LoadTicket) -> Result<()> {
        let (offset, bytes) = match self.place_of(&ticket) {
            Ok(place) => place,
            Err(error) => return Err(self.give_up(ticket, error)),
        };
        ReadContext::of_thread(&self.statistics, |context| {
            match context.read(&self.data, offset, bytes) {
                Ok((bytes, decoder)) => self.publish_with(ticket, bytes, decoder),
                Err((error, noted)) => {
                    Err(self.read_failed(ticket, format_args!("{error}{noted}")))
                }
            }
        })
    }

    /// Publishes the stored bytes of a claim.
    pub(crate) fn publish(&self, ticket: LoadTicket, bytes: &[u8]) -> Result<()> {
        ReadContext::of_thread(&self.statistics, |context| {
            self.publish_with(ticket, bytes, context.decoder())
        })
    }

    fn publish_with(
        &self,
        ticket: LoadTicket,
        bytes: &[u8],
        decoder: &mut PageDecoder,
    ) -> Result<()> {
        let as_error = |error: &LoadError| Error::CorruptPage {
            page: error.page,
            extent: Some(error.stored.extent),
            what: error.what.clone(),
        };
        let failed = |error: &LoadError| self.post_failure(error.page, &as_error(error));
        self.pool
            .finish_load_or(ticket, bytes, decoder, failed)
            .map_err(|error| as_error(&error))
    }

    /// Ends a claim whose read failed.
    pub(crate) fn read_failed(&self, ticket: LoadTicket, error: impl std::fmt::Display) -> Error {
        let failure = Error::CorruptPage {
            page: ticket.page(),
            extent: Some(ticket.stored().extent),
            what: format!("reading it: {error}"),
        };
        self.give_up(ticket, failure)
    }

    /// Ends a claim with an error, which all who wait for the page learn.
    pub(crate) fn give_up(&self, ticket: LoadTicket, error: Error) -> Error {
        self.post_failure(ticket.page(), &error);
        self.pool.fail_load(ticket);
        error
    }

    fn post_failure(&self, page: PageId, error: &Error) {
        let waiting = self.pool.waiting_for_load(page);
        self.failed_reads.post(page, error.clone(), waiting);
    }

    /// Does what a blocked step needs: fetches, helps to write back, or pauses.
    pub(crate) fn serve(&self, restart: Restart, turns: &mut u32) -> Result<()> {
        match restart {
            Restart::Conflict => {
                self.statistics.tick(Ticker::RestartsConflict, 1);
                if *turns >= SPIN_TURNS {
                    // What is latched or being read may be this thread's to publish.
                    reap_own(self);
                }
                pause(turns);
            }
            Restart::Wait(resource @ (Resource::Frames | Resource::Images)) => {
                self.statistics.tick(ticker_of(resource), 1);
                self.check_poison()?;
                if self.write_back_once()? == 0 {
                    self.pool.work().notify_all();
                    pause(turns);
                }
            }
            Restart::Wait(Resource::PageIds) => {
                return Err(Error::Full {
                    what: "the page table is as large as max_memory allows; raise it".into(),
                });
            }
            Restart::Wait(_) => pause(turns),
            Restart::Fault(page) => {
                *turns += 1;
                if turns.is_multiple_of(FAULTS_BEFORE_HELP) {
                    // With few clean frames one page drives out the other: make more of them. While
                    // a store is opened nobody else does.
                    self.write_back_once()?;
                }
                self.fetch(page)?;
            }
            Restart::Damaged(page, what) => {
                return Err(Error::CorruptPage {
                    page,
                    extent: None,
                    what: what.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Runs a step until it succeeds. Blocks; inside the gate only where that is allowed.
    pub(crate) fn drive<T>(
        &self,
        mut step: impl FnMut() -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        let mut turns = 0;
        loop {
            match step() {
                Ok(value) => return Ok(value),
                Err(restart) => self.serve(restart, &mut turns)?,
            }
        }
    }

    /// Keeps the root of a tree in memory, as long as the cap on wired frames allows.
    pub(crate) fn wire_root(&self, tree: Tree) -> Result<()> {
        let wired = self.drive(|| self.pool.exclusive(tree.root).map(|root| root.wire()))?;
        if !wired {
            // The root is cached like any other page then.
            debug_assert!(self.pool.wired() >= self.pool.wired_max());
        }
        Ok(())
    }

    /// Applies one write to a tree. Returns the change of the number of entries and what a removal
    /// left of its leaf.
    pub(crate) fn apply(
        &self,
        stay: &Stay<'_>,
        tree: Tree,
        marks: Marks,
        key: &[u8],
        value: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let (ticker, bytes) = match value {
            Some(value) => (Ticker::Puts, key.len() + value.len()),
            None => (Ticker::Deletes, key.len()),
        };
        self.statistics.tick(ticker, 1);
        self.statistics.tick(Ticker::WriteBytes, bytes as u64);
        let done = loop {
            let error = match self.try_apply(stay, tree, marks, key, value, scratch) {
                Ok(done) => break done,
                Err(error) => error,
            };
            if self.give_page_up(stay, tree, &error)? {
                let change = value.map_or(AsideChange::Delete, AsideChange::Put);
                self.put_aside(stay, tree, marks.lsn, (key, change), &error, scratch)?;
                return Ok((0, LeafFill::Enough));
            }
        };
        self.end_change(stay, tree, marks.lsn, None, scratch)?;
        Ok(done)
    }

    fn try_apply(
        &self,
        stay: &Stay<'_>,
        tree: Tree,
        marks: Marks,
        key: &[u8],
        value: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let Some(value) = value else {
            let removed = self.change(scratch, |scratch| {
                tree.try_remove(&self.pool, stay, marks, key, scratch)
            })?;
            return Ok((-i64::from(removed.existed), removed.leaf_fill));
        };
        let inserted = self.change(scratch, |scratch| {
            tree.try_insert(&self.pool, stay, marks, key, value, scratch)
        })?;
        Ok((i64::from(!inserted.replaced), LeafFill::Enough))
    }

    /// A value of `tree` was replaced or removed: frees what it had, but for the chunks that `new`
    /// goes on naming.
    pub(crate) fn end_change(
        &self,
        stay: &Stay<'_>,
        tree: Tree,
        lsn: Lsn,
        new: Option<&ChunkList>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.drive(|| scratch.try_finish(&self.pool, stay))?;
        let leaks = scratch.take_leaks();
        self.bury(stay, lsn, new, scratch)?;
        self.note_leaks(stay, tree.id, leaks, scratch)
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
