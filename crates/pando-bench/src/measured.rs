//! What running a workload comes to: times of calls, counts, figures over time.

use pando_stats::Histogram;
use pando_sync::time::Duration;

use crate::counters::Counts;

/// What a call of a workload that mixes reads and writes was.
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
    /// All of them.
    pub calls: Histogram,
    /// Those that read, of a workload that mixes.
    pub reads: Histogram,
    /// Those that wrote, of a workload that mixes.
    pub writes: Histogram,
}

impl Times {
    /// Of one thread: a call that is of a kind is in the histogram of that kind alone, so that each
    /// costs one addition.
    pub(crate) fn add(&mut self, kind: Option<Kind>, ns: u64) {
        let times = match kind {
            None => &mut self.calls,
            Some(Kind::Read) => &mut self.reads,
            Some(Kind::Write) => &mut self.writes,
        };
        times.add(ns);
    }

    /// Adds those of one thread.
    pub(crate) fn merge_thread(&mut self, thread: &Self) {
        for kind in [&thread.calls, &thread.reads, &thread.writes] {
            self.calls.merge(kind);
        }
        self.reads.merge(&thread.reads);
        self.writes.merge(&thread.writes);
    }
}

/// Times of calls, by whether something worked in the background.
///
/// A call belongs to what was so when it was due, since long calls are more likely to meet any
/// event than short ones are: taken by what happened until their end, those that wait for a
/// processor for a while would all be found beside it.
#[derive(Debug, Clone, Default)]
pub struct Split {
    /// Of calls beside which nothing did, from their beginning to their end.
    pub quiet: Times,
    /// Of those that were due while it did.
    pub busy: Times,
    /// Of those that were under way when it began: at most one a thread each time.
    pub caught: Times,
    /// How often it worked, wholly or in part.
    pub times: u64,
}

/// What a workload came to.
#[derive(Debug, Default)]
pub struct Measured {
    /// Times of calls, in nanoseconds.
    pub calls: Histogram,
    /// Those of them that read, of a workload that mixes.
    pub reads: Histogram,
    /// Those of them that wrote, of a workload that mixes.
    pub writes: Histogram,
    /// The same calls by what worked in the background, where [`crate::phase::Calls::turn`] tells.
    pub split: Option<Split>,
    /// Operations that count.
    pub ops: u64,
    /// Those of them that found what they asked for.
    pub found: u64,
    /// Operations of the thread beside.
    pub beside_ops: u64,
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Processor time of the whole process, if the system says.
    pub cpu: Option<Duration>,
    /// What the processor counted on the threads that count.
    pub counts: Option<Counts>,
    /// Operations a second, step by step.
    pub series: Vec<f64>,
}
