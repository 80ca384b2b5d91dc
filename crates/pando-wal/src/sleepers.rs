//! Sleepers: waiters that sleep until a flush has covered their LSN.
//!
//! The ordering argument is that of `pando_sync::waiting`: a sleeper registers, fences, and reads
//! the state again; the end of a flush changes the state, fences, and reads the count. If a thread
//! that may lead was not covered by the flush, it is woken first and alone, so that the next flush
//! begins while the finished sleepers are still being woken.

use std::task::Waker;

use pando_format::Lsn;
use pando_sync::atomic::{AtomicUsize, Ordering, fence};
use pando_sync::{Mutex, Rank, wake};

#[derive(Debug)]
struct Sleeper {
    target: Lsn,
    /// The sleeper is a blocking thread that can flush once it is woken.
    can_lead: bool,
    waker: Waker,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// Length of `list`. Written under its lock, read without it.
    count: AtomicUsize,
    list: Mutex<Vec<Sleeper>>,
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            list: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `waker`, or lowers its target if it is registered. Returns true if it was added. The
    /// caller reads the state after this returns.
    pub(crate) fn register(&self, target: Lsn, can_lead: bool, waker: &Waker) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        debug_assert_eq!(self.count.load(Ordering::Relaxed), before);
        match list.iter_mut().find(|known| known.waker.will_wake(waker)) {
            Some(known) => {
                known.target = known.target.min(target);
                known.can_lead = can_lead;
            }
            None => list.push(Sleeper {
                target,
                can_lead,
                waker: waker.clone(),
            }),
        }
        let added = list.len() > before;
        self.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        // SeqCst: pairs with the fence in wake.
        fence(Ordering::SeqCst);
        added
    }

    /// Wakes a next leader, and then all sleepers whose target is at most `reached`. The caller has
    /// published the new state, and that no flush is in flight.
    pub(crate) fn wake(&self, reached: Lsn) {
        // SeqCst: pairs with the fence in register.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut leader = None;
        let mut finished = Vec::new();
        let mut list = self.list.lock();
        let mut place = 0;
        while let Some(sleeper) = list.get(place) {
            if sleeper.target <= reached {
                finished.push(list.swap_remove(place).waker);
            } else if sleeper.can_lead && leader.is_none() {
                leader = Some(list.swap_remove(place).waker);
            } else {
                place += 1;
            }
        }
        debug_assert!(list.iter().all(|sleeper| sleeper.target > reached));
        self.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        leader.into_iter().chain(finished).for_each(wake);
    }
}

#[cfg(all(test, not(pando_loom)))]
mod tests {
    use std::task::Wake;

    use pando_sync::WakerArc;

    use super::*;

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: WakerArc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A waker that is registered for several LSNs is woken once, for the smallest.
    #[test]
    fn one_that_asks_for_several_is_woken_for_the_least() {
        let sleepers = Sleepers::new();
        let wakes = WakerArc::new(Wakes(AtomicUsize::new(0)));
        let waker = Waker::from(wakes.clone());
        assert!(sleepers.register(Lsn(5), false, &waker));
        assert!(!sleepers.register(Lsn(9), false, &waker));
        sleepers.wake(Lsn(4));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        sleepers.wake(Lsn(5));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        sleepers.wake(Lsn(9));
        assert_eq!(
            wakes.0.load(Ordering::Relaxed),
            1,
            "it asks again after its first wake"
        );
    }
}
