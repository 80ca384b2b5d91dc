//! A number of slots for work that takes memory; who finds none waits in line.

use std::collections::{BTreeSet, VecDeque};
use std::task::Waker;

use pando_sync::{Arc, Mutex, Rank};

/// Slots for which commands wait without a thread.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    /// Guarded by its lock, held for a change; who is to be woken is woken behind it.
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    next_number: u64,
    /// Those who have a slot.
    granted: BTreeSet<u64>,
    /// Those who wait, the next one first.
    waiting: VecDeque<(u64, Waker)>,
}

/// A slot, or a place in the line for one. Dropping it gives it to who waits.
#[derive(Debug)]
pub(crate) struct Ticket {
    slots: Slots,
    number: u64,
}

impl Slots {
    /// Returns so many free slots.
    pub(crate) fn new(free: usize) -> Self {
        let state = State {
            free,
            next_number: 0,
            granted: BTreeSet::new(),
            waiting: VecDeque::new(),
        };
        Self {
            state: Arc::new(Mutex::new(Rank::Leaf, state)),
        }
    }

    /// Takes a slot if one is free, else the last place in the line: `waker` is woken when it has
    /// become a slot.
    pub(crate) fn ticket(&self, waker: &Waker) -> Ticket {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        match state.free.checked_sub(1) {
            Some(free) => {
                state.free = free;
                state.granted.insert(number);
            }
            None => state.waiting.push_back((number, waker.clone())),
        }
        Ticket {
            slots: self.clone(),
            number,
        }
    }
}

impl Ticket {
    /// Returns true if it is a slot. If not, `waker` is woken when it is, instead of who was to be
    /// woken before.
    pub(crate) fn is_slot(&self, waker: &Waker) -> bool {
        let mut state = self.slots.state.lock();
        let mut waiting = state.waiting.iter_mut();
        let place = waiting.find(|(number, _)| *number == self.number);
        place.map(|(_, woken)| woken.clone_from(waker)).is_none()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        if !state.granted.remove(&self.number) {
            state.waiting.retain(|(number, _)| *number != self.number);
            return;
        }
        let Some((number, waker)) = state.waiting.pop_front() else {
            state.free += 1;
            return;
        };
        state.granted.insert(number);
        drop(state);
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use pando_sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn slots_are_given_in_turn_also_when_somebody_leaves() {
        let wakes: Vec<_> = (0..5).map(|_| Arc::new(Count::default())).collect();
        let wakers: Vec<Waker> = wakes.iter().map(|count| count.clone().into()).collect();
        let woken = || {
            wakes
                .iter()
                .map(|count| count.0.load(Ordering::SeqCst))
                .collect::<Vec<_>>()
        };
        let slots = Slots::new(1);
        let first = slots.ticket(&wakers[0]);
        let [second, third, fourth] = [1, 2, 3].map(|number| slots.ticket(&wakers[number]));
        assert!(first.is_slot(&wakers[0]));
        // The third one is somebody else by now.
        assert!(!second.is_slot(&wakers[1]) && !third.is_slot(&wakers[4]));
        drop(second);
        assert_eq!(woken(), [0; 5]);
        drop(first);
        assert_eq!(woken(), [0, 0, 0, 0, 1]);
        assert!(third.is_slot(&wakers[4]) && !fourth.is_slot(&wakers[3]));
        // It leaves with a slot that it has not used.
        drop(third);
        assert_eq!(woken(), [0, 0, 0, 1, 1]);
        drop(fourth);
        assert!(slots.ticket(&wakers[0]).is_slot(&wakers[0]));
    }
}
