//! Fetchers that an engine lends to blocking calls: see `lending`.

use pando_sync::{Condvar, Mutex, core_count};

use crate::error::Result;
use crate::pages::fetcher::Fetcher;

/// Lower bound of the number of fetchers that may be lent at the same time.
const FETCHERS_MIN: usize = 4;
/// Upper bound of that number.
const FETCHERS_MAX: usize = 16;

/// The fetchers that one engine lends.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    /// Idle fetchers, and the number of all.
    pooled: Mutex<Pooled>,
    /// Signalled when a fetcher has been returned, or could not be made.
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pooled {
    idle: Vec<Fetcher>,
    /// Number of fetchers that exist, lent or idle.
    made: usize,
}

impl Fetchers {
    /// Returns the number of lent fetchers, and the number of reads that idle ones have in flight.
    /// Both are 0 at rest.
    pub(crate) fn occupancy(&self) -> (usize, usize) {
        let pooled = self.pooled.lock();
        let reads = pooled.idle.iter().map(Fetcher::in_flight).sum();
        assert!(
            pooled.idle.len() <= pooled.made,
            "more are idle than were made"
        );
        (pooled.made - pooled.idle.len(), reads)
    }

    /// Returns an idle fetcher, or one from `make` if fewer exist than allowed. Blocks while all
    /// are lent.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn take(&self, make: impl FnOnce() -> Result<Fetcher>) -> Result<Fetcher> {
        let most = core_count().clamp(FETCHERS_MIN, FETCHERS_MAX);
        let mut pooled = self.pooled.lock();
        loop {
            if let Some(fetcher) = pooled.idle.pop() {
                return Ok(fetcher);
            }
            if pooled.made < most {
                pooled.made += 1;
                assert!(pooled.made <= most, "more fetchers than there may be");
                drop(pooled);
                return make().inspect_err(|_| {
                    self.pooled.lock().made -= 1;
                    // The woken waiter may find no fetcher, but it may make one.
                    self.returned.notify_one();
                });
            }
            pooled = self.returned.wait(pooled);
        }
    }

    /// Takes back a fetcher, which must have no read in flight.
    pub(crate) fn give_back(&self, fetcher: Fetcher) {
        assert_eq!(fetcher.in_flight(), 0, "a fetcher comes back empty");
        let mut pooled = self.pooled.lock();
        assert!(
            pooled.idle.len() < pooled.made,
            "a fetcher that nobody has made"
        );
        pooled.idle.push(fetcher);
        drop(pooled);
        self.returned.notify_one();
    }
}
