//! What the server counts and measures of itself; the engine has its own.

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
    pub(crate) commands: CommandStatistics,
    /// Guarded by its lock, held for a look or one more moment.
    rates: Mutex<Rates>,
    /// The most memory that was seen in use.
    memory_peak: AtomicU64,
}

impl ServerStatistics {
    /// All at zero, of commands with these names.
    ///
    /// # Errors
    /// When the system refuses address space.
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

    /// Counts since the last reset.
    pub(crate) fn counts(&self) -> Totals {
        self.counts.snapshot()
    }

    /// One more moment that rates are taken from.
    pub(crate) fn remember(&self, at: Instant) {
        self.rates.lock().remember(at, &self.counts.totals());
    }

    /// What happens in a second.
    pub(crate) fn per_second(&self) -> PerSecond {
        self.rates.lock().per_second()
    }

    /// The most memory that was in use, now that it is `used`.
    pub(crate) fn memory_peak(&self, used: u64) -> u64 {
        // Relaxed: a figure of its own.
        self.memory_peak
            .fetch_max(used, Ordering::Relaxed)
            .max(used)
    }

    /// Begins again from zero; rates go on.
    pub(crate) fn reset(&self) {
        self.counts.reset();
        self.commands.reset();
    }

    /// The most memory that this comes to use.
    pub(crate) fn bytes_max(&self) -> usize {
        self.counts.bytes_max() + self.commands.bytes_max()
    }
}
