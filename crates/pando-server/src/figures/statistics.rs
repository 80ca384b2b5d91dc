//! What the server counts and measures about itself; the engine has its own statistics.

use std::io;

use pando_stats::{Statistics, Ticker, Totals};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Instant;
use pando_sync::{Mutex, Rank};

use crate::figures::command_statistics::CommandStatistics;
use crate::figures::rates::{PerSecond, Rates};

/// Counters of the server, figures of its commands, and rates.
#[derive(Debug)]
pub(crate) struct ServerStatistics {
    counts: Statistics,
    /// Figures of commands, by their number in the index.
    pub(crate) commands: CommandStatistics,
    /// Guarded by its lock, held for a read or the addition of one moment.
    rates: Mutex<Rates>,
    /// The most memory that was seen in use, in bytes.
    memory_peak: AtomicU64,
}

impl ServerStatistics {
    /// Creates statistics at zero, for commands with these names.
    ///
    /// # Errors
    /// The system refuses address space.
    pub(crate) fn new(commands: &[String]) -> io::Result<Self> {
        Ok(Self {
            counts: Statistics::try_new()?,
            commands: CommandStatistics::new(commands)?,
            rates: Mutex::new(Rank::Leaf, Rates::default()),
            memory_peak: AtomicU64::new(0),
        })
    }

    /// Adds `count` to `ticker`.
    #[inline]
    pub(crate) fn tick(&self, ticker: Ticker, count: u64) {
        self.counts.tick(ticker, count);
    }

    /// Returns the counts since the last reset.
    pub(crate) fn counts(&self) -> Totals {
        self.counts.snapshot()
    }

    /// Adds a moment from which rates are computed.
    pub(crate) fn remember(&self, at: Instant) {
        self.rates.lock().remember(at, &self.counts.totals());
    }

    /// Returns the current rates per second.
    pub(crate) fn per_second(&self) -> PerSecond {
        self.rates.lock().per_second()
    }

    /// Records that `used` bytes are in use now; returns the most that was ever seen.
    pub(crate) fn memory_peak(&self, used: u64) -> u64 {
        // Relaxed: the figure orders nothing.
        self.memory_peak
            .fetch_max(used, Ordering::Relaxed)
            .max(used)
    }

    /// Resets everything to zero, except the rates.
    pub(crate) fn reset(&self) {
        self.counts.reset();
        self.commands.reset();
    }

    /// Returns the most memory that the statistics can come to use, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.counts.bytes_max() + self.commands.bytes_max()
    }
}
