//! One lock: its holder, the passes of commits, and the queue. Knows nothing of others.

use std::collections::VecDeque;

use pando_sync::Arc;
use pando_sync::time::{Duration, Instant};

use crate::locks::name::{LockName, OwnerId};
use crate::locks::wait::{LockWait, WaitEnd};

/// How a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To hold it: until it is given back, or `at_most` as long.
    Exclusive { at_most: Option<Duration> },
    /// To commit while nobody holds it.
    Pass,
}

/// A pass may be taken away after this time.
const PASS_FOR: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Queued {
    owner: OwnerId,
    mode: Mode,
    wait: Arc<LockWait>,
}

/// A lock that somebody holds or waits for.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// Who holds it, and when it may be taken away, if it may.
    holder: Option<(OwnerId, Option<Instant>)>,
    /// Commits that need not wait again, and when that may be taken away.
    passes: Vec<(OwnerId, Instant)>,
    /// By ticket.
    queue: VecDeque<Queued>,
    /// Number of tickets so far.
    tickets: u64,
}

/// Returns when what begins now, and lasts `at_most`, ends.
fn end_of(at_most: Option<Duration>, now: Instant) -> Option<Instant> {
    now.checked_add(at_most?)
}

/// Waits that have ended, to be notified without the lock of the shard.
pub(super) type Ended = Vec<Arc<LockWait>>;

impl Lock {
    /// Returns true if it can be forgotten.
    pub(super) fn is_unused(&self) -> bool {
        self.holder.is_none() && self.passes.is_empty() && self.queue.is_empty()
    }

    /// Returns whether somebody other than `owner` holds it.
    pub(super) fn is_held_by_other(&self, owner: Option<OwnerId>) -> bool {
        self.holder.is_some_and(|(holder, _)| Some(holder) != owner)
    }

    /// Returns whether a commit of `owner` has to wait: somebody else holds it, or lockers who came
    /// earlier wait.
    pub(super) fn blocks_commit(&self, owner: Option<OwnerId>) -> bool {
        let Some((holder, _)) = self.holder else {
            let has_pass = self.passes.iter().any(|(one, _)| Some(*one) == owner);
            return !has_pass && !self.queue.is_empty();
        };
        Some(holder) != owner
    }

    /// Gives it to `owner` if that need not wait. Returns whether it did.
    pub(super) fn try_grant(&mut self, owner: OwnerId, mode: Mode, now: Instant) -> bool {
        match mode {
            Mode::Exclusive { at_most } => {
                if let Some((holder, _)) = self.holder {
                    return holder == owner;
                }
                let others = self.passes.iter().any(|(one, _)| *one != owner);
                if others || !self.queue.is_empty() {
                    return false;
                }
                self.holder = Some((owner, end_of(at_most, now)));
                true
            }
            // It needs no entry: whoever comes later waits for the stripe anyway.
            Mode::Pass => !self.blocks_commit(Some(owner)),
        }
    }

    /// Puts `owner` into the queue, for the lock of this name, until `deadline`.
    pub(super) fn enqueue(
        &mut self,
        owner: OwnerId,
        mode: Mode,
        (name, deadline): (&LockName, Instant),
    ) -> Arc<LockWait> {
        assert!(!self.is_unused(), "it waits for a lock that nobody has");
        debug_assert!(
            self.queue.iter().all(|queued| queued.owner != owner),
            "an owner is in a queue once"
        );
        self.tickets += 1;
        let wait = Arc::new(LockWait::new(name.clone(), self.tickets, deadline));
        self.queue.push_back(Queued {
            owner,
            mode,
            wait: wait.clone(),
        });
        wait
    }

    /// Takes back what `owner` holds of it.
    pub(super) fn release(&mut self, owner: OwnerId, now: Instant, ended: &mut Ended) {
        if self.holder.is_some_and(|(holder, _)| holder == owner) {
            self.holder = None;
        }
        self.passes.retain(|(one, _)| *one != owner);
        self.hand_on(now, ended);
    }

    /// Takes `owner` out of the queue. Returns whether it was in it.
    pub(super) fn leave_queue(&mut self, owner: OwnerId, now: Instant, ended: &mut Ended) -> bool {
        let before = self.queue.len();
        self.queue.retain(|queued| queued.owner != owner);
        let was_queued = self.queue.len() < before;
        self.hand_on(now, ended);
        was_queued
    }

