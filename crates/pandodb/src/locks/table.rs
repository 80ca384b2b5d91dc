//! All locks of one store, in shards by stripe.

use std::collections::HashMap;

use pando_format::TreeId;
use pando_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pando_sync::time::{self, Duration, Instant};
use pando_sync::{Arc, Mutex, MutexGuard, Rank};

use crate::locks::graph::Graph;
use crate::locks::lock::{Ended, Lock, Mode};
use crate::locks::name::{LockName, OwnerId};
use crate::locks::wait::LockWait;

const SHARDS: usize = 64;

/// The locks of some stripes, by stripe.
type Shard = HashMap<u32, Vec<(LockName, Lock)>>;

/// A word on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU32);

/// All locks that are held or waited for.
#[derive(Debug)]
pub(crate) struct LockTable {
    /// Number of tables that are locked, or waited for. Read by each commit, changed rarely.
    tables: Apart,
    shards: Box<[Mutex<Shard>]>,
    pub(super) graph: Mutex<Graph>,
    /// Number of waits in queues.
    waiting: AtomicUsize,
    /// The maintenance thread calls [`LockTable::care`] from time to time.
    is_watched: AtomicBool,
    /// The next owner: who began later has the larger number.
    next_owner: AtomicU64,
}

impl Default for LockTable {
    fn default() -> Self {
        let shard = || Mutex::new(Rank::LockShard, Shard::default());
        Self {
            tables: Apart::default(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            graph: Mutex::new(Rank::LockGraph, Graph::default()),
            waiting: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            next_owner: AtomicU64::new(0),
        }
    }
}

impl LockTable {
    /// Returns the number of an owner that begins now.
    pub(crate) fn new_owner(&self) -> OwnerId {
        // Relaxed: only that each number is another one matters.
        OwnerId(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns whether a whole table is locked. Exact for a caller inside the gate, if the locker
    /// has closed and opened it since.
    #[inline]
    pub(crate) fn has_tables(&self) -> bool {
        // Relaxed: the gate orders it.
        self.tables.0.load(Ordering::Relaxed) != 0
    }

    /// For the maintenance thread, which can be woken from here on: returns whether somebody waits
    /// for a lock, so that it must not sleep for long.
    pub(crate) fn watch(&self) -> bool {
        // SeqCst, all of these, and the change of `waiting`: either this sees the wait, or the
        // waiter sees that nobody watches.
        self.is_watched.store(false, Ordering::SeqCst);
        let waits = self.waiting.load(Ordering::SeqCst) != 0;
        self.is_watched.store(waits, Ordering::SeqCst);
        waits
    }

    /// For a waiter whose wait has begun: returns whether it has to wake the maintenance thread.
    pub(crate) fn is_unwatched(&self) -> bool {
        !self.is_watched.load(Ordering::SeqCst)
    }

    fn shard(&self, stripe: u32) -> MutexGuard<'_, Shard> {
        self.shards[stripe as usize % SHARDS].lock()
    }

    /// As [`LockTable::change_quietly`]; wakes those whose waits have ended.
    fn change<T>(
        &self,
        place: (u32, &LockName),
        change: impl FnOnce(&mut Lock, &mut Ended) -> T,
    ) -> T {
        let (result, ended) = self.change_quietly(place, change);
        for wait in ended {
            wait.notify();
        }
        result
    }

    /// Runs `change` on the lock of `name`, which it makes if need be, and forgets it afterwards if
    /// it is unused. Returns also the waits that have ended, for the caller to notify.
    fn change_quietly<T>(
        &self,
        (stripe, name): (u32, &LockName),
        change: impl FnOnce(&mut Lock, &mut Ended) -> T,
    ) -> (T, Ended) {
        let mut ended = Ended::new();
        let mut shard = self.shard(stripe);
        let locks = shard.entry(stripe).or_default();
        let at = locks.iter().position(|(known, _)| known == name);
        let is_table = matches!(name, LockName::Table(_));
        let at = at.unwrap_or_else(|| {
            if is_table {
                self.tables.0.fetch_add(1, Ordering::Relaxed);
            }
            locks.push((name.clone(), Lock::default()));
            locks.len() - 1
        });
        let waited = locks[at].1.waiting();
        let result = change(&mut locks[at].1, &mut ended);
        let waits = locks[at].1.waiting();
        if locks[at].1.is_unused() {
            locks.swap_remove(at);
            if locks.is_empty() {
                shard.remove(&stripe);
            }
            if is_table {
                let before = self.tables.0.fetch_sub(1, Ordering::Relaxed);
                assert!(before > 0, "more locks of tables end than have begun");
            }
        }
        // Under the lock of the shard, so that it is never too small by a wait that goes on.
        if waits > waited {
            self.waiting.fetch_add(waits - waited, Ordering::SeqCst);
        } else if waits < waited {
            let before = self.waiting.fetch_sub(waited - waits, Ordering::SeqCst);
            assert!(before >= waited - waits, "more waits end than have begun");
        }
        (result, ended)
    }

    /// Gives the lock to `owner` if that need not wait. Calls `mark` under the lock of the shard.
    pub(super) fn try_grant(
        &self,
        (stripe, name): (u32, &LockName),
        (owner, mode): (OwnerId, Mode),
        mark: impl FnOnce(),
    ) -> bool {
        self.change((stripe, name), |lock, _| {
            let granted = lock.try_grant(owner, mode, time::now());
            if granted {
                mark();
            }
            granted
        })
    }

    /// As [`LockTable::try_grant`]; otherwise returns the wait that has begun. Returns also the
    /// waits that have ended, for the caller to notify.
    pub(super) fn grant_or_wait(
        &self,
        (stripe, name): (u32, &LockName),
        (owner, mode): (OwnerId, Mode),
        deadline: Instant,
        mark: impl FnOnce(),
    ) -> (Option<Arc<LockWait>>, Ended) {
        self.change_quietly((stripe, name), |lock, ended| {
            let now = time::now();
            mark();
            lock.expire(now, ended);
            if lock.try_grant(owner, mode, now) {
                return None;
            }
            Some(lock.enqueue(owner, mode, (name, deadline)))
        })
    }

    /// Takes back what `owner` holds of the lock.
    pub(super) fn release(&self, place: (u32, &LockName), owner: OwnerId) {
        self.change(place, |lock, ended| lock.release(owner, time::now(), ended));
    }

    /// Takes `owner` out of the queue. Returns false if its wait has ended before.
    pub(super) fn leave_queue(&self, place: (u32, &LockName), owner: OwnerId) -> bool {
        self.change(place, |lock, ended| {
            lock.leave_queue(owner, time::now(), ended)
        })
    }

    /// As [`LockTable::leave_queue`], after taking away what may be taken away from others.
    pub(super) fn leave_queue_late(&self, place: (u32, &LockName), owner: OwnerId) -> bool {
        self.change(place, |lock, ended| {
            let now = time::now();
            lock.expire(now, ended);
            lock.leave_queue(owner, now, ended)
        })
    }

    /// Ends the wait of `owner`, who is in a cycle, unless it has ended before. Returns the waits
    /// that have ended, for the caller to notify.
    pub(super) fn end_victim(&self, place: (u32, &LockName), owner: OwnerId) -> Ended {
        let change = |lock: &mut Lock, ended: &mut Ended| {
            lock.end_victim(owner, time::now(), ended);
        };
        self.change_quietly(place, change).1
    }

    /// As [`Lock::take_passes`]. Returns also the waits that have ended, for the caller to notify.
    pub(super) fn take_passes(
        &self,
        place: (u32, &LockName),
        is_taken: impl Fn(OwnerId) -> bool,
    ) -> (bool, Ended) {
        self.change_quietly(place, |lock, ended| {
            lock.take_passes(is_taken, time::now(), ended)
        })
    }

    /// As [`Lock::blockers`]: adds nobody if the wait has ended.
    pub(super) fn blockers(
        &self,
        (stripe, wait): (u32, &LockWait),
        known: Option<u64>,
        blockers: &mut Vec<OwnerId>,
    ) {
        let shard = self.shard(stripe);
        let mut locks = shard.get(&stripe).into_iter().flatten();
        if let Some((_, lock)) = locks.find(|(name, _)| *name == wait.name)
            && wait.ended().is_none()
        {
            lock.blockers(wait.ticket, known, blockers);
        }
    }

    /// As [`Lock::extend`].
    pub(super) fn extend(
        &self,
        place: (u32, &LockName),
        owner: OwnerId,
        at_most: Option<Duration>,
    ) -> bool {
        self.change(place, |lock, _| lock.extend(owner, at_most, time::now()))
    }

    /// Returns whether a commit of `owner` that writes the key has to wait. Calls `unmark` under
    /// the lock of the shard if the stripe has no lock at all.
    pub(crate) fn blocks_key(
        &self,
        stripe: u32,
        key: (TreeId, &[u8]),
        owner: Option<OwnerId>,
        unmark: impl FnOnce(),
    ) -> bool {
        let shard = self.shard(stripe);
        let Some(locks) = shard.get(&stripe) else {
            unmark();
            return false;
        };
        let mut of_key = locks.iter().filter(|(name, _)| name.is_key(key));
        of_key.any(|(_, lock)| lock.blocks_commit(owner))
    }

    /// Returns whether a commit of `owner` into the tree has to wait; `stripe` is that of its lock.
    pub(crate) fn blocks_table(&self, stripe: u32, tree: TreeId, owner: Option<OwnerId>) -> bool {
        let shard = self.shard(stripe);
        let mut locks = shard.get(&stripe).into_iter().flatten();
        let name = LockName::Table(tree);
        locks.any(|(known, lock)| *known == name && lock.blocks_commit(owner))
    }

    /// Returns a lock in `tree` that somebody other than `owner` holds, with its stripe. Looks at
    /// all locks.
    pub(crate) fn held_in(&self, tree: TreeId, owner: Option<OwnerId>) -> Option<(u32, LockName)> {
        let is_one = |name: &LockName| name.tree() == Some(tree);
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock();
            let mut locks = shard
                .iter()
                .flat_map(|(stripe, locks)| locks.iter().map(move |lock| (*stripe, lock)));
            locks.find_map(|(stripe, (name, lock))| {
                (is_one(name) && lock.is_held_by_other(owner)).then(|| (stripe, name.clone()))
            })
        })
    }

