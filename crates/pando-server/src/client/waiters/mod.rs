//! Clients that wait for a key to get elements: BLPOP and its like.
//!
//! A client that finds nothing registers with its keys, looks once more, and then waits. Whoever
//! has committed elements of a key looks whether somebody is registered, and wakes the one who has
//! waited longest for that key. One is woken at a time: what it leaves in the key it has written,
//! so its own commit wakes the next one; and if it goes without taking anything, for its time is
//! over, it is gone, or another key has served it, it passes the wake-up on.
//!
//! **No wake-up is lost.** The waiter counts itself, has a fence, and reads the key; the writer
//! commits, has a fence, and reads the count. Both fences are sequentially consistent: of the two
//! reads behind them at least one sees the write before the other fence. So the waiter finds the
//! elements, or the writer finds the waiter. A waiter that was woken takes note of
//! that under the lock, and looks then: who finds it awake has committed before, and who finds it
//! asleep wakes it.
//!
//! **Streams are read by all**: what one client gets from a stream is there for the others, or is
//! not for them at all, if another group or another ID is what they wait for. So whoever has
//! added to a stream wakes all that wait for it, none of them waits for another one, and none
//! passes a wake-up on. Who has taken, acknowledged or removed entries wakes nobody.
//!
//! A client that comes while another one is awake for its key waits behind it: awake from its
//! wake-up until its command has ended, or waits again (`queues.rs`). One that waits and looks
//! without being woken, since its connection had a turn for another reason, leaves keys alone for
//! which others have waited longer: these are woken as soon as there is anything.
//!
//! **Very many keys** are registered, looked at and removed some hundreds at a time, and others
//! have the lock in between. That changes nothing for any one key: a client has a number of its own
//! in each queue, which it gets with its place there; who is woken before all is registered looks
//! afterwards; and nobody reads a key before all of them are noted as looked at. A client that
//! moves elements waits for one key.
//!
//! **Nobody comes between** a commit and the one whom it has woken (decision 111). Whoever is about
//! to run another command asks [`Waiters::hold`] first, and is woken once the one who is awake has
//! ended. So is one with a key to which somebody who waits for such a key would move elements, and
//! so on: elements come there next. Those who are awake may be slow, so the others wait for a
//! bounded time only (`connection/held.rs`), and nothing depends on it but what they see.
//!
//! - That somebody is awake is counted before the reply of the command that has woken him is sent,
//!   and he is awake until his own commit has woken those who wait for what he has moved. A client
//!   that has that reply, or was told by such a client, sees the count, since the socket orders the
//!   two. Commands that run at the moment of the commit have no such order: they may come before or
//!   behind it, and see what is there.
//! - Who is held is noted under the lock under which others end to be awake: so he is woken.

mod queues;
#[cfg(test)]
mod tests;

use std::task::Waker;

use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use pando_sync::{Arc, Mutex, Rank, thread};

pub(crate) use self::queues::Place;
use self::queues::{Entry, KEY_BYTES, Queues, Signs, is_for_all};
use crate::data::keyspace::ValueType;

/// Returns the number of the queue of those who wait for values of a type in a database: who waits
/// for another type cannot take them.
pub(crate) fn queue_of(database: usize, value_type: ValueType) -> usize {
    database << 8 | value_type as usize
}

/// Steps back from the keys of one command, to those from which elements may come to them, that are
/// looked at under the lock. Who is behind more is not held.
const STEPS_MAX: usize = 256;

/// Keys of one client that are dealt with before others may have the lock.
const KEYS_PER_TURN: usize = if cfg!(test) { 1 } else { 256 };

/// Error: all memory for keys of clients that wait is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The types of those who wait, and are served one by one.
const SERVED: [ValueType; 2] = [ValueType::List, ValueType::SortedSet];

/// All clients that wait, of all loops.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Number of registrations.
    count: AtomicUsize,
    /// Memory that all registrations take. Relaxed throughout: it orders nothing.
    bytes: AtomicU64,
    signs: Signs,
    /// Held for a look-up or a change of some of one client's keys.
    queues: Mutex<Queues>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            signs: Signs::default(),
            queues: Mutex::new(Rank::Leaf, Queues::default()),
        }
    }
}