    /// Takes `owner` out of the queue as a victim, if it is in it.
    pub(super) fn end_victim(&mut self, owner: OwnerId, now: Instant, ended: &mut Ended) {
        let at = self.queue.iter().position(|queued| queued.owner == owner);
        if let Some(victim) = at.and_then(|at| self.queue.remove(at)) {
            victim.wait.end(WaitEnd::Victim);
            ended.push(victim.wait);
        }
        self.hand_on(now, ended);
    }

    /// Takes away passes. Returns whether there were any.
    pub(super) fn take_passes(
        &mut self,
        is_taken: impl Fn(OwnerId) -> bool,
        now: Instant,
        ended: &mut Ended,
    ) -> bool {
        let before = self.passes.len();
        self.passes.retain(|(one, _)| !is_taken(*one));
        let were_any = self.passes.len() < before;
        self.hand_on(now, ended);
        were_any
    }

    /// Takes away what may be taken away at `now`.
    pub(super) fn expire(&mut self, now: Instant, ended: &mut Ended) {
        if let Some((_, Some(until))) = self.holder
            && until <= now
        {
            self.holder = None;
        }
        self.passes.retain(|(_, until)| *until > now);
        self.hand_on(now, ended);
    }

    /// Adds the waits in the queue whose deadline has passed.
    pub(super) fn overdue(&self, now: Instant, waits: &mut Ended) {
        let queue = self.queue.iter();
        let late = queue.filter(|queued| queued.wait.deadline <= now);
        waits.extend(late.map(|queued| queued.wait.clone()));
    }

    /// Adds all waits in the queue.
    pub(super) fn waits(&self, waits: &mut Ended) {
        waits.extend(self.queue.iter().map(|queued| queued.wait.clone()));
    }

    /// Lets `owner`, if it holds it, hold it for `at_most` from now on, or until it is given back.
    /// Returns whether it does.
    pub(super) fn extend(
        &mut self,
        owner: OwnerId,
        at_most: Option<Duration>,
        now: Instant,
    ) -> bool {
        let is_holder = self.holder.is_some_and(|(holder, _)| holder == owner);
        if is_holder {
            self.holder = Some((owner, end_of(at_most, now)));
        }
        is_holder
    }

    /// Adds those for whom the waiter with this ticket waits: those who hold the lock, and those
    /// who came earlier, but for tickets up to `known`.
    pub(super) fn blockers(&self, ticket: u64, known: Option<u64>, blockers: &mut Vec<OwnerId>) {
        if known.is_none() {
            blockers.extend(self.holder.map(|(holder, _)| holder));
            blockers.extend(self.passes.iter().map(|(one, _)| *one));
        }
        let up_to = |last: u64| self.queue.partition_point(|one| one.wait.ticket <= last);
        let (from, to) = (known.map_or(0, up_to), up_to(ticket));
        let earlier = self.queue.range(from.min(to)..to);
        let earlier = earlier.filter(|queued| queued.wait.ticket != ticket);
        blockers.extend(earlier.map(|queued| queued.owner));
    }

    /// Gives it to the first in the queue: to one locker, or to all commits up to the next locker.
    fn hand_on(&mut self, now: Instant, ended: &mut Ended) {
        while self.holder.is_none()
            && let Some(first) = self.queue.front()
        {
            match first.mode {
                Mode::Exclusive { at_most } => {
                    let own = |(one, _): &(OwnerId, Instant)| *one == first.owner;
                    if !self.passes.iter().all(own) {
                        break;
                    }
                    self.holder = Some((first.owner, end_of(at_most, now)));
                }
                Mode::Pass => self.passes.push((first.owner, now + PASS_FOR)),
            }
            let first = self.queue.pop_front().expect("it was looked at");
            first.wait.end(WaitEnd::Granted);
            ended.push(first.wait);
        }
        self.check();
    }

    /// Checks what holds once it was handed on.
    fn check(&self) {
        if let Some((holder, _)) = self.holder {
            let are_own = self.passes.iter().all(|(one, _)| *one == holder);
            assert!(are_own, "others commit while somebody holds the lock");
        } else {
            let is_waited_for = !self.queue.is_empty() && self.passes.is_empty();
            assert!(!is_waited_for, "somebody waits for a lock that nobody has");
        }
        debug_assert!(
            self.queue.iter().is_sorted_by_key(|one| one.wait.ticket),
            "who came first is first in the queue"
        );
    }

    /// Number of waiters.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }
}
