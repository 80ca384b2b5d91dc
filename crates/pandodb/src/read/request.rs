//! Requests pages from the read thread.

use std::task::Waker;

use pando_format::PageId;
use pando_pool::LoadWait;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::store::Store;

impl Store {
    /// Ends a read request that leads to no read: posts its error, if there is one, and wakes those
    /// that wait for the page.
    pub(crate) fn end_request(&self, page: PageId, error: Option<Error>) {
        if let Some(error) = error {
            let waiting = self.pool.waiting_for_load(page);
            self.failed_reads.post(page, error, waiting);
        }
        self.pool.end_load_wait(page);
    }
}

impl Engine {
    /// Requests a read of `page` for an operation that does not block on it; `waker` is woken when
    /// trying again makes sense. Returns true if that is now. Never blocks.
    ///
    /// # Errors
    /// [`Error::Closed`]; in a forked child, which has no read thread, the device's error.
    pub(crate) fn request_page(&self, page: PageId, waker: &Waker) -> Result<bool> {
        self.store.check_process()?;
        match self.store.pool.await_load(page, waker) {
            // Whoever reads it wakes the waker.
            LoadWait::Loading => return Ok(false),
            LoadWait::Over => return Ok(true),
            LoadWait::OnDisk => {}
        }
        if !self.reads.requests.push(u64::from(page.0)) {
            self.reads.crowded.register(waker);
            // Room that was made before the registration has woken nobody.
            return Ok(self.reads.requests.len() < self.reads.requests.capacity());
        }
        if self.reads.is_closed() {
            return Err(Error::Closed);
        }
        Ok(false)
    }
}
