//! The fetchers of an engine that are lent to blocking calls: see `lending`.

use pando_sync::{Condvar, Mutex, core_count};

use crate::error::Result;
use crate::pages::fetcher::Fetcher;

/// Fewest fetchers that may be lent at the same time.
const FETCHERS_MIN: usize = 4;
/// Most fetchers.
const FETCHERS_MAX: usize = 16;

/// The fetchers of one engine that are lent.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    magazine: Mutex<Magazine>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Magazine {
    idle: Vec<Fetcher>,
    /// Made, and not dropped since.
    made: usize,
}

impl Fetchers {
    /// Those that are lent now, and the reads that idle ones have in flight: both zero at rest.
    pub(crate) fn occupancy(&self) -> (usize, usize) {
        let magazine = self.magazine.lock();
        let reads = magazine.idle.iter().map(Fetcher::in_flight).sum();
        assert!(
            magazine.idle.len() <= magazine.made,
            "more are idle than were made"
        );
        (magazine.made - magazine.idle.len(), reads)
    }

    /// An idle one, or a new one that `make` makes when there are fewer than there may be. Blocks
    /// while all are lent.
    ///
    /// # Errors
    /// That of `make`.
    pub(crate) fn take(&self, make: impl FnOnce() -> Result<Fetcher>) -> Result<Fetcher> {
        let most = core_count().clamp(FETCHERS_MIN, FETCHERS_MAX);
        let mut magazine = self.magazine.lock();
        loop {
            if let Some(fetcher) = magazine.idle.pop() {
                return Ok(fetcher);
            }
            if magazine.made < most {
                magazine.made += 1;
                assert!(magazine.made <= most, "more fetchers than there may be");
                drop(magazine);
                return make().inspect_err(|_| {
                    self.magazine.lock().made -= 1;
                    // Who waits may find no fetcher, but it may make one.
                    self.returned.notify_one();
                });
            }
            magazine = self.returned.wait(magazine);
        }
    }

    /// Takes an empty one back.
    pub(crate) fn give_back(&self, fetcher: Fetcher) {
        assert_eq!(fetcher.in_flight(), 0, "a fetcher comes back empty");
        let mut magazine = self.magazine.lock();
        assert!(
            magazine.idle.len() < magazine.made,
            "a fetcher that nobody has made"
        );
        magazine.idle.push(fetcher);
        drop(magazine);
        self.returned.notify_one();
    }
}
