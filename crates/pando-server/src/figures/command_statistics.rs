//! How often each command was called, how long it took, and how often it was refused or failed.
//!
//! Each command and subcommand has one core-local histogram: its count is the number of calls, and
//! its sum their time. All are mapped at start, but memory is used only for the commands that were
//! called, and only these are read. Nothing is ever set back to zero: a reset stores a baseline.

use std::collections::BTreeMap;
use std::io;

use pando_stats::{Histogram, IS_OFF, Recorder};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Addition, CoreWords, Mutex, Rank};

/// Maximum number of commands and subcommands.
pub(crate) const COMMANDS_MAX: usize = 512;

/// Figures of all commands, by their number in the index of commands.
#[derive(Debug)]
pub(crate) struct CommandStatistics {
    names: Box<[String]>,
    latencies: Box<[Recorder]>,
    /// Refused calls by command number; failed calls from `COMMANDS_MAX` on.
    failures: CoreWords<{ 2 * COMMANDS_MAX }>,
    /// The command was called or refused. Written only once, so that reads of it stay in the cache.
    used: Box<[AtomicBool]>,
    /// The figures at the last reset. Guarded by its lock.
    baseline: Mutex<BTreeMap<usize, CommandFigures>>,
}

/// Figures of one command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandFigures {
    /// Calls and their time in nanoseconds, from the beginning to the reply: waits for pages are
    /// included, the wait for the log is not.
    pub(crate) latency: Histogram,
    /// Number of calls that were refused before they ran.
    pub(crate) rejected: u64,
    /// Number of calls that ran and replied with an error.
    pub(crate) failed: u64,
}

impl CommandFigures {
    fn is_empty(&self) -> bool {
        self.latency.count() == 0 && self.rejected == 0 && self.failed == 0
    }
}

impl CommandStatistics {
    /// Creates the figures of commands with these names.
    ///
    /// # Errors
    /// The system refuses address space.
    pub(crate) fn new(names: &[String]) -> io::Result<Self> {
        let count = names.len();
        assert!(count <= COMMANDS_MAX, "commands have their words");
        let mut latencies = Vec::with_capacity(count);
        for _ in 0..count {
            latencies.push(Recorder::new(Addition::Best)?);
        }
        Ok(Self {
            names: names.into(),
            latencies: latencies.into_boxed_slice(),
            failures: CoreWords::new("commands", Addition::Best)?,
            used: (0..count).map(|_| AtomicBool::new(false)).collect(),
            baseline: Mutex::new(Rank::Leaf, BTreeMap::new()),
        })
    }

    /// Returns the name of command `id`, after that of its container (`config|get`).
    pub(crate) fn name(&self, id: usize) -> &str {
        &self.names[id]
    }

    #[inline]
    fn mark(&self, id: usize) {
        // Relaxed: a reader that does not see it yet sees it at the next read.
        if !self.used[id].load(Ordering::Relaxed) {
            self.used[id].store(true, Ordering::Relaxed);
        }
    }

    /// Records a call of command `id` that took `ns` nanoseconds.
    #[inline]
    pub(crate) fn called(&self, id: usize, ns: u64) {
        if IS_OFF {
            return;
        }
        self.mark(id);
        self.latencies[id].record(ns);
    }

    /// Records `count` calls of command `id` that took `ns` nanoseconds each.
    #[inline]
    pub(crate) fn called_together(&self, id: usize, ns: u64, count: u64) {
        if IS_OFF {
            return;
        }
        self.mark(id);
        self.latencies[id].record_many(ns, count);
    }

    /// Counts that the call recorded last has replied with an error.
    #[cold]
    pub(crate) fn failed(&self, id: usize) {
        self.failures.add(COMMANDS_MAX + id, 1);
    }

    /// Counts a refused call of command `id`.
    #[cold]
    pub(crate) fn rejected(&self, id: usize) {
        self.mark(id);
        self.failures.add(id, 1);
    }

    fn totals(&self, id: usize) -> CommandFigures {
        CommandFigures {
            latency: self.latencies[id].histogram(),
            rejected: self.failures.sum(id),
            failed: self.failures.sum(COMMANDS_MAX + id),
        }
    }

    fn used(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.used.iter().enumerate();
        // Relaxed: as in mark.
        all.filter(|(_, used)| used.load(Ordering::Relaxed))
            .map(|(id, _)| id)
    }

    /// Returns the figures of command `id` since the last reset; `None` if there are none.
    pub(crate) fn of(&self, id: usize) -> Option<CommandFigures> {
        // Relaxed: as in mark.
        if !self.used[id].load(Ordering::Relaxed) {
            return None;
        }
        let baseline = self.baseline.lock();
        let mut figures = self.totals(id);
        if let Some(before) = baseline.get(&id) {
            figures.latency = figures.latency.since(&before.latency);
            figures.rejected = figures.rejected.wrapping_sub(before.rejected);
            figures.failed = figures.failed.wrapping_sub(before.failed);
        }
        (!figures.is_empty()).then_some(figures)
    }

    /// Returns the figures of all commands that have some, by number.
    pub(crate) fn all(&self) -> Vec<(usize, CommandFigures)> {
        let figures = |id| Some((id, self.of(id)?));
        self.used().filter_map(figures).collect()
    }

    /// Resets all figures to zero.
    pub(crate) fn reset(&self) {
        let mut baseline = self.baseline.lock();
        *baseline = self.used().map(|id| (id, self.totals(id))).collect();
    }

    /// Returns the most memory that the commands called so far can come to use, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        let of_latencies = self.used().map(|id| self.latencies[id].bytes_max());
        self.failures.bytes() + of_latencies.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_figures_once_used_and_lose_them_with_a_reset() {
        let statistics = CommandStatistics::new(&["a", "b", "c"].map(str::to_owned)).unwrap();
        assert!(statistics.all().is_empty());
        let before = statistics.bytes_max();
        statistics.called(1, 1000);
        statistics.called(1, 3000);
        statistics.failed(1);
        statistics.rejected(2);
        assert!(statistics.of(0).is_none() && statistics.bytes_max() > before);
        let of = |id| statistics.of(id).unwrap();
        assert_eq!((of(1).latency.count(), of(1).latency.sum()), (2, 4000));
        assert_eq!((of(1).rejected, of(1).failed), (0, 1));
        assert_eq!((of(2).latency.count(), of(2).rejected), (0, 1));
        statistics.reset();
        assert!(statistics.all().is_empty());
        statistics.called(1, 5000);
        assert_eq!((of(1).latency.sum(), of(1).failed), (5000, 0));
    }
}
