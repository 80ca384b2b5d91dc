//! The queues of those who wait for keys, which the lock of [`super::Waiters`] guards, and the
//! signs that others read without it.
//!
//! A client is *awake* for a key from its wake-up until its command has ended or waits again. Only
//! the first of a queue ever is: it alone is woken, and who comes later is behind it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::task::Waker;

use pando_sync::Arc;
use pando_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::data::keyspace::ValueType;

/// Number of a queue (see [`super::queue_of`]), and a key in it.
pub(crate) type Place = (usize, Arc<[u8]>);

/// Memory that a client takes for each key that it waits for, besides the key itself, if nobody
/// else waits for it: its places in both tables, a queue of one, and what allocations add.
pub(super) const KEY_BYTES: u64 = 256;

/// Number of keys that are looked at to find out from where elements may come to one. Who is behind
/// a longer way is not held.
const WAY_MAX: usize = 64;

/// Number of signs: few keys share one while some dozens of them are about to be served.
const SIGNS: usize = 256;

/// Returns true if all who wait in this queue are woken together.
pub(super) fn is_for_all(queue: usize) -> bool {
    queue & 0xff == ValueType::Stream as usize
}

/// What a client does about one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is to be woken when there are elements.
    Asleep,
    /// It was woken, and has not looked since.
    Woken,
    /// It was woken and has looked; its command has not ended.
    Looking,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    waker: Waker,
    state: State,
    /// It moves what it takes to another key.
    moves: bool,
    /// It has looked since it registered: it takes nothing before it is woken.
    has_slept: bool,
}

impl Waiter {
    /// Returns true if it is the one to get what is there, or what comes: those who have waited
    /// less long leave that alone.
    fn has_precedence(&self) -> bool {
        self.has_slept || self.state != State::Asleep
    }
}

/// Those who wait for a key, by their numbers: who comes is the last.
type Queue = VecDeque<Waiter>;

/// Returns where the one with this number is.
fn place_in(queue: &Queue, number: u64) -> Option<usize> {
    queue.binary_search_by_key(&number, |of| of.number).ok()
}

/// For all keys that share a sign, how many of them have some property.
#[derive(Debug)]
pub(super) struct Counts([AtomicU32; SIGNS]);

impl Default for Counts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Counts {
    /// Returns false if no key with this sign has it.
    pub(super) fn has(&self, sign: usize) -> bool {
        // Relaxed, as all of these: see the top of `mod.rs`.
        self.0[sign].load(Ordering::Relaxed) > 0
    }

    fn add(&self, sign: usize) {
        self.0[sign].fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, sign: usize) {
        self.0[sign].fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is read without the lock. Written under it, so that the counts agree with the queues, but
/// those of streams, which they leave out.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Number of queues whose first is awake.
    awake: AtomicUsize,
    /// The keys of queues.
    pub(super) awaited: Counts,
    /// The keys of queues whose first is awake, and those that get elements from one who waits.
    pub(super) holding: Counts,
    /// Unknown to clients, so that they cannot choose keys that share a sign.
    hasher: RandomState,
}

impl Signs {
    /// Returns true if anybody is awake.
    #[inline]
    pub(super) fn is_anyone_awake(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > 0
    }

    #[cfg(test)]
    pub(super) fn awake(&self) -> usize {
        self.awake.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn are_clear(&self) -> bool {
        let mut signs = 0..SIGNS;
        self.awake() == 0 && signs.all(|of| !self.awaited.has(of) && !self.holding.has(of))
    }

    /// Returns the sign of a key.
    pub(super) fn of(&self, key: &[u8]) -> usize {
        let sign = self.hasher.hash_one(key) % SIGNS as u64;
        usize::try_from(sign).expect("there are few signs")
    }

    /// The first of a queue of `key` is awake.
    fn begin(&self, key: &[u8]) {
        self.holding.add(self.of(key));
        self.awake.fetch_add(1, Ordering::Relaxed);
    }

    /// It is awake no longer.
    fn end(&self, key: &[u8]) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
        self.holding.remove(self.of(key));
    }
}

/// A key that a client waits for, and its number in the queue of that key.
#[derive(Debug)]
pub(super) struct Waiting {
    place: Place,
    number: u64,
}

/// The keys that a client waits for, and the one to which it would move an element: then it waits
/// for one key alone.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) waiting: Vec<Waiting>,
    pub(super) target: Option<Place>,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Number of the next registration: of two in one queue the smaller one has waited longer.
    next: u64,
    by_key: BTreeMap<Place, Queue>,
    /// For each key to which those who wait would move elements: the keys that they wait for, and
    /// how many do.
    sources: HashMap<Place, BTreeMap<Arc<[u8]>, usize>>,
    /// Queues whose first is awake, and would change another key.
    movers: Vec<Place>,
    /// Connections whose command waits until the first of a queue is awake no longer, by their
    /// clients.
    held: HashMap<Place, BTreeMap<u64, Waker>>,
}

