//! Rates per second, computed from the counts of the last few moments.

use std::collections::VecDeque;

use pando_stats::{Ticker, Totals};
use pando_sync::time::Instant;

/// Number of moments that are kept; adjacent ones are at least half a second apart.
const MOMENTS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
}

/// Rates per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PerSecond {
    pub(crate) commands: f64,
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
}

/// The counts of the last few moments.
#[derive(Debug)]
pub(crate) struct Rates {
    moments: VecDeque<Moment>,
}

impl Default for Rates {
    fn default() -> Self {
        // Loops record moments, and must not allocate for that.
        Self {
            moments: VecDeque::with_capacity(MOMENTS),
        }
    }
}

impl Rates {
    /// Records `totals`, the counts at `at`, and drops the oldest ones.
    pub(crate) fn remember(&mut self, at: Instant, totals: &Totals) {
        if self.moments.len() == MOMENTS {
            self.moments.pop_front();
        }
        self.moments.push_back(Moment {
            at,
            commands: totals.get(Ticker::Commands),
            input_bytes: totals.get(Ticker::InputBytes),
            output_bytes: totals.get(Ticker::OutputBytes),
        });
    }

    /// Returns the rates per second between the oldest and the newest moment.
    pub(crate) fn per_second(&self) -> PerSecond {
        let (Some(first), Some(last)) = (self.moments.front(), self.moments.back()) else {
            return PerSecond::default();
        };
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        if seconds == 0.0 {
            return PerSecond::default();
        }
        let rate = |pick: fn(&Moment) -> u64| pick(last).wrapping_sub(pick(first)) as f64 / seconds;
        PerSecond {
            commands: rate(|of| of.commands),
            input_bytes: rate(|of| of.input_bytes),
            output_bytes: rate(|of| of.output_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_stats::Statistics;
    use pando_sync::time::{Duration, now};

    /// Only the latest samples count, so an old burst no longer affects the rate.
    #[test]
    fn rates_are_of_the_last_moments() {
        let (mut rates, statistics, begun) = (Rates::default(), Statistics::new(), now());
        assert_eq!(rates.per_second(), PerSecond::default());
        for moment in 0..10_u32 {
            rates.remember(
                begun + Duration::from_millis(500) * moment,
                &statistics.totals(),
            );
            statistics.tick(Ticker::Commands, if moment < 5 { 1_000_000 } else { 50 });
            statistics.tick(Ticker::InputBytes, 5);
        }
        let expected = PerSecond {
            commands: 100.0,
            input_bytes: 10.0,
            output_bytes: 0.0,
        };
        assert_eq!(rates.per_second(), expected);
    }
}
