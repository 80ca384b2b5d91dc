//! The budget of frames that operations may hold at the same time.
//!
//! It is a quarter of the pool: whoever has a share makes progress with every page that it fetches,
//! since what it fetched stays until it is done, and three quarters remain for everybody else.

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicU64, Ordering};

/// Frames that may still be held.
#[derive(Debug)]
pub(crate) struct HoldBudget {
    available: AtomicU64,
    limit: u64,
    pub(crate) waiters: WaitList,
}

/// A share of the budget; given back on drop.
#[derive(Debug)]
pub(crate) struct HoldShare<'a> {
    budget: &'a HoldBudget,
    frames: u64,
}

impl HoldBudget {
    pub(crate) fn new(frames: usize) -> Self {
        let limit = (frames as u64 / 4).max(8);
        Self {
            available: AtomicU64::new(limit),
            limit,
            waiters: WaitList::new(),
        }
    }

    /// Most frames of one share: an eighth of the pool, so that two operations fit.
    pub(crate) fn share_max(&self) -> u64 {
        (self.limit / 2).max(4)
    }

    pub(crate) fn available(&self) -> u64 {
        self.available.load(Ordering::Relaxed)
    }

    /// Takes `frames` of the budget, cut to [`HoldBudget::share_max`].
    pub(crate) fn try_take(&self, frames: u64) -> Option<HoldShare<'_>> {
        let frames = frames.min(self.share_max());
        // Relaxed: a count that orders nothing.
        self.available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(frames)
            })
            .ok()
            .map(|_| HoldShare {
                budget: self,
                frames,
            })
    }
}

impl HoldShare<'_> {
    pub(crate) fn frames(&self) -> usize {
        self.frames as usize
    }
}

impl Drop for HoldShare<'_> {
    fn drop(&mut self) {
        let before = self
            .budget
            .available
            .fetch_add(self.frames, Ordering::Relaxed);
        assert!(
            before + self.frames <= self.budget.limit,
            "a share was given back twice"
        );
        self.budget.waiters.notify_all();
    }
}
