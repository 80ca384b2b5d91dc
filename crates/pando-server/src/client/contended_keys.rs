//! Keys that several loops write at the same time: their loops take turns.
//!
//! Commands run without locks, and who commits second runs again. Where two loops write one key in
//! pipelines, every other run of commands is for nothing. So a key that has met conflicts in
//! succession is *contended*: a loop that is about to run a command that writes it takes the key's
//! turn first, and keeps it to the end of its round, for all its connections, or until a command
//! follows when it has had it for some milliseconds. Connections of other loops wait meanwhile:
//! they have not begun, and hold nothing. The turn then goes to the loop that has waited longest,
//! before any other can take it again. A key that nobody has waited for in many rounds, or that
//! nobody writes for a while, is contended no longer.
//!
//! Taking turns helps commands that end within a round. One that takes longer, and finds its key
//! written at each of its commits, *reserves* the key: nobody begins to write it until that command
//! has ended, or a time is over. What ends the command ends the reservation. Where its connection
//! gets no turn meanwhile, whoever asks for the key or cools keys down finds that the time is over,
//! and ends it; the end of the command then finds another reservation or none, and leaves it.
//!
//! **Turns decide nothing about what is right.** The commit checks what its batch has read, whoever
//! has the turn. So a command that writes the key without asking, or goes on after its round since
//! it waits for a page, costs a conflict and nothing else.
//!
//! **Nobody waits for ever.** A loop gives all its turns back at the end of each round, and never
//! waits within one. A turn that is handed to a loop is noted in its [`ContendedKeys::turns`]
//! first. Then its connections are woken, and the loop itself is told to have a round, since these
//! connections may be gone. A round begins by looking at who was woken, and gives the turn back at
//! its end, whether a connection has used it or not. It may have been handed the turn near the end
//! of an earlier round, which leaves an unused turn where it is: then the next round, which follows
//! at once, gives it back. All else is done under the lock of the key's place.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;
use std::task::Waker;

use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pando_sync::time::Instant;
use pando_sync::{Mutex, Rank};

/// Number of keys that can be contended at a time: one for each bit of [`ContendedKeys::turns`].
const PLACES: usize = 64;
/// Number of rounds, one after the other, that have had a turn for which nobody waited, after
/// which the key is contended no longer.
const CALM_ROUNDS: u32 = 256;

/// A key by its hash. Two keys with one hash take turns together, which costs time only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContendedKey(NonZeroU64);

impl ContendedKey {
    fn place(self) -> usize {
        let place = usize::try_from(self.0.get() % PLACES as u64);
        place.expect("it is smaller than the number of places")
    }
}

/// Whether a command that writes a key may run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Entry {
    /// It may run.
    Now,
    /// Another loop has the turn, or a command has reserved the key; the connection is woken when
    /// its loop gets the turn.
    Later,
}

/// A reservation of a key, by its number: it may have ended, and another one begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserved(u64);

/// The contended keys of a server, shared by its loops.
#[derive(Debug)]
pub(crate) struct ContendedKeys {
    /// Unknown to clients, so that they cannot choose keys that share a place.
    hasher: RandomState,
    /// Number of keys that are contended at present: while it is 0, commands look at nothing else.
    count: AtomicUsize,
    places: Box<[Place]>,
    /// For each loop, the places whose turn it has.
    turns: Box<[AtomicU64]>,
}

#[derive(Debug)]
struct Place {
    /// The contended key; 0: none. Written under the lock.
    key: AtomicU64,
    /// Held for a look-up or a change, never across a call.
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// The key of the last conflict here. If the next one is of the same key, that is contended.
    suspect: Option<ContendedKey>,
    /// The loop that has the turn.
    holder: Option<usize>,
    /// A command of the holder has run since it has the turn.
    is_used: bool,
    /// The holder has ended a round without using it.
    is_seen: bool,
    /// A command that runs is to be the only one until then: nobody gets the turn.
    reserved: Option<(Reserved, Instant)>,
    /// Number of reservations so far.
    reservations: u64,
    /// Connections that wait, with their loops; whoever has waited longest is first.
    queue: Vec<(usize, Waker)>,
    /// Number of turns for which nobody has waited, in succession.
    calm: u32,
    /// Somebody has had the turn since [`ContendedKeys::cool`] has looked.
    is_fresh: bool,
}

