//! The budget of frames that operations may hold at the same time.
//!
//! It is a quarter of the pool: whoever has a share makes progress with every page that it fetches,
//! since what it fetched stays until it is done, and the rest remains for everybody else.
//!
//! Shares are not queued for: small ones may overtake a large one. Who was overtaken too often
//! takes one further share, an eighth of the pool, which exists once. So nobody starves, and there
//! is no place in a queue that an operation nobody polls any more could block.

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Refusals after which an operation may take the share that exists once.
const REFUSALS_MAX: u32 = 8;

/// Frames that may still be held.
#[derive(Debug)]
pub(crate) struct HoldBudget {
    available: AtomicU64,
    limit: u64,
    /// The share beyond the limit is taken.
    extra_taken: AtomicBool,
    pub(crate) waiters: WaitList,
}

/// A share of the budget; given back on drop.
#[derive(Debug)]
pub(crate) struct HoldShare<'a> {
    budget: &'a HoldBudget,
    frames: u64,
    /// It is the one beyond the limit.
    extra: bool,
}

impl HoldBudget {
    pub(crate) fn new(frames: usize) -> Self {
        let limit = (frames as u64 / 4).max(8);
        Self {
            available: AtomicU64::new(limit),
            limit,
            extra_taken: AtomicBool::new(false),
            waiters: WaitList::new(),
        }
    }

    /// Most frames of one share: an eighth of the pool, so that two operations fit.
    pub(crate) fn share_max(&self) -> u64 {
        (self.limit / 2).max(4)
    }

    /// True if [`HoldBudget::try_take`] of so many frames makes sense again.
    pub(crate) fn has_room(&self, frames: u64) -> bool {
        // The share beyond the limit is for those whom releases have passed by: it is met then.
        self.available.load(Ordering::Relaxed) >= frames.min(self.share_max())
    }

    /// Most frames that shares stand for, the one beyond the limit left out.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Frames that shares stand for now; the one beyond the limit counts as one.
    pub(crate) fn taken(&self) -> u64 {
        let extra = u64::from(self.extra_taken.load(Ordering::Relaxed));
        self.limit - self.available.load(Ordering::Relaxed) + extra
    }

    /// Takes `frames` of the budget, cut to [`HoldBudget::share_max`]. `refusals` counts for one
    /// operation how often it got nothing.
    pub(crate) fn try_take(&self, frames: u64, refusals: &mut u32) -> Option<HoldShare<'_>> {
        let frames = frames.min(self.share_max());
        // Relaxed: a count that orders nothing.
        let taken = self
            .available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(frames)
            });
        let extra = taken.is_err();
        if extra {
            *refusals += 1;
            // Relaxed: as above.
            if *refusals <= REFUSALS_MAX || self.extra_taken.swap(true, Ordering::Relaxed) {
                return None;
            }
        }
        *refusals = 0;
        Some(HoldShare {
            budget: self,
            frames,
            extra,
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
        if self.extra {
            self.budget.extra_taken.store(false, Ordering::Relaxed);
        } else {
            let before = self
                .budget
                .available
                .fetch_add(self.frames, Ordering::Relaxed);
            assert!(
                before + self.frames <= self.budget.limit,
                "a share was given back twice"
            );
        }
        self.budget.waiters.notify_all();
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_large_share_is_overtaken_a_bounded_number_of_times() {
        let budget = HoldBudget::new(64);
        let _small = budget.try_take(6, &mut 0).unwrap();
        let _other = budget.try_take(6, &mut 0).unwrap();
        let mut refusals = 0;
        let mut tries = 0;
        let large = loop {
            tries += 1;
            assert!(tries <= 100, "it starves");
            if let Some(share) = budget.try_take(8, &mut refusals) {
                break share;
            }
            // Smaller ones come and go meanwhile.
            assert!(budget.try_take(4, &mut 0).is_some());
        };
        assert_eq!(large.frames(), 8);
        let mut again = REFUSALS_MAX;
        assert!(budget.try_take(8, &mut again).is_none(), "it exists once");
        drop(large);
        assert!(budget.try_take(8, &mut again).is_some());
    }
}
