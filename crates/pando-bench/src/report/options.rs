//! Options of a run of `bench report`.

use pando_sync::time::Duration;

use crate::error::{Error, Result};
use crate::options::{KvOptions, Workload};

/// Options of `bench report`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// The snapshot is on disk from its beginning.
    pub settled: bool,
    /// Store, keys, writers, and length of each turn; its workloads are ignored, and batches are
    /// those of the fill.
    pub kv: KvOptions,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            settled: false,
            kv: KvOptions {
                duration: Some(Duration::from_secs(180)),
                max_memory: 256 << 20,
                num: Self::num(256 << 20, 16, 100),
                ..KvOptions::default()
            },
        }
    }
}

impl ReportOptions {
    /// Returns the number of keys with which the data are ten times `max_memory`.
    pub fn num(max_memory: u64, key_bytes: usize, value_bytes: usize) -> u64 {
        let entry = (key_bytes as u64 + value_bytes as u64).max(1);
        (max_memory.saturating_mul(10) / entry).max(1)
    }

    /// Returns the options of the turns of the writers.
    pub(super) fn turn(&self) -> KvOptions {
        KvOptions {
            workloads: vec![Workload::Overwrite],
            batch: 1,
            ..self.kv.clone()
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.kv.duration.is_none() {
            return Err(Error::option("duration", "is needed"));
        }
        self.kv.check()
    }
}