impl Waiters {
    /// Returns the memory that the keys of those who wait take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of keys that somebody waits for. One for whose lists and sorted sets
    /// clients wait counts twice.
    pub(crate) fn keys(&self) -> usize {
        self.queues.lock().count()
    }

    /// Registers a client that waits for `keys` of a queue, and moves what it takes to `target`;
    /// `waker` wakes it. It must look at its keys after this.
    ///
    /// # Errors
    /// All clients together would take more than `bytes_max`.
    pub(crate) fn register<'k>(
        self: &Arc<Self>,
        (queue, keys): (usize, impl Iterator<Item = &'k [u8]> + Clone),
        target: Option<&'k [u8]>,
        waker: &Waker,
        bytes_max: u64,
    ) -> Result<Registration, TooMany> {
        let named = keys.clone().chain(target);
        let bytes = named.map(|key| KEY_BYTES + key.len() as u64).sum();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > bytes_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(TooMany);
        }
        // A key that is named twice is one.
        let mut keys: Vec<&[u8]> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let mut entry = Entry {
            waiting: Vec::with_capacity(keys.len()),
            target: target.map(|key| (queue, Arc::from(key))),
        };
        assert!(target.is_none() || keys.len() == 1, "one key is the source");
        in_turns(&keys, |keys| {
            let mut queues = self.queues.lock();
            queues.register(&self.signs, (queue, keys), &mut entry, waker);
        });
        // Relaxed: the fence orders it.
        self.count.fetch_add(1, Ordering::Relaxed);
        // See the top of this file.
        fence(Ordering::SeqCst);
        Ok(Registration {
            waiters: Arc::clone(self),
            entry,
            bytes,
        })
    }

    /// Returns true if somebody may wait. To be asked after a commit.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // See the top of this file. Relaxed: the fence orders it.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns true if somebody waits for one of these keys, and would take its elements. To be
    /// asked before a commit, by whoever may commit less at a time: what it misses is woken after
    /// the commit all the same.
    #[inline]
    pub(crate) fn are_awaited<'k>(&self, places: impl Iterator<Item = (usize, &'k [u8])>) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.has_queue(places)
    }

    #[cold]
    fn has_queue<'k>(&self, mut places: impl Iterator<Item = (usize, &'k [u8])>) -> bool {
        places.any(|(queue, key)| {
            let may_have = !is_for_all(queue) && self.signs.awaited.has(self.signs.of(key));
            may_have && self.queues.lock().has(&(queue, Arc::from(key)))
        })
    }

    /// Wakes the one who has waited longest for each of these keys.
    pub(crate) fn wake(&self, places: &[Place]) {
        let mut queues = self.queues.lock();
        let mut wakers = Vec::new();
        for place in places {
            queues.wake(&self.signs, place, &mut wakers);
        }
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the first one of every key: anything may have been committed.
    pub(crate) fn wake_all(&self) {
        let mut last: Option<Place> = None;
        loop {
            let places = self.queues.lock().places(last.as_ref(), KEYS_PER_TURN);
            self.wake(&places);
            last = places.last().cloned();
            if last.is_none() {
                return;
            }
        }
    }

    /// Returns true if somebody is awake for `key` of a queue.
    pub(crate) fn is_awaited(&self, queue: usize, key: &[u8]) -> bool {
        self.queues.lock().is_awake(&(queue, Arc::from(key)))
    }

    /// Returns true if anybody is awake. To be asked before each command.
    #[inline]
    pub(crate) fn is_anyone_awake(&self) -> bool {
        self.signs.is_anyone_awake()
    }

    /// Returns true if somebody who is awake is about to take elements of one of these keys, each
    /// with its database, or to bring some. Then `held`, a client with its waker, is woken when
    /// that is over; it asks again then.
    pub(crate) fn hold<'k>(
        &self,
        keys: impl Iterator<Item = (usize, &'k [u8])>,
        held: Option<(u64, &Waker)>,
    ) -> bool {
        self.hold_for(keys, false, held)
    }

    /// As [`Waiters::hold`], for keys whose elements the command would wait for: behind who is
    /// awake for one of them it queues up, but somebody else may be about to bring some.
    pub(crate) fn hold_waiter<'k>(
        &self,
        keys: impl Iterator<Item = (usize, &'k [u8])>,
        held: Option<(u64, &Waker)>,
    ) -> bool {
        self.hold_for(keys, true, held)
    }

    fn hold_for<'k>(
        &self,
        keys: impl Iterator<Item = (usize, &'k [u8])>,
        others: bool,
        held: Option<(u64, &Waker)>,
    ) -> bool {
        let mut steps = STEPS_MAX;
        for (database, key) in keys.filter(|(_, key)| self.signs.holding.has(self.signs.of(key))) {
            let mut queues = self.queues.lock();
            let places = SERVED.map(|of| (queue_of(database, of), Arc::from(key)));
            let mut places = places.into_iter();
            if let Some(holder) = places.find_map(|of| queues.holder(of, others, &mut steps)) {
                if let Some(held) = held {
                    queues.hold(holder, held);
                }
                return true;
            }
        }
        false
    }

    /// As [`Waiters::hold`], if anybody is awake at all. Looks at all keys that are awaited.
    pub(crate) fn hold_for_all(&self, held: Option<(u64, &Waker)>) -> bool {
        self.hold_behind(Queues::any_awake, held)
    }

    /// As [`Waiters::hold`], if somebody who is awake is about to bring elements to any key at all.
    pub(crate) fn hold_for_any(&self, held: Option<(u64, &Waker)>) -> bool {
        self.hold_behind(Queues::mover, held)
    }

    fn hold_behind(
        &self,
        holder: impl FnOnce(&Queues) -> Option<Place>,
        held: Option<(u64, &Waker)>,
    ) -> bool {
        let mut queues = self.queues.lock();
        let Some(holder) = holder(&queues) else {
            return false;
        };
        if let Some(held) = held {
            queues.hold(holder, held);
        }
        true
    }
}

