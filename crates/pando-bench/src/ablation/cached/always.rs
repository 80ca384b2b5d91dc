//! Reference bits that are written with each use, as a clock's often are: a write of a line that
//! all readers share.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool};
use pando_tree::Approach;

/// Writes how recently a node was used whenever it is used.
#[derive(Debug)]
pub(super) struct Always;

impl<'p> Approach<'p> for Always {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        pool.optimistic(page, hint)
    }

    #[inline]
    fn touch_inner(&mut self, here: Optimistic<'p>) {
        here.touch_if(|_| true);
    }

    #[inline]
    fn touch(&mut self, here: Optimistic<'p>) {
        here.touch_if(|_| true);
    }
}
