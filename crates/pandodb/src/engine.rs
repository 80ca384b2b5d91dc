//! The engine: the pages, log, gate, stripes and counters of one open store.

use std::task::Waker;

use pando_device::AnyDevice;
use pando_format::Lsn;
use pando_pool::PinBudget;
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, audit};
use pando_wal::Log;

use crate::blobs::block_sums::BlockSums;
use crate::blobs::room::ChunkRoom;
use crate::error::{Error, Result};
use crate::kept::cuts::KeptCuts;
use crate::locks::LockTable;
use crate::options::{Budget, Builder};
use crate::pages::store::Store;
use crate::profile::{self, Wait};
use crate::space::growth::MadeRoom;
use crate::state::apply_sections::ApplySections;
use crate::state::checkpoint::CheckpointState;
use crate::state::fetchers::Fetchers;
use crate::state::giving_back::GivingBack;
use crate::state::helper::Helper;
use crate::state::key_buffers::KeyBuffers;
use crate::state::loads::Loads;
use crate::state::old_versions::OldVersions;
use crate::state::read_bounds::ReadBounds;
use crate::state::read_requests::Reads;
use crate::state::transaction_memory::TransactionMemory;
use crate::state::underfull_leaves::UnderfullLeaves;
use crate::writes::jobs::Jobs;
use crate::writes::stripes::Stripes;

/// Number of the next engine of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// One open store. All threads share it; every part synchronizes itself.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Another one for each engine of this process, and not 0.
    pub(crate) number: u64,
    /// The pages: pool, device, free space, mapping and tables.
    pub(crate) store: Store,
    pub(crate) log: Log<AnyDevice>,
    /// Bytes of the longest value that is stored in pages; longer ones are stored in chunks.
    plain_bytes_max: usize,
    /// Counts of apply sections; used in debug builds only.
    pub(crate) apply_sections: ApplySections,
    /// Locks and stamps of keys, by hash.
    pub(crate) stripes: Stripes,
    /// Locks of keys and tables that transactions hold (decision 069).
    pub(crate) locks: Arc<LockTable>,
    /// Limits how many frames operations pin at the same time.
    pub(crate) pin_budget: PinBudget,
    /// Batches that change tables, for the tables thread.
    pub(crate) jobs: Arc<Jobs>,
    /// Leaves for the maintenance thread to remove or merge.
    pub(crate) underfull_leaves: UnderfullLeaves,
    /// The requests for checkpoints, and the files that a checkpoint changes.
    pub(crate) checkpoint: CheckpointState,
    /// The options that the store was opened with.
    pub(crate) options: Builder,
    /// The budget of now, in bytes: at most that of the options.
    pub(crate) max_memory: AtomicU64,
    /// The split of memory and log that follows from `options` and from the store on disk.
    pub(crate) budget: Budget,
    /// Channels lent to blocking calls that read many pages at once.
    pub(crate) fetchers: Fetchers,
    /// Requests for pages that the read thread reads.
    pub(crate) reads: Reads,
    /// Runs operations of futures that make no progress by themselves (decision 012).
    pub(crate) helper: Helper<Self>,
    /// Reads and writes chunks of large values for event loops.
    pub(crate) streams: Helper<Self>,
    /// Buffers of chunks that are written.
    pub(crate) incoming: Arc<ChunkRoom>,
    /// Buffers of chunks that are read.
    pub(crate) outgoing: Arc<ChunkRoom>,
    /// Checksums of blocks of chunks.
    pub(crate) block_sums: BlockSums,
    /// Spare buffers for keys of pending operations.
    pub(crate) key_buffers: KeyBuffers,
    /// Trees that are filled beside the log (decision 051).
    pub(crate) loads: Loads,
    /// The LSN up to which reads may show what they have found (decision 060).
    pub(crate) read_bounds: ReadBounds,
    /// Registered snapshots, and the versions that they still read (decision 067).
    pub(crate) old_versions: OldVersions,
    /// Checkpoints that are kept for settled snapshots (decision 071).
    pub(crate) kept: KeptCuts,
    /// What open transactions take.
    pub(crate) transaction_memory: Arc<TransactionMemory>,
    /// Held by the caller that compacts the data file; one at a time.
    pub(crate) compacting: Mutex<()>,
    /// True while a dump is written to a file of the store's directory; one at a time.
    pub(crate) dumping: AtomicBool,
    /// The thread that compacts the data file by itself (decision 082).
    pub(crate) giving_back: GivingBack,
    /// The store's random key for hashes of keys.
    pub(crate) hash_key: [u64; 2],
    /// What opening had to do; never changes.
    pub(crate) recovered: Recovered,
}

