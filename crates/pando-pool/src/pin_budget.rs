//! The budget of frames that operations may pin at the same time (decision 016).
//!
//! It is a quarter of the pool: whoever has a share makes progress with every page that it fetches,
//! since what it fetched stays until it is done, and the rest remains for everybody else.
//!
//! An operation has one share at most, and nobody waits for one with another in hand: those who
//! wait for each other's shares would wait for ever. A step of an operation that has a share is
//! lent a part of it; only the step of one that has none takes its own, which ends with the step.
//!
//! Shares are not queued for: small ones may overtake a large one. Who was overtaken too often
//! takes one further share, an eighth of the pool, which exists once. So nobody starves, and there
//! is no place in a queue that an operation nobody polls any more could block.

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::held::{Held, Kind};

/// Refusals after which an operation may take the share that exists once.
const REFUSALS_MAX: u32 = 8;

/// Frames that may still be pinned.
#[derive(Debug)]
pub struct PinBudget {
    available: AtomicU64,
    limit: u64,
    /// The share beyond the limit is taken.
    extra_taken: AtomicBool,
    waiters: WaitList,
}

/// A share of the budget; given back on drop.
#[derive(Debug)]
pub struct PinShare<'a> {
    budget: &'a PinBudget,
    frames: u64,
    /// It is the one beyond the limit.
    extra: bool,
    _held: Held,
}

/// Frames that one step of an operation may pin.
#[derive(Debug)]
pub enum StepShare<'a> {
    /// A part of what its operation has.
    Lent(u64),
    /// A share that ends with the step: its operation has none.
    Own(PinShare<'a>),
}

impl PinBudget {
    /// The budget of a pool of so many frames.
    pub fn new(frames: usize) -> Self {
        let limit = (frames as u64 / 4).max(8);
        Self {
            available: AtomicU64::new(limit),
            limit,
            extra_taken: AtomicBool::new(false),
            waiters: WaitList::new(),
        }
    }

    /// Those that wait for a share.
    pub fn waiters(&self) -> &WaitList {
        &self.waiters
    }

    /// Most frames of one share: an eighth of the pool, so that two operations fit.
    pub fn share_max(&self) -> u64 {
        (self.limit / 2).max(4)
    }

    /// True if [`PinBudget::try_take`] of so many frames makes sense again.
    pub fn has_room(&self, frames: u64) -> bool {
        // The share beyond the limit is for those whom releases have passed by: it is met then.
        self.available.load(Ordering::Relaxed) >= frames.min(self.share_max())
    }

    /// Most frames that shares stand for, the one beyond the limit left out.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Frames that shares stand for now; the one beyond the limit counts as one.
    pub fn taken(&self) -> u64 {
        let extra = u64::from(self.extra_taken.load(Ordering::Relaxed));
        self.limit - self.available.load(Ordering::Relaxed) + extra
    }

    /// Takes `frames` of the budget, cut to [`PinBudget::share_max`]. `refusals` counts for one
    /// operation how often it got nothing.
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

    /// Frames for one step: those that its operation lends it, or else a share of its own as by
    /// [`PinBudget::try_take`].
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
    /// Frames that its owner may pin.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

impl StepShare<'_> {
    /// Frames that the step may pin.
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

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use pando_sync::{Arc, park, thread, thread_waker};

    /// Takes a share, waiting where there is none, as a blocking operation does.
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

    /// An operation that has faulted often, whose next step needs frames, too. Each of the two has
    /// half of the budget when its step begins, if the schedule says so.
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

    /// Loom tells a schedule in which both wait for ever.
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

    /// Three who want half of it each: who finds none is woken when one is given back.
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
