//! The queues of those who wait for keys, which the lock of [`super::Waiters`] guards, and the
//! signs that others read without it.
//!
//! A client is *awake* for a key from its wake-up until its command has ended or waits again. Only
//! the first of a queue ever is: it alone is woken, and who comes later is behind it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::task::Waker;

use pando_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::data::keyspace::ValueType;

/// Number of a queue (see [`super::queue_of`]), and a key in it.
pub(super) type Place = (usize, Vec<u8>);

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
    waker: Waker,
    state: State,
    /// It moves what it takes to another key.
    moves: bool,
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

/// A client's number, the keys that it waits for, and the one to which it would move an element.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) places: Vec<Place>,
    pub(super) target: Option<Place>,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Number of the next registration: a smaller one has waited longer.
    next: u64,
    by_key: HashMap<Place, BTreeMap<u64, Waiter>>,
    /// For each key to which those who wait would move elements: the keys that they wait for, and
    /// how many do.
    sources: HashMap<Place, BTreeMap<Vec<u8>, usize>>,
    /// Queues whose first is awake, and would change another key.
    movers: Vec<Place>,
    /// Connections whose command waits until the first of a queue is awake no longer, by their
    /// clients.
    held: HashMap<Place, BTreeMap<u64, Waker>>,
}

impl Queues {
    /// Adds one who waits for `keys` of a queue.
    pub(super) fn register<'k>(
        &mut self,
        signs: &Signs,
        (queue, keys): (usize, impl Iterator<Item = &'k [u8]>),
        target: Option<&[u8]>,
        waker: &Waker,
    ) -> Entry {
        let number = self.next;
        self.next += 1;
        let mut places = Vec::new();
        for key in keys {
            let place = (queue, key.to_vec());
            let waiter = Waiter {
                waker: waker.clone(),
                state: State::Asleep,
                moves: target.is_some(),
            };
            let waiters = self.by_key.entry(place.clone()).or_default();
            // A key that is named twice is one.
            if waiters.insert(number, waiter).is_none() {
                if waiters.len() == 1 && !is_for_all(queue) {
                    signs.awaited.add(signs.of(key));
                }
                places.push(place);
            }
        }
        let target = target.map(|key| (queue, key.to_vec()));
        if let (Some(target), Some(source)) = (&target, places.first()) {
            let sources = self.sources.entry(target.clone()).or_default();
            *sources.entry(source.1.clone()).or_default() += 1;
            signs.holding.add(signs.of(&target.1));
        }
        Entry {
            number,
            places,
            target,
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
        for waiter in queue.values_mut().take(most) {
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

    /// Notes that one looks at its keys, but those that belong to somebody before it, who is awake:
    /// returns these.
    pub(super) fn look(&mut self, entry: &Entry) -> Vec<Vec<u8>> {
        let mut awaited = Vec::new();
        for place in &entry.places {
            let Some(queue) = self.by_key.get_mut(place) else {
                continue;
            };
            let is_for_all = is_for_all(place.0);
            let first = queue.first_key_value();
            if !is_for_all
                && first
                    .is_some_and(|(of, first)| *of < entry.number && first.state != State::Asleep)
            {
                awaited.push(place.1.clone());
                continue;
            }
            match queue.get_mut(&entry.number) {
                Some(own) if is_for_all => own.state = State::Asleep,
                Some(own) if own.state == State::Woken => own.state = State::Looking,
                _ => {}
            }
        }
        awaited
    }

    /// Notes that one that has looked waits again; it stays awake for keys for which it was woken
    /// since. The wakers are to be called without the lock.
    pub(super) fn sleep(&mut self, signs: &Signs, entry: &Entry, wakers: &mut Vec<Waker>) {
        for place in &entry.places {
            let own = self.by_key.get_mut(place);
            let own = own.and_then(|queue| queue.get_mut(&entry.number));
            if let Some(own) = own.filter(|own| own.state == State::Looking) {
                own.state = State::Asleep;
                let moves = own.moves;
                self.end(signs, (place, moves), wakers);
            }
        }
    }

    /// Removes one that waits no longer. It may have looked at a key and gone without what is
    /// there: whoever is next looks, too.
    pub(super) fn remove(&mut self, signs: &Signs, entry: &Entry, wakers: &mut Vec<Waker>) {
        for place in &entry.places {
            let Some(queue) = self.by_key.get_mut(place) else {
                continue;
            };
            let own = queue.remove(&entry.number);
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
        let Some(target) = &entry.target else {
            return;
        };
        signs.holding.remove(signs.of(&target.1));
        let source = entry.places.first().map(|place| &place.1);
        if let (Some(sources), Some(source)) = (self.sources.get_mut(target), source) {
            if let Some(count) = sources.get_mut(source) {
                *count -= 1;
                if *count == 0 {
                    sources.remove(source);
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

    /// Returns all keys that are awaited.
    pub(super) fn places(&self) -> Vec<Place> {
        self.by_key.keys().cloned().collect()
    }

    /// Returns true if somebody waits for `place`.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.by_key.contains_key(place)
    }

    /// Returns true if the first who waits for `place` is awake.
    pub(super) fn is_awake(&self, place: &Place) -> bool {
        let queue = self.by_key.get(place).filter(|_| !is_for_all(place.0));
        let first = queue.and_then(|queue| queue.values().next());
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
