//! Pages read under shared latches: for readers that writers have made start again too often.
//!
//! While a share is held nobody takes the exclusive latch, so whatever is read through
//! [`Shared::seen`] validates. A share is tried and never waited for; of several pages the parent's
//! is taken before the child's. Cached reads never take one: it is a write of a line that all
//! readers share.

use pando_format::PageId;
use pando_sync::held::{Held, Kind};
use pando_sync::thread;

use crate::access::{Optimistic, SPINS_MAX};
use crate::pool::Pool;
use crate::restart::{Attempt, Restart};

/// A share of the latch of a page; given back on drop.
#[derive(Debug)]
pub struct Shared<'a> {
    seen: Optimistic<'a>,
    _held: Held,
}

impl<'a> Shared<'a> {
    /// The page: it validates for as long as the share is held.
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
    /// As [`Pool::optimistic`]; [`Restart::Conflict`] also when writers take the latch first each
    /// time.
    pub fn shared(&self, page: PageId, hint: u32) -> Attempt<Shared<'_>> {
        for _ in 0..SPINS_MAX {
            let seen = self.optimistic(page, hint)?;
            if let Some(version) = seen.latch().try_shared() {
                let shared = Shared {
                    seen,
                    _held: Held::new(Kind::Latch),
                };
                // Another version: the frame may hold another page by now.
                if version == seen.version() {
                    return Ok(shared);
                }
            }
            thread::spin_loop();
        }
        Err(Restart::Conflict)
    }
}
