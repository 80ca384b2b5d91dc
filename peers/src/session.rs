//! One engine: filled, then measured workload by workload.

use std::fs;
use std::path::{Path, PathBuf};

use pando_bench::chooser::Chooser;
use pando_bench::permutation::Permutation;
use pando_bench::phase::{self, Phase};
use pando_bench::record::Record;
use pando_bench::values::Values;
use pando_bench::{Observer, Result, Workload};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};

use crate::calls::{Plan, Work};
use crate::disk::Disk;
use crate::engine::{Engine, Setup};
use crate::engines::EngineKind;
use crate::options::{CHUNK, Level, Options, failed, refused};
use crate::record::PeerRecord;
use crate::writes::{Counts, Writes};

/// Interval of `--durability periodic`.
const PERIOD: Duration = Duration::from_secs(1);
/// How late the end of a run is seen by the thread that syncs.
const TICK: Duration = Duration::from_millis(5);

/// One turn of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// What it does.
    pub workload: Workload,
    /// On how many threads.
    pub threads: usize,
    /// In which round, from 1.
    pub round: u64,
}

/// What holds an engine to its memory from outside.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Most bytes of its group.
    pub memory_max: Option<u64>,
    /// Why nothing holds it, though something should.
    pub without_goal: Option<String>,
}

/// An engine that runs.
pub struct Session<'a> {
    kind: EngineKind,
    options: &'a Options,
    held: Held,
    dir: PathBuf,
    values: Values,
    permutation: Permutation,
    chooser: Chooser,
    /// Open except while it is replaced.
    engine: Option<Box<dyn Engine>>,
}

/// Refuses a directory that has something in it, and makes one that is not there.
fn make_empty(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(failed(format!("making {}", dir.display())))?;
    let mut entries = fs::read_dir(dir).map_err(failed(format!("reading {}", dir.display())))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(refused(
            "dir",
            format!(
                "{} is not empty; peers fill a store of their own",
                dir.display()
            ),
        )),
    }
}

impl<'a> Session<'a> {
    /// Opens a new store of engine `kind` in `dir`.
    ///
    /// # Errors
    /// The directory holds something, or the engine fails.
    pub fn open(kind: EngineKind, options: &'a Options, dir: PathBuf, held: Held) -> Result<Self> {
        let mut session = Self {
            kind,
            options,
            held,
            dir,
            values: Values::new(options.value_bytes, 1.0, options.seed),
            permutation: Permutation::new(options.num, options.seed),
            chooser: Chooser::new(options.distribution, options.num, options.seed),
            engine: None,
        };
        session.reopen()?;
        Ok(session)
    }

    fn reopen(&mut self) -> Result<()> {
        let options = self.options;
        if options.has_transactions() && !self.kind.has_transactions {
            let what = format!("{} has no transactions here", self.kind.name);
            return Err(refused("workloads", what));
        }
        make_empty(&self.dir)?;
        let threads = options.threads.iter().copied().max().unwrap_or(1);
        let setup = Setup {
            dir: self.dir.clone(),
            max_memory: options.max_memory,
            durability: options.durability,
            data_bytes: options.data_bytes(),
            key_bytes: options.key_bytes,
            value_bytes: options.value_bytes,
            // One beside them, and one that syncs.
            threads: threads + 2,
            transactions: options.has_transactions(),
        };
        self.engine = Some(self.kind.open(&setup)?);
        Ok(())
    }

    fn engine(&self) -> &dyn Engine {
        let engine = self.engine.as_ref();
        &**engine.expect("it is open between calls")
    }

    /// What the engine was set to.
    pub fn settings(&self) -> crate::engine::Settings {
        self.engine().settings()
    }

