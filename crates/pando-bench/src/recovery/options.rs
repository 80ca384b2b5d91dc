//! Options of a run of `bench recovery`.

use crate::error::{Error, Result};
use crate::options::{KvOptions, Workload};

/// Shortest log that gives useful figures.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// Options of `bench recovery`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct RecoveryOptions {
    /// Minimum length of the log after the checkpoint, in bytes.
    pub log_bytes: u64,
    /// Store, keys and values; its workloads and threads are ignored.
    pub kv: KvOptions,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        Self {
            log_bytes: 1 << 30,
            kv: KvOptions::default(),
        }
    }
}

impl RecoveryOptions {
    /// Returns the options of the store.
    pub(super) fn store(&self) -> KvOptions {
        KvOptions {
            workloads: vec![Workload::FillRandom],
            threads: 1,
            // A checkpoint begins when the log is half full, and would shorten the log.
            log_bytes: Some(self.log_bytes / 2 * 5),
            ..self.kv.clone()
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.log_bytes < LOG_BYTES_MIN {
            let what = format!("at least {LOG_BYTES_MIN} bytes are needed");
            return Err(Error::option("log-size", what));
        }
        self.store().check()
    }
}
