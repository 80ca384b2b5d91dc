//! Clients that wait, push and are held, in every order that chance finds: all that the queues do
//! is under one lock, so a model of one thread has all orders of its steps.

use std::task::Wake;

use fastrand::Rng;
use pando_sync::WakerArc;
use pando_sync::atomic::AtomicBool;

use super::*;

const KEYS: usize = 4;
const CLIENTS: usize = 6;

#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: WakerArc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

fn name(key: usize) -> Vec<u8> {
    vec![b'a' + u8::try_from(key).unwrap()]
}

fn place(key: usize) -> Place {
    (queue_of(0, ValueType::List), name(key).into())
}

/// What a client that waits does next.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Looks,
    /// Reads the keys but these, which belong to others.
    Reads(Vec<Vec<u8>>),
    /// It has read that they are empty.
    Sleeps,
    Asleep,
}

struct Client {
    registration: Registration,
    keys: Vec<usize>,
    target: Option<usize>,
    phase: Phase,
    /// It has slept since it registered.
    has_slept: bool,
    /// Those with smaller numbers have waited longer.
    number: usize,
}

/// Returns true if somebody has waited for `key` longer than one with this number.
fn waits_longer(clients: &[Option<Client>], number: usize, key: usize) -> bool {
    let mut others = clients.iter().flatten();
    others.any(|of| of.has_slept && of.number < number && of.keys.contains(&key))
}

struct Model {
    rng: Rng,
    waiters: Arc<Waiters>,
    /// Number of elements of each key.
    elements: [usize; KEYS],
    /// Keys whose elements were committed, and nobody was woken yet.
    unwoken: Vec<usize>,
    clients: [Option<Client>; CLIENTS],
    /// Number of clients that have registered.
    registered: usize,
    woken: [WakerArc<Woken>; CLIENTS],
    /// Those who are held, and were not woken yet.
    held: Vec<WakerArc<Woken>>,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            waiters: Arc::default(),
            elements: [0; KEYS],
            unwoken: Vec::new(),
            clients: Default::default(),
            registered: 0,
            woken: Default::default(),
            held: Vec::new(),
        }
    }

    fn is_held(&self, key: usize) -> bool {
        let name = name(key);
        self.waiters.hold([(0, &name[..])].into_iter(), None)
    }

    fn register(&mut self, at: usize) {
        let first = self.rng.usize(..KEYS);
        let (mut keys, mut target) = (vec![first], None);
        match self.rng.u8(..3) {
            0 => target = Some(self.rng.usize(..KEYS)),
            1 => keys.push((first + self.rng.usize(1..KEYS)) % KEYS),
            _ => {}
        }
        let names: Vec<Vec<u8>> = keys.iter().map(|key| name(*key)).collect();
        let waited = (place(0).0, names.iter().map(Vec::as_slice));
        let waker = Waker::from(self.woken[at].clone());
        let of = target.map(name);
        let registration = self
            .waiters
            .register(waited, of.as_deref(), &waker, u64::MAX);
        self.clients[at] = Some(Client {
            registration: registration.unwrap(),
            keys,
            target,
            phase: Phase::Looks,
            has_slept: false,
            number: self.registered,
        });
        self.registered += 1;
    }

    /// Has a client go on; returns false if it waits or is not there.
    fn go_on(&mut self, at: usize) -> bool {
        let clients = &self.clients;
        let waits_longer = |key: usize| {
            let number = clients[at].as_ref().map(|of| of.number);
            number.is_some_and(|number| waits_longer(clients, number, key))
        };
        let overtakes: [bool; KEYS] = std::array::from_fn(waits_longer);
        let Some(client) = &mut self.clients[at] else {
            return false;
        };
        match &client.phase {
            Phase::Asleep if !self.woken[at].take() => return false,
            Phase::Asleep | Phase::Looks => {
                let others = client.registration.look();
                for key in client.keys.iter().filter(|key| overtakes[**key]) {
                    assert!(others.contains(&name(*key)), "others wait for {key} longer");
                }
                client.phase = Phase::Reads(others);
            }
            Phase::Reads(others) => {
                let is_free = |key: &&usize| !others.contains(&name(**key));
                let mut free = client.keys.iter().filter(is_free);
                match free.find(|key| self.elements[**key] > 0) {
                    Some(key) => {
                        self.elements[*key] -= 1;
                        if let Some(target) = client.target {
                            self.elements[target] += 1;
                            self.waiters.wake(&[place(target)]);
                        }
                        self.clients[at] = None;
                        self.woken[at].take();
                    }
                    None => client.phase = Phase::Sleeps,
                }
            }
            Phase::Sleeps => {
                client.registration.sleep();
                client.phase = Phase::Asleep;
                client.has_slept = true;
            }
        }
        true
    }

    fn wake_for_one(&mut self) -> bool {
        if self.unwoken.is_empty() {
            return false;
        }
        let key = self
            .unwoken
            .swap_remove(self.rng.usize(..self.unwoken.len()));
        self.waiters.wake(&[place(key)]);
        true
    }

    fn step(&mut self) {
        let at = self.rng.usize(..CLIENTS);
        match self.rng.u8(..10) {
            0 if self.clients[at].is_none() => self.register(at),
            // It is killed, or its time is over.
            1 if self.rng.u8(..8) == 0 => {
                self.clients[at] = None;
                self.woken[at].take();
            }
            2 => {
                let key = self.rng.usize(..KEYS);
                self.elements[key] += 1;
                self.unwoken.push(key);
            }
            // Others take elements.
            3 => {
                let key = self.rng.usize(..KEYS);
                self.elements[key] = self.elements[key].saturating_sub(1);
            }
            4 => {
                let woken = WakerArc::new(Woken::default());
                let waker = Waker::from(woken.clone());
                let (key, client) = (name(self.rng.usize(..KEYS)), self.rng.u64(..));
                let held = Some((client, &waker));
                if self.waiters.hold([(0, &key[..])].into_iter(), held) {
                    self.held.push(woken);
                }
            }
            5 | 6 => {
                self.wake_for_one();
            }
            // It has a turn for another reason.
            7 if self.rng.bool() => self.woken[at].wake_by_ref(),
            _ => {
                self.go_on(at);
            }
        }
    }

    /// Nobody comes between a commit whose wake-ups are done and those who wait.
    fn check(&self) {
        let mut queues: Vec<Place> = Vec::new();
        for client in self.clients.iter().flatten() {
            for key in &client.keys {
                queues.push(place(*key));
                let is_due = self.elements[*key] > 0 && client.has_slept;
                if is_due && !self.unwoken.contains(key) {
                    assert!(self.waiters.is_anyone_awake(), "{key}");
                    assert!(self.is_held(*key), "{key} has elements, and is awaited");
                }
            }
        }
        queues.sort();
        queues.dedup();
        let of = self.waiters.queues.lock();
        let awake = queues.iter().filter(|place| of.is_awake(place)).count();
        assert!(of.mover().is_none_or(|mover| of.is_awake(&mover)));
        drop(of);
        assert_eq!(self.waiters.signs.awake(), awake);
    }

    /// Everybody goes on until all wait.
    fn finish(&mut self) {
        while self.wake_for_one() || (0..CLIENTS).any(|at| self.go_on(at)) {
            self.check();
        }
        for client in self.clients.iter().flatten() {
            let left = client.keys.iter().find(|key| self.elements[**key] > 0);
            assert_eq!(left, None, "somebody waits for a key that has elements");
        }
        assert!(!self.waiters.is_anyone_awake());
        assert!((0..KEYS).all(|key| !self.is_held(key)));
        assert!(
            self.held.drain(..).all(|held| held.take()),
            "somebody is held"
        );
        self.clients = Default::default();
        let of = self.waiters.queues.lock();
        assert!(of.is_empty() && self.waiters.signs.are_clear());
    }
}

