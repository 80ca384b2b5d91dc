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
//! A client that comes while another one was woken for its key, and has not looked yet, waits
//! behind it.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use pando_sync::atomic::{AtomicUsize, Ordering, fence};
use pando_sync::{Arc, Mutex, Rank};

use crate::data::keyspace::ValueType;

/// Number of a queue (see [`queue_of`]), and a key in it.
type Place = (usize, Vec<u8>);

/// Returns the number of the queue of those who wait for values of a type in a database: who waits
/// for another type cannot take them.
pub(crate) fn queue_of(database: usize, value_type: ValueType) -> usize {
    database << 8 | value_type as usize
}

/// Returns true if all who wait in this queue are woken together.
fn is_for_all(queue: usize) -> bool {
    queue & 0xff == ValueType::Stream as usize
}

/// All clients that wait, of all loops.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Number of registrations.
    count: AtomicUsize,
    /// Held for a look-up or a change of one client's keys.
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    /// Number of the next registration: a smaller one has waited longer.
    next: u64,
    by_key: HashMap<Place, BTreeMap<u64, Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    /// It was woken for this key, and has not looked since.
    woken: bool,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            queues: Mutex::new(Rank::Leaf, Queues::default()),
        }
    }
}

impl Queues {
    /// Adds the waker of the one who has waited longest for `place`, unless it is awake; or those
    /// of all. To be woken without the lock.
    fn add_first(&mut self, place: &Place, wakers: &mut Vec<Waker>) {
        let Some(queue) = self.by_key.get_mut(place) else {
            return;
        };
        let most = if is_for_all(place.0) { queue.len() } else { 1 };
        for waiter in queue.values_mut().take(most) {
            if !std::mem::replace(&mut waiter.woken, true) {
                wakers.push(waiter.waker.clone());
            }
        }
    }
}

impl Waiters {
    /// Registers a client that waits for `keys` of a queue; `waker` wakes it. It must look at
    /// its keys after this.
    pub(crate) fn register<'k>(
        self: &Arc<Self>,
        database: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        waker: &Waker,
    ) -> Registration {
        let mut queues = self.queues.lock();
        let number = queues.next;
        queues.next += 1;
        let mut places = Vec::new();
        for key in keys {
            let place = (database, key.to_vec());
            let queue = queues.by_key.entry(place.clone()).or_default();
            let waiter = Waiter {
                waker: waker.clone(),
                woken: false,
            };
            // A key that is named twice is one.
            if queue.insert(number, waiter).is_none() {
                places.push(place);
            }
        }
        drop(queues);
        // Relaxed: the fence orders it.
        self.count.fetch_add(1, Ordering::Relaxed);
        // See the top of this file.
        fence(Ordering::SeqCst);
        Registration {
            waiters: Arc::clone(self),
            number,
            places,
        }
    }

    /// Returns true if somebody may wait. To be asked after a commit.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // See the top of this file. Relaxed: the fence orders it.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Wakes the one who has waited longest for each of these keys.
    pub(crate) fn wake(&self, places: &[Place]) {
        let mut queues = self.queues.lock();
        let mut wakers = Vec::new();
        for place in places {
            queues.add_first(place, &mut wakers);
        }
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the first one of every key: anything may have been committed.
    pub(crate) fn wake_all(&self) {
        let places: Vec<Place> = self.queues.lock().by_key.keys().cloned().collect();
        self.wake(&places);
    }

    /// Returns true if somebody was woken for `key` and has not looked yet.
    pub(crate) fn is_awaited(&self, database: usize, key: &[u8]) -> bool {
        let queues = self.queues.lock();
        let queue = queues.by_key.get(&(database, key.to_vec()));
        queue.is_some_and(|queue| queue.values().any(|waiter| waiter.woken))
    }
}

/// The place of a client in the queues of its keys; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    waiters: Arc<Waiters>,
    number: u64,
    places: Vec<Place>,
}

impl Registration {
    /// Notes that the client looks at its keys from now on: what is committed later wakes it again.
    /// Returns, for each of its keys, whether somebody who has waited longer was woken and has not
    /// looked yet.
    pub(crate) fn look(&self) -> Vec<Vec<u8>> {
        let mut queues = self.waiters.queues.lock();
        let mut awaited = Vec::new();
        for place in &self.places {
            let Some(queue) = queues.by_key.get_mut(place) else {
                continue;
            };
            let is_alone = is_for_all(place.0);
            if !is_alone && queue.range(..self.number).any(|(_, waiter)| waiter.woken) {
                awaited.push(place.1.clone());
                continue;
            }
            if let Some(own) = queue.get_mut(&self.number) {
                own.woken = false;
            }
        }
        drop(queues);
        fence(Ordering::SeqCst);
        awaited
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut queues = self.waiters.queues.lock();
        let mut wakers = Vec::new();
        for place in &self.places {
            let Some(queue) = queues.by_key.get_mut(place) else {
                continue;
            };
            // It may have looked at the key and gone without what is there: whoever is next looks,
            // too.
            queue.remove(&self.number);
            if queue.is_empty() {
                queues.by_key.remove(place);
            } else if !is_for_all(place.0) {
                queues.add_first(place, &mut wakers);
            }
        }
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
        self.waiters.count.fetch_sub(1, Ordering::Relaxed);
    }
}