impl ContendedKeys {
    /// Returns the keys of a server with so many loops; none is contended.
    pub(crate) fn new(loops: usize) -> Self {
        let place = |_| Place {
            key: AtomicU64::new(0),
            turn: Mutex::new(Rank::Leaf, Turn::default()),
        };
        Self {
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            places: (0..PLACES).map(place).collect(),
            turns: (0..loops).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns true if any key is contended.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed, as all loads outside of the locks: who misses a change meets a conflict.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns what stands for `key` of a database here.
    pub(crate) fn key(&self, database: usize, key: &[u8]) -> ContendedKey {
        let hash = self.hasher.hash_one((database, key));
        ContendedKey(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// Records that a commit of a command that writes `key` met a conflict.
    #[cold]
    pub(crate) fn met_conflict(&self, key: ContendedKey) {
        let place = &self.places[key.place()];
        let mut turn = place.turn.lock();
        if turn.suspect.replace(key) != Some(key) {
            return;
        }
        let old = place.key.load(Ordering::Relaxed);
        // Those who wait here wait for the turn of the old key.
        if old != key.0.get() && turn.is_free() {
            self.begin_contention(place, &mut turn, key);
        }
    }

    /// Makes the key of a place this one, which is contended.
    fn begin_contention(&self, place: &Place, turn: &mut Turn, key: ContendedKey) {
        if place.key.load(Ordering::Relaxed) == 0 {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        place.key.store(key.0.get(), Ordering::Relaxed);
        (turn.calm, turn.is_fresh) = (0, true);
    }

    /// Has nobody begin to write `key` until [`ContendedKeys::end_reservation`], or the time
    /// `until`; `None` if another command has reserved it, or if its place is taken.
    #[cold]
    pub(crate) fn reserve(&self, key: ContendedKey, until: Instant) -> Option<Reserved> {
        let place = &self.places[key.place()];
        let mut turn = place.turn.lock();
        if place.key.load(Ordering::Relaxed) != key.0.get() {
            if !turn.is_free() {
                return None;
            }
            self.begin_contention(place, &mut turn, key);
        }
        if turn.reserved.is_some() {
            return None;
        }
        turn.reservations += 1;
        let reserved = Reserved(turn.reservations);
        turn.reserved = Some((reserved, until));
        Some(reserved)
    }

    /// Ends what [`ContendedKeys::reserve`] has begun, unless it has ended: who has waited longest
    /// gets the turn, unless a loop still has it. `tell` as in [`ContendedKeys::end_round`].
    #[cold]
    pub(crate) fn end_reservation(
        &self,
        key: ContendedKey,
        reserved: Reserved,
        tell: impl Fn(usize),
    ) {
        let place = &self.places[key.place()];
        let mut turn = place.turn.lock();
        if !turn.reserved.is_some_and(|(of, _)| of == reserved) {
            return;
        }
        assert_eq!(place.key.load(Ordering::Relaxed), key.0.get(), "it stays");
        let woken = self.free(key.place(), place, &mut turn);
        drop(turn);
        wake(woken, &tell);
    }

    /// Ends the reservation of a place. Returns what [`ContendedKeys::hand_on`] does.
    fn free(&self, number: usize, place: &Place, turn: &mut Turn) -> Option<(usize, Vec<Waker>)> {
        turn.reserved = None;
        match turn.holder {
            Some(_) => None,
            None => self.hand_on(number, place, turn),
        }
    }

    /// Asks whether a connection of the loop with number `of` may run a command that writes `key`.
    /// If not, `waker` is called when it may ask again. `tell` as in [`ContendedKeys::end_round`].
    pub(crate) fn enter(
        &self,
        key: ContendedKey,
        (of, waker): (usize, &Waker),
        now: Instant,
        tell: impl Fn(usize),
    ) -> Entry {
        let place = &self.places[key.place()];
        if place.key.load(Ordering::Relaxed) != key.0.get() {
            return Entry::Now;
        }
        let mut turn = place.turn.lock();
        if place.key.load(Ordering::Relaxed) != key.0.get() {
            return Entry::Now;
        }
        let may_run = match turn.holder {
            _ if turn.reserved.is_some() => false,
            Some(holder) => holder == of,
            None => {
                debug_assert!(turn.queue.is_empty(), "a free turn is handed to who waits");
                turn.take(of);
                self.turns[of].fetch_or(1 << key.place(), Ordering::Relaxed);
                true
            }
        };
        if may_run {
            turn.is_used = true;
            return Entry::Now;
        }
        turn.wait(of, waker);
        // It waits as all others, and may be the one that is woken.
        if turn.is_overdue(now) {
            let woken = self.free(key.place(), place, &mut turn);
            drop(turn);
            wake(woken, &tell);
        }
        Entry::Later
    }

    /// Gives back the turns of the loop with number `of`, whose round is over. `tell` has another
    /// loop have a round, since it has been handed a turn. Returns true if this loop has been
    /// handed one that it has not used yet: its next round has to follow at once.
    #[inline]
    pub(crate) fn end_round(&self, of: usize, tell: impl Fn(usize)) -> bool {
        let turns = self.turns[of].load(Ordering::Relaxed);
        turns != 0 && self.give_back(of, turns, true, &tell)
    }

    /// As [`ContendedKeys::end_round`], in the middle of a long round: turns that the loop has been
    /// handed and has not used stay.
    #[inline]
    pub(crate) fn end_turns(&self, of: usize, tell: impl Fn(usize)) {
        let turns = self.turns[of].load(Ordering::Relaxed);
        if turns != 0 {
            self.give_back(of, turns, false, &tell);
        }
    }

    fn give_back(&self, of: usize, turns: u64, at_end: bool, tell: &dyn Fn(usize)) -> bool {
        let mut is_unused = false;
        for number in (0..PLACES).filter(|number| turns & 1 << number != 0) {
            let place = &self.places[number];
            let mut turn = place.turn.lock();
            assert_eq!(turn.holder, Some(of), "the loop has the turn");
            let is_done = turn.is_used || at_end && turn.is_seen;
            if !is_done {
                turn.is_seen |= at_end;
                is_unused = true;
                continue;
            }
            self.turns[of].fetch_and(!(1 << number), Ordering::Relaxed);
            let woken = self.hand_on(number, place, &mut turn);
            drop(turn);
            wake(woken, tell);
        }
        is_unused
    }

    /// Looks for keys that nobody has written since the last call: they are contended no longer;
    /// and ends reservations whose time is over. To be called now and then by one loop. `tell` as
    /// in [`ContendedKeys::end_round`].
    pub(crate) fn cool(&self, now: Instant, tell: impl Fn(usize)) {
        for (number, place) in self.places.iter().enumerate().filter(|_| self.any()) {
            let mut turn = place.turn.lock();
            if turn.is_overdue(now) {
                let woken = self.free(number, place, &mut turn);
                drop(turn);
                wake(woken, &tell);
                continue;
            }
            let is_idle = turn.is_free() && !std::mem::take(&mut turn.is_fresh);
            if is_idle && place.key.load(Ordering::Relaxed) != 0 {
                self.end_contention(place, &mut turn);
            }
        }
    }

    /// Makes the key of a place one that is not contended.
    fn end_contention(&self, place: &Place, turn: &mut Turn) {
        place.key.store(0, Ordering::Relaxed);
        turn.suspect = None;
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands the turn of a place to the loop that has waited longest. Returns that loop and its
    /// wakers, to be called without the lock.
    fn hand_on(
        &self,
        number: usize,
        place: &Place,
        turn: &mut Turn,
    ) -> Option<(usize, Vec<Waker>)> {
        turn.holder = None;
        if turn.reserved.is_some() {
            return None;
        }
        let Some((next, _)) = turn.queue.first() else {
            turn.calm += 1;
            if turn.calm >= CALM_ROUNDS {
                self.end_contention(place, turn);
            }
            return None;
        };
        let next = *next;
        turn.calm = 0;
        turn.take(next);
        self.turns[next].fetch_or(1 << number, Ordering::Relaxed);
        let (woken, others) = (turn.queue.drain(..)).partition(|(of, _)| *of == next);
        turn.queue = others;
        let woken: Vec<(usize, Waker)> = woken;
        Some((next, woken.into_iter().map(|(_, waker)| waker).collect()))
    }
}

/// Wakes those who have been handed a turn, without the lock of its place.
fn wake(woken: Option<(usize, Vec<Waker>)>, tell: &dyn Fn(usize)) {
    if let Some((next, wakers)) = woken {
        wakers.into_iter().for_each(Waker::wake);
        tell(next);
    }
}

impl Turn {
    /// Returns true if nobody has it, waits for it, or has reserved it.
    fn is_free(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty() && self.reserved.is_none()
    }

    /// Returns true if it is reserved, and has been for long enough.
    fn is_overdue(&self, now: Instant) -> bool {
        self.reserved.is_some_and(|(_, until)| until <= now)
    }

    /// Puts a connection into the queue, once: it asks again after each event of its own.
    fn wait(&mut self, of: usize, waker: &Waker) {
        if !self.queue.iter().any(|(_, other)| other.will_wake(waker)) {
            self.queue.push((of, waker.clone()));
        }
    }

    fn take(&mut self, of: usize) {
        self.holder = Some(of);
        (self.is_used, self.is_seen) = (false, false);
        self.is_fresh = true;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use pando_sync::WakerArc;
    use pando_sync::atomic::AtomicBool;
    use pando_sync::thread::{self, ScopedJoinHandle, Thread};
    use pando_sync::time::{Duration, now};

    use super::*;

    /// Notes that it was woken, and wakes a thread if there is one.
    #[derive(Debug)]
    struct Woken(AtomicBool, Option<Thread>);

    impl Wake for Woken {
        fn wake(self: WakerArc<Self>) {
            self.0.store(true, Ordering::SeqCst);
            self.1.iter().for_each(Thread::unpark);
        }
    }

    impl Woken {
        fn take(&self) -> bool {
            self.0.swap(false, Ordering::SeqCst)
        }
    }

    fn waiting(thread: Option<Thread>) -> (WakerArc<Woken>, Waker) {
        let woken = WakerArc::new(Woken(AtomicBool::new(false), thread));
        (woken.clone(), Waker::from(woken))
    }

    fn contended(keys: &ContendedKeys, name: &[u8]) -> ContendedKey {
        let key = keys.key(0, name);
        keys.met_conflict(key);
        keys.met_conflict(key);
        key
    }

    /// Asks before any reservation is overdue.
    fn enter(keys: &ContendedKeys, key: ContendedKey, of: usize, waker: &Waker) -> Entry {
        keys.enter(key, (of, waker), now(), |_| panic!("nobody gets the turn"))
    }

    fn later() -> Instant {
        now() + Duration::from_secs(1000)
    }

    /// One conflict is chance; conflicts of other keys in between show that it was.
    #[test]
    fn a_key_is_contended_from_its_second_conflict_in_succession() {
        let keys = ContendedKeys::new(2);
        let key = keys.key(0, b"k");
        let other = (0..).map(|n: u32| keys.key(1, &n.to_le_bytes()));
        let mut other = other.filter(|other| other.place() == key.place());
        let other = other.next().expect("keys without end");
        let (_, waker) = waiting(None);
        for conflict in [key, other, key, other, key] {
            keys.met_conflict(conflict);
            assert!(!keys.any());
            assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
            assert_eq!(enter(&keys, key, 1, &waker), Entry::Now);
        }
        keys.met_conflict(key);
        assert!(keys.any());
        assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &waker), Entry::Later);
        assert_eq!(enter(&keys, other, 1, &waker), Entry::Now, "another key");
        // While somebody waits for it, the place is not given to another key.
        keys.met_conflict(other);
        keys.met_conflict(other);
        assert_eq!(enter(&keys, key, 1, &waker), Entry::Later);
    }

    /// The turn goes to who waits before its last holder can take it again, for all connections of
    /// that loop; the next loop waits on.
    #[test]
    fn the_turn_goes_round() {
        let keys = ContendedKeys::new(3);
        let key = contended(&keys, b"k");
        let ((one, one_waker), (two, two_waker)) = (waiting(None), waiting(None));
        let (three, three_waker) = waiting(None);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &one_waker), Entry::Later);
        assert_eq!(enter(&keys, key, 2, &two_waker), Entry::Later);
        assert_eq!(enter(&keys, key, 1, &three_waker), Entry::Later);
        assert_eq!(enter(&keys, key, 0, &two_waker), Entry::Now, "in one round");
        assert!(!keys.end_round(0, |_| {}));
        assert!(one.take() && three.take() && !two.take());
        assert_eq!(enter(&keys, key, 0, &three_waker), Entry::Later);
        assert_eq!(enter(&keys, key, 1, &one_waker), Entry::Now);
        assert!(!keys.end_round(0, |_| {}), "it has none");
        assert!(!two.take());
        assert!(!keys.end_round(1, |_| {}));
        assert!(two.take() && !three.take());
        assert_eq!(enter(&keys, key, 2, &two_waker), Entry::Now);
        assert!(!keys.end_round(2, |_| {}));
        assert!(three.take());
    }

    /// A loop whose connection is gone when its turn comes passes it on after a second round.
    #[test]
    fn a_turn_that_nobody_uses_is_passed_on() {
        let keys = ContendedKeys::new(2);
        let key = contended(&keys, b"k");
        let ((gone, gone_waker), (next, next_waker)) = (waiting(None), waiting(None));
        assert_eq!(enter(&keys, key, 0, &next_waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &gone_waker), Entry::Later);
        assert!(!keys.end_round(0, |_| {}));
        assert!(gone.take());
        assert_eq!(enter(&keys, key, 0, &next_waker), Entry::Later);
        assert!(keys.end_round(1, |_| {}), "its next round follows");
        assert!(!next.take());
        assert!(!keys.end_round(1, |_| {}));
        assert!(next.take());
        assert_eq!(enter(&keys, key, 0, &next_waker), Entry::Now);
    }

    /// Nobody begins, of no loop, until the reservation ends; then they take turns again.
    #[test]
    fn a_reserved_key_is_written_by_nobody_else() {
        let keys = ContendedKeys::new(2);
        let key = keys.key(0, b"k");
        let ((one, one_waker), (two, two_waker)) = (waiting(None), waiting(None));
        let reserved = keys.reserve(key, later());
        let reserved = reserved.expect("a key that has no conflicts yet");
        assert_eq!(keys.reserve(key, later()), None, "once");
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Later);
        assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Later);
        (0..3).for_each(|_| keys.cool(now(), |_| {}));
        assert!(!keys.end_round(0, |_| {}) && !keys.end_round(1, |_| {}));
        assert!(!one.take() && !two.take());
        let told = AtomicUsize::new(0);
        keys.end_reservation(key, reserved, |of| told.store(of + 1, Ordering::Relaxed));
        assert!(one.take() && !two.take());
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
        // A loop that has the turn loses it at the end of its round.
        let reserved = keys.reserve(key, later()).expect("it is free");
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Later);
        assert!(!keys.end_round(0, |_| {}));
        assert!(!two.take());
        keys.end_reservation(key, reserved, |_| {});
        assert!(two.take() && !one.take());
        assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Now);
        let reserved = keys.reserve(key, later()).expect("it is free");
        keys.end_reservation(key, reserved, |_| panic!("a loop has the turn"));
        assert!(!keys.end_round(1, |_| {}));
        assert!(one.take());
        // The place is kept for it, and is given to another key afterwards.
        let other = (0..).map(|n: u32| keys.key(1, &n.to_le_bytes()));
        let mut other = other.filter(|other| other.place() == key.place());
        let other = other.next().expect("keys without end");
        assert_eq!(keys.reserve(other, later()), None);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
        assert!(!keys.end_round(0, |_| {}));
        let reserved = keys.reserve(other, later()).expect("it is free");
        assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Now);
        keys.end_reservation(other, reserved, |_| panic!("nobody waits"));
    }

    /// A holder that gets no turn: whoever asks ends its reservation, or else the one who looks now
    /// and then. Its end, when it comes at last, leaves the next reservation.
    #[test]
    fn an_overdue_reservation_ends_without_its_holder() {
        let keys = ContendedKeys::new(2);
        let key = keys.key(0, b"k");
        let ((one, one_waker), (two, two_waker)) = (waiting(None), waiting(None));
        let told = AtomicUsize::new(0);
        let tell = |of| told.store(of + 1, Ordering::Relaxed);
        let begin = now();
        let (early, late) = (
            begin + Duration::from_secs(1),
            begin + Duration::from_secs(2),
        );
        let first = keys.reserve(key, late).expect("it is free");
        assert_eq!(keys.enter(key, (0, &one_waker), early, tell), Entry::Later);
        assert!(!one.take());
        assert_eq!(keys.enter(key, (1, &two_waker), late, tell), Entry::Later);
        assert!(one.take() && !two.take(), "who has waited longest");
        assert_eq!(told.swap(0, Ordering::Relaxed), 1);
        assert_eq!(keys.enter(key, (0, &one_waker), late, tell), Entry::Now);
        let second = keys.reserve(key, late).expect("the first one has ended");
        keys.end_reservation(key, first, |_| panic!("it has ended"));
        assert_eq!(keys.reserve(key, late), None, "the second one goes on");
        assert!(!keys.end_round(0, tell));
        keys.cool(early, tell);
        assert!(!two.take());
        keys.cool(late, tell);
        assert!(two.take());
        assert_eq!(told.load(Ordering::Relaxed), 2);
        assert_eq!(keys.enter(key, (1, &two_waker), late, tell), Entry::Now);
        keys.end_reservation(key, second, |_| panic!("it has ended"));
        assert!(!keys.end_round(1, tell));
    }

    /// A connection that is woken for something else asks again, and is in the queue once.
    #[test]
    fn who_asks_again_waits_once() {
        let keys = ContendedKeys::new(2);
        let key = contended(&keys, b"k");
        let ((_, one_waker), (_, two_waker)) = (waiting(None), waiting(None));
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
        for _ in 0..3 {
            assert_eq!(enter(&keys, key, 1, &one_waker), Entry::Later);
            assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Later);
        }
        assert_eq!(keys.places[key.place()].turn.lock().queue.len(), 2);
    }

    /// Where nobody waits any more, nobody takes turns.
    #[test]
    fn a_key_calms_down() {
        let keys = ContendedKeys::new(2);
        let key = contended(&keys, b"k");
        let (_, waker) = waiting(None);
        let round = || {
            assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
            assert!(!keys.end_round(0, |_| {}));
        };
        (1..CALM_ROUNDS).for_each(|_| round());
        assert!(keys.any());
        assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &waker), Entry::Later);
        assert!(!keys.end_round(0, |_| {}));
        assert_eq!(enter(&keys, key, 1, &waker), Entry::Now);
        assert!(!keys.end_round(1, |_| {}));
        assert!(keys.any(), "somebody has waited");
        (2..CALM_ROUNDS).for_each(|_| round());
        assert!(keys.any());
        round();
        assert!(!keys.any());
        assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &waker), Entry::Now);
        keys.met_conflict(key);
        assert!(!keys.any(), "it begins anew");
    }

    /// In the middle of a long round turns that were used go on, and those that were not stay. The
    /// next loop is told, whether its connection is still there or not.
    #[test]
    fn a_long_round_gives_turns_back() {
        let keys = ContendedKeys::new(2);
        let key = contended(&keys, b"k");
        let ((_, one_waker), (two, two_waker)) = (waiting(None), waiting(None));
        let told = AtomicUsize::new(0);
        let tell = |of| told.store(of + 1, Ordering::Relaxed);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
        assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Later);
        keys.end_turns(0, tell);
        assert!(two.take());
        assert_eq!(told.load(Ordering::Relaxed), 2);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Later);
        keys.end_turns(1, tell);
        keys.end_turns(1, tell);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Later, "it waits");
        assert_eq!(enter(&keys, key, 1, &two_waker), Entry::Now);
        keys.end_turns(1, tell);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(enter(&keys, key, 0, &one_waker), Entry::Now);
    }

    /// A key that nobody writes any more is forgotten, and one that somebody writes is not.
    #[test]
    fn keys_cool_down() {
        let keys = ContendedKeys::new(2);
        let key = contended(&keys, b"k");
        let (_, waker) = waiting(None);
        keys.cool(now(), |_| {});
        assert_eq!(enter(&keys, key, 0, &waker), Entry::Now);
        keys.cool(now(), |_| {});
        keys.cool(now(), |_| {});
        assert!(keys.any(), "somebody has the turn");
        assert!(!keys.end_round(0, |_| {}));
        keys.cool(now(), |_| {});
        assert!(keys.any());
        keys.cool(now(), |_| {});
        assert!(!keys.any());
    }

    /// Loops that sleep until they are woken, over two keys, some of whose connections go away
    /// while they wait: all come to their end, one at a time with each key.
    #[test]
    fn no_loop_sleeps_for_ever() {
        const LOOPS: usize = 16;
        let keys = ContendedKeys::new(LOOPS);
        let one = contended(&keys, b"one");
        let others = (0..).map(|n: u32| keys.key(1, &n.to_le_bytes()));
        let mut others = others.filter(|other| other.place() != one.place());
        let two = others.next().expect("keys without end");
        (0..2).for_each(|_| keys.met_conflict(two));
        let both = [one, two];
        let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let one_loop = |of: usize| {
            let (woken, waker) = waiting(Some(thread::current()));
            let mut left = 300;
            while left > 0 {
                let which = (of + left) % 2;
                let entry = enter(&keys, both[which], of, &waker);
                match entry {
                    Entry::Now => {
                        assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        assert_eq!(inside[which].fetch_sub(1, Ordering::SeqCst), 1);
                        left -= 1;
                    }
                    // The connection is closed, and the next one writes the other key.
                    Entry::Later if left % 3 == 0 => left -= 1,
                    Entry::Later => {
                        while keys.end_round(of, |_| {}) {}
                        while !woken.take() {
                            thread::park();
                        }
                        continue;
                    }
                }
                while keys.end_round(of, |_| {}) {}
            }
            // Whoever was closed may still be handed a turn: the loop lives on.
            thread::yield_now();
        };
        thread::scope(|scope| {
            let loops: Vec<_> = (0..LOOPS)
                .map(|of| scope.spawn(move || (one_loop)(of)))
                .collect();
            while !loops.iter().all(ScopedJoinHandle::is_finished) {
                // Loops that have ended give back what they are handed.
                let ended = (0..LOOPS).filter(|of| loops[*of].is_finished());
                ended.for_each(|of| while keys.end_round(of, |_| {}) {});
                thread::yield_now();
            }
        });
    }
}
