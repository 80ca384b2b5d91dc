//! Asking the read thread for a page.

use std::task::Waker;

use pando_format::PageId;
use pando_pool::LoadWait;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::store::Store;

impl Store {
    /// Ends a read request that leads to no read.
    pub(crate) fn end_request(&self, page: PageId, error: Option<Error>) {
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
    /// [`Error::Closed`]; that of the device in a forked child, which has no read thread.
    pub(crate) fn request_page(&self, page: PageId, waker: &Waker) -> Result<bool> {
        self.store.check_process()?;
        match self.store.pool.await_load(page, waker) {
            // Whoever reads it wakes.
            LoadWait::Loading => return Ok(false),
            LoadWait::Over => return Ok(true),
            LoadWait::OnDisk => {}
        }
        if !self.reads.requests.push(u64::from(page.0)) {
            self.reads.crowded.register(waker);
            // Room that came before the registration has told nobody.
            return Ok(self.reads.requests.len() < self.reads.requests.capacity());
        }
        if self.reads.is_closed() {
            return Err(Error::Closed);
        }
        Ok(false)
    }
}