impl Queues {
    /// Adds some of the keys of a queue for which one waits to its entry, and to the queues, where
    /// it does not have them yet.
    pub(super) fn register(
        &mut self,
        signs: &Signs,
        (queue, keys): (usize, &[&[u8]]),
        entry: &mut Entry,
        waker: &Waker,
    ) {
        let number = self.next;
        self.next += 1;
        for key in keys {
            let place: Place = (queue, Arc::from(*key));
            let waiter = Waiter {
                number,
                waker: waker.clone(),
                state: State::Asleep,
                moves: entry.target.is_some(),
                has_slept: false,
            };
            let waiters = self.by_key.entry(place.clone());
            // Most keys have one who waits.
            let waiters = waiters.or_insert_with(|| Queue::with_capacity(1));
            waiters.push_back(waiter);
            if waiters.len() == 1 && !is_for_all(queue) {
                signs.awaited.add(signs.of(key));
            }
            entry.waiting.push(Waiting { place, number });
        }
        if let (Some(target), [source]) = (&entry.target, &entry.waiting[..]) {
            let sources = self.sources.entry(target.clone()).or_default();
            *sources.entry(source.place.1.clone()).or_default() += 1;
            signs.holding.add(signs.of(&target.1));
        }
    }

    /// Wakes the one who has waited longest for `place`, unless it was woken already; or all of
    /// them. Their wakers are to be called without the lock.
    pub(super) fn wake(&mut self, signs: &Signs, place: &Place, wakers: &mut Vec<Waker>) {
        let Some(queue) = self.by_key.get_mut(place) else {
            return;
        };
        let is_for_all = is_for_all(place.0);
        let most = if is_for_all { queue.len() } else { 1 };
        for waiter in queue.iter_mut().take(most) {
            let before = std::mem::replace(&mut waiter.state, State::Woken);
            if before != State::Woken {
                wakers.push(waiter.waker.clone());
            }
            if before == State::Asleep && !is_for_all {
                signs.begin(&place.1);
                if waiter.moves {
                    self.movers.push(place.clone());
                }
            }
        }
    }

    /// Notes that one looks at these keys, but those that belong to somebody before it: adds these
    /// to `awaited`. It may look though nobody has woken it, as when it is told of a change: so it
    /// looks between a commit and the wake-up of the one before it, who is asleep then.
    pub(super) fn look(&mut self, waiting: &[Waiting], awaited: &mut Vec<Vec<u8>>) {
        for Waiting { place, number } in waiting {
            let Some(queue) = self.by_key.get_mut(place) else {
                continue;
            };
            let is_for_all = is_for_all(place.0);
            // The first has slept, as a rule.
            let mut before = queue.iter().take_while(|of| of.number < *number);
            if !is_for_all && before.any(Waiter::has_precedence) {
                awaited.push(place.1.to_vec());
                continue;
            }
            match place_in(queue, *number).and_then(|at| queue.get_mut(at)) {
                Some(own) if is_for_all => own.state = State::Asleep,
                Some(own) if own.state == State::Woken => own.state = State::Looking,
                _ => {}
            }
        }
    }

    /// Notes that one that has looked at these keys waits again; it stays awake for keys for which
    /// it was woken since. The wakers are to be called without the lock.
    pub(super) fn sleep(&mut self, signs: &Signs, waiting: &[Waiting], wakers: &mut Vec<Waker>) {
        for Waiting { place, number } in waiting {
            let queue = self.by_key.get_mut(place);
            let own = queue.and_then(|queue| {
                let at = place_in(queue, *number)?;
                queue.get_mut(at)
            });
            let Some(own) = own else {
                continue;
            };
            own.has_slept = true;
            if own.state == State::Looking {
                own.state = State::Asleep;
                let moves = own.moves;
                self.end(signs, (place, moves), wakers);
            }
        }
    }

