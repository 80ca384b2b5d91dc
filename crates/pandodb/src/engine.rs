//! The engine: pages, log, gate, stripes and counters of one open store, and the reads over them.

use std::ops::Deref;
use std::task::Waker;

use pando_device::AnyDevice;
use pando_format::Lsn;
use pando_pool::{Attempt, Restart};
use pando_stats::{Measure, Sampled, Ticker};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, CoreLocal, Gate, Mutex, audit, time};
use pando_tree::{Fate, GROUP_MAX, Tree, ValueReader};
use pando_wal::Log;

use crate::checkpoint::CheckpointState;
use crate::chunks::room::ChunkRoom;
use crate::error::{Error, Result};
use crate::futures::{Helper, KeyBuffers};
use crate::halt::{Halt, Step, Stop};
use crate::holds::HoldBudget;
use crate::jobs::Jobs;
use crate::lending::Fetchers;
use crate::load::tree::Loads;
use crate::maintenance::SparseLeaves;
use crate::options::{Budget, Builder};
use crate::profile::{self, Wait};
use crate::reads::Reads;
use crate::store::Store;
use crate::stripes::Stripes;
use crate::tables::TableState;
use crate::write_set::WriteSet;

/// One open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Store,
    pub(crate) log: Log<AnyDevice>,
    pub(crate) gate: Gate,
    pub(crate) stripes: Stripes,
    pub(crate) holds: HoldBudget,
    pub(crate) jobs: Jobs,
    pub(crate) sparse_leaves: SparseLeaves,
    pub(crate) checkpoint: CheckpointState,
    pub(crate) options: Builder,
    pub(crate) budget: Budget,
    /// Lent to blocking calls that read many pages at once.
    pub(crate) fetchers: Fetchers,
    /// Pages that are read for others, by the read thread.
    pub(crate) reads: Reads,
    /// Runs operations of futures that make no progress.
    pub(crate) helper: Helper,
    /// Reads and writes chunks for event loops.
    pub(crate) streams: Helper,
    /// Buffers of the chunks of values on their way in, and out.
    pub(crate) incoming: Arc<ChunkRoom>,
    pub(crate) outgoing: Arc<ChunkRoom>,
    pub(crate) key_buffers: KeyBuffers,
    pub(crate) loads: Loads,
    /// A copy of `log.applied()` for each core: read by every reader, written when it is too old.
    applied_copies: CoreLocal<AtomicU64>,
    pub(crate) closed: AtomicBool,
    /// Held by the one who compacts.
    pub(crate) compacting: Mutex<()>,
    pub(crate) hash_key: [u64; 2],
    pub(crate) recovery: Duration,
    pub(crate) replayed: u64,
    pub(crate) replayed_bytes: u64,
}

