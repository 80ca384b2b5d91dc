//! The reads of one event loop, and the operations that wait in it: see [`crate::nonblocking`].

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::task::Waker;

use pando_device::ChannelOptions;
use pando_format::PageId;
use pando_pool::Restart;
use pando_pool::access::PinToken;
use pando_stats::Ticker;
use pando_sync::{Arc, Mutex, Rank};

use crate::api::db::Db;
use crate::engine::Shared;
use crate::error::Result;
use crate::event_loop::polled::Pending;
use crate::pages::fetcher::{Fetcher, Started};
use crate::wait::reason::WaitReason;

/// Most pages that a reactor keeps in memory for the operations that asked for them.
const PINNED_MAX: usize = 64;

/// Reads and waiters of one event loop.
#[derive(Debug)]
pub struct Reactor {
    engine: Shared,
    /// The reads in flight. In a mutex since a commit of the loop's own thread may have to publish
    /// pages that only this fetcher has in flight (`OwnReads`).
    pub(crate) fetcher: Arc<Mutex<Fetcher>>,
    /// Operations that found all reads in use.
    crowded: Vec<Waker>,
    /// The pages loaded last. They stay pinned until newer ones come, so that operations which are
    /// woken find them.
    pinned: VecDeque<PinToken>,
    pinned_max: usize,
}

impl Reactor {
    /// Makes a reactor for one event loop. `notify` wakes the loop, from any thread, when there are
    /// completions for [`Reactor::poll`].
    ///
    /// # Errors
    /// If the device gives no channel.
    pub fn new(db: &Db, notify: Waker) -> Result<Self> {
        let engine = db.engine().clone();
        let options = ChannelOptions::new(engine.fetch_depth()).notify(notify);
        let fetcher = Arc::new(Mutex::new(
            Rank::Reads,
            Fetcher::new(&engine.store, options)?,
        ));
        let pinned_max = (engine.store.pool.frames() / 16).clamp(2, PINNED_MAX);
        Ok(Self {
            engine,
            fetcher,
            crowded: Vec::new(),
            pinned: VecDeque::new(),
            pinned_max,
        })
    }

    /// Takes completions: publishes pages and wakes the operations that wait for them. Returns the
    /// number of completions. Never blocks.
    ///
    /// # Errors
    /// None in this version; the operations that wait for a page get the error of its read.
    pub fn poll(&mut self) -> Result<usize> {
        let Self {
            engine,
            fetcher,
            pinned,
            pinned_max,
            ..
        } = self;
        let mut fetcher = fetcher.lock();
        let count = fetcher.reap(&engine.store, |_, page, result| {
            // An error is posted on the board of failed reads.
            if result.is_ok() {
                while pinned.len() >= *pinned_max {
                    if let Some(token) = pinned.pop_front() {
                        engine.store.pool.unpin(token);
                    }
                }
                if let Ok(pin) = engine.store.pool.pin(page, 0) {
                    pinned.push_back(pin.into_token());
                    assert!(pinned.len() <= *pinned_max, "others need frames, too");
                }
            }
        });
        if fetcher.room() > 0 {
            for waker in self.crowded.drain(..) {
                waker.wake();
            }
        }
        Ok(count)
    }

    /// Arranges that `waker` is woken when trying again makes sense; that may be at once, or
    /// spuriously. Never blocks. A read begins at the next [`Reactor::flush`] or [`Reactor::poll`].
    ///
    /// # Errors
    /// Why the operation would wait forever: a page that cannot be read, a poisoned store.
    pub fn park(&mut self, pending: Pending, waker: &Waker) -> Result<()> {
        let mut reason = pending.reason;
        if let WaitReason::Restart(Restart::Fault(page)) = reason {
            // Its read failed while this waker was registered for it.
            if let Some(error) = self.engine.store.failed_reads.tell(page, waker) {
                return Err(error);
            }
            let mut fetcher = self.fetcher.lock();
            match fetcher.start(&self.engine.store, page)? {
                Started::Reading(_) | Started::Loading | Started::Done => {}
                Started::Crowded => self.crowded.push(waker.clone()),
                Started::Refused(restart) => {
                    // Perhaps the frames that this reactor pins are what is missing.
                    for token in self.pinned.drain(..) {
                        self.engine.store.pool.unpin(token);
                    }
                    reason = WaitReason::Restart(restart);
                }
            }
            start_wanted(&self.engine, &mut fetcher, &pending.wanted);
        }
        if self.engine.register(&reason, waker)? {
            waker.wake_by_ref();
        }
        Ok(())
    }

    /// Starts the read that `pending` waits for, on behalf of a later operation: nobody is woken.
    /// Never blocks.
    ///
    /// # Errors
    /// If the page cannot be read.
    pub fn prefetch(&mut self, pending: Pending) -> Result<Prefetched> {
        let WaitReason::Restart(Restart::Fault(page)) = pending.reason else {
            return Ok(Prefetched::Known);
        };
        let mut fetcher = self.fetcher.lock();
        let started = fetcher.start(&self.engine.store, page)?;
        start_wanted(&self.engine, &mut fetcher, &pending.wanted);
        Ok(match started {
            Started::Reading(_) => Prefetched::Reading,
            Started::Loading | Started::Done => Prefetched::Known,
            Started::Crowded | Started::Refused(_) => Prefetched::Full,
        })
    }

    /// Submits the reads that were started to the device. A loop calls it before it sleeps.
    pub fn flush(&mut self) {
        self.fetcher.lock().flush(&self.engine.store);
    }

    /// Counts gets whose pages had to be read. Whoever runs a get again until it is done counts it
    /// once.
    pub fn count_misses(&self, gets: u64) {
        self.engine.store.statistics.tick(Ticker::GetsMissed, gets);
    }

    /// Returns a descriptor that becomes readable (edge-triggered) when there is something for
    /// [`Reactor::poll`], for loops that also wait for sockets. It is open as long as the reactor
    /// lives. `None`: `notify` is woken instead.
    pub fn completion_fd(&self) -> Option<RawFd> {
        self.fetcher.lock().completion_fd()
    }

    /// Returns true if the device could take many more reads than are in flight.
    pub fn is_hungry(&self) -> bool {
        let fetcher = self.fetcher.lock();
        fetcher.in_flight() < fetcher.room()
    }

    /// Number of pages that it makes sense to read ahead: more would evict each other.
    pub fn prefetch_max(&self) -> usize {
        self.engine.store.pool.frames() / 8
    }

    /// Number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.fetcher.lock().in_flight()
    }
}

/// Result of [`Reactor::prefetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetched {
    /// A read was started.
    Reading,
    /// Nothing has to be read, or the page is being read already.
    Known,
    /// No further read can be started now.
    Full,
}

/// Starts the reads of pages that will be needed, as far as there is room.
fn start_wanted(engine: &Shared, fetcher: &mut Fetcher, wanted: &[PageId]) {
    for page in wanted {
        if fetcher.room() > 0 {
            // An error of such a page is reported when the page is needed.
            let _ = fetcher.start(&engine.store, *page);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.fetcher.lock().drain(&self.engine.store, |_, _, _| ());
        for token in self.pinned.drain(..) {
            self.engine.store.pool.unpin(token);
        }
    }
}
