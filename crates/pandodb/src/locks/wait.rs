//! One wait for a lock.

use std::task::Waker;

use pando_sync::WaitList;
use pando_sync::atomic::{AtomicU8, Ordering};
use pando_sync::time::{self, Duration, Instant};

use crate::locks::name::LockName;

const WAITING: u8 = 0;
/// The lock, or a pass, is the waiter's.
const GRANTED: u8 = 1;
/// It was in a cycle of waits, and has been taken out of the queue.
const VICTIM: u8 = 2;

/// One wait for a lock: shared by the waiter, the queue and the graph.
#[derive(Debug)]
pub(crate) struct LockWait {
    pub(crate) name: LockName,
    /// Its number at the lock: of two in the queue, the one with the larger number came later.
    pub(super) ticket: u64,
    /// When the waiter gives up.
    pub(crate) deadline: Instant,
    /// Changed under the lock of the shard, from waiting to one of the others.
    state: AtomicU8,
    ended: WaitList,
}

/// What has become of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Granted,
    Victim,
}

impl LockWait {
    pub(super) fn new(name: LockName, ticket: u64, deadline: Instant) -> Self {
        Self {
            name,
            ticket,
            deadline,
            state: AtomicU8::new(WAITING),
            ended: WaitList::new(),
        }
    }

    /// Ends the wait. The caller holds the lock of the shard, and calls [`LockWait::notify`] once
    /// it has given that back.
    pub(super) fn end(&self, end: WaitEnd) {
        let state = match end {
            WaitEnd::Granted => GRANTED,
            WaitEnd::Victim => VICTIM,
        };
        // Release: pairs with the Acquire in ended; what the last holder has done comes before.
        let before = self.state.swap(state, Ordering::Release);
        assert_eq!(before, WAITING, "a wait ends once");
    }

    /// Wakes the waiter.
    pub(super) fn notify(&self) {
        self.ended.notify_all();
    }

    /// Returns how it ended; None while it goes on.
    pub(super) fn ended(&self) -> Option<WaitEnd> {
        // Acquire: pairs with the Release in end.
        match self.state.load(Ordering::Acquire) {
            WAITING => None,
            GRANTED => Some(WaitEnd::Granted),
            _ => Some(WaitEnd::Victim),
        }
    }

    /// Registers `waker` for the end; returns true if there is nothing to wait for any longer. The
    /// maintenance thread wakes it at its deadline, up to a tenth of a second late.
    pub(crate) fn register(&self, waker: &Waker) -> bool {
        self.ended.register(waker);
        self.ended().is_some() || self.left().is_zero()
    }

    /// Returns the time until the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(time::now())
    }
}
