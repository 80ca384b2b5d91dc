//! The budget of frames that operations may pin at the same time (decisions 016 and 057).
//!
//! The budget is a quarter of the pool. An operation with a share makes progress with every page
//! that it fetches, since fetched pages stay until it is done, and the rest of the pool remains for
//! everybody else.
//!
//! An operation has one share at most, and nobody waits for a share while it has another one:
//! operations that wait for each other's shares would wait for ever. A step of an operation that
//! has a share borrows a part of it. Only a step of an operation without a share takes a share of
//! its own, which ends with the step.
//!
//! There is no queue for shares: small ones may overtake a large one. An operation that was refused
//! too often takes an extra share, an eighth of the pool, which exists once. So nobody starves, and
//! no operation that is no longer polled can block a queue.

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::held::{Held, Kind};

/// Number of refusals after which an operation may take the extra share.
const REFUSALS_MAX: u32 = 8;

/// The frames that may still be pinned.
#[derive(Debug)]
pub struct PinBudget {
    /// Frames of the budget that are in no share.
    available: AtomicU64,
    limit: u64,
    /// The extra share, which is beyond the limit, is taken.
    extra_taken: AtomicBool,
    /// Wakers of operations that wait for a share.
    waiters: WaitList,
}

/// A share of the budget, given back on drop.
#[derive(Debug)]
pub struct PinShare<'a> {
    budget: &'a PinBudget,
    frames: u64,
    /// This is the extra share, beyond the limit.
    extra: bool,
    _held: Held,
}

/// Frames that one step of an operation may pin.
#[derive(Debug)]
pub enum StepShare<'a> {
    /// A part of the share of its operation.
    Lent(u64),
    /// A share that ends with the step, because its operation has none.
    Own(PinShare<'a>),
}

impl PinBudget {
    /// Makes the budget of a pool of `frames` frames.
    pub fn new(frames: usize) -> Self {
        let limit = (frames as u64 / 4).max(8);
        Self {
            available: AtomicU64::new(limit),
            limit,
            extra_taken: AtomicBool::new(false),
            waiters: WaitList::new(),
        }
    }

    /// Returns the wakers of operations that wait for a share.
    pub fn waiters(&self) -> &WaitList {
        &self.waiters
    }

    /// Returns the maximum number of frames of one share: an eighth of the pool, so that two
    /// operations fit.
    pub fn share_max(&self) -> u64 {
        (self.limit / 2).max(4)
    }

    /// Returns whether another [`PinBudget::try_take`] of `frames` frames may succeed.
    pub fn has_room(&self, frames: u64) -> bool {
        // The extra share does not count: it is for operations that have missed releases, which
        // wake them.
        self.available.load(Ordering::Relaxed) >= frames.min(self.share_max())
    }

    /// Returns the maximum number of frames in shares, without the extra share.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of frames in shares now. The extra share counts as one frame.
    pub fn taken(&self) -> u64 {
        let extra = u64::from(self.extra_taken.load(Ordering::Relaxed));
        self.limit - self.available.load(Ordering::Relaxed) + extra
    }

    /// Takes a share of `frames` frames, at most [`PinBudget::share_max`]. `refusals` counts the
    /// refusals of one operation since its last success. Does not block.
    pub fn try_take(&self, frames: u64, refusals: &mut u32) -> Option<PinShare<'_>> {
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
        Some(PinShare {
            budget: self,
            frames,
            extra,
            _held: Held::new(Kind::PinShare),
        })
    }

    /// Returns the frames for one step: those that its operation lends it, or else a share of its
    /// own, taken as by [`PinBudget::try_take`].
    pub fn try_for_step(
        &self,
        lent: Option<u64>,
        frames: u64,
        refusals: &mut u32,
    ) -> Option<StepShare<'_>> {
        match lent {
            Some(lent) => Some(StepShare::Lent(lent.min(frames))),
            None => self.try_take(frames, refusals).map(StepShare::Own),
        }
    }
}

impl PinShare<'_> {
    /// Returns the number of frames that the owner may pin.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

impl StepShare<'_> {
    /// Returns the number of frames that the step may pin.
    pub fn frames(&self) -> u64 {
        match self {
            Self::Lent(frames) => *frames,
            Self::Own(share) => share.frames,
        }
    }
}

impl Drop for PinShare<'_> {
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
        let budget = PinBudget::new(64);
        let _small = budget.try_take(6, &mut 0).unwrap();
        let _other = budget.try_take(6, &mut 0).unwrap();
        let mut refusals = 0;
        let mut tries = 0;
        let large = loop {
            tries += 1;
            assert!(tries <= 100, "the large share starves");
            if let Some(share) = budget.try_take(8, &mut refusals) {
                break share;
            }
            // Smaller shares are taken and given back meanwhile.
            assert!(budget.try_take(4, &mut 0).is_some());
        };
        assert_eq!(large.frames(), 8);
        let mut again = REFUSALS_MAX;
        assert!(
            budget.try_take(8, &mut again).is_none(),
            "only one large share exists at a time"
        );
        drop(large);
        assert!(budget.try_take(8, &mut again).is_some());
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use pando_sync::{Arc, park, thread, thread_waker};

    /// Takes a share, and waits for it as a blocking operation does.
    fn take<'a>(budget: &'a PinBudget, frames: u64, refusals: &mut u32) -> PinShare<'a> {
        let waker = thread_waker();
        loop {
            if let Some(share) = budget.try_take(frames, refusals) {
                return share;
            }
            budget.waiters().register(&waker);
            if !budget.has_room(frames) {
                park();
            }
        }
    }

    /// Runs an operation that has faulted often and whose next step needs frames, too. In some
    /// schedules each of the two operations has half of the budget when its step begins.
    fn operation(budget: &PinBudget) {
        let mut refusals = 0;
        let own = take(budget, 4, &mut refusals);
        let waker = thread_waker();
        loop {
            let lent = Some(own.frames());
            if let Some(share) = budget.try_for_step(lent, 4, &mut refusals) {
                assert_eq!(share.frames(), 4);
                return;
            }
            budget.waiters().register(&waker);
            if !budget.has_room(4) {
                park();
            }
        }
    }

    /// Loom reports any schedule in which both operations wait forever.
    #[test]
    fn operations_that_have_shares_do_not_wait_for_each_other() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let budget = Arc::new(PinBudget::new(32));
            assert_eq!(budget.limit(), 8);
            let other = thread::spawn({
                let budget = budget.clone();
                move || operation(&budget)
            });
            operation(&budget);
            other.join().unwrap();
            assert_eq!(budget.taken(), 0);
        });
    }

    /// Three threads want half of the budget each. A thread that finds no room is woken when a
    /// share is given back.
    #[test]
    fn a_share_that_is_given_back_wakes_who_waits() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let budget = Arc::new(PinBudget::new(32));
            let others = [(); 2].map(|()| {
                let budget = budget.clone();
                thread::spawn(move || drop(take(&budget, 4, &mut 0)))
            });
            drop(take(&budget, 4, &mut 0));
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(budget.taken(), 0);
        });
    }
}