#[test]
fn no_wake_up_is_lost_and_nobody_comes_between() {
    for seed in 0..3000 {
        let mut model = Model::new(seed);
        for _ in 0..150 {
            model.step();
            model.check();
        }
        model.finish();
    }
}

/// All who wait for a stream are woken, and nobody is held for them.
#[test]
fn who_waits_for_a_stream_holds_nobody() {
    let waiters = Arc::<Waiters>::default();
    let stream: Place = (queue_of(0, ValueType::Stream), b"s"[..].into());
    let woken: [WakerArc<Woken>; 2] = Default::default();
    let registrations = woken.clone().map(|woken| {
        let keys = (stream.0, [&stream.1[..]].into_iter());
        let registered = waiters.register(keys, None, &Waker::from(woken), u64::MAX);
        registered.unwrap()
    });
    waiters.wake(std::slice::from_ref(&stream));
    assert!(woken.iter().all(|woken| woken.take()));
    assert!(!waiters.is_anyone_awake());
    assert!(!waiters.are_awaited([(stream.0, &stream.1[..])].into_iter()));
    assert!(registrations.iter().all(|of| of.look().is_empty()));
    registrations[0].sleep();
    drop(registrations);
    assert!(waiters.signs.are_clear());
}

#[test]
fn keys_are_counted_until_they_are_given_back_and_have_a_bound() {
    let waiters = Arc::<Waiters>::default();
    let woken = WakerArc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let queue = queue_of(0, ValueType::List);
    let names = [&b"b"[..], b"a", b"b", b"c", b"a"];
    let most = 5 * (KEY_BYTES + 1);
    let register = |count: usize, most| {
        waiters.register((queue, names[..count].iter().copied()), None, &waker, most)
    };
    assert_eq!(register(5, most - 1).err(), Some(TooMany));
    assert_eq!(waiters.bytes(), 0);
    let all = register(5, most).unwrap();
    assert_eq!(waiters.bytes(), most);
    assert_eq!(register(1, most).err(), Some(TooMany));
    // Keys that are named twice, and those of several turns, are awaited once each.
    for name in [&b"a"[..], b"b", b"c"] {
        waiters.wake(&[(queue, name.into())]);
        assert!(waiters.is_awaited(queue, name) && woken.take());
    }
    assert!(all.look().is_empty());
    all.sleep();
    assert!(!waiters.is_anyone_awake());
    waiters.wake_all();
    assert_eq!(waiters.signs.awake(), 3);
    drop(all);
    assert_eq!(waiters.bytes(), 0);
    assert!(waiters.queues.lock().is_empty() && waiters.signs.are_clear());
}