    /// Removes one that waits for these keys no longer. It may have looked at a key and gone
    /// without what is there: whoever is next looks, too.
    pub(super) fn remove(
        &mut self,
        signs: &Signs,
        (waiting, target): (&[Waiting], Option<&Place>),
        wakers: &mut Vec<Waker>,
    ) {
        for Waiting { place, number } in waiting {
            let Some(queue) = self.by_key.get_mut(place) else {
                continue;
            };
            let own = place_in(queue, *number).and_then(|at| queue.remove(at));
            let is_last = queue.is_empty();
            if is_last {
                self.by_key.remove(place);
            }
            if is_for_all(place.0) {
                continue;
            }
            if is_last {
                signs.awaited.remove(signs.of(&place.1));
            }
            // Before its own end is noted: there is no moment between the two.
            self.wake(signs, place, wakers);
            if let Some(own) = own.filter(|own| own.state != State::Asleep) {
                self.end(signs, (place, own.moves), wakers);
            }
        }
        let (Some(target), [source]) = (target, waiting) else {
            return;
        };
        signs.holding.remove(signs.of(&target.1));
        if let Some(sources) = self.sources.get_mut(target) {
            if let Some(count) = sources.get_mut(&source.place.1) {
                *count -= 1;
                if *count == 0 {
                    sources.remove(&source.place.1);
                }
            }
            if sources.is_empty() {
                self.sources.remove(target);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
            && self.sources.is_empty()
            && self.movers.is_empty()
            && self.held.is_empty()
    }

    /// Returns the number of keys that are awaited.
    pub(super) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the first `most` keys that are awaited, of those behind `last`.
    pub(super) fn places(&self, last: Option<&Place>, most: usize) -> Vec<Place> {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let places = self.by_key.range((start, Bound::Unbounded)).take(most);
        places.map(|(place, _)| place.clone()).collect()
    }

    /// Returns true if somebody waits for `place`.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.by_key.contains_key(place)
    }

    /// Returns true if the first who waits for `place` is awake.
    pub(super) fn is_awake(&self, place: &Place) -> bool {
        let queue = self.by_key.get(place).filter(|_| !is_for_all(place.0));
        let first = queue.and_then(VecDeque::front);
        first.is_some_and(|first| first.state != State::Asleep)
    }

    /// Returns the key that is awaited by one who is awake, and whose elements may come to `place`,
    /// or are those of `place`, unless only `others` are asked for. Uses up `steps`.
    pub(super) fn holder(&self, place: Place, others: bool, steps: &mut usize) -> Option<Place> {
        let mut way = vec![place];
        let mut at = 0;
        while at < way.len() {
            if (at > 0 || !others) && self.is_awake(&way[at]) {
                return Some(way.swap_remove(at));
            }
            let queue = way[at].0;
            let sources = self.sources.get(&way[at]);
            for key in sources.into_iter().flat_map(BTreeMap::keys) {
                if way.len() == WAY_MAX || *steps == 0 {
                    break;
                }
                *steps -= 1;
                let is_known = way.iter().any(|(_, known)| known == key);
                if !is_known {
                    way.push((queue, key.clone()));
                }
            }
            at += 1;
        }
        None
    }

    /// Wakes a client's connection when the first of `place` is awake no longer.
    pub(super) fn hold(&mut self, place: Place, (client, waker): (u64, &Waker)) {
        let held = self.held.entry(place).or_default();
        held.insert(client, waker.clone());
    }

    /// Returns a key that is awaited by one who is awake. Looks at all of them.
    pub(super) fn any_awake(&self) -> Option<Place> {
        let mut places = self.by_key.keys();
        places.find(|place| self.is_awake(place)).cloned()
    }

    /// Returns a key that is awaited by one who is awake, and would change another key.
    pub(super) fn mover(&self) -> Option<Place> {
        self.movers.last().cloned()
    }

    /// One that was the first of `place`, and may have moved elements, is awake no longer. Adds the
    /// wakers of those who are held for it, unless the next one is awake.
    fn end(&mut self, signs: &Signs, (place, moves): (&Place, bool), wakers: &mut Vec<Waker>) {
        signs.end(&place.1);
        if moves && let Some(at) = self.movers.iter().position(|of| of == place) {
            self.movers.swap_remove(at);
        }
        if !self.held.is_empty()
            && !self.is_awake(place)
            && let Some(held) = self.held.remove(place)
        {
            wakers.extend(held.into_values());
        }
    }
}