/// The options of a user, and what follows from them and from the store on disk.
#[derive(Debug)]
pub(crate) struct Settings {
    /// With the sizes of page and block that the store has on disk.
    pub(crate) options: Builder,
    /// With the store's size of segments.
    pub(crate) budget: Budget,
    /// The store's random key for hashes of keys.
    pub(crate) hash_key: [u64; 2],
}

/// What opening the store had to do.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Time that opening took.
    pub(crate) took: Duration,
    /// Number of batches that were replayed.
    pub(crate) batches: u64,
    /// Bytes of log that were replayed.
    pub(crate) bytes: u64,
}

impl Engine {
    /// Returns the engine of a recovered store. The caller starts its threads.
    pub(crate) fn new(
        store: Store,
        log: Log<AnyDevice>,
        old_versions: OldVersions,
        checkpoint: CheckpointState,
        settings: Settings,
        recovered: Recovered,
    ) -> Self {
        let Settings {
            options,
            budget,
            hash_key,
        } = settings;
        let (durability, durable_reads) = (options.durability, options.durable_reads);
        let of_log = log.max_batch_bytes() - store.pool.page_size().key_bytes_max() - 64;
        let most = of_log.min(pando_tree::VALUE_BYTES_MAX);
        let plain_bytes_max = options.plain_bytes_max.map_or(most, |of| of.min(most));
        Self {
            // Relaxed: only that each is another one matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            plain_bytes_max,
            apply_sections: ApplySections::default(),
            stripes: Stripes::new(hash_key[0]),
            locks: Arc::default(),
            pin_budget: PinBudget::new(store.pool.frames()),
            jobs: Arc::default(),
            underfull_leaves: UnderfullLeaves::default(),
            read_bounds: ReadBounds::new(durability, durable_reads, log.applied()),
            compacting: Mutex::new(Rank::Compacting, ()),
            dumping: AtomicBool::new(false),
            giving_back: GivingBack::default(),
            fetchers: Fetchers::default(),
            reads: Reads::new(),
            helper: Helper::default(),
            streams: Helper::default(),
            max_memory: AtomicU64::new(options.max_memory),
            incoming: ChunkRoom::new(options.max_memory),
            outgoing: ChunkRoom::new(options.max_memory),
            block_sums: BlockSums::new(options.max_memory),
            key_buffers: KeyBuffers::default(),
            loads: Loads::new(store.next_tree.load(Ordering::Relaxed)),
            store,
            log,
            old_versions,
            kept: KeptCuts::new(budget.kept_bytes),
            transaction_memory: Arc::new(TransactionMemory::new(budget.transactions_bytes)),
            checkpoint,
            options,
            budget,
            hash_key,
            recovered,
        }
    }

    /// Tells the coherence audit which structures the engine's single words belong to; arrays have
    /// named themselves.
    pub(crate) fn name_structures(&self) {
        audit::name("engine", self);
        audit::name("log", &self.log);
        audit::name("checkpoint", &self.checkpoint);
        audit::name("pin budget", &self.pin_budget);
        audit::name("jobs", &*self.jobs);
        audit::name("locks", &*self.locks);
        audit::name("reads", &self.reads);
        audit::name("pool", &self.store.pool);
        audit::name("space", &*self.store.space);
    }

    /// Checks that the store was not opened for reading only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    #[inline]
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match self.options.read_only {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }

