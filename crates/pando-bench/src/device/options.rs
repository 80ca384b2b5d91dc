//! Options of a run of `bench device`.

use std::path::PathBuf;

use pando_sync::time::Duration;
use pandodb::IoBackend;

use super::content::SECTOR_BYTES;
use crate::error::{Error, Result};

/// Maximum size of a request, in bytes.
const BLOCK_BYTES_MAX: usize = 16 << 20;

/// A workload of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceWorkload {
    /// Reads random blocks.
    RandRead,
    /// Writes random blocks.
    RandWrite,
    /// Reads blocks in order, each thread in its part of the file.
    SeqRead,
    /// Writes blocks in order, each thread in its part of the file.
    SeqWrite,
}

impl DeviceWorkload {
    /// All workloads.
    pub const ALL: [Self; 4] = [
        Self::RandRead,
        Self::RandWrite,
        Self::SeqRead,
        Self::SeqWrite,
    ];

    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::SeqRead => "seqread",
            Self::SeqWrite => "seqwrite",
        }
    }

    /// Returns the workload with this name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(
                "workloads",
                format!("'{name}' is no workload; there are {names}"),
            )
        })
    }

    pub(super) fn writes(self) -> bool {
        matches!(self, Self::RandWrite | Self::SeqWrite)
    }

    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite)
    }
}

/// Options of `bench device`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// Workloads to run, in this order.
    pub workloads: Vec<DeviceWorkload>,
    /// Bytes of a request.
    pub block_bytes: usize,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Requests that each thread keeps in flight.
    pub queue_depth: usize,
    /// Number of threads, each with a channel of its own.
    pub threads: usize,
    /// Length of a workload; `None`: as many requests as the file has blocks.
    pub duration: Option<Duration>,
    /// Unmeasured time before a workload.
    pub warmup: Duration,
    /// Length of the steps of the series over time.
    pub interval: Option<Duration>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Directory of the file, which is kept; `None`: a temporary directory.
    pub dir: Option<PathBuf>,
    /// The I/O back end.
    pub io_backend: IoBackend,
    /// Threads of the back end, if it uses threads.
    pub completion_threads: Option<usize>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            workloads: vec![DeviceWorkload::RandRead],
            block_bytes: 4096,
            size_bytes: 1 << 30,
            queue_depth: 128,
            threads: 1,
            duration: None,
            warmup: Duration::ZERO,
            interval: None,
            seed: 1,
            dir: None,
            io_backend: IoBackend::Auto,
            completion_threads: None,
        }
    }
}

impl DeviceOptions {
    /// Returns the number of requests of all threads, unless the run ends by time: one per block.
    pub(super) fn total(&self) -> Option<u64> {
        self.duration.is_none().then(|| self.blocks())
    }

    /// Returns the number of blocks of the file.
    pub(crate) fn blocks(&self) -> u64 {
        self.size_bytes / self.block_bytes as u64
    }

    /// Returns the bytes of the file: whole blocks.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.blocks() * self.block_bytes as u64
    }

    /// Refuses options that no run can use, and names the flag.
    pub(crate) fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool, what: &str| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, what)),
        };
        let one = "at least 1 is needed";
        needed("workloads", !self.workloads.is_empty(), one)?;
        needed("threads", self.threads > 0, one)?;
        needed("queue-depth", self.queue_depth > 0, one)?;
        needed(
            "block-size",
            self.block_bytes.is_multiple_of(SECTOR_BYTES)
                && (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&self.block_bytes),
            "a multiple of 512 bytes, at most 16m, is needed",
        )?;
        needed(
            "size",
            self.blocks() >= self.threads as u64,
            "at least a block for each thread is needed",
        )
    }
}
