//! The reads of one event loop, and what it waits for: see [`crate::nonblocking`].

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
    pub(crate) fetcher: Arc<Mutex<Fetcher>>,
    /// Those that found all reads in use.
    crowded: Vec<Waker>,
    /// The pages loaded last, kept until newer ones come: whoever was woken finds them.
    pinned: VecDeque<PinToken>,
    pinned_max: usize,
}

impl Reactor {
    /// A reactor for one event loop. `notify` wakes the loop, from any thread, when there are
    /// completions for [`Reactor::poll`].
    ///
    /// # Errors
    /// When the device gives no channel.
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

    /// Takes completions: publishes pages and wakes those that wait for them. Returns how many.
    /// Never blocks.
    ///
    /// # Errors
    /// None in this version; failed reads are told to those that wait for the page.
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
            // An error is on the board for those who wait.
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

    /// Arranges that `waker` is woken when trying again makes sense, perhaps at once, perhaps for
    /// no reason. Never blocks. A read begins at [`Reactor::flush`] or [`Reactor::poll`], whatever
    /// comes first.
    ///
    /// # Errors
    /// Why what is waited for will never come: a page that cannot be read, a poisoned store.
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
                    // What this reactor holds may be what is missing.
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

    /// Starts the read that `pending` waits for, for an operation that comes later: nobody is
    /// woken. Never blocks.
    ///
    /// # Errors
    /// When the page cannot be read.
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

    /// Hands the reads that were started to the device. A loop calls it before it sleeps.
    pub fn flush(&mut self) {
        self.fetcher.lock().flush();
    }

    /// Counts gets whose pages had to be asked for: each is counted once, by whoever runs it again
    /// until it is done.
    pub fn count_misses(&self, gets: u64) {
        self.engine.store.statistics.tick(Ticker::GetsMissed, gets);
    }

    /// A descriptor that becomes readable (an edge each time) when there is something for
    /// [`Reactor::poll`], for loops that wait for sockets at the same time; open as long as the
    /// reactor lives. `None`: `notify` is woken instead.
    pub fn completion_fd(&self) -> Option<RawFd> {
        self.fetcher.lock().completion_fd()
    }

    /// True if the device could take many more reads than are in flight.
    pub fn is_hungry(&self) -> bool {
        let fetcher = self.fetcher.lock();
        fetcher.in_flight() < fetcher.room()
    }

    /// Pages that make sense to be read ahead: more would drive each other out.
    pub fn prefetch_max(&self) -> usize {
        self.engine.store.pool.frames() / 8
    }

    /// Reads in flight.
    pub fn in_flight(&self) -> usize {
        self.fetcher.lock().in_flight()
    }
}

/// What became of a [`Reactor::prefetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetched {
    /// A read was started.
    Reading,
    /// Nothing has to be read, or somebody reads it.
    Known,
    /// No further read can be started now.
    Full,
}

/// Starts the reads of pages that are going to be needed.
fn start_wanted(engine: &Shared, fetcher: &mut Fetcher, wanted: &[PageId]) {
    for page in wanted {
        if fetcher.room() > 0 {
            // An error of a page that is only going to be needed is met when it is.
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
