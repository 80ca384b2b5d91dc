//! Reading pages under shared latches, for readers that writers have made restart too often
//! (decision 021).
//!
//! Nobody takes the exclusive latch while a share exists, so everything read through
//! [`Shared::seen`] validates. A share is tried and never waited for. The parent's share is taken
//! before the child's. Cached reads take no share, since that writes a line that all readers share.

use pando_format::PageId;
use pando_sync::held::{Held, Kind};
use pando_sync::thread;

use crate::access::{Optimistic, SPINS_MAX};
use crate::pool::Pool;
use crate::restart::{Attempt, Restart};

/// A share of the latch of a page, given back on drop.
#[derive(Debug)]
pub struct Shared<'a> {
    seen: Optimistic<'a>,
    _held: Held,
}

impl<'a> Shared<'a> {
    /// Returns the page, which validates for as long as the share is held.
    #[inline]
    pub fn seen(&self) -> Optimistic<'a> {
        self.seen
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.seen.latch().release_shared();
    }
}

impl Pool {
    /// Takes a share of the latch of `page`, looked up by `hint` as in [`Pool::optimistic`].
    ///
    /// # Errors
    /// As [`Pool::optimistic`], and [`Restart::Conflict`] also when writers take the latch first
    /// each time.
    pub fn shared(&self, page: PageId, hint: u32) -> Attempt<Shared<'_>> {
        for _ in 0..SPINS_MAX {
            let seen = self.optimistic(page, hint)?;
            if let Some(version) = seen.latch().try_shared() {
                let shared = Shared {
                    seen,
                    _held: Held::new(Kind::Latch),
                };
                // With another version the frame may hold another page by now.
                if version == seen.version() {
                    return Ok(shared);
                }
            }
            thread::spin_loop();
        }
        Err(Restart::Conflict)
    }
}
