//! The read thread: starts the reads of read requests, takes their completions, sleeps in between.
//!
//! It sleeps in its channel while reads are in flight, and parks when there are none; the queue of
//! read requests gets the waker that ends either. It runs no code of the user but wakers, waits for
//! no frame, and never writes.

use pando_device::ChannelOptions;
use pando_format::PageId;
use pando_pool::Restart;
use pando_sync::atomic::{Ordering, fence};
use pando_sync::time::Duration;
use pando_sync::{park, thread, thread_waker};

use crate::engine::Engine;
use crate::pages::fetcher::{Fetcher, Started};

/// A look for frames when nobody has said that there are some.
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

/// The read thread's own state.
struct ReadThread<'a> {
    engine: &'a Engine,
    /// Made with the first read request.
    fetcher: Option<Fetcher>,
    /// A read request for which there was no frame.
    waiting: Option<PageId>,
}

impl ReadThread<'_> {
    /// Starts and takes what it can. False if there was nothing to do.
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

    fn pop(&self) -> Option<PageId> {
        let reads = &self.engine.reads;
        loop {
            let request = reads.requests.pop()?;
            reads.crowded.notify_all();
            // Nobody waits for a read request of a scan: who needs the page asks for it again.
            if let Some(page) = reads.page_of(request) {
                return Some(page);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.fetcher.as_ref().map_or(0, Fetcher::in_flight)
    }

    fn note(&self) {
        let busy = self.in_flight() + usize::from(self.waiting.is_some());
        // Relaxed: for reports.
        self.engine.reads.busy.store(busy, Ordering::Relaxed);
    }

    fn reap(&mut self) -> usize {
        // Publishing wakes those who wait; an error is on the board for them.
        self.fetcher
            .as_mut()
            .map_or(0, |fetcher| fetcher.reap(&self.engine.store, |_, _, _| ()))
    }

    fn channel(engine: &Engine) -> ChannelOptions {
        ChannelOptions::new(engine.fetch_depth())
    }

    /// False if the read request has to wait for a frame, or for room.
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
            // The end of the read wakes.
            Ok(Started::Reading(_) | Started::Loading) => {}
            Ok(Started::Done) => engine.store.end_request(page, None),
            Ok(Started::Refused(Restart::Conflict) | Started::Crowded) => return false,
            Ok(Started::Refused(_)) => match engine.store.check_poison() {
                Ok(()) => return false,
                // No dirty page is written any more: perhaps no frame comes free.
                Err(error) => engine.store.end_request(page, Some(error)),
            },
            // Posted, and all who wait were woken.
            Err(_) => {}
        }
        true
    }

    /// Sleeps until a completion, a read request, or a frame comes.
    fn sleep(&mut self) {
        let engine = self.engine;
        let room = self
            .fetcher
            .as_ref()
            .is_none_or(|fetcher| fetcher.room() > 0);
        // What ends the sleep: the waker of the channel while it has reads in flight.
        let mut busy = self
            .fetcher
            .as_mut()
            .filter(|fetcher| fetcher.in_flight() > 0);
        let waker = busy
            .as_mut()
            .map_or_else(thread_waker, |fetcher| fetcher.waker());
        let mut timeout = None;
        // A read request for which there is no room does not have to wake anybody.
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
                (Some(fetcher), timeout) => fetcher.wait(timeout),
                (None, Some(timeout)) => thread::park_timeout(timeout),
                (None, None) => park(),
            }
        }
        engine.reads.requests.forget_waiters();
    }

    /// Ends what has begun; what has not is left to those who wait.
    fn end(&mut self) {
        if let Some(fetcher) = &mut self.fetcher {
            fetcher.drain(&self.engine.store, |_, _, _| ());
        }
        // SeqCst: pairs with the fence at the end of a push. A read request that is not seen here
        // was pushed by somebody who sees that the queue is closed.
        fence(Ordering::SeqCst);
        while let Some(page) = self.waiting.take().or_else(|| self.pop()) {
            self.engine.store.end_request(page, None);
        }
        self.note();
    }
}
