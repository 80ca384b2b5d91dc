//! The counters of one engine.

use pando_sync::CoreLocal;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::ticker::{TICKERS, Ticker};

/// Counters of one engine, core by core.
#[derive(Debug)]
pub struct Statistics {
    cores: CoreLocal<[AtomicU64; TICKERS]>,
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

impl Statistics {
    /// All counters at zero.
    pub fn new() -> Self {
        let make = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            cores: CoreLocal::new("statistics", make),
        }
    }

    /// Adds `count` to `ticker`.
    #[inline]
    pub fn tick(&self, ticker: Ticker, count: u64) {
        // Relaxed: counters order nothing. An atomic add, not load and store: another thread may
        // run on this core between the two.
        self.cores.here()[ticker as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// The sum of `ticker` over all cores. Never goes backwards between two calls of one thread.
    pub fn get(&self, ticker: Ticker) -> u64 {
        self.cores.iter().fold(0, |sum, core| {
            sum.wrapping_add(core[ticker as usize].load(Ordering::Relaxed))
        })
    }

    /// All sums, each as of some moment during the call.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            values: std::array::from_fn(|index| self.get(Ticker::ALL[index])),
        }
    }
}

/// Sums of all tickers at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    values: [u64; TICKERS],
}

impl Snapshot {
    /// The sum of `ticker`.
    pub fn get(&self, ticker: Ticker) -> u64 {
        self.values[ticker as usize]
    }

    /// What was counted between `earlier` and this.
    pub fn since(&self, earlier: &Self) -> Self {
        let values =
            std::array::from_fn(|index| self.values[index].wrapping_sub(earlier.values[index]));
        Self { values }
    }

    /// All tickers with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (Ticker, u64)> + '_ {
        Ticker::ALL
            .iter()
            .map(|ticker| (*ticker, self.get(*ticker)))
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
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
    }

    #[test]
    fn names_are_unique_and_explained() {
        let names: std::collections::BTreeSet<_> =
            Ticker::ALL.iter().map(|ticker| ticker.name()).collect();
        assert_eq!(names.len(), TICKERS);
        assert!(
            Ticker::ALL
                .iter()
                .all(|ticker| ticker.help().ends_with('.'))
        );
    }
}
