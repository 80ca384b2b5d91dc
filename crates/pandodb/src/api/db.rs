//! The handle of an open store.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::task::Waker;

use pando_device::{AnyDevice, Error as DeviceError};
use pando_format::{Epoch, Lsn};
use pando_stats::{Histogram, Measure, Sampled, Totals};
use pando_sync::thread::{self, Builder as ThreadBuilder, JoinHandle};
use pando_sync::time::{self, Instant};
use pando_sync::{Arc, Mutex, Rank};
use pando_wal::Acknowledge;

use crate::commit::buffers::TakenBuffer;
use crate::commit::check::Check;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::scratch::CommitScratch;
use crate::commit::single_put::Put;
use crate::commit::state_check::StateCheck;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::io_backend::IoBackend;
use crate::options::{Builder, Durability, WriteOptions};
use crate::state::checkpoint_progress::CheckpointProgress;
use crate::state::read_bounds::Debt;
use crate::wait::reason::{Unfinished, WaitReason};
use crate::writes::jobs::{Job, JobEnd};
use crate::writes::set::WriteSet;

/// The thread that runs operations of futures.
const HELPER: &str = "pando-helper";
/// The thread that reads and writes chunks for event loops.
const STREAMS: &str = "pando-streams";
/// The thread that closes the store if one of its own threads had the last handle.
const CLOSER: &str = "pando-close";

/// The threads that only write, and that a store does not have which is only read.
const WRITERS: [&str; 3] = ["pando-checkpoint", "pando-log-files", "pando-give-back"];

/// The loop of an engine thread, which runs until the store is closed.
type ThreadBody = Box<dyn FnOnce(&Engine) + Send>;

/// An open store. Clones are handles of the same store; dropping the last one closes it.
#[derive(Debug, Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// Owns the engine's threads. Aligned as `TableState` is, because every call reads `engine`.
#[derive(Debug)]
#[repr(align(128))]
struct Owner {
    engine: Shared,
    /// The other engine threads. Empty once the store is shut down.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// These end first: the operations that they run may need the other threads.
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.is_own_thread() {
            return self.shut_down_elsewhere();
        }
        // Nobody receives an error here; `close` reports it.
        let _ = self.shut_down();
    }
}

impl Owner {
    /// True on a thread of the engine, which would wait for its own end: it wakes tasks, and what
    /// it wakes, or drops with its waker, may have the last handle of the store.
    fn is_own_thread(&self) -> bool {
        let this = thread::current().id();
        let is_among = |threads: &Mutex<Vec<JoinHandle<()>>>| {
            let threads = threads.lock();
            threads.iter().any(|thread| thread.thread().id() == this)
        };
        is_among(&self.threads) || is_among(&self.helpers)
    }

    /// Has another thread shut the store down.
    fn shut_down_elsewhere(&self) {
        let take = |threads: &Mutex<Vec<JoinHandle<()>>>| {
            Mutex::new(Rank::Leaf, std::mem::take(&mut *threads.lock()))
        };
        // If there is no thread for it, it is not dropped here again.
        let owner = ManuallyDrop::new(Self {
            engine: self.engine.clone(),
            threads: take(&self.threads),
            helpers: take(&self.helpers),
        });
        let close = move || drop(ManuallyDrop::into_inner(owner));
        if let Err(error) = ThreadBuilder::new().name(CLOSER.to_owned()).spawn(close) {
            tracing::error!(%error, "the store stays open: no thread can be started that closes it");
            self.engine
                .poison("no thread could be started to close the store");
        }
    }

    /// Flushes, writes a checkpoint and ends all threads. Acknowledged commits stay, at every
    /// durability. Only the first call does anything.
    fn shut_down(&self) -> Result<()> {
        let engine = &self.engine;
        let threads = std::mem::take(&mut *self.threads.lock());
        if let Err(error) = engine.store.check_process() {
            // This is a forked child: the threads are the parent's, and locks may be held for ever.
            let _kept = ManuallyDrop::new((engine.clone(), threads));
            return Err(error);
        }
        if threads.is_empty() {
            return Ok(());
        }
        engine.log.set_disk_full_deadline(engine.store.life.close());
        engine.helper.close();
        engine.streams.close();
        for helper in std::mem::take(&mut *self.helpers.lock()) {
            if helper.join().is_err() {
                engine.poison("an engine thread panicked");
            }
        }
        engine.kept.close();
        // A compaction sees that the store is closed, and ends.
        let _compacting = engine.compacting.lock();
        let ending = Ending { engine, threads };
        let flushed = match engine.options.read_only {
            // A panic of a thread of the engine, at most.
            true => engine.store.check_poison(),
            false => self.write_last_checkpoint(),
        };
        drop(ending);
        if flushed.is_ok() && !engine.options.read_only {
            engine.log.close_files();
        }
        match &flushed {
            Ok(()) => tracing::info!("store closed"),
            Err(error) => tracing::error!(%error, "store closed without a checkpoint"),
        }
        flushed
    }

