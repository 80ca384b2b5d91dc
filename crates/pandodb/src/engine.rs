//! The engine: pages, log, gate, stripes and counters of one open store, and the reads over them.

use std::ops::Deref;
use std::task::Waker;

use pando_device::AnyDevice;
use pando_format::{Lsn, TreeId};
use pando_pool::{Attempt, HoldBudget, Marks, Restart};
use pando_stats::{Measure, Sampled, Ticker};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, audit, time};
use pando_tree::{Fate, GROUP_MAX, Lookup, Tree, ValueReader};
use pando_wal::Log;

use crate::checkpoint::CheckpointState;
use crate::chunks::room::ChunkRoom;
use crate::error::{Error, Result};
use crate::futures::{Helper, KeyBuffers};
use crate::halt::{Halt, Step, Stop};
use crate::jobs::Jobs;
use crate::lending::Fetchers;
use crate::load::tree::Loads;
use crate::maintenance::SparseLeaves;
use crate::options::{Budget, Builder};
use crate::profile::{self, Wait};
use crate::read_bounds::{Debt, ReadBounds};
use crate::reads::Reads;
use crate::spending::Stays;
use crate::store::Store;
use crate::stripes::{StripeUse, Stripes};
use crate::tables::TableState;
use crate::write_set::WriteSet;

/// One open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Store,
    pub(crate) log: Log<AnyDevice>,
    pub(crate) stays: Stays,
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
    /// Up to where reads may show what they have found.
    pub(crate) read_bounds: ReadBounds,
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
        Self {
            stays: Stays::default(),
            stripes: Stripes::new(parts.hash_key[0]),
            holds: HoldBudget::new(parts.store.pool.frames()),
            jobs: Jobs::default(),
            sparse_leaves: SparseLeaves::default(),
            read_bounds: ReadBounds::new(
                parts.options.durability,
                parts.options.durable_reads,
                parts.log.applied(),
            ),
            closed: AtomicBool::new(false),
            compacting: Mutex::new(Rank::Compacting, ()),
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
    ) -> Step<(bool, Debt)> {
        let copied = self.look_up(table, key, reader, out)?;
        let debt = self.check_copied(copied, key)?;
        self.statistics.tick(Ticker::Gets, 1);
        Ok((copied.found, debt))
    }

    /// Copies the value of `key`, and says what must come before the copy may be shown.
    #[inline]
    pub(crate) fn look_up(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<Copied> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = on_tree(table, tree, tree.try_get(&self.pool, key, reader, out))?;
        if lookup.chunked {
            return Err(Stop::Chunks.into());
        }
        Ok(Copied::of(tree.id, &lookup))
    }

    /// The debt of a copy of the value of `key`, once its mark is applied.
    #[inline]
    pub(crate) fn check_copied(&self, copied: Copied, key: &[u8]) -> Step<Debt> {
        self.check_marks(copied.marks, Some((copied.tree, key)))
    }

    /// As [`Engine::look_up`], of up to [`GROUP_MAX`] keys of one tree at once: values are appended
    /// to `values`.
    pub(crate) fn look_up_group(
        &self,
        table: &TableState,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
    ) -> Step<(TreeId, [Fate; GROUP_MAX])> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let start = values.len();
        let fates = tree.get_group(&self.pool, keys, values);
        match on_tree(table, tree, Ok(fates)) {
            Ok(fates) => Ok((tree.id, fates)),
            Err(restart) => {
                values.truncate(start);
                Err(restart.into())
            }
        }
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
        if self.debt(lookup.lsn_max, Some((tree.id, key))) != Debt::NONE {
            return Err(None);
        }
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
            let now = match looked_up {
                Ok(copied) => copied,
                Err(Halt::Stop(Stop::Chunks)) => return Ok(None),
                Err(halt) => {
                    self.count_miss(&halt, &mut missed);
                    blocked.wanted.append(&mut reader.wanted);
                    return Err(halt);
                }
            };
            copied = Some(now);
            let debt = self.check_copied(now, key)?;
            self.statistics.tick(Ticker::Gets, 1);
            Ok(Some((now.found, debt)))
        })?;
        let Some((found, debt)) = found else {
            return self.read_whole(table, key, out);
        };
        self.pay(debt)?;
        Ok(found)
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
            return Err(Stop::Stripe(stripe, StripeUse::Read).into());
        };
        let (found, debt) = self.try_get(state, key, reader, out)?;
        set.reads.push(stamp);
        set.debt.add(debt);
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
            return Err(Stop::Stripe(stripe, StripeUse::Read).into());
        };
        let lookup = on_tree(state, tree, tree.try_contains(&self.pool, key))?;
        let debt = self.check_copied(Copied::of(tree.id, &lookup), key)?;
        self.statistics.tick(Ticker::Gets, 1);
        set.reads.push(stamp);
        set.debt.add(debt);
        Ok(lookup.found)
    }
}

/// A value was copied, or found not to be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) found: bool,
    pub(crate) tree: TreeId,
    /// Those of its leaf.
    pub(crate) marks: Marks,
}

impl Copied {
    #[inline]
    pub(crate) fn of(tree: TreeId, lookup: &Lookup) -> Self {
        Self {
            found: lookup.found,
            tree,
            marks: Marks {
                lsn: lookup.lsn_max,
                multi_lsn: lookup.multi_lsn,
            },
        }
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
        name: table.name.to_string(),
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
