//! Fetchers that are lent to blocking calls while they have reads in flight.
//!
//! Their number is bounded, and a call that finds none waits for one. A call that has borrowed a
//! fetcher waits for nothing but its own reads, runs no code of the user, and gives the fetcher
//! back empty, whatever happens: so no fetcher is away for long, and there is no circular wait.

use std::ops::{Deref, DerefMut};

use pando_device::ChannelOptions;
use pando_format::PageId;

use crate::engine::Engine;
use crate::error::Result;
use crate::pages::fetcher::{Fetcher, Started};
use crate::pages::store::Store;

/// Most reads in flight of one fetcher, whatever was asked for: the kernel's rings have no more.
const DEPTH_MAX: usize = (1 << 15) - 1;

/// A borrowed fetcher; given back, empty, on drop.
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    engine: &'a Engine,
    /// None only while it is being given back.
    fetcher: Option<Fetcher>,
}

impl Engine {
    /// Most reads in flight of one fetcher: it claims at most an eighth of the frames.
    pub(crate) fn fetch_depth(&self) -> usize {
        let share = self.store.pool.frames() / 8;
        self.options.queue_depth.min(share).clamp(1, DEPTH_MAX)
    }

    /// Borrows a fetcher. Blocks while all are lent.
    ///
    /// # Errors
    /// If the device gives no channel.
    pub(crate) fn borrow_fetcher(&self) -> Result<Borrowed<'_>> {
        let make = || Fetcher::new(&self.store, ChannelOptions::new(self.fetch_depth()));
        let fetcher = self.fetchers.take(make)?;
        Ok(Borrowed {
            engine: self,
            fetcher: Some(fetcher),
        })
    }

    /// Reads pages that an operation will need, at the same time. Pages that find no free frame are
    /// left out, and all pages if there is no channel: whoever needs such a page reads it by
    /// itself. Blocks.
    ///
    /// # Errors
    /// That of the first read that failed.
    pub(crate) fn fetch_many(&self, pages: &[PageId]) -> Result<()> {
        self.fetch_many_of(&self.store, pages)
    }

    /// As [`Engine::fetch_many`], for pages that may not be needed: whoever needs one that could
    /// not be read meets the error then. Blocks.
    pub(crate) fn fetch_some(&self, pages: &[PageId]) {
        self.fetch_some_of(&self.store, pages);
    }

    /// As [`Engine::fetch_some`], for pages of `store`, which is on the device of this one. Returns
    /// how many were not in memory, of those that were tried.
    pub(crate) fn fetch_some_of(&self, store: &Store, pages: &[PageId]) -> usize {
        let Ok(mut fetcher) = self.borrow_fetcher() else {
            return 0;
        };
        let mut missing = 0;
        for page in pages {
            if fetcher.room() == 0 {
                break;
            }
            match fetcher.start(store, *page) {
                Ok(Started::Done) => {}
                Ok(Started::Refused(_)) => break,
                _ => missing += 1,
            }
        }
        fetcher.drain(store, |_, _, _| ());
        missing
    }

    /// As [`Engine::fetch_many`], for pages of `store`, which is on the device of this one.
    pub(crate) fn fetch_many_of(&self, store: &Store, pages: &[PageId]) -> Result<()> {
        let Ok(mut fetcher) = self.borrow_fetcher() else {
            return Ok(());
        };
        let mut failed = Ok(());
        for page in pages {
            if fetcher.room() == 0 {
                break;
            }
            match fetcher.start(store, *page) {
                Ok(Started::Refused(_)) => break,
                Ok(_) => {}
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        // Before the fetcher goes back: its other reads are of another store.
        fetcher.drain(store, |_, _, result| {
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
            let store: &Store = &self.engine.store;
            fetcher.drain(store, |_, _, _| ());
            self.engine.fetchers.give_back(fetcher);
        }
    }
}