    fn write_last_checkpoint(&self) -> Result<()> {
        let engine = &self.engine;
        engine.store.check_poison()?;
        engine
            .log
            .flush_now()
            .map_err(|error| engine.log_failed(error))?;
        let tidied = engine.tidy_leaves_at_close();
        engine.checkpoint_once().and(tidied)?;
        engine.cut_at_close()
    }
}

/// The threads of a store that is being closed, which end when this is dropped: also by a panic of
/// whoever closes it, since they would keep the store, and its directory, for ever.
struct Ending<'a> {
    engine: &'a Engine,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let engine = self.engine;
        engine.store.life.end();
        engine.kept.end_all();
        engine.log.stop();
        engine.reads.close();
        engine.jobs.close();
        engine.jobs.wanted.notify_all();
        engine.locks.wake_all();
        engine.checkpoint.stop();
        engine.store.pool.work().notify_all();
        engine.store.space.growth.notify_all();
        engine.store.registry.work.notify_all();
        // From here on nobody makes room: see Engine::register.
        engine.store.space.waiters().notify_all();
        engine.store.pool.image_waiters().notify_all();
        engine.log.wake_waiters();
        engine.old_versions.waiters.notify_all();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                engine.poison("an engine thread panicked");
            }
        }
    }
}

impl Db {
    /// Opens the store in `directory` with default options, or creates it. Blocks until recovery
    /// is done.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Builder::default().open(directory)
    }

    /// Returns default options to open a store with.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens the store in `directory`; None: a new store in memory.
    pub(crate) fn open_with(options: Builder, directory: Option<PathBuf>) -> Result<Self> {
        options.check()?;
        if options.must_exist
            && let Some(directory) = directory.as_ref().filter(|directory| !directory.exists())
        {
            return Err(Error::InvalidOption {
                option: "dir",
                what: format!("there is no directory {}", directory.display()),
            });
        }
        let (backend, threads) = (options.io_backend, options.completion_threads);
        let device = match directory {
            Some(directory) => backend.device(&directory, threads, options.read_only)?,
            None => IoBackend::Memory.open_device("", threads)?,
        };
        Self::open_device(options, device)
    }

    /// Opens the store on a device of the caller: for tests with simulated faults.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open_device(options: Builder, device: AnyDevice) -> Result<Self> {
        // Even if the store's default is another one: a single commit may ask for it.
        let periodic = Some(options.periodic);
        let engine = Arc::new(crate::recovery::open::open(device, options)?);
        engine.name_structures();
        if engine.options.discard {
            engine.store.space.begin_discards();
        }
        engine.store.space.look_at_pieces();
        let owner = Owner {
            engine: engine.clone(),
            threads: Mutex::new(Rank::Leaf, Vec::new()),
            helpers: Mutex::new(Rank::Leaf, Vec::new()),
        };
        let bodies: [(&str, ThreadBody); 10] = [
            (
                "pando-cleaner",
                Box::new(|engine| engine.store.run_cleaner()),
            ),
            ("pando-checkpoint", Box::new(Engine::run_checkpoints)),
            (
                "pando-log",
                Box::new(move |engine| engine.log.run_flusher(periodic)),
            ),
            ("pando-log-files", Box::new(Engine::run_log_files)),
            ("pando-give-back", Box::new(Engine::run_giving_back)),
            ("pando-tables", Box::new(Engine::run_jobs)),
            ("pando-reads", Box::new(Engine::run_reads)),
            ("pando-maintain", Box::new(Engine::run_maintenance)),
            (HELPER, Box::new(|engine| engine.helper.run(engine))),
            (STREAMS, Box::new(|engine| engine.streams.run(engine))),
        ];
        let read_only = engine.options.read_only;
        for (name, body) in bodies {
            if read_only && WRITERS.contains(&name) {
                continue;
            }
            let engine = engine.clone();
            let thread = ThreadBuilder::new()
                .name(name.to_owned())
                .spawn(move || run_thread(&engine, body))
                .map_err(|source| {
                    // A close would wait for what the missing threads do.
                    owner
                        .engine
                        .poison("a thread of the store could not be started");
                    Error::io("opening the store")(DeviceError::from_io("start", name, source))
                })?;
            if [HELPER, STREAMS].contains(&name) {
                owner.helpers.lock().push(thread);
            } else {
                owner.threads.lock().push(thread);
            }
        }
        engine.store.life.serve();
        tracing::info!(
            recovery_ms = u64::try_from(engine.recovered.took.as_millis()).unwrap_or(u64::MAX),
            batches = engine.recovered.batches,
            log_bytes = engine.recovered.bytes,
            "store opened"
        );
        let was_asked = engine.options.io_backend != IoBackend::Auto;
        engine
            .store
            .told_notes
            .tell(&engine.store.device, was_asked);
        Ok(Self {
            owner: Arc::new(owner),
        })
    }

    /// As [`Builder::open_read_only`], on a device of the caller: for tests with simulated faults.
    ///
    /// # Errors
    /// As [`Builder::open_read_only`].
    pub fn open_device_read_only(options: Builder, device: AnyDevice) -> Result<Self> {
        Self::open_device(options.only_reading(), device)
    }

    /// Returns whether the store was opened for reading only ([`Builder::open_read_only`]).
    pub fn is_read_only(&self) -> bool {
        self.engine().options.read_only
    }

    pub(crate) fn engine(&self) -> &Shared {
        &self.owner.engine
    }

    /// Runs a batch that changes tables, with the store's default durability. Returns false if a
    /// table that it was to create exists; nothing was done then. Blocks.
    pub(crate) fn run_job(&self, set: WriteSet) -> Result<bool> {
        match self.end_of_job(set)? {
            JobEnd::Committed(lsn) => {
                let acknowledge = self.engine().acknowledge(None);
                self.acknowledge(lsn, (Debt::NONE, None), acknowledge)?;
                Ok(true)
            }
            JobEnd::Conflict { .. } => Ok(false),
        }
    }

    /// Hands a batch that changes tables to the tables thread; blocks until it has ended.
    pub(crate) fn end_of_job(&self, set: WriteSet) -> Result<JobEnd> {
        let engine = self.engine();
        let job = Arc::new(Job::new(set));
        engine.jobs.push(job.clone())?;
        engine.block(|_| match job.result() {
            Some(result) => Ok(result?),
            None => Err(Unfinished::Wait(WaitReason::Job(job.clone()))),
        })
    }

    /// Commits blind writes. When a table changes in between, its state in the batch is refreshed,
    /// and the commit runs again.
    pub(crate) fn commit(&self, set: &mut WriteSet, options: WriteOptions) -> Result<()> {
        let mut locks = CommitLocks::default();
        loop {
            match self.commit_once(&mut locks, set, options, None)? {
                Outcome::Committed(_) => return Ok(()),
                Outcome::Conflict { .. } => set.refresh_trees()?,
            }
        }
    }

    /// Tries to commit once, with the check of a transaction if it is one; blocks for everything
    /// but conflicts. `locks` are those of all attempts.
    pub(crate) fn commit_once(
        &self,
        locks: &mut CommitLocks,
        set: &mut WriteSet,
        options: WriteOptions,
        mut check: Option<&mut StateCheck<'_>>,
    ) -> Result<Outcome> {
        let mut scratch = TakenBuffer::<CommitScratch>::take();
        let scratch = &mut *scratch;
        let engine = self.engine();
        let begun = Sampled::Writes.is_due().then(time::now);
        set.durability = options.durability;
        Engine::spill(engine, set)?;
        let outcome = engine.block(|blocked| {
            if check.as_mut().is_some_and(|check| check.is_doomed()) {
                return Ok(Outcome::Conflict { watched: false });
            }
            let check = check.as_deref_mut().map_or(Check::Stamps, Check::State);
            let lent = blocked.lend(set.len());
            let outcome = engine.try_commit(set, (scratch, locks), lent, check);
            blocked.wanted.append(&mut scratch.wanted);
            outcome
        })?;
        if let Outcome::Committed(Some(lsn)) = outcome {
            let acknowledge = engine.acknowledge(options.durability);
            self.acknowledge(lsn, (set.debt, begun), acknowledge)?;
        }
        Ok(outcome)
    }

    /// Waits for a put, if it is to be acknowledged when it is durable.
    #[inline]
    pub(crate) fn end_put(&self, put: &Put, acknowledge: Acknowledge) -> Result<()> {
        self.acknowledge(put.lsn, (Debt::NONE, put.begun), acknowledge)
    }

    /// Waits for the batch of `lsn`, or for what it has read: `debt` covers that. `begun` is when
    /// it began, if it is timed.
    fn acknowledge(
        &self,
        lsn: Lsn,
        (debt, begun): (Debt, Option<Instant>),
        acknowledge: Acknowledge,
    ) -> Result<()> {
        let engine = self.engine();
        match acknowledge {
            Acknowledge::WhenDurable => engine.wait_durable(lsn)?,
            Acknowledge::AtOnce => engine.pay(debt)?,
        }
        let statistics = &engine.store.statistics;
        begun.map(|begun| statistics.record_since(Measure::PutSampled, begun));
        Ok(())
    }

    /// Sets the durability of commits that do not ask for another one; at first it is that of
    /// [`Builder::durability`].
    pub fn set_durability(&self, durability: Durability) {
        self.engine().read_bounds.set_durability(durability);
    }

    /// Makes every earlier commit durable. Blocks.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn flush(&self) -> Result<()> {
        let engine = self.engine();
        engine.store.check_poison()?;
        engine
            .log
            .flush_now()
            .map_err(|error| engine.log_failed(error))
    }

    /// Writes a checkpoint, from which recovery after a crash starts. Blocks until it is durable,
    /// on a full disk until there is room for it; readers and writers continue meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::ReadOnly`].
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint_now()
    }

    /// Asks for a checkpoint soon. Does not block. Does nothing in a store that was opened for
    /// reading only.
    pub fn request_checkpoint(&self) {
        self.engine().checkpoint.request();
    }

    /// Returns whether a checkpoint is running, and how far it is. Reads a few words that other
    /// threads write; takes no lock and does not block.
    pub fn checkpoint_progress(&self) -> CheckpointProgress {
        let engine = self.engine();
        engine.checkpoint.turns.progress(|| {
            let epochs = engine.store.pool.epochs();
            let closed = epochs.current().0.saturating_sub(1);
            epochs.dirty(Epoch(closed))
        })
    }

    /// Wall-clock time of the last checkpoint, in milliseconds since 1970.
    pub fn last_checkpoint_unix_ms(&self) -> u64 {
        self.engine().checkpoint.last_unix_ms()
    }

    /// The LSN up to which every commit is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.engine().log.durable()
    }

    /// The LSN of the newest commit.
    pub fn newest_lsn(&self) -> Lsn {
        self.engine().log.reserved_end()
    }

    /// Returns true if the commit of `lsn` is durable; otherwise `waker` is woken once it is. One
    /// flush serves all waiters. Does not block.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: it cannot become durable, or nobody can know whether it did.
    pub fn when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        self.engine().when_durable(lsn, waker)
    }

    /// Returns all counters since the store was opened, or since [`Db::reset_statistics`].
    pub fn statistics(&self) -> Totals {
        self.engine().store.statistics.snapshot()
    }

    /// Returns the histogram of `measure` over the same time.
    pub fn histogram(&self, measure: Measure) -> Histogram {
        self.engine().store.statistics.histogram(measure)
    }

    /// Resets all counters and histograms. Events that other threads count meanwhile are not lost.
    pub fn reset_statistics(&self) {
        self.engine().store.statistics.reset();
    }

    /// The store's random key, for hashes that are stored in it.
    pub fn hash_key(&self) -> [u64; 2] {
        self.engine().hash_key
    }

    /// Bytes of the longest key: a quarter of a page.
    pub fn key_bytes_max(&self) -> usize {
        self.engine().key_bytes_max()
    }

    /// Bytes of the longest value.
    pub fn value_bytes_max(&self) -> usize {
        crate::options::VALUE_BYTES_MAX
    }

    /// Bytes of the longest value that is stored in pages and handled in one piece; longer ones are
    /// stored in chunks.
    pub fn plain_bytes_max(&self) -> usize {
        self.engine().plain_bytes_max()
    }

    /// True while the space of dropped tables, of deleted large values, and of leaves that became
    /// empty has not been freed, even if freeing waits for their readers.
    pub fn garbage_left(&self) -> bool {
        self.engine().garbage_left()
    }

    /// Closes the store for all handles: makes every commit durable, writes a checkpoint and ends
    /// the engine's threads. From then on writes return [`Error::Closed`]. Blocks.
    ///
    /// The directory may be opened again once all other handles are dropped, too: tables,
    /// snapshots, iterators, transactions, futures and streams. Until then they go on reading what
    /// they can.
    ///
    /// # Errors
    /// The reason why the last flush or checkpoint failed. [`Error::Busy`] if a compaction calls
    /// this (the store stays open), or a thread of the store, which wakes a task (it is closed on
    /// another one soon).
    pub fn close(self) -> Result<()> {
        if self.engine().giving_back.is_by_hand_here() {
            return Err(Error::Busy {
                what: "the compaction that calls this is running",
            });
        }
        if self.owner.is_own_thread() {
            self.owner.shut_down_elsewhere();
            return Err(Error::Busy {
                what: "another thread closes the store, since this one is its own,",
            });
        }
        self.owner.shut_down()
    }
}

