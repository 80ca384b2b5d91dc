//! Events that took longer than the threshold of the latency monitor, for LATENCY.

use std::collections::{BTreeMap, VecDeque};

use pando_sync::Mutex;

/// Number of seconds that are kept of an event.
const SAMPLES_MAX: usize = 160;

/// Greatest number of seconds by which another loop that has read its clock earlier, before
/// something that took long, is behind. Who is further behind reads a clock that was set back.
const LATE_S_MAX: u64 = 60;

/// The longest time of an event within one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spike {
    /// The second, as Unix time.
    pub(crate) unix_s: u64,
    /// The longest time, in milliseconds.
    pub(crate) ms: u64,
}

/// The spikes of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The oldest first, also when the clock was set back; at most one per second.
    pub(crate) spikes: VecDeque<Spike>,
    /// The longest since the last reset, in milliseconds.
    pub(crate) ms_max: u64,
}

/// All events. The program defines their names, so there are few.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor {
    /// Guarded by its lock, held for one spike or a copy.
    events: Mutex<BTreeMap<&'static str, History>>,
}

impl LatencyMonitor {
    /// Records that `event` took `ms` milliseconds at `unix_s`.
    pub(crate) fn add(&self, event: &'static str, unix_s: u64, ms: u64) {
        let mut events = self.events.lock();
        let history = events.entry(event).or_default();
        history.ms_max = history.ms_max.max(ms);
        let late = unix_s..=unix_s.saturating_add(LATE_S_MAX);
        match history.spikes.back_mut() {
            Some(last) if late.contains(&last.unix_s) => last.ms = last.ms.max(ms),
            _ => {
                if history.spikes.len() == SAMPLES_MAX {
                    history.spikes.pop_front();
                }
                history.spikes.push_back(Spike { unix_s, ms });
            }
        }
    }

    /// Returns the histories of all events.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, History> {
        self.events.lock().clone()
    }

    /// Drops the events that `wanted` selects; returns their number.
    pub(crate) fn reset(&self, wanted: impl Fn(&str) -> bool) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event, _| !wanted(event));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes later would else count for a second in the future until the clock is there again.
    #[test]
    fn a_clock_that_was_set_back_begins_another_second() {
        let monitor = LatencyMonitor::default();
        let spike = |unix_s, ms| {
            monitor.add("command", unix_s, ms);
            Spike { unix_s, ms }
        };
        let noon = spike(43_200, 20);
        spike(43_199, 10);
        let eleven = spike(39_600, 30);
        assert_eq!(monitor.all()["command"].spikes, [noon, eleven]);
    }

    #[test]
    fn a_second_keeps_its_longest_and_the_history_is_bounded() {
        let monitor = LatencyMonitor::default();
        monitor.add("command", 5, 20);
        monitor.add("command", 5, 70);
        monitor.add("command", 5, 30);
        monitor.add("other", 6, 1);
        let all = monitor.all();
        assert_eq!(all["command"].spikes, [Spike { unix_s: 5, ms: 70 }]);
        (6..1000).for_each(|second| monitor.add("command", second, 10));
        let history = &monitor.all()["command"];
        assert_eq!((history.spikes.len(), history.ms_max), (SAMPLES_MAX, 70));
        assert_eq!(history.spikes[0].unix_s, 1000 - SAMPLES_MAX as u64);
        assert_eq!(monitor.reset(|event| event == "other"), 1);
        assert_eq!(monitor.reset(|_| true), 1);
        assert!(monitor.all().is_empty());
    }
}