    /// Checks that the store takes writes.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::ReadOnly`]; [`Error::Poisoned`] after a failed write or sync.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.store.life.is_closing() {
            return Err(Error::Closed);
        }
        self.check_not_read_only()?;
        self.store.check_poison()?;
        match self.log.poisoned() {
            Some(error) => Err(self.log_failed(error)),
            None => Ok(()),
        }
    }

    /// As [`Store::poison`]; also wakes all waiters of the log.
    pub(crate) fn poison(&self, cause: impl std::fmt::Display) {
        self.store.poison(cause);
        self.log.wake_waiters();
        self.old_versions.waiters.notify_all();
    }

    /// As [`Store::poisoned_by`]; also wakes all waiters of the log.
    pub(crate) fn poisoned_by(&self, cause: &Error) -> Error {
        let error = self.store.poisoned_by(cause);
        self.log.wake_waiters();
        self.old_versions.waiters.notify_all();
        error
    }

    /// Says whether room on a full disk is on its way; otherwise ends the oldest settled snapshot,
    /// or one in memory that keeps garbage, if room is `needed` now, unless the options keep it.
    /// What was retired since the last checkpoint is free after the next one.
    pub(crate) fn make_room(&self, needed: bool) -> MadeRoom {
        // Where it is not needed now, the next checkpoint is soon enough.
        let comes = match needed {
            true => self.await_room(),
            false => self.room_comes(),
        };
        if comes {
            return MadeRoom::Later;
        }
        if self.options.keep_settled_snapshots {
            return MadeRoom::None;
        }
        if !needed && self.kept.bounds().is_some() {
            return MadeRoom::Later;
        }
        if needed && let Some(lsn) = self.kept.end_oldest() {
            tracing::warn!(%lsn, "a settled snapshot was ended: the disk has no room for it");
            self.store.statistics.tick(Ticker::SnapshotsEnded, 1);
            self.kept.note_checkpoint(self.checkpoint.ask());
            return MadeRoom::Now;
        }
        if needed && self.end_keeping_snapshot() {
            return MadeRoom::Later;
        }
        let is_due = |asked| !self.checkpoint.has_finished(asked);
        let may_end = !self.store.life.is_checkpoint_stalled() && self.store.check_poison().is_ok();
        match self.kept.checkpoint_for_room() {
            Some(asked) if may_end && is_due(asked) => MadeRoom::Later,
            _ => MadeRoom::None,
        }
    }

    /// Returns true if the data file cannot grow and a checkpoint is to make room, or if the end of
    /// a settled snapshot has left some to one that has not ended.
    pub(crate) fn awaits_checkpoint_for_room(&self) -> bool {
        let asked = self.kept.checkpoint_for_room();
        let is_due = |asked| !self.checkpoint.has_finished(asked);
        asked.is_some_and(is_due) || self.store.space.awaits_room()
    }

    /// Returns the engine's error for an error of the log, and poisons the engine. A full disk does
    /// not poison it as long as the log itself is intact.
    pub(crate) fn log_failed(&self, error: pando_wal::Error) -> Error {
        if matches!(error, pando_wal::Error::Closed) {
            return Error::Closed;
        }
        // A full disk can be tried again. A sync that found the disk full cannot: it has poisoned
        // the log.
        if error.is_full() && self.log.poisoned().is_none() {
            return Error::Full {
                what: format!("{error}"),
            };
        }
        self.poison(&error);
        match self.store.check_poison() {
            Err(poisoned) => poisoned,
            Ok(()) => error.into(),
        }
    }

    /// Bytes of the longest key.
    pub(crate) fn key_bytes_max(&self) -> usize {
        self.store.pool.page_size().key_bytes_max()
    }

    /// Bytes of the longest value that is stored in pages; longer ones are stored in chunks.
    #[inline]
    pub(crate) fn plain_bytes_max(&self) -> usize {
        self.plain_bytes_max
    }

    /// Checks the length of `key`.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let limit = self.key_bytes_max();
        if key.len() > limit {
            return Err(Error::KeyTooLong {
                bytes: key.len(),
                limit,
            });
        }
        Ok(())
    }
}

impl Engine {
    /// Returns true if the batch of `lsn` is durable; otherwise `waker` is woken once it is.
    pub(crate) fn when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        self.log
            .request_durable(lsn, waker)
            .map_err(|error| self.log_failed(error))
    }

    /// Blocks until the batch of `lsn` is durable.
    pub(crate) fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let begun = profile::begin();
        let waited = self.log.wait_durable(lsn);
        profile::end(begun, Wait::Durable);
        waited.map_err(|error| self.log_failed(error))
    }
}

/// The engine as its threads share it.
pub(crate) type Shared = Arc<Engine>;