impl Builder {
    /// Opens the store in `directory`, or creates it. Blocks until recovery is done.
    ///
    /// A new store is made in an empty directory, or beside what services keep: files that end in
    /// `.conf`, `.log`, `.pid` or `.toml`, and the dump of a store ([`DumpFile::NAME`]).
    ///
    /// [`DumpFile::NAME`]: crate::DumpFile::NAME
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Corrupt`], [`Error::InvalidOption`], [`Error::Io`].
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(self, Some(PathBuf::from(directory.as_ref())))
    }

    /// Opens the store in `directory`; creates neither. Blocks until recovery is done.
    ///
    /// # Errors
    /// As [`Builder::open`]; [`Error::InvalidOption`] if there is no store.
    pub fn open_existing(mut self, directory: impl AsRef<Path>) -> Result<Db> {
        self.must_exist = true;
        self.open(directory)
    }

    /// Opens the store in `directory` to read it. Nothing in the directory is written, made,
    /// renamed or removed, so that a file system that is mounted for reading only will do, a
    /// snapshot of one, or a directory without the right to write. Blocks until recovery is done.
    ///
    /// If the store was not closed, what its log has is seen, exactly as after an opening for
    /// writing: what recovery would write stays in memory, up to a quarter of
    /// [`Builder::max_memory`]. Each opening does that anew.
    ///
    /// Others may have the store open for reading at the same time, in any process; none may have
    /// it open for writing. What would change something returns [`Error::ReadOnly`]: a write, at
    /// the latest when it is committed, a table that is to be made, a checkpoint, a compaction, a
    /// dump into the directory. Transactions that write nothing, snapshots and their dumps work as
    /// otherwise. Space that a writer would free in the background stays as it is.
    ///
    /// Options that say how the store is written have no effect. [`IoBackend::Auto`] reads with
    /// threads, since a better interface cannot be tried without making a file; others may be
    /// chosen.
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let directory = tempfile::tempdir().map_err(|_| pandodb::Error::Closed)?;
    /// # let path = directory.path();
    /// # let db = pandodb::Db::open(path)?;
    /// # db.table("fruit")?.put(b"apple", b"red")?;
    /// # db.close()?;
    /// let db = pandodb::Db::builder().open_read_only(path)?;
    /// let fruit = db.existing_table("fruit").expect("it is there");
    /// assert_eq!(fruit.get(b"apple")?.as_deref(), Some(&b"red"[..]));
    /// let refused = fruit.put(b"apple", b"green");
    /// assert!(matches!(refused, Err(pandodb::Error::ReadOnly)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InUse`] if somebody has it open for writing. [`Error::InvalidOption`] if there is
    /// no store, or if what recovery would write is more than a quarter of `max_memory`: choose
    /// more, or open it for writing once. [`Error::Corrupt`], [`Error::Io`].
    pub fn open_read_only(self, directory: impl AsRef<Path>) -> Result<Db> {
        let directory = PathBuf::from(directory.as_ref());
        if !self.io_backend.has_files() {
            return Err(Error::InvalidOption {
                option: "io_backend",
                what: "a store is read in a directory; choose one with files".into(),
            });
        }
        Db::open_with(self.only_reading(), Some(directory))
    }

    /// Creates a store that exists in memory only.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::Io`].
    pub fn open_in_memory(mut self) -> Result<Db> {
        self.io_backend = IoBackend::Memory;
        Db::open_with(self, None)
    }
}

/// Runs `body`, the loop of an engine thread; a panic in it poisons the engine.
fn run_thread(engine: &Engine, body: ThreadBody) {
    struct Alarm<'a>(&'a Engine, bool);
    impl Drop for Alarm<'_> {
        fn drop(&mut self) {
            if self.1 {
                self.0.poison("an engine thread panicked");
                // The thread will not answer its waiters: let them end with an error.
                self.0.checkpoint.stop();
                self.0.jobs.close();
                self.0.locks.wake_all();
                self.0.reads.close();
                self.0.helper.close();
                self.0.streams.close();
            }
        }
    }
    let mut alarm = Alarm(engine, true);
    body(engine);
    alarm.1 = false;
}
