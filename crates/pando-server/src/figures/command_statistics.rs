//! How often each command was called, how long it took, and how often it was refused or failed.
//!
//! One histogram for each command and subcommand, core by core: its count is that of the calls and
//! its sum their time. All are mapped at start; memory is used for those that were called, and
//! only those are read. Nothing is ever set back: a reset remembers what there was.

use std::collections::BTreeMap;
use std::io;

use pando_stats::{Histogram, IS_OFF, Recorder};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Addition, CoreWords, Mutex, Rank};

/// Most commands and subcommands.
pub(crate) const COMMANDS_MAX: usize = 256;

/// Figures of all commands, by the number that the index of commands gives them.
#[derive(Debug)]
pub(crate) struct CommandStatistics {
    names: Box<[String]>,
    latencies: Box<[Recorder]>,
    /// Refused calls, and from `COMMANDS_MAX` on failed ones.
    failures: CoreWords<{ 2 * COMMANDS_MAX }>,
    /// Was called or refused. Written once, so that reading it costs no transfer.
    used: Box<[AtomicBool]>,
    /// What there was at the last reset.
    baseline: Mutex<BTreeMap<usize, CommandFigures>>,
}

/// Figures of one command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandFigures {
    /// Calls and their time, in nanoseconds: from the beginning to the reply, waits for pages
    /// included, the wait for the log not.
    pub(crate) latency: Histogram,
    /// Calls that were refused before they ran.
    pub(crate) rejected: u64,
    /// Calls that ran and replied an error.
    pub(crate) failed: u64,
}

impl CommandFigures {
    fn is_empty(&self) -> bool {
        self.latency.count() == 0 && self.rejected == 0 && self.failed == 0
    }
}

impl CommandStatistics {
    /// Of commands with these names.
    ///
    /// # Errors
    /// When the system refuses address space.
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

    /// Name of command `id`, that of its container in front (`config|get`).
    pub(crate) fn name(&self, id: usize) -> &str {
        &self.names[id]
    }

    #[inline]
    fn mark(&self, id: usize) {
        // Relaxed: a reader that does not see it yet sees the next call.
        if !self.used[id].load(Ordering::Relaxed) {
            self.used[id].store(true, Ordering::Relaxed);
        }
    }

    /// A call of command `id` that took `ns` has ended.
    #[inline]
    pub(crate) fn called(&self, id: usize, ns: u64) {
        if IS_OFF {
            return;
        }
        self.mark(id);
        self.latencies[id].record(ns);
    }

    /// `count` calls of command `id` that took `ns` each have ended.
    #[inline]
    pub(crate) fn called_together(&self, id: usize, ns: u64, count: u64) {
        if IS_OFF {
            return;
        }
        self.mark(id);
        self.latencies[id].record_many(ns, count);
    }

    /// The call that has just ended replied an error.
    #[cold]
    pub(crate) fn failed(&self, id: usize) {
        self.failures.add(COMMANDS_MAX + id, 1);
    }

    /// A call of command `id` was refused.
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

    /// Figures of command `id` since the last reset; `None` if there is nothing to tell.
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

    /// Figures of all commands that have some, by number.
    pub(crate) fn all(&self) -> Vec<(usize, CommandFigures)> {
        let figures = |id| Some((id, self.of(id)?));
        self.used().filter_map(figures).collect()
    }

    /// Begins again from zero.
    pub(crate) fn reset(&self) {
        let mut baseline = self.baseline.lock();
        *baseline = self.used().map(|id| (id, self.totals(id))).collect();
    }

    /// The most memory that the commands called so far come to use.
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