/// Does `step` with some of `all` at a time. In between others may have the lock that it takes.
fn in_turns<T>(all: &[T], mut step: impl FnMut(&[T])) {
    for (turn, some) in all.chunks(KEYS_PER_TURN).enumerate() {
        if turn > 0 {
            thread::yield_now();
        }
        step(some);
    }
}

/// The place of a client in the queues of its keys; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    waiters: Arc<Waiters>,
    entry: Entry,
    /// What it takes of [`Waiters::bytes`].
    bytes: u64,
}

impl Registration {
    /// Notes that the client looks at its keys from now on: what is committed later wakes it again.
    /// Returns those of its keys whose elements are for somebody who has waited longer.
    pub(crate) fn look(&self) -> Vec<Vec<u8>> {
        let mut awaited = Vec::new();
        in_turns(&self.entry.waiting, |waiting| {
            self.waiters.queues.lock().look(waiting, &mut awaited);
        });
        fence(Ordering::SeqCst);
        awaited
    }

    /// Notes that the client has looked, and waits: nobody is held for it any more, unless it was
    /// woken since it has looked.
    pub(crate) fn sleep(&self) {
        let mut wakers = Vec::new();
        in_turns(&self.entry.waiting, |waiting| {
            let mut queues = self.waiters.queues.lock();
            queues.sleep(&self.waiters.signs, waiting, &mut wakers);
            drop(queues);
            wakers.drain(..).for_each(Waker::wake);
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        let target = self.entry.target.as_ref();
        in_turns(&self.entry.waiting, |waiting| {
            let mut queues = self.waiters.queues.lock();
            queues.remove(&self.waiters.signs, (waiting, target), &mut wakers);
            drop(queues);
            wakers.drain(..).for_each(Waker::wake);
        });
        self.waiters.count.fetch_sub(1, Ordering::Relaxed);
        let before = self.waiters.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        assert!(before >= self.bytes, "what is given back was taken");
    }
}
