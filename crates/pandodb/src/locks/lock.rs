//! One lock: its holder, the passes of commits, and the queue. Knows nothing of others.

use std::collections::VecDeque;

use pando_sync::Arc;
use pando_sync::time::{Duration, Instant};

use crate::locks::name::OwnerId;
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
    queue: VecDeque<Queued>,
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
                self.holder = Some((owner, at_most.map(|time| now + time)));
                true
            }
            // It needs no entry: whoever comes later waits for the stripe anyway.
            Mode::Pass => !self.blocks_commit(Some(owner)),
        }
    }

    /// Puts `owner` into the queue.
    pub(super) fn enqueue(&mut self, owner: OwnerId, mode: Mode, wait: Arc<LockWait>) {
        debug_assert!(
            self.queue.iter().all(|queued| queued.owner != owner),
            "an owner waits once"
        );
        self.queue.push_back(Queued { owner, mode, wait });
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

    /// Adds those for whom `owner`, who is in the queue, waits: those who have it, and those who
    /// came earlier.
    pub(super) fn blockers(&self, owner: OwnerId, blockers: &mut Vec<OwnerId>) {
        let Some(at) = self.queue.iter().position(|queued| queued.owner == owner) else {
            return;
        };
        blockers.extend(self.holder.map(|(holder, _)| holder));
        blockers.extend(self.passes.iter().map(|(one, _)| *one));
        blockers.extend(self.queue.range(..at).map(|queued| queued.owner));
        blockers.retain(|one| *one != owner);
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
                        return;
                    }
                    self.holder = Some((first.owner, at_most.map(|time| now + time)));
                }
                Mode::Pass => self.passes.push((first.owner, now + PASS_FOR)),
            }
            let first = self.queue.pop_front().expect("it was looked at");
            first.wait.end(WaitEnd::Granted);
            ended.push(first.wait);
        }
    }

    /// Number of waiters.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }
}
