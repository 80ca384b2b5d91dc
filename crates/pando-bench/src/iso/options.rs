//! Options of a run of `bench iso`.

use pando_sync::time::Duration;

use crate::error::{Error, Result};
use crate::options::{KvOptions, Workload};

/// Maximum number of threads; more are taken for a mistake.
const THREADS_MAX: usize = 1024;

/// Maximum number of keys of a transaction.
const KEYS_MAX: u64 = 10_000;

/// What a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsoVariant {
    /// Reads; each thread opens the table for itself.
    OwnHandle,
    /// Reads; all threads share one handle.
    SharedHandle,
    /// Transactions; all threads share one handle.
    Transactions {
        /// Their level.
        level: IsoLevel,
        /// Keys of each.
        ops: u64,
        /// How many of a hundred keys are put; the others are got.
        writes: u64,
    },
    /// Gets or puts of single keys; all threads share one handle.
    Snapshots {
        /// Which of them.
        workload: Workload,
        /// Which snapshots they read in, or are put beside.
        kind: IsoSnapshots,
    },
}

impl IsoVariant {
    /// Returns its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnHandle => "own-handle",
            Self::SharedHandle => "shared-handle",
            Self::Transactions { level, .. } => level.name(),
            Self::Snapshots { kind, .. } => kind.name(),
        }
    }

    /// Returns the workload that chooses its keys.
    pub(super) fn workload(self) -> Workload {
        match self {
            Self::Snapshots { workload, .. } => workload,
            Self::OwnHandle | Self::SharedHandle | Self::Transactions { .. } => {
                Workload::ReadRandom
            }
        }
    }
}

/// The isolation of the transactions of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsoLevel {
    /// The same gets and puts without transactions.
    None,
    /// Read committed.
    ReadCommitted,
    /// Snapshot isolation.
    Snapshot,
    /// Serializable.
    Serializable,
}

impl IsoLevel {
    /// All levels, from the weakest on.
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::ReadCommitted,
        Self::Snapshot,
        Self::Serializable,
    ];

    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadCommitted => "read-committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    /// Returns the level of this name.
    ///
    /// # Errors
    /// Names the levels that there are.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|level| level.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option("levels", format!("there are {names}"))
        })
    }
}

/// The snapshots of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsoSnapshots {
    /// No snapshot.
    None,
    /// One that is in memory: gets read in it, puts go on beside it.
    Young,
    /// The same with one that was on disk from its beginning.
    Settled,
    /// Each get has one of its own.
    Each,
}

impl IsoSnapshots {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::None, Self::Young, Self::Settled, Self::Each];

    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Young => "young",
            Self::Settled => "settled",
            Self::Each => "each",
        }
    }

    /// Returns the kind of this name.
    ///
    /// # Errors
    /// Names the kinds that there are.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option("old-snapshot", format!("there are {names}"))
        })
    }
}

/// Options of `bench iso`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct IsoOptions {
    /// Numbers of threads, in this order.
    pub threads: Vec<usize>,
    /// The levels of transactions, in this order; if there are none, gets and puts of single keys
    /// are measured.
    pub levels: Vec<IsoLevel>,
    /// The snapshots that each workload runs with, in this order; if there are none, plain reads
    /// are measured.
    pub snapshots: Vec<IsoSnapshots>,
    /// What runs with snapshots: `readrandom`, `overwrite`, `readwhilewriting`.
    pub workloads: Vec<Workload>,
    /// Numbers of keys of a transaction, each with each share of puts.
    pub ops_per_transaction: Vec<u64>,
    /// How many of a hundred keys are put.
    pub writes: Vec<u64>,
    /// Turns of each variant and number of threads; the median round is reported.
    pub rounds: usize,
    /// Store, keys, and length of each turn; its workloads and threads are ignored, and batches are
    /// those of the fill.
    pub kv: KvOptions,
}

impl Default for IsoOptions {
    fn default() -> Self {
        Self {
            threads: vec![1, 2, 4, 8, 16, 32, 64],
            levels: Vec::new(),
            snapshots: Vec::new(),
            workloads: vec![Workload::ReadRandom],
            ops_per_transaction: vec![10],
            writes: vec![10],
            rounds: 3,
            kv: KvOptions::default(),
        }
    }
}

