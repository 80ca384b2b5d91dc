//! Options of a run.

use std::path::PathBuf;

use pando_sync::time::Duration;
use pandodb::{Compression, Durability, IoBackend};

pub use crate::distribution::Distribution;
use crate::error::{Error, Result};
pub use crate::keys::KeyKind;
use crate::keys::Keys;
pub use crate::value_sizes::ValueSizes;
pub use crate::workload::Workload;

/// Options of `bench kv`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// Workloads to run, in this order.
    pub workloads: Vec<Workload>,
    /// Number of keys.
    pub num: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Lengths of values.
    pub value_sizes: ValueSizes,
    /// Ratio to which values can be compressed; 1: they cannot.
    pub value_compress: f64,
    /// Number of threads that run operations.
    pub threads: usize,
    /// Length of workloads that do not fill; `None`: they end after `ops` operations.
    pub duration: Option<Duration>,
    /// Number of operations of workloads that do not fill; `None`: `num`.
    pub ops: Option<u64>,
    /// Unmeasured time before a workload.
    pub warmup: Duration,
    /// Memory budget of the engine, in bytes.
    pub max_memory: u64,
    /// What a write waits for.
    pub durability: Durability,
    /// Keys of a batch of writes, and of a call of multireadrandom.
    pub batch: u64,
    /// Entries that are kept in the queue of workload `queue`.
    pub queue_length: u64,
    /// Keeps a reader open during workload `queue`.
    pub old_reader: bool,
    /// Distribution of the chosen keys; `None`: that of [`Workload::distribution`].
    pub distribution: Option<Distribution>,
    /// Form of the keys.
    pub key_kind: KeyKind,
    /// Keys per second of an open loop; `None`: a closed loop, in which each thread makes one call
    /// after the other.
    pub rate: Option<f64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Directory of the store; `None`: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Uses the store that exists in `dir`, with its data.
    pub use_existing_db: bool,
    /// The I/O back end.
    pub io_backend: IoBackend,
    /// Maximum number of reads in flight per event loop.
    pub queue_depth: Option<usize>,
    /// Threads of the back end, if it uses threads.
    pub completion_threads: Option<usize>,
    /// Bytes of a page; `None`: the engine's default.
    pub page_bytes: Option<usize>,
    /// Bytes of a block; `None`: the engine's default.
    pub block_bytes: Option<usize>,
    /// Bytes of the log on disk; `None`: the engine's default.
    pub log_bytes: Option<u64>,
    /// Compression of pages.
    pub compression: Option<Compression>,
    /// Length of the steps of the series over time.
    pub interval: Option<Duration>,
    /// Maximum time between two checkpoints; if given, times with and without a running checkpoint
    /// are reported separately. `None`: the engine's default, and they are not.
    pub checkpoint_interval: Option<Duration>,
    /// Age at which a snapshot goes on on disk; `None`: the engine's default.
    pub settle_snapshots_after: Option<Duration>,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            workloads: vec![
                Workload::FillSeq,
                Workload::FillRandom,
                Workload::ReadRandom,
            ],
            num: 1_000_000,
            key_bytes: 16,
            value_sizes: ValueSizes::Fixed(100),
            value_compress: 1.0,
            threads: 1,
            duration: None,
            ops: None,
            warmup: Duration::ZERO,
            max_memory: 1 << 30,
            durability: Durability::None,
            batch: 128,
            queue_length: 1000,
            old_reader: false,
            distribution: None,
            key_kind: KeyKind::Decimal,
            rate: None,
            seed: 1,
            dir: None,
            use_existing_db: false,
            io_backend: IoBackend::Auto,
            queue_depth: None,
            completion_threads: None,
            page_bytes: None,
            block_bytes: None,
            log_bytes: None,
            compression: None,
            interval: None,
            checkpoint_interval: None,
            settle_snapshots_after: None,
        }
    }
}

/// Returns the name of a durability in records.
pub(crate) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Durable => "durable",
        Durability::Periodic => "periodic",
        Durability::None => "none",
    }
}

impl KvOptions {
    /// Returns the name of the durability in records.
    pub fn durability_name(&self) -> &'static str {
        durability_name(self.durability)
    }

    /// Returns the distribution of the keys that `workload` chooses.
    pub(crate) fn distribution_of(&self, workload: Workload) -> Distribution {
        self.distribution.unwrap_or_else(|| workload.distribution())
    }

    /// Makes the keys that these options describe.
    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.key_kind, self.key_bytes, self.seed)
    }

    /// Refuses options that no run can use, and names the flag.
    pub(crate) fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, "at least 1 is needed")),
        };
        needed("workloads", !self.workloads.is_empty())?;
        needed("num", self.num > 0)?;
        needed("threads", self.threads > 0)?;
        needed("batch", self.batch > 0)?;
        if let Some(what) = self.value_sizes.check() {
            return Err(Error::option("value-size", what));
        }
        if !(self.value_compress > 0.0 && self.value_compress <= 1.0) {
            return Err(Error::option(
                "value-compress",
                "a share above 0, at most 1, is needed",
            ));
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err(Error::option("rate", "a number above 0 is needed"));
        }
        if self
            .interval
            .is_some_and(|interval| interval < Duration::from_millis(1))
        {
            return Err(Error::option(
                "interval",
                "at least a millisecond is needed",
            ));
        }
        if self.workloads.contains(&Workload::FillBulk) {
            if self.threads > 1 {
                return Err(Error::option("threads", "fillbulk has one"));
            }
            if !self.keys().is_ordered() {
                return Err(Error::option("key-kind", "fillbulk needs keys in order"));
            }
        }
        if self.workloads.contains(&Workload::Queue) {
            self.check_queue()?;
        }
        if self.workloads.contains(&Workload::Transactions) {
            let what = "transactions are those of bench iso, with --levels";
            return Err(Error::option("workloads", what));
        }
        if self.use_existing_db && self.dir.is_none() {
            return Err(Error::option("use-existing-db", "needs --dir"));
        }
        match self.keys().check(self.num) {
            Some(what) => Err(Error::option("key-size", what)),
            None => Ok(()),
        }
    }

    /// Checks the options that only workload `queue` needs.
    fn check_queue(&self) -> Result<()> {
        if self.threads > 1 {
            return Err(Error::option("threads", "queue has one"));
        }
        if self.queue_length == 0 {
            return Err(Error::option("queue-length", "at least 1 is needed"));
        }
        if self.use_existing_db {
            return Err(Error::option(
                "use-existing-db",
                "queue begins with an empty table",
            ));
        }
        let keys = self.keys();
        if !keys.is_ordered() {
            return Err(Error::option("key-kind", "queue needs keys in order"));
        }
        let pushed = self
            .ops
            .unwrap_or(self.num)
            .saturating_add(self.queue_length);
        match keys.check(pushed) {
            Some(what) => Err(Error::option("key-size", what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KvOptions, ValueSizes, Workload};

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert!(KvOptions::default().check().is_ok());
        let wrong: [fn(&mut KvOptions); 8] = [
            |options| options.workloads = vec![Workload::Transactions],
            |options| options.num = 0,
            |options| options.threads = 0,
            |options| options.key_bytes = 2,
            |options| options.value_sizes = ValueSizes::Uniform { min: 9, max: 20 },
            |options| options.value_compress = 0.0,
            |options| options.use_existing_db = true,
            |options| options.rate = Some(0.0),
        ];
        for change in wrong {
            let mut options = KvOptions::default();
            change(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }
}
