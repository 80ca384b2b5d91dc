//! The counters and histograms of one engine, or of one server.

use std::io;

use pando_sync::time::Instant;
use pando_sync::{Addition, CoreWords, Mutex, Rank};

use crate::histogram::Histogram;
use crate::measure::{MEASURES, Measure};
use crate::recorder::Recorder;
use crate::ticker::{TICKERS, Ticker};

/// True in a build with `pando_no_statistics`, which counts, measures and times nothing.
pub const IS_OFF: bool = cfg!(pando_no_statistics);

/// Counters and histograms, core by core.
#[derive(Debug)]
pub struct Statistics {
    ticks: CoreWords<TICKERS>,
    recorders: [Recorder; MEASURES],
    /// All sums at the last reset. Counters themselves are never reset, so that no tick is lost.
    baseline: Mutex<Option<Box<Baseline>>>,
}

#[derive(Debug)]
struct Baseline {
    ticks: Totals,
    histograms: Vec<Histogram>,
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

impl Statistics {
    /// Like [`Statistics::try_new`], for callers that cannot report an error.
    ///
    /// # Panics
    /// When the system has no address space left.
    pub fn new() -> Self {
        Self::try_new().expect("some megabytes of address space")
    }

    /// Makes statistics with all counters at zero.
    ///
    /// # Errors
    /// When the system refuses address space.
    pub fn try_new() -> io::Result<Self> {
        let mut recorders = Vec::with_capacity(MEASURES);
        for _ in 0..MEASURES {
            recorders.push(Recorder::new(Addition::Best)?);
        }
        let recorders = recorders.try_into();
        Ok(Self {
            ticks: CoreWords::new("statistics", Addition::Best)?,
            recorders: recorders.expect("as many as there are measures"),
            baseline: Mutex::new(Rank::Leaf, None),
        })
    }

    /// Adds `count` to `ticker`.
    #[inline]
    pub fn tick(&self, ticker: Ticker, count: u64) {
        if IS_OFF {
            return;
        }
        self.ticks.add(ticker as usize, count);
    }

    /// Adds `value` to the histogram of `measure`.
    #[inline]
    pub fn record(&self, measure: Measure, value: u64) {
        if IS_OFF {
            return;
        }
        self.recorders[measure as usize].record(value);
    }

    /// Adds the time since `begun` to the histogram of `measure`. Returns it, in nanoseconds.
    pub fn record_since(&self, measure: Measure, begun: Instant) -> u64 {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.record(measure, ns);
        ns
    }

    /// Returns the sum of `ticker` over all cores since the last reset. Between resets one thread
    /// never sees it decrease.
    pub fn get(&self, ticker: Ticker) -> u64 {
        let baseline = self.baseline.lock();
        let before = baseline.as_ref().map_or(0, |of| of.ticks.get(ticker));
        self.ticks.sum(ticker as usize).wrapping_sub(before)
    }

    /// Returns all sums since the last reset, each as of some moment during the call.
    pub fn snapshot(&self) -> Totals {
        let baseline = self.baseline.lock();
        let all = self.totals();
        match &*baseline {
            Some(before) => all.since(&before.ticks),
            None => all,
        }
    }

    /// Returns all sums since the beginning, independently of resets.
    pub fn totals(&self) -> Totals {
        let mut values = [0; TICKERS];
        self.ticks.add_sums(&mut values);
        Totals { values }
    }

    /// Returns the histogram of `measure` since the last reset.
    pub fn histogram(&self, measure: Measure) -> Histogram {
        let baseline = self.baseline.lock();
        let all = self.recorders[measure as usize].histogram();
        match &*baseline {
            Some(before) => all.since(&before.histograms[measure as usize]),
            None => all,
        }
    }

    /// Starts again from zero. Concurrent ticks count either before or after the reset.
    pub fn reset(&self) {
        let mut baseline = self.baseline.lock();
        *baseline = Some(Box::new(Baseline {
            ticks: self.totals(),
            histograms: self.recorders.iter().map(Recorder::histogram).collect(),
        }));
    }

    /// Returns the maximum memory use in bytes, on a machine with as many cores as this one.
    pub fn bytes_max(&self) -> usize {
        let of_recorders = self.recorders.iter().map(Recorder::bytes_max);
        self.ticks.bytes() + of_recorders.sum::<usize>()
    }
}

/// Sums of all tickers at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    values: [u64; TICKERS],
}

impl Totals {
    /// Returns the sum of `ticker`.
    pub fn get(&self, ticker: Ticker) -> u64 {
        self.values[ticker as usize]
    }

    /// Returns what was counted between `earlier` and this.
    pub fn since(&self, earlier: &Self) -> Self {
        let values =
            std::array::from_fn(|index| self.values[index].wrapping_sub(earlier.values[index]));
        Self { values }
    }

    /// Returns all tickers with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (Ticker, u64)> + '_ {
        Ticker::ALL
            .iter()
            .map(|ticker| (*ticker, self.get(*ticker)))
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_no_statistics))))]
mod tests {
    use super::*;
    use pando_sync::{Arc, thread};

    #[test]
    fn nothing_is_lost_when_threads_exit() {
        let statistics = Arc::new(Statistics::new());
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let statistics = statistics.clone();
                thread::spawn(move || {
                    for _ in 0..1000 {
                        statistics.tick(Ticker::Gets, 1);
                        statistics.tick(Ticker::LogBytes, 3);
                        statistics.record(Measure::LogFlushRecords, 5);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let snapshot = statistics.snapshot();
        assert_eq!(snapshot.get(Ticker::Gets), 16_000);
        assert_eq!(snapshot.get(Ticker::LogBytes), 48_000);
        assert_eq!(snapshot.since(&snapshot).get(Ticker::Gets), 0);
        let histogram = statistics.histogram(Measure::LogFlushRecords);
        assert_eq!((histogram.count(), histogram.sum()), (16_000, 80_000));
    }

    #[test]
    fn resets_lose_no_tick_that_comes_meanwhile() {
        const TICKS: u64 = 100_000;
        let statistics = Arc::new(Statistics::new());
        let tickers: Vec<_> = (0..3)
            .map(|_| {
                let statistics = statistics.clone();
                thread::spawn(move || {
                    for _ in 0..TICKS {
                        statistics.tick(Ticker::Puts, 1);
                        statistics.record(Measure::LogFlush, 7);
                    }
                })
            })
            .collect();
        let mut last = 0;
        while statistics.totals().get(Ticker::Puts) < 3 * TICKS {
            let before = statistics.totals().get(Ticker::Puts);
            assert!(before >= last, "totals do not go back");
            last = before;
            statistics.reset();
            let since = statistics.get(Ticker::Puts);
            let after = statistics.totals().get(Ticker::Puts);
            assert!(since <= after - before, "{since} of {}", after - before);
        }
        tickers.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(statistics.totals().get(Ticker::Puts), 3 * TICKS);
        statistics.reset();
        assert_eq!(statistics.snapshot().get(Ticker::Puts), 0);
        assert_eq!(statistics.histogram(Measure::LogFlush).count(), 0);
        statistics.tick(Ticker::Puts, 2);
        statistics.record(Measure::LogFlush, 9);
        assert_eq!(statistics.get(Ticker::Puts), 2);
        assert_eq!(statistics.histogram(Measure::LogFlush).sum(), 9);
    }

    #[test]
    fn memory_is_bounded_by_the_machine() {
        let bytes = Statistics::new().bytes_max();
        let rows = pando_sync::core_count().max(2) * 2;
        assert!(bytes < (rows + 1) * (MEASURES * 20_000 + 2048), "{bytes}");
    }
}
