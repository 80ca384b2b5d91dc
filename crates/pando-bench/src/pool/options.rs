//! Options of a run of `bench pool`.

use pando_format::PageSize;
use pando_pool::pool::FRAMES_MIN;
use pando_sync::time::Duration;

use crate::error::{Error, Result};

/// The device below the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolWorkload {
    /// A device that completes at once without touching a byte; the pool does not check pages
    /// either.
    Null,
    /// A device in memory: pages are copied, checked, and copied into their frames.
    Memory,
}

impl PoolWorkload {
    /// All workloads.
    pub const ALL: [Self; 2] = [Self::Null, Self::Memory];

    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Memory => "memory",
        }
    }

    /// Returns the workload with this name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| {
            let what = format!("'{name}' is no workload; there are null, memory");
            Error::option("workloads", what)
        })
    }
}

/// Options of `bench pool`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Workloads to run, in this order.
    pub workloads: Vec<PoolWorkload>,
    /// Bytes of all pages.
    pub size_bytes: u64,
    /// Bytes of all frames.
    pub max_memory: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Reads that each thread keeps in flight.
    pub queue_depth: usize,
    /// Number of threads, each with a channel of its own.
    pub threads: usize,
    /// Number of reads of all threads, unless a duration is given.
    pub num: u64,
    /// Length of a workload.
    pub duration: Option<Duration>,
    /// Unmeasured time before a workload.
    pub warmup: Duration,
    /// Length of the steps of the series over time.
    pub interval: Option<Duration>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            workloads: PoolWorkload::ALL.to_vec(),
            size_bytes: 256 << 20,
            max_memory: 32 << 20,
            page_bytes: 4096,
            queue_depth: 128,
            threads: 1,
            num: 10_000_000,
            duration: None,
            warmup: Duration::ZERO,
            interval: None,
            seed: 1,
        }
    }
}

impl PoolOptions {
    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.size_bytes / self.page_bytes as u64
    }

    /// Returns the number of frames that the memory has room for.
    pub(crate) fn frames(&self) -> usize {
        usize::try_from(self.max_memory / self.page_bytes as u64).unwrap_or(usize::MAX)
    }

    /// Checks the options.
    pub(crate) fn check(&self) -> Result<PageSize> {
        let needed = |flag, fine: bool, what: String| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, what)),
        };
        let one = || "at least 1 is needed".to_owned();
        needed("workloads", !self.workloads.is_empty(), one())?;
        needed("threads", self.threads > 0, one())?;
        needed("queue-depth", self.queue_depth > 0, one())?;
        needed("num", self.num > 0, one())?;
        let page_size = PageSize::new(self.page_bytes).ok_or_else(|| {
            Error::option("page-size", "a power of two from 4096 to 65536 is needed")
        })?;
        // Each read in flight has a frame; as many again let the clock advance.
        let in_flight = self.queue_depth.saturating_mul(self.threads);
        let frames_min = FRAMES_MIN.max(in_flight.saturating_mul(2));
        let bytes_min = frames_min.saturating_mul(self.page_bytes);
        needed(
            "max-memory",
            self.frames() >= frames_min,
            format!("at least {bytes_min} are needed: two frames for each read in flight"),
        )?;
        needed(
            "size",
            self.pages() >= 2 * self.frames() as u64,
            "at least twice --max-memory is needed: what is measured is reads of pages that are \
             not there"
                .to_owned(),
        )?;
        needed(
            "size",
            u32::try_from(self.pages()).is_ok_and(|pages| pages < u32::MAX),
            "more pages than a store may have".to_owned(),
        )?;
        Ok(page_size)
    }
}
