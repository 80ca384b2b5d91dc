//! Options of a run of `bench iso`.

use crate::error::{Error, Result};
use crate::options::{KvOptions, Workload};

/// Maximum number of threads; more are taken for a mistake.
const THREADS_MAX: usize = 1024;

/// Which handle of the table a thread uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsoVariant {
    /// Each thread opens the table for itself.
    OwnHandle,
    /// All threads share one.
    SharedHandle,
}

impl IsoVariant {
    /// Both variants, in the order of their turns.
    pub const ALL: [Self; 2] = [Self::OwnHandle, Self::SharedHandle];

    /// Returns its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnHandle => "own-handle",
            Self::SharedHandle => "shared-handle",
        }
    }
}

/// Options of `bench iso`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct IsoOptions {
    /// Numbers of threads, in this order.
    pub threads: Vec<usize>,
    /// Turns of each variant and number of threads; the median round is reported.
    pub rounds: usize,
    /// Store, keys, and length of each turn; its workloads and threads are ignored.
    pub kv: KvOptions,
}

impl Default for IsoOptions {
    fn default() -> Self {
        Self {
            threads: vec![1, 2, 4, 8, 16, 32, 64],
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

    pub(super) fn check(&self) -> Result<()> {
        let is_fine = |threads: &usize| (1..=THREADS_MAX).contains(threads);
        if self.threads.is_empty() || !self.threads.iter().all(is_fine) {
            let what = format!("numbers from 1 to {THREADS_MAX} are needed");
            return Err(Error::option("threads", what));
        }
        if self.rounds == 0 {
            return Err(Error::option("rounds", "at least 1 is needed"));
        }
        self.turn(1).check()
    }
}