impl IsoOptions {
    /// Returns the options of the turns of `variant` with `threads` threads.
    pub(super) fn turn(&self, threads: usize, variant: IsoVariant) -> KvOptions {
        KvOptions {
            workloads: vec![variant.workload()],
            threads,
            batch: 1,
            ..self.kv.clone()
        }
    }

    /// Returns the options of the store and of what runs before the first turn.
    pub(super) fn once(&self) -> KvOptions {
        KvOptions {
            workloads: vec![Workload::ReadRandom],
            threads: 1,
            duration: None,
            ops: None,
            warmup: Duration::ZERO,
            rate: None,
            interval: None,
            // Young snapshots are to stay young.
            settle_snapshots_after: match self.snapshots.is_empty() {
                true => self.kv.settle_snapshots_after,
                false => Some(Duration::MAX),
            },
            ..self.kv.clone()
        }
    }

    /// Returns the variant that `variant` is compared with: the first of its list.
    pub(super) fn first_of(&self, variant: IsoVariant) -> Option<IsoVariant> {
        match variant {
            IsoVariant::OwnHandle | IsoVariant::SharedHandle => None,
            IsoVariant::Transactions { ops, writes, .. } => {
                let level = *self.levels.first()?;
                Some(IsoVariant::Transactions { level, ops, writes })
            }
            IsoVariant::Snapshots { workload, .. } => {
                let kind = *self.snapshots.first()?;
                Some(IsoVariant::Snapshots { workload, kind })
            }
        }
    }

    /// Returns what each number of threads runs, in the order of the turns.
    pub(super) fn variants(&self) -> Vec<IsoVariant> {
        if !self.snapshots.is_empty() {
            let workloads = self.workloads.iter();
            return workloads
                .flat_map(|workload| self.snapshots.iter().map(|kind| (*workload, *kind)))
                .map(|(workload, kind)| IsoVariant::Snapshots { workload, kind })
                .collect();
        }
        if self.levels.is_empty() {
            return vec![IsoVariant::OwnHandle, IsoVariant::SharedHandle];
        }
        let cells = self
            .ops_per_transaction
            .iter()
            .flat_map(|ops| self.writes.iter().map(|writes| (*ops, *writes)));
        let at_levels = |(ops, writes)| {
            let levels = self.levels.iter();
            levels.map(move |level| IsoVariant::Transactions {
                level: *level,
                ops,
                writes,
            })
        };
        cells.flat_map(at_levels).collect()
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_fine = |threads: &usize| (1..=THREADS_MAX).contains(threads);
        if self.threads.is_empty() || !self.threads.iter().all(is_fine) {
            let what = format!("numbers from 1 to {THREADS_MAX} are needed");
            return Err(Error::option("threads", what));
        }
        let is_fine = |ops: &u64| (1..=KEYS_MAX).contains(ops);
        if self.ops_per_transaction.is_empty() || !self.ops_per_transaction.iter().all(is_fine) {
            let what = format!("numbers from 1 to {KEYS_MAX} are needed");
            return Err(Error::option("ops-per-transaction", what));
        }
        if self.writes.is_empty() || self.writes.iter().any(|writes| *writes > 100) {
            return Err(Error::option("writes", "numbers from 0 to 100 are needed"));
        }
        if self.rounds == 0 {
            return Err(Error::option("rounds", "at least 1 is needed"));
        }
        self.check_snapshots()?;
        self.once().check()?;
        self.turn(1, IsoVariant::SharedHandle).check()
    }

    fn check_snapshots(&self) -> Result<()> {
        let is_read = |workload: &Workload| {
            matches!(workload, Workload::ReadRandom | Workload::ReadWhileWriting)
        };
        if self.snapshots.is_empty() {
            return match self.workloads[..] {
                [Workload::ReadRandom] => Ok(()),
                _ => Err(Error::option("workloads", "needs --old-snapshot")),
            };
        }
        if !self.levels.is_empty() {
            return Err(Error::option("old-snapshot", "excludes --levels"));
        }
        let is_known = |workload: &Workload| is_read(workload) || *workload == Workload::Overwrite;
        if self.workloads.is_empty() || !self.workloads.iter().all(is_known) {
            let what = "there are readrandom, overwrite, readwhilewriting";
            return Err(Error::option("workloads", what));
        }
        if self.snapshots.contains(&IsoSnapshots::Each) && !self.workloads.iter().all(is_read) {
            return Err(Error::option("old-snapshot", "each is for reads alone"));
        }
        Ok(())
    }
}
