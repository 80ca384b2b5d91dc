//! The options of ablations.

use std::path::PathBuf;

use pando_sync::time::Duration;
use pandodb::IoBackend;

use crate::error::{Error, Result};

macro_rules! ablations {
    ($($variant:ident $name:literal $threads:tt $num:literal $help:literal;)*) => {
        /// A part of the product that can be left out here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Ablation {
            $(#[doc = $help] $variant,)*
        }

        impl Ablation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name in options and records.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// One line of help.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }

            /// Numbers of threads unless said otherwise.
            pub fn threads(self) -> &'static [usize] {
                match self { $(Self::$variant => &$threads,)* }
            }

            /// Operations of a turn unless said otherwise.
            pub fn num(self) -> u64 {
                match self { $(Self::$variant => $num,)* }
            }
        }
    };
}

ablations! {
    Pending "pending" [1] 2_000_000 "Where an operation waits for its page: boxed, pooled, in a slot.";
    Queue "queue" [2] 2_000_000 "A queue that signals always, or only if somebody waits.";
    PreadHandles "pread-handles" [16] 100_000 "Reads by a pool of descriptors behind a semaphore, or by one that is shared.";
    Throttle "throttle" [1] 100_000 "Most reads in flight: 16, 64, 120, 512.";
    ScatterGather "scatter-gather" [1] 20_000 "Many keys one after the other, or with all their reads in flight together.";
    Fetch "fetch" [1] 100_000 "A context that is built for each read, or put back to its initial state.";
    Descent "descent" [1, 2] 2_000_000 "Shared latches at every level, a copy of the root, or neither.";
    Cursor "cursor" [1, 2] 2_000_000 "Reads that register in one list, in one of their core, or nowhere.";
    Stats "stats" [1, 2, 32] 8_000_000 "Counters of all threads, of each thread, of each core with a lock prefix and without.";
    Alloc "alloc" [1, 2, 16] 1_000_000 "Blocks from zones behind trait objects, from the same called directly, or from ours.";
}

impl Ablation {
    /// True for ablations of reads of a tree in memory.
    pub(super) fn is_of_cached_reads(self) -> bool {
        matches!(self, Self::Descent | Self::Cursor)
    }

    /// Its workloads, if it has several.
    pub fn workloads(self) -> &'static [&'static str] {
        match self {
            Self::Alloc => &["alloc", "overwrite"],
            _ => &[],
        }
    }

    /// Returns the ablation with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|one| one.name() == name).copied()
    }
}

/// Options of `bench ablation`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct AblationOptions {
    /// What is measured.
    pub ablation: Ablation,
    /// Workloads of `alloc`; empty: all.
    pub workloads: Vec<String>,
    /// Number of turns of each variant.
    pub rounds: usize,
    /// Numbers of threads, in this order; none: as [`Ablation::threads`] says.
    pub threads: Vec<usize>,
    /// Operations of a turn of a variant; None: as [`Ablation::num`] says.
    pub num: Option<u64>,
    /// Length of a turn, instead of a number of operations.
    pub duration: Option<Duration>,
    /// Time at the start of each turn that is not measured.
    pub warmup: Duration,
    /// Bytes of what is read: pages, a file, or keys and values; of all blocks.
    pub size_bytes: u64,
    /// Bytes of memory of the pool.
    pub max_memory: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Reads in flight.
    pub queue_depth: usize,
    /// Keys of a call that reads several.
    pub batch: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Directory of the files, which stay there; None: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Uses the store in `dir` that an earlier run has left.
    pub use_existing_db: bool,
    /// The I/O back end.
    pub io_backend: IoBackend,
    /// Number of threads of the back end, if it has threads.
    pub completion_threads: Option<usize>,
}

impl AblationOptions {
    /// The defaults for `ablation`.
    pub fn new(ablation: Ablation) -> Self {
        Self {
            ablation,
            workloads: Vec::new(),
            rounds: 5,
            threads: Vec::new(),
            num: None,
            duration: None,
            warmup: Duration::ZERO,
            size_bytes: match ablation {
                Ablation::Alloc => 1 << 40,
                _ => 256 << 20,
            },
            max_memory: 32 << 20,
            page_bytes: 4096,
            queue_depth: 128,
            batch: match ablation {
                Ablation::Throttle => 1024,
                _ => 128,
            },
            seed: 1,
            dir: None,
            use_existing_db: false,
            io_backend: IoBackend::Auto,
            completion_threads: None,
        }
    }

    /// Returns all numbers of threads.
    pub(super) fn thread_counts(&self) -> &[usize] {
        match self.threads.is_empty() {
            true => self.ablation.threads(),
            false => &self.threads,
        }
    }

    /// Returns whether the workload with this name was asked for.
    pub(super) fn wants(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|one| one == workload)
    }

    /// Returns the first number of threads.
    pub(super) fn threads(&self) -> usize {
        self.thread_counts()[0]
    }

    pub(super) fn num(&self) -> u64 {
        self.num.unwrap_or_else(|| self.ablation.num())
    }

    /// Returns the number of operations of a turn, unless a time ends it.
    pub(super) fn total(&self) -> Option<u64> {
        self.duration.is_none().then(|| self.num())
    }

    pub(super) fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, "at least 1 is needed")),
        };
        let known = self.ablation.workloads();
        if let Some(other) = self.workloads.iter().find(|one| !known.contains(&&one[..])) {
            let what = match known {
                [] => format!(
                    "ablation {} has no workloads to choose",
                    self.ablation.name()
                ),
                _ => format!("'{other}' is none of {}", known.join(", ")),
            };
            return Err(Error::option("workloads", what));
        }
        needed("rounds", self.rounds > 0)?;
        needed("threads", !self.thread_counts().contains(&0))?;
        needed("num", self.num() > 0)?;
        needed("queue-depth", self.queue_depth > 0)?;
        needed("batch", self.batch > 0)
    }
}
