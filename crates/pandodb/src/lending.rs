//! Fetchers that are lent to blocking calls, for as long as reads are in flight.
//!
//! Their number is bounded; who finds none waits for one. Whoever has borrowed a fetcher waits for
//! nothing but its own reads, runs no code of the user, and gives it back empty, whatever happens:
//! so a fetcher is never long away, and nobody waits for it in a circle.

use std::ops::{Deref, DerefMut};

use pando_device::ChannelOptions;
use pando_format::PageId;
use pando_sync::{Condvar, Mutex, core_count};

use crate::engine::Engine;
use crate::error::Result;
use crate::fetcher::{Fetcher, Started};
use crate::store::Store;

/// Fewest fetchers that may be lent at the same time.
const FETCHERS_MIN: usize = 4;
/// Most fetchers.
const FETCHERS_MAX: usize = 16;

/// The fetchers of one engine that are lent.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Fetcher>,
    /// Made, and not dropped since.
    made: usize,
}

/// A fetcher on loan; given back, empty, on drop.
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    engine: &'a Engine,
    /// None only while it is being given back.
    fetcher: Option<Fetcher>,
}

impl Fetchers {
    /// Those that are lent now, and the reads that idle ones have in flight: both zero at rest.
    pub(crate) fn occupancy(&self) -> (usize, usize) {
        let shelf = self.shelf.lock();
        let reads = shelf.idle.iter().map(Fetcher::in_flight).sum();
        assert!(
            shelf.idle.len() <= shelf.made,
            "more are idle than were made"
        );
        (shelf.made - shelf.idle.len(), reads)
    }
}

impl Engine {
    /// Most reads in flight of one fetcher: an eighth of the frames is left to its claims.
    pub(crate) fn fetch_depth(&self) -> usize {
        let share = self.pool.frames() / 8;
        self.options.queue_depth.min(share).max(1)
    }

    /// Borrows a fetcher. Blocks while all are lent.
    ///
    /// # Errors
    /// When the device gives no channel.
    pub(crate) fn borrow_fetcher(&self) -> Result<Borrowed<'_>> {
        let most = core_count().clamp(FETCHERS_MIN, FETCHERS_MAX);
        let mut shelf = self.fetchers.shelf.lock();
        let fetcher = loop {
            if let Some(fetcher) = shelf.idle.pop() {
                break fetcher;
            }
            if shelf.made < most {
                shelf.made += 1;
                assert!(shelf.made <= most, "more fetchers than there may be");
                drop(shelf);
                let made = Fetcher::new(self, ChannelOptions::new(self.fetch_depth()));
                if made.is_err() {
                    self.fetchers.shelf.lock().made -= 1;
                    // Who waits may find no fetcher, but it may make one.
                    self.fetchers.returned.notify_one();
                }
                break made?;
            }
            shelf = self.fetchers.returned.wait(shelf);
        };
        Ok(Borrowed {
            engine: self,
            fetcher: Some(fetcher),
        })
    }

    /// Reads pages that an operation is going to need, at the same time. Those that find no free
    /// frame are left out, and all of them when there is no channel: whoever needs a page reads it
    /// by itself. Blocks.
    ///
    /// # Errors
    /// The first read that failed.
    pub(crate) fn fetch_many(&self, pages: &[PageId]) -> Result<()> {
        let Ok(mut fetcher) = self.borrow_fetcher() else {
            return Ok(());
        };
        let mut failed = Ok(());
        for page in pages {
            if fetcher.room() == 0 {
                break;
            }
            match fetcher.start(self, *page) {
                Ok(Started::Refused(_)) => break,
                Ok(_) => {}
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        fetcher.drain(self, |_, _, result| {
            if failed.is_ok() {
                failed = result;
            }
        });
        failed
    }
}

impl Deref for Borrowed<'_> {
    type Target = Fetcher;
    fn deref(&self) -> &Fetcher {
        self.fetcher
            .as_ref()
            .expect("it is given back on drop only")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Fetcher {
        self.fetcher
            .as_mut()
            .expect("it is given back on drop only")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(mut fetcher) = self.fetcher.take() {
            let store: &Store = self.engine;
            fetcher.drain(store, |_, _, _| ());
            assert_eq!(fetcher.in_flight(), 0, "a fetcher comes back empty");
            let mut shelf = self.engine.fetchers.shelf.lock();
            assert!(
                shelf.idle.len() < shelf.made,
                "a fetcher that nobody has made"
            );
            shelf.idle.push(fetcher);
            drop(shelf);
            self.engine.fetchers.returned.notify_one();
        }
    }
}