    /// Fills the store, which is emptied first, with one thread, and lets it settle.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn fill(&mut self, workload: Workload, observer: &mut dyn Observer) -> Result<PeerRecord> {
        if self.is_used() {
            self.close()?;
            fs::remove_dir_all(&self.dir)
                .map_err(failed(format!("removing {}", self.dir.display())))?;
            self.reopen()?;
        }
        let turn = Turn {
            workload,
            threads: 1,
            round: 1,
        };
        self.run(turn, observer)
    }

    /// Whether something has been written: a look at the first entry.
    fn is_used(&self) -> bool {
        let mut is_used = false;
        let worker = self.engine().worker();
        if let Ok(mut worker) = worker {
            // An error shows again when the fill begins.
            let _ = worker.scan(&[0], 1, &mut |_, _| is_used = true);
        }
        is_used
    }

    /// Runs a workload on what is there.
    ///
    /// # Errors
    /// Those of the engine, and reads that return something else than was written.
    pub fn run(&self, turn: Turn, observer: &mut dyn Observer) -> Result<PeerRecord> {
        let engine = self.engine();
        let before = Counts::now(engine, &self.dir);
        let mut record = self.run_unsettled(turn, observer)?;
        let settles = turn.workload.is_fill() || self.options.settle;
        let written = self.options.written_bytes(turn.workload, record.record.ops);
        if let Some(user_bytes) = written.filter(|_| settles) {
            let start = time::now();
            engine.settle()?;
            record.settle_s = Some((time::now() - start).as_secs_f64());
            let data_bytes = self.options.data_bytes();
            let writes = Writes::since(&before, engine, &self.dir, user_bytes, data_bytes)?;
            record.writes = Some(writes);
        }
        Ok(record)
    }

    fn run_unsettled(&self, turn: Turn, observer: &mut dyn Observer) -> Result<PeerRecord> {
        if self.options.durability != Level::Periodic {
            return self.measure(turn, observer);
        }
        let (engine, stop) = (self.engine(), AtomicBool::new(false));
        thread::scope(|scope| {
            let syncing = scope.spawn(|| sync_until(engine, &stop));
            let record = self.measure(turn, observer);
            // Relaxed: a late look costs one tick.
            stop.store(true, Ordering::Relaxed);
            let synced = syncing.join().expect("a thread that syncs panicked");
            synced.and(record)
        })
    }

    fn measure(&self, turn: Turn, observer: &mut dyn Observer) -> Result<PeerRecord> {
        let (options, engine) = (self.options, self.engine());
        let Turn {
            workload,
            threads,
            round,
        } = turn;
        let repeats = AtomicU64::new(0);
        let plan = Plan {
            options,
            engine,
            workload,
            threads,
            seed: options.seed.wrapping_add(round - 1),
            values: &self.values,
            keys: options.keys(),
            permutation: &self.permutation,
            chooser: &self.chooser,
            repeats: &repeats,
        };
        let is_fill = workload.is_fill();
        let phase = self.phase(workload, threads);
        let count = || {
            let repeats = repeats.load(Ordering::Relaxed);
            (Disk::now(), engine.page_reads(), repeats)
        };
        let mut before = count();
        let make = |index| Ok(Work::new(&plan, engine.worker()?, index));
        let measured = phase::run(&phase, make, observer, &mut || before = count())?;
        let after = count();
        let all = (measured.ops + measured.beside_ops).max(1) as f64;
        let mut record = Record::new(workload.name(), self.kind.name, threads, options.seed);
        record.set_measured(&measured);
        let reads = before.1.zip(after.1).map(|(before, after)| after - before);
        record.page_reads_per_op = reads.map(|reads| reads as f64 / all);
        let reads_keys = !is_fill && workload != Workload::Overwrite;
        record.found = reads_keys.then_some(measured.found);
        record.beside_ops_per_s = workload
            .is_beside()
            .then(|| measured.beside_ops as f64 / measured.elapsed.as_secs_f64().max(1e-9));
        if workload == Workload::Transactions {
            let commits = (measured.ops / options.ops_per_transaction).max(1) as f64;
            record.conflicts_per_commit = Some((after.2 - before.2) as f64 / commits);
        }
        self.describe(workload, &mut record);
        let disk = before
            .0
            .zip(after.0)
            .map(|(before, after)| after.since(before));
        Ok(PeerRecord {
            engine: self.kind.name,
            round,
            record,
            disk_read_bytes_per_op: disk.map(|disk| disk.read_bytes as f64 / all),
            disk_write_bytes_per_op: disk.map(|disk| disk.write_bytes as f64 / all),
            settle_s: None,
            writes: None,
            scan_entries: match workload {
                Workload::SeekRandom => Some(options.scan),
                Workload::ReadSeq => Some(CHUNK),
                _ => None,
            },
            cgroup_memory_max: self.held.memory_max,
            without_goal: self.held.without_goal.clone(),
            settings: engine.settings().into_iter().collect(),
        })
    }

    /// How a turn runs, and for how long.
    fn phase(&self, workload: Workload, threads: usize) -> Phase {
        let (options, is_fill) = (self.options, workload.is_fill());
        Phase {
            name: workload.name(),
            threads,
            beside: workload.is_beside(),
            total: (options.duration.is_none() || is_fill).then_some(options.num),
            duration: options.duration.filter(|_| !is_fill),
            warmup: if is_fill {
                Duration::ZERO
            } else {
                options.warmup
            },
            interval: None,
            rate: None,
            call_ops: 1,
        }
    }

    /// What was asked for.
    fn describe(&self, workload: Workload, record: &mut Record) {
        let options = self.options;
        let batch = options.batch_of(workload);
        record.max_memory = Some(options.max_memory);
        record.num = Some(options.num);
        record.key_size_bytes = Some(options.key_bytes);
        record.value_size_bytes = Some(options.value_bytes);
        record.key_kind = Some(options.key_kind.kind().name());
        record.durability = Some(options.durability.name());
        if workload == Workload::Transactions {
            record.ops_per_transaction = Some(options.ops_per_transaction);
            record.writes_percent = Some(options.writes);
        }
        let batched = workload.is_fill()
            || matches!(workload, Workload::Overwrite | Workload::MultiReadRandom);
        record.batch = batched.then_some(batch);
        let chooses = !workload.is_fill() && workload != Workload::ReadSeq;
        record.distribution = chooses.then(|| options.distribution.name());
    }

    /// Closes the engine; it can be filled again, which opens a new store.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(&mut self) -> Result<()> {
        match self.engine.take() {
            Some(engine) => engine.close(),
            None => Ok(()),
        }
    }
}

fn sync_until(engine: &dyn Engine, stop: &AtomicBool) -> Result<()> {
    let mut last = time::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        if time::now() - last >= PERIOD {
            engine.sync_periodically()?;
            last = time::now();
        }
    }
    Ok(())
}