    /// Takes away what was held for too long, if others wait for it, and wakes all whose deadline
    /// has passed: they find out by themselves.
    pub(crate) fn care(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = time::now();
        let places = self.places_of(|lock| lock.waiting() > 0);
        for (stripe, name) in &places {
            self.change((*stripe, name), |lock, ended| {
                lock.expire(now, ended);
                lock.overdue(now, ended);
            });
        }
    }

    /// Wakes all waiters: the store is being closed.
    pub(crate) fn wake_all(&self) {
        for (stripe, name) in &self.places_of(|lock| lock.waiting() > 0) {
            self.change((*stripe, name), |lock, waits| lock.waits(waits));
        }
    }

    /// Returns the places of some locks.
    fn places_of(&self, which: impl Fn(&Lock) -> bool) -> Vec<(u32, LockName)> {
        let mut places = Vec::new();
        for shard in &self.shards {
            for (stripe, locks) in &*shard.lock() {
                let some = locks.iter().filter(|(_, lock)| which(lock));
                places.extend(some.map(|(name, _)| (*stripe, name.clone())));
            }
        }
        places
    }

    /// Number of locks that are held or waited for.
    pub(crate) fn len(&self) -> usize {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.lock().values().map(Vec::len).sum::<usize>())
            .sum()
    }
}
