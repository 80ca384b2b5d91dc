//! The read thread: starts the reads of read requests, takes their completions, and sleeps in
//! between.
//!
//! It sleeps in its channel while reads are in flight, and parks otherwise; it registers the waker
//! that ends either sleep with the queue of read requests. It runs no code of the user but wakers,
//! never waits for a frame, and never writes.

use pando_device::ChannelOptions;
use pando_format::PageId;
use pando_pool::Restart;
use pando_sync::atomic::{Ordering, fence};
use pando_sync::time::Duration;
use pando_sync::{park, thread, thread_waker};

use crate::engine::Engine;
use crate::pages::fetcher::{Fetcher, Started};

/// How long it sleeps before it checks for free frames without having been woken.
const FRAMES_PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// Body of the read thread.
    pub(crate) fn run_reads(&self) {
        let mut thread = ReadThread {
            engine: self,
            fetcher: None,
            waiting: None,
        };
        while !self.reads.is_closed() {
            if !thread.turn() {
                thread.sleep();
            }
        }
        thread.end();
    }
}

/// State of the read thread.
struct ReadThread<'a> {
    engine: &'a Engine,
    /// Made for the first read request.
    fetcher: Option<Fetcher>,
    /// A read request that found no free frame, or no room.
    waiting: Option<PageId>,
}

impl ReadThread<'_> {
    /// Takes completions and starts reads, as many as it can. Returns false if there was nothing to
    /// do.
    fn turn(&mut self) -> bool {
        let mut done = self.reap() > 0;
        while self
            .fetcher
            .as_ref()
            .is_none_or(|fetcher| fetcher.room() > 0)
        {
            let next = self.waiting.take().or_else(|| self.pop());
            let Some(page) = next else {
                break;
            };
            if !self.start(page) {
                self.waiting = Some(page);
                break;
            }
            done = true;
        }
        self.note();
        done
    }

    /// Takes the next read request that somebody may still need.
    fn pop(&self) -> Option<PageId> {
        let reads = &self.engine.reads;
        loop {
            let request = reads.requests.pop()?;
            reads.crowded.notify_all();
            // The scan has ended, and nobody waits for its read requests: whoever needs the page
            // makes a new one.
            if let Some(page) = reads.page_of(request) {
                return Some(page);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.fetcher.as_ref().map_or(0, Fetcher::in_flight)
    }

    /// Updates the count of busy reads.
    fn note(&self) {
        let busy = self.in_flight() + usize::from(self.waiting.is_some());
        // Relaxed: for reports only.
        self.engine.reads.busy.store(busy, Ordering::Relaxed);
    }

    /// Takes completions, and returns how many.
    fn reap(&mut self) -> usize {
        // Publishing wakes those that wait; they find an error on the board of failed reads.
        self.fetcher
            .as_mut()
            .map_or(0, |fetcher| fetcher.reap(&self.engine.store, |_, _, _| ()))
    }

    fn channel(engine: &Engine) -> ChannelOptions {
        ChannelOptions::new(engine.fetch_depth())
    }

    /// Starts the read of a read request, or ends the request. Returns false if it has to wait for
    /// a frame, or for room.
    fn start(&mut self, page: PageId) -> bool {
        let engine = self.engine;
        let fetcher = match &mut self.fetcher {
            Some(fetcher) => fetcher,
            None => match Fetcher::new(&engine.store, Self::channel(engine)) {
                Ok(fetcher) => self.fetcher.insert(fetcher),
                Err(_) => {
                    // Without a channel pages are read one by one.
                    let error = engine.store.fetch(page).err();
                    engine.store.end_request(page, error);
                    return true;
                }
            },
        };
        match fetcher.start(&engine.store, page) {
            // The end of the read wakes those that wait.
            Ok(Started::Reading(_) | Started::Loading) => {}
            Ok(Started::Done) => engine.store.end_request(page, None),
            Ok(Started::Refused(Restart::Conflict) | Started::Crowded) => return false,
            Ok(Started::Refused(_)) if !engine.store.life.is_poisoned() => return false,
            Ok(Started::Refused(_)) => match engine.store.evict_clean() {
                Ok(()) => return false,
                Err(error) => engine.store.end_request(page, Some(error)),
            },
            // The error is posted, and all that wait were woken.
            Err(_) => {}
        }
        true
    }

    /// Sleeps until there is a completion, a read request, or a free frame.
    fn sleep(&mut self) {
        let engine = self.engine;
        let room = self
            .fetcher
            .as_ref()
            .is_none_or(|fetcher| fetcher.room() > 0);
        // The waker that ends the sleep: that of the channel while it has reads in flight.
        let mut busy = self
            .fetcher
            .as_mut()
            .filter(|fetcher| fetcher.in_flight() > 0);
        let waker = busy
            .as_mut()
            .map_or_else(thread_waker, |fetcher| fetcher.waker());
        let mut timeout = None;
        // Without room for another read, a read request need not wake the thread.
        let hears = room && self.waiting.is_none();
        let mut awake = hears && engine.reads.requests.register(&waker);
        if self.waiting.is_some() {
            engine.store.pool.frame_waiters().register(&waker);
            engine.store.pool.work().notify_all();
            timeout = Some(FRAMES_PAUSE);
            awake = engine.store.pool.free_count() > 0;
        }
        if awake || engine.reads.is_closed() {
            thread::yield_now();
        } else {
            match (busy, timeout) {
                (Some(fetcher), timeout) => fetcher.wait(&engine.store, timeout),
                (None, Some(timeout)) => thread::park_timeout(timeout),
                (None, None) => park(),
            }
        }
        engine.reads.requests.forget_waiters();
    }

    /// Ends the reads that have begun; for pages whose reads have not begun, it only wakes those
    /// that wait.
    fn end(&mut self) {
        if let Some(fetcher) = &mut self.fetcher {
            fetcher.drain(&self.engine.store, |_, _, _| ());
        }
        // SeqCst: pairs with the fence at the end of a push. A read request that is not seen here
        // was pushed by somebody who then sees that the queue is closed.
        fence(Ordering::SeqCst);
        while let Some(page) = self.waiting.take().or_else(|| self.pop()) {
            self.engine.store.end_request(page, None);
        }
        self.note();
    }
}
