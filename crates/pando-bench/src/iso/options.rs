//! Options of a run of `bench iso`.

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
}

impl IsoVariant {
    /// Returns its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnHandle => "own-handle",
            Self::SharedHandle => "shared-handle",
            Self::Transactions { level, .. } => level.name(),
        }
    }

    /// Returns the same at another level, if it is a transaction.
    pub(super) fn at(self, level: IsoLevel) -> Option<Self> {
        match self {
            Self::Transactions { ops, writes, .. } => {
                Some(Self::Transactions { level, ops, writes })
            }
            Self::OwnHandle | Self::SharedHandle => None,
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

/// Options of `bench iso`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct IsoOptions {
    /// Numbers of threads, in this order.
    pub threads: Vec<usize>,
    /// The levels of transactions, in this order; if there are none, plain reads are measured.
    pub levels: Vec<IsoLevel>,
    /// Numbers of keys of a transaction, each with each share of puts.
    pub ops_per_transaction: Vec<u64>,
    /// How many of a hundred keys are put.
    pub writes: Vec<u64>,
    /// Turns of each variant and number of threads; the median round is reported.
    pub rounds: usize,
    /// Store, keys, and length of each turn; its workloads and threads are ignored.
    pub kv: KvOptions,
}

impl Default for IsoOptions {
    fn default() -> Self {
        Self {
            threads: vec![1, 2, 4, 8, 16, 32, 64],
            levels: Vec::new(),
            ops_per_transaction: vec![10],
            writes: vec![10],
            rounds: 3,
            kv: KvOptions::default(),
        }
    }
}

impl IsoOptions {
    /// Returns the options of the turns with `threads` threads.
    pub(super) fn turn(&self, threads: usize) -> KvOptions {
        KvOptions {
            workloads: vec![Workload::ReadRandom],
            threads,
            ..self.kv.clone()
        }
    }

    /// Returns what each number of threads runs, in the order of the turns.
    pub(super) fn variants(&self) -> Vec<IsoVariant> {
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
        self.turn(1).check()
    }
}
