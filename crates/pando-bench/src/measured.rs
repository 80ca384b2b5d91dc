//! Results of a workload: times of calls, counts, figures over time.

use pando_stats::Histogram;
use pando_sync::time::Duration;

use crate::counters::Counts;

/// Kind of a call in a workload that mixes reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It changed nothing.
    Read,
    /// It wrote.
    Write,
}

/// Times of calls, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// All calls.
    pub calls: Histogram,
    /// Calls that read, in a mixed workload.
    pub reads: Histogram,
    /// Calls that wrote, in a mixed workload.
    pub writes: Histogram,
}

impl Times {
    /// Adds a call of one thread. A call that has a kind goes only into the histogram of that kind,
    /// so that each call costs one addition.
    pub(crate) fn add(&mut self, kind: Option<Kind>, ns: u64) {
        let times = match kind {
            None => &mut self.calls,
            Some(Kind::Read) => &mut self.reads,
            Some(Kind::Write) => &mut self.writes,
        };
        times.add(ns);
    }

    /// Adds the times of one thread.
    pub(crate) fn merge_thread(&mut self, thread: &Self) {
        for kind in [&thread.calls, &thread.reads, &thread.writes] {
            self.calls.merge(kind);
        }
        self.reads.merge(&thread.reads);
        self.writes.merge(&thread.writes);
    }
}

/// Times of calls, by whether there was background work.
///
/// A call is classified by the state at the time when it was due. Long calls are more likely than
/// short ones to overlap with any event: if every overlap counted, all calls that wait for a
/// processor for a while would be found next to background work.
#[derive(Debug, Clone, Default)]
pub struct Split {
    /// Calls without background work from their beginning to their end.
    pub quiet: Times,
    /// Calls that were due during background work.
    pub busy: Times,
    /// Calls that were in progress when background work began: at most one per thread each time.
    pub caught: Times,
    /// How often there was background work during the run, completely or in part.
    pub times: u64,
}

/// Results of a workload.
#[derive(Debug, Default)]
pub struct Measured {
    /// Times of calls, in nanoseconds.
    pub calls: Histogram,
    /// Times of the calls that read, in a mixed workload.
    pub reads: Histogram,
    /// Times of the calls that wrote, in a mixed workload.
    pub writes: Histogram,
    /// The same calls by background work, if [`crate::phase::Calls::turn`] reports it.
    pub split: Option<Split>,
    /// Number of operations that were counted.
    pub ops: u64,
    /// Number of these that found what they asked for.
    pub found: u64,
    /// Number of operations of the companion thread.
    pub beside_ops: u64,
    /// Time from the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Processor time of the whole process, if the system tells.
    pub cpu: Option<Duration>,
    /// Hardware counters of the threads whose operations are counted.
    pub counts: Option<Counts>,
    /// Operations per second, step by step.
    pub series: Vec<f64>,
}