impl Deref for Engine {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

/// What an engine is made of, once recovery is done.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) log: Log<AnyDevice>,
    pub(crate) checkpoint: CheckpointState,
    pub(crate) options: Builder,
    pub(crate) budget: Budget,
    pub(crate) hash_key: [u64; 2],
    pub(crate) recovery: Duration,
    pub(crate) replayed: u64,
    pub(crate) replayed_bytes: u64,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let applied = parts.log.applied();
        Self {
            gate: Gate::new(),
            stripes: Stripes::new(parts.hash_key[0]),
            holds: HoldBudget::new(parts.store.pool.frames()),
            jobs: Jobs::default(),
            sparse_leaves: SparseLeaves::default(),
            applied_copies: CoreLocal::new("applied copies", |_| AtomicU64::new(applied.0)),
            closed: AtomicBool::new(false),
            compacting: Mutex::new(()),
            fetchers: Fetchers::default(),
            reads: Reads::new(),
            helper: Helper::default(),
            streams: Helper::default(),
            incoming: ChunkRoom::new(parts.options.max_memory),
            outgoing: ChunkRoom::new(parts.options.max_memory),
            key_buffers: KeyBuffers::default(),
            loads: Loads::new(parts.store.next_tree.load(Ordering::Relaxed)),
            store: parts.store,
            log: parts.log,
            checkpoint: parts.checkpoint,
            options: parts.options,
            budget: parts.budget,
            hash_key: parts.hash_key,
            recovery: parts.recovery,
            replayed: parts.replayed,
            replayed_bytes: parts.replayed_bytes,
        }
    }

    /// Tells the coherence audit whose the single words of the engine are; arrays have named
    /// themselves.
    pub(crate) fn name_structures(&self) {
        audit::name("engine", self);
        audit::name("log", &self.log);
        audit::name("checkpoint", &self.checkpoint);
        audit::name("hold budget", &self.holds);
        audit::name("jobs", &self.jobs);
        audit::name("reads", &self.reads);
        audit::name("pool", &self.store.pool);
        audit::name("space", &self.store.space);
    }

    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: nothing is written any more.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.check_poison()?;
        match self.log.poisoned() {
            Some(error) => Err(self.log_failed(error)),
            None => Ok(()),
        }
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
        match self.check_poison() {
            Err(poisoned) => poisoned,
            Ok(()) => error.into(),
        }
    }

    /// Longest key.
    pub(crate) fn key_bytes_max(&self) -> usize {
        self.pool.page_size().key_bytes_max()
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

    /// One attempt at a point read. What it finds is linearizable: a leaf that carries the mark of
    /// a batch is returned once all batches up to the mark are applied.
    #[inline]
    pub(crate) fn try_get(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<bool> {
        let (found, mark) = self.look_up(table, key, reader, out)?;
        self.check_mark(mark)?;
        self.statistics.tick(Ticker::Gets, 1);
        Ok(found)
    }

    /// Copies the value of `key`, and says up to which mark batches must be applied before the
    /// copy may be shown.
    #[inline]
    pub(crate) fn look_up(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(bool, Lsn)> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = on_tree(table, tree, tree.try_get(&self.pool, key, reader, out))?;
        if lookup.chunked {
            return Err(Stop::Chunks.into());
        }
        Ok((lookup.found, lookup.multi_lsn))
    }

    /// As [`Engine::look_up`], of up to [`GROUP_MAX`] keys at once: values are appended to
    /// `values`.
    pub(crate) fn look_up_group(
        &self,
        table: &TableState,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
    ) -> Step<[Fate; GROUP_MAX]> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let start = values.len();
        let fates = tree.get_group(&self.pool, keys, values);
        on_tree(table, tree, Ok(fates)).map_err(|restart| {
            values.truncate(start);
            restart.into()
        })
    }

    /// Goes on once all batches up to `mark` are applied.
    #[inline]
    pub(crate) fn check_mark(&self, mark: Lsn) -> Step<()> {
        let copy = self.applied_copies.here();
        // Acquire: pairs with the Release below: reads that come after this one find the whole
        // batch. A copy that is too old only leads to a look at the original.
        if mark.0 > copy.load(Ordering::Acquire) {
            let applied = self.log.applied();
            // Release: pairs with the Acquire above, and in applied_seen.
            copy.fetch_max(applied.0, Ordering::Release);
            if mark > applied {
                return Err(Stop::Applied(mark).into());
            }
        }
        Ok(())
    }

    /// An LSN up to which all batches are applied, as this core knows: reads that begin afterwards
    /// find all of them.
    #[inline]
    pub(crate) fn applied_seen(&self) -> Lsn {
        // Acquire: pairs with the Release in check_mark, behind the look at the original.
        Lsn(self.applied_copies.here().load(Ordering::Acquire))
    }

    /// Counts a get that has ended.
    pub(crate) fn count_get(&self) {
        self.statistics.tick(Ticker::Gets, 1);
    }

    /// Counts a get with its first fault; `missed` is its own.
    pub(crate) fn count_miss(&self, halt: &Halt, missed: &mut bool) {
        if !*missed && matches!(halt, Halt::Stop(Stop::Restart(Restart::Fault(_)))) {
            *missed = true;
            self.statistics.tick(Ticker::GetsMissed, 1);
        }
    }

    /// Reads `key` into `out`, if all of it is in memory and nothing is in the way: what most gets
    /// are, with nothing that only others need.
    ///
    /// # Errors
    /// Why it could not go on, if [`Engine::read_on`] need not find out again.
    #[inline]
    pub(crate) fn read_cached(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<bool, Option<Restart>> {
        let tree = table.tree().ok_or(None)?;
        let looked_up = tree.try_get_short(&self.pool, key, out);
        if table.tree() != Some(tree) {
            // Pages of a dropped tree say nothing.
            return Err(None);
        }
        let lookup = looked_up.map_err(Some)?.ok_or(None)?;
        self.check_mark(lookup.multi_lsn).map_err(|_| None)?;
        self.statistics.tick(Ticker::Gets, 1);
        Ok(lookup.found)
    }

    /// Reads `key` into `out`; true if it exists. Blocks. `lend` lends the thread's reader.
    #[inline]
    pub(crate) fn read(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
        lend: impl LendReader,
    ) -> Result<bool> {
        if Sampled::Gets.is_due() {
            return self.read_timed(table, key, out, lend);
        }
        match self.read_cached(table, key, out) {
            Ok(found) => Ok(found),
            Err(met) => lend.lend(|reader| self.read_on(table, key, reader, out, SoFar::met(met))),
        }
    }

    /// As [`Engine::read`], timed.
    #[cold]
    fn read_timed(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
        lend: impl LendReader,
    ) -> Result<bool> {
        let begun = time::now();
        let found = match self.read_cached(table, key, out) {
            Ok(found) => found,
            Err(met) => {
                lend.lend(|reader| self.read_on(table, key, reader, out, SoFar::met(met)))?
            }
        };
        self.statistics.record_since(Measure::GetSampled, begun);
        self.profile_get(table);
        if found {
            let bytes = out.len() as u64;
            self.statistics.record(Measure::ValueSampled, bytes);
        }
        Ok(found)
    }

    /// As [`Engine::read`], for a read that may have begun.
    #[cold]
    pub(crate) fn read_on(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
        so_far: SoFar,
    ) -> Result<bool> {
        let SoFar {
            mut missed,
            mut met,
        } = so_far;
        let mut copied = None;
        let found = self.block(|blocked| {
            // What was copied is shown once its mark is applied, without reading again: a steady
            // stream of batches cannot keep a reader waiting for ever.
            let looked_up = match (copied, met.take()) {
                (Some(copied), _) => Ok(copied),
                (None, Some(restart)) => Err(restart.into()),
                (None, None) => self.look_up(table, key, reader, out),
            };
            let (found, mark) = match looked_up {
                Ok(copied) => copied,
                Err(Halt::Stop(Stop::Chunks)) => return Ok(None),
                Err(halt) => {
                    self.count_miss(&halt, &mut missed);
                    blocked.wanted.append(&mut reader.wanted);
                    return Err(halt);
                }
            };
            copied = Some((found, mark));
            self.check_mark(mark)?;
            self.statistics.tick(Ticker::Gets, 1);
            Ok(Some(found))
        })?;
        found.map_or_else(|| self.read_whole(table, key, out), Ok)
    }

    /// Reads `key` for a change that follows from it: `set` holds the stamp afterwards and nothing
    /// else, so that its commit notices what comes between.
    pub(crate) fn try_read_stamped(
        &self,
        state: &Arc<TableState>,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
        set: &mut WriteSet,
    ) -> Step<bool> {
        set.clear();
        set.table(state);
        let Some(tree) = state.tree() else {
            return Err(no_such_table(state));
        };
        let stripe = self.stripes.of(tree.id, key);
        let Some(stamp) = self.stripes.stamp(stripe) else {
            return Err(Stop::Stripe(stripe).into());
        };
        let found = self.try_get(state, key, reader, out)?;
        set.reads.push(stamp);
        Ok(found)
    }

    /// Looks for `key`, for a delete that follows from it; `set` as in
    /// [`Engine::try_read_stamped`].
    pub(crate) fn try_contains_stamped(
        &self,
        state: &Arc<TableState>,
        key: &[u8],
        set: &mut WriteSet,
    ) -> Step<bool> {
        set.clear();
        set.table(state);
        let Some(tree) = state.tree() else {
            return Err(no_such_table(state));
        };
        let stripe = self.stripes.of(tree.id, key);
        let Some(stamp) = self.stripes.stamp(stripe) else {
            return Err(Stop::Stripe(stripe).into());
        };
        let lookup = on_tree(state, tree, tree.try_contains(&self.pool, key))?;
        self.check_mark(lookup.multi_lsn)?;
        self.statistics.tick(Ticker::Gets, 1);
        set.reads.push(stamp);
        Ok(lookup.found)
    }
}

/// What is known of a read that has begun.
#[derive(Debug)]
pub(crate) struct SoFar {
    /// Its miss was counted.
    missed: bool,
    /// What it met last.
    met: Option<Restart>,
}

impl SoFar {
    /// Nothing but whether its miss was counted.
    pub(crate) fn with_miss(missed: bool) -> Self {
        Self { missed, met: None }
    }

    fn met(met: Option<Restart>) -> Self {
        Self { missed: false, met }
    }
}

/// Lends the thread's reader, to reads that need one.
pub(crate) trait LendReader {
    fn lend<R>(self, f: impl FnOnce(&mut ValueReader) -> R) -> R;
}

impl LendReader for &mut ValueReader {
    fn lend<R>(self, f: impl FnOnce(&mut ValueReader) -> R) -> R {
        f(self)
    }
}

/// The result of a step on the tree that `table` had, if it still has it: pages of a dropped tree
/// may be gone, or others by now.
pub(crate) fn on_tree<T>(table: &TableState, tree: Tree, result: Attempt<T>) -> Attempt<T> {
    if table.tree() == Some(tree) {
        result
    } else {
        Err(Restart::Conflict)
    }
}

pub(crate) fn no_such_table(table: &TableState) -> Halt {
    Error::NoSuchTable {
        name: table.name.clone(),
    }
    .into()
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
