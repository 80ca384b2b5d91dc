//! The engine: pages, log, gate, stripes and counters of one open store.

use std::task::Waker;

use pando_device::AnyDevice;
use pando_format::Lsn;
use pando_pool::PinBudget;
use pando_sync::atomic::Ordering;
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, audit};
use pando_wal::Log;

use crate::blobs::room::ChunkRoom;
use crate::error::{Error, Result};
use crate::options::{Budget, Builder};
use crate::pages::store::Store;
use crate::profile::{self, Wait};
use crate::state::apply_sections::ApplySections;
use crate::state::checkpoint::CheckpointState;
use crate::state::fetchers::Fetchers;
use crate::state::helper::Helper;
use crate::state::key_buffers::KeyBuffers;
use crate::state::loads::Loads;
use crate::state::read_bounds::ReadBounds;
use crate::state::read_requests::Reads;
use crate::state::underfull_leaves::UnderfullLeaves;
use crate::writes::jobs::Jobs;
use crate::writes::stripes::Stripes;

/// One open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Store,
    pub(crate) log: Log<AnyDevice>,
    pub(crate) apply_sections: ApplySections,
    pub(crate) stripes: Stripes,
    pub(crate) pin_budget: PinBudget,
    pub(crate) jobs: Jobs,
    pub(crate) underfull_leaves: UnderfullLeaves,
    pub(crate) checkpoint: CheckpointState,
    pub(crate) options: Builder,
    pub(crate) budget: Budget,
    /// Lent to blocking calls that read many pages at once.
    pub(crate) fetchers: Fetchers,
    /// Pages that are read for others, by the read thread.
    pub(crate) reads: Reads,
    /// Runs operations of futures that make no progress.
    pub(crate) helper: Helper<Self>,
    /// Reads and writes chunks for event loops.
    pub(crate) streams: Helper<Self>,
    /// Buffers of the chunks of values on their way in, and out.
    pub(crate) incoming: Arc<ChunkRoom>,
    pub(crate) outgoing: Arc<ChunkRoom>,
    pub(crate) key_buffers: KeyBuffers,
    pub(crate) loads: Loads,
    /// Up to where reads may show what they have found.
    pub(crate) read_bounds: ReadBounds,
    /// Held by the one who compacts.
    pub(crate) compacting: Mutex<()>,
    pub(crate) hash_key: [u64; 2],
    pub(crate) recovered: Recovered,
}

/// What a user has chosen, and what follows from it and from the store on disk.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) options: Builder,
    pub(crate) budget: Budget,
    pub(crate) hash_key: [u64; 2],
}

/// What opening had to do.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// How long it took.
    pub(crate) took: Duration,
    /// Batches that were replayed, and bytes of the log.
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

impl Engine {
    /// The engine of a store that is recovered; its threads are to be started.
    pub(crate) fn new(
        store: Store,
        log: Log<AnyDevice>,
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
        Self {
            apply_sections: ApplySections::default(),
            stripes: Stripes::new(hash_key[0]),
            pin_budget: PinBudget::new(store.pool.frames()),
            jobs: Jobs::default(),
            underfull_leaves: UnderfullLeaves::default(),
            read_bounds: ReadBounds::new(durability, durable_reads, log.applied()),
            compacting: Mutex::new(Rank::Compacting, ()),
            fetchers: Fetchers::default(),
            reads: Reads::new(),
            helper: Helper::default(),
            streams: Helper::default(),
            incoming: ChunkRoom::new(options.max_memory),
            outgoing: ChunkRoom::new(options.max_memory),
            key_buffers: KeyBuffers::default(),
            loads: Loads::new(store.next_tree.load(Ordering::Relaxed)),
            store,
            log,
            checkpoint,
            options,
            budget,
            hash_key,
            recovered,
        }
    }

    /// Tells the coherence audit whose the single words of the engine are; arrays have named
    /// themselves.
    pub(crate) fn name_structures(&self) {
        audit::name("engine", self);
        audit::name("log", &self.log);
        audit::name("checkpoint", &self.checkpoint);
        audit::name("pin budget", &self.pin_budget);
        audit::name("jobs", &self.jobs);
        audit::name("reads", &self.reads);
        audit::name("pool", &self.store.pool);
        audit::name("space", &*self.store.space);
    }

    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: nothing is written any more.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.store.life.is_closing() {
            return Err(Error::Closed);
        }
        self.store.check_poison()?;
        match self.log.poisoned() {
            Some(error) => Err(self.log_failed(error)),
            None => Ok(()),
        }
    }

    /// As [`Store::poison`]; who waits for the log is woken, too.
    pub(crate) fn poison(&self, cause: impl std::fmt::Display) {
        self.store.poison(cause);
        self.log.wake_waiters();
    }

    /// As [`Store::poisoned_by`]; who waits for the log is woken, too.
    pub(crate) fn poisoned_by(&self, cause: &Error) -> Error {
        let error = self.store.poisoned_by(cause);
        self.log.wake_waiters();
        error
    }

    /// A log that fails poisons the engine.
    pub(crate) fn log_failed(&self, error: pando_wal::Error) -> Error {
        // A sync that found the disk full has failed for good.
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

    /// Longest key.
    pub(crate) fn key_bytes_max(&self) -> usize {
        self.store.pool.page_size().key_bytes_max()
    }

    /// Longest value that lies in pages; longer ones lie in chunks.
    pub(crate) fn plain_bytes_max(&self) -> usize {
        let of_log = self.log.max_batch_bytes() - self.key_bytes_max() - 64;
        let most = of_log.min(pando_tree::VALUE_BYTES_MAX);
        self.options
            .plain_bytes_max
            .map_or(most, |bytes| bytes.min(most))
    }

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
    /// True if the batch of `lsn` is durable, else `waker` is woken when it is.
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
