//! The queue of wishes, and how it is asked and closed.
//!
//! Whoever pushes a wish looks afterwards whether the queue is closed; whoever ends the queue says
//! so first and empties it afterwards. Both have a SeqCst fence in between, so that no wish stays
//! behind unseen by both.

use std::task::Waker;

use pando_format::PageId;
use pando_pool::LoadWait;
use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pando_sync::{SignalQueue, WaitList};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::store::Store;

/// Wishes that may wait for the read thread.
const WISHES_MAX: usize = 1 << 14;

/// Wishes, and what the read thread is doing.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Page ids.
    pub(super) wishes: SignalQueue,
    /// Those who found the queue full.
    pub(super) crowded: WaitList,
    closed: AtomicBool,
    /// Reads in flight, and the wish that waits for a frame. Written by the read thread.
    pub(super) busy: AtomicUsize,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            wishes: SignalQueue::new(WISHES_MAX),
            crowded: WaitList::new(),
            closed: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        }
    }

    /// Wishes and reads that have not ended: zero at rest.
    pub(crate) fn pending(&self) -> usize {
        // Relaxed: exact once everything is at rest.
        self.wishes.len() + self.busy.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in close.
        self.closed.load(Ordering::Acquire)
    }

    /// No wish is served any more. The read thread ends once its reads have.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in is_closed.
        self.closed.store(true, Ordering::Release);
        self.wishes.signal();
    }
}

impl Store {
    /// Ends a wish that leads to no read.
    pub(super) fn end_wish(&self, page: PageId, error: Option<Error>) {
        if let Some(error) = error {
            let waiting = self.pool.waiting_for_load(page);
            self.failed_reads.post(page, error, waiting);
        }
        self.pool.end_load_wait(page);
    }
}

impl Engine {
    /// Has `page` read for an operation that does not wait for it; `waker` is woken when trying
    /// again makes sense. True if that is now. Never blocks.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn request_page(&self, page: PageId, waker: &Waker) -> Result<bool> {
        match self.pool.await_load(page, waker) {
            // Whoever reads it wakes.
            LoadWait::Loading => return Ok(false),
            LoadWait::Over => return Ok(true),
            LoadWait::OnDisk => {}
        }
        if !self.reads.wishes.push(u64::from(page.0)) {
            self.reads.crowded.register(waker);
            // Room that came before the registration has told nobody.
            return Ok(self.reads.wishes.len() < self.reads.wishes.capacity());
        }
        if self.reads.is_closed() {
            return Err(Error::Closed);
        }
        Ok(false)
    }

    /// Has `page` read if there is room; nobody waits for it.
    pub(crate) fn wish_page(&self, page: PageId) -> bool {
        !self.reads.is_closed() && self.reads.wishes.push(u64::from(page.0))
    }
}
