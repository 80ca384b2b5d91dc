//! Hardware counters of a thread while it works: instructions, cycles, misses. The kernel's share
//! is left out, so that ordinary permissions suffice and figures of different machines can be
//! compared.
//!
//! A counter is absent if the machine does not have it, as most virtual ones, or if it may not be
//! used (`/proc/sys/kernel/perf_event_paranoid`). If more counters are requested than the processor
//! has, the kernel multiplexes them, and counts are scaled.

use std::io;

use perf_event::events::{Cache, CacheOp, CacheResult, Event, Hardware, WhichCache};
use perf_event::{Builder, Counter};

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct Counters([Option<Counter>; 5]);

/// Counts; a count of several threads is present if each of them has it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Instructions that were retired.
    pub instructions: Option<f64>,
    /// Cycles of the processor.
    pub cycles: Option<f64>,
    /// Memory references that missed all caches.
    pub cache_misses: Option<f64>,
    /// Mispredicted branches.
    pub branch_misses: Option<f64>,
    /// Reads that missed the first-level data cache.
    pub l1_misses: Option<f64>,
}

impl Counters {
    /// Creates stopped counters for the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        let l1_misses = Cache {
            which: WhichCache::L1D,
            operation: CacheOp::READ,
            result: CacheResult::MISS,
        };
        Self::of([
            Hardware::INSTRUCTIONS.into(),
            Hardware::CPU_CYCLES.into(),
            Hardware::CACHE_MISSES.into(),
            Hardware::BRANCH_MISSES.into(),
            l1_misses.into(),
        ])
    }

    /// Returns a line that names the absent counters of this machine, if there are any.
    pub(crate) fn absent_here() -> Option<String> {
        let mut counters = Self::of_this_thread();
        counters.begin();
        counters.end().absent()
    }

    fn of(events: [Event; 5]) -> Self {
        // Kernel and hypervisor are excluded by default.
        Self(events.map(|event| Builder::new().kind(event).build().ok()))
    }

    /// Starts to count from zero.
    pub(crate) fn begin(&mut self) {
        for counter in &mut self.0 {
            if counter.as_mut().is_some_and(|one| one.enable().is_err()) {
                *counter = None;
            }
        }
    }

    /// Stops, and returns the counts since [`Counters::begin`].
    pub(crate) fn end(&mut self) -> Counts {
        let mut count = |index: usize| read(self.0[index].as_mut()?).ok().flatten();
        Counts {
            instructions: count(0),
            cycles: count(1),
            cache_misses: count(2),
            branch_misses: count(3),
            l1_misses: count(4),
        }
    }
}

fn read(counter: &mut Counter) -> io::Result<Option<f64>> {
    counter.disable()?;
    let read = counter.read_count_and_time()?;
    Ok(scaled(read.count, read.time_enabled, read.time_running))
}

/// Scales a count of a counter that ran for a part of the time; `None` if it never ran.
fn scaled(count: u64, enabled_ns: u64, running_ns: u64) -> Option<f64> {
    (running_ns > 0).then(|| count as f64 * (enabled_ns as f64 / running_ns as f64))
}

impl Counts {
    /// Returns the sums of both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        Self {
            instructions: sum(self.instructions, other.instructions),
            cycles: sum(self.cycles, other.cycles),
            cache_misses: sum(self.cache_misses, other.cache_misses),
            branch_misses: sum(self.branch_misses, other.branch_misses),
            l1_misses: sum(self.l1_misses, other.l1_misses),
        }
    }

    /// Returns a line that names the absent counts, if there are any.
    pub(crate) fn absent(&self) -> Option<String> {
        let all = [
            ("instructions", self.instructions),
            ("cycles", self.cycles),
            ("cache misses", self.cache_misses),
            ("branch misses", self.branch_misses),
            ("misses of the first cache", self.l1_misses),
        ];
        let absent = all.iter().filter(|(_, count)| count.is_none());
        let names: Vec<_> = absent.map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!(
                "not counted here, for want of hardware counters or of the right to them: {names}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::{Counters, Counts, scaled};

    #[test]
    fn a_thread_is_counted_between_begin_and_end() {
        let events = [Software::PAGE_FAULTS, Software::DUMMY];
        let [faults, dummy] = events.map(Into::into);
        let mut counters =
            Counters::of([faults, dummy.clone(), dummy.clone(), dummy.clone(), dummy]);
        // This is more than an allocator caches, so that the pages are new each time.
        let touch = || std::hint::black_box(vec![1_u8; 40 << 20]).len();
        touch();
        counters.begin();
        touch();
        let counts = counters.end();
        touch();
        // If the system permits no counting, there is nothing to check.
        if let Some(faults) = counts.instructions {
            assert!(faults >= 1.0, "{counts:?}");
            assert_eq!(
                counters.end().instructions,
                Some(faults),
                "counting has ended"
            );
            assert_eq!(counts.cycles, Some(0.0));
        }
    }

    #[test]
    fn counts_are_scaled_added_and_absent_if_one_is() {
        assert_eq!(scaled(10, 100, 50), Some(20.0));
        assert_eq!(scaled(10, 100, 0), None);
        let all = Counts {
            instructions: Some(1.0),
            cycles: Some(2.0),
            cache_misses: Some(3.0),
            branch_misses: Some(4.0),
            l1_misses: Some(5.0),
        };
        assert_eq!(all.absent(), None);
        let one = Counts {
            cycles: None,
            ..all
        };
        assert_eq!(all.and(&all).branch_misses, Some(8.0));
        assert_eq!(all.and(&one).cycles, None);
        let line = all.and(&one).absent().unwrap();
        assert!(line.ends_with(": cycles"), "{line}");
    }
}
