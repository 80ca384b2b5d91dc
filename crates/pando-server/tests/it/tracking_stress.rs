//! Many clients that keep what they have read, beside many that write: once it is quiet, nobody
//! keeps a value that has changed.

use std::collections::HashMap;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};
use crate::tracking::{told, tracking};
use crate::until_end::End;

const KEYS: u64 = 6;
/// Number of fields of the large hash.
const FIELDS: usize = 3000;

/// How a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Get,
    Many,
    Exec,
    /// So much that others change some of it: it goes to a snapshot.
    LongExec,
    #[cfg(feature = "scripts")]
    Script,
    Pipeline,
    Steps,
    /// A large hash as a whole, of which it keeps a field.
    Field,
}

const ALL: &[How] = &[
    How::Get,
    How::Many,
    How::Exec,
    How::LongExec,
    #[cfg(feature = "scripts")]
    How::Script,
    How::Pipeline,
    How::Steps,
    How::Field,
];

/// A client with a cache.
struct Reader {
    client: Client,
    how: How,
    cache: HashMap<String, String>,
    random: fastrand::Rng,
}

fn key(number: u64) -> String {
    format!("key{number}")
}

impl Reader {
    fn new(server: &Fixture, how: How, seed: u64) -> Self {
        // Some write, too, and want to hear of the writes of others only.
        let with = ["", "NOLOOP", "BCAST"][usize::try_from(seed % 3).unwrap()];
        Self {
            client: tracking(server, with),
            how,
            cache: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn forget(&mut self, message: &[Answer]) {
        match &message[1] {
            Answer::Array(keys) => {
                for key in keys {
                    let Answer::Bulk(key) = key else {
                        panic!("{message:?}")
                    };
                    let key = String::from_utf8(key.clone()).unwrap();
                    self.cache.remove(&key);
                }
            }
            Answer::Null => self.cache.clear(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next reply, and forgets what the messages in front of it name.
    fn reply(&mut self) -> Answer {
        loop {
            match self.client.answer() {
                Answer::Push(message) => self.forget(&message),
                reply => return reply,
            }
        }
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            let reply = show(&self.reply());
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }

    /// Keeps the values in a reply.
    fn keep(&mut self, keys: &[String], values: &[Answer]) {
        for (key, value) in keys.iter().zip(values) {
            self.cache.insert(key.clone(), show(value));
        }
    }

    /// Reads some keys, and keeps their values.
    fn read(&mut self) {
        let count = if self.how == How::Get { 1 } else { 3 };
        let keys: Vec<String> = (0..count).map(|_| key(self.random.u64(..KEYS))).collect();
        let gets: Vec<u8> = (keys.iter())
            .flat_map(|key| encode(&["GET", key]))
            .collect();
        let in_exec = |gets: &[u8]| [b"MULTI\r\n", gets, b"EXEC\r\n"].concat();
        let values = match self.how {
            How::Get | How::Pipeline => {
                self.client.send(&gets);
                for key in &keys {
                    let value = self.reply();
                    self.keep(std::slice::from_ref(key), &[value]);
                }
                return;
            }
            How::Many => {
                let names = keys.iter().map(String::as_str);
                let command: Vec<&str> = ["MGET"].into_iter().chain(names).collect();
                self.client.send(&encode(&command));
                self.reply()
            }
            How::Exec => {
                self.client.send(&in_exec(&gets));
                self.skip(1 + count);
                self.reply()
            }
            How::LongExec => {
                let more = encode(&["HLEN", "large"]).repeat(200);
                self.client.send(&in_exec(&[gets, more].concat()));
                self.skip(1 + count + 200);
                self.reply()
            }
            #[cfg(feature = "scripts")]
            How::Script => {
                let text = "return {redis.call('get', KEYS[1]), redis.call('get', KEYS[2]), \
                            redis.call('get', KEYS[3])}";
                let command = ["EVAL", text, "3", &keys[0], &keys[1], &keys[2]];
                self.client.send(&encode(&command));
                self.reply()
            }
            How::Steps => {
                self.client.send(b"PANDO BEGIN READONLY\r\n");
                self.client.send(&gets);
                self.client.send(b"PANDO COMMIT\r\n");
                self.skip(1);
                for key in &keys {
                    let value = self.reply();
                    self.keep(std::slice::from_ref(key), &[value]);
                }
                return self.skip(1);
            }
            How::Field => {
                self.client.send(b"HGETALL large\r\n");
                let Answer::Map(pairs) = self.reply() else {
                    panic!("it is no hash");
                };
                let name = Answer::Bulk(b"f7".to_vec());
                let value = pairs.into_iter().find(|(field, _)| *field == name);
                let value = value.map_or(Answer::Null, |(_, value)| value);
                self.cache.insert("large".to_owned(), show(&value));
                return;
            }
        };
        let Answer::Array(values) = values else {
            panic!("{values:?}");
        };
        self.keep(&keys, &values);
    }

    /// Writes a key; whoever wants no loop forgets what it has kept of it.
    fn write(&mut self, number: u64) {
        let key = key(self.random.u64(..KEYS));
        self.cache.remove(&key);
        self.client
            .send(&encode(&["SET", &key, &number.to_string()]));
        self.skip(1);
        self.cache.remove(&key);
    }

    /// Returns what it keeps that is not so.
    fn stale(&mut self, truth: &HashMap<String, String>) -> Vec<String> {
        self.client.send(b"PING\r\n");
        self.skip(1);
        let wrong = self
            .cache
            .iter()
            .filter(|(key, value)| truth[*key] != **value);
        let describe = |(key, value): (&String, &String)| {
            let (how, truth) = (self.how, &truth[key]);
            format!("{how:?} keeps {key} = {value}, which is {truth}")
        };
        wrong.map(describe).collect()
    }
}

/// Sends one of many kinds of writes; all replies count.
fn write(client: &mut Client, random: &mut fastrand::Rng, number: &AtomicU64) {
    let value = number.fetch_add(1, Ordering::Relaxed).to_string();
    let (one, two) = (key(random.u64(..KEYS)), key(random.u64(..KEYS)));
    let (commands, replies): (Vec<u8>, usize) = match random.u8(..8) {
        0 => (encode(&["MSET", &one, &value, &two, &value]), 1),
        1 => (encode(&["DEL", &one]), 1),
        2 => {
            let sets = [
                encode(&["SET", &one, &value]),
                encode(&["SET", &two, &value]),
            ];
            ([&b"MULTI\r\n"[..], &sets.concat(), b"EXEC\r\n"].concat(), 4)
        }
        3 => (encode(&["SET", &one, &value]).repeat(3), 3),
        4 => (encode(&["HSET", "large", "f7", &value]), 1),
        5 => {
            let set = encode(&["SET", &one, &value]);
            (
                [
                    &b"PANDO BEGIN READCOMMITTED\r\n"[..],
                    &set,
                    b"PANDO COMMIT\r\n",
                ]
                .concat(),
                3,
            )
        }
        6 if random.u8(..20) == 0 => (b"FLUSHDB\r\n".to_vec(), 1),
        _ => (encode(&["SET", &one, &value]), 1),
    };
    client.send(&commands);
    (0..replies).for_each(|_| {
        let reply = show(&client.answer());
        assert!(!reply.starts_with('-'), "{reply}");
    });
}

fn fill(client: &mut Client) {
    for from in (0..FIELDS).step_by(1000) {
        let fields = (from..from + 1000).map(|number| format!("f{number} 0"));
        let fields: Vec<_> = fields.collect();
        client.run(&format!("HSET large {}", fields.join(" ")));
    }
}

/// Has readers and writers run for a moment, again and again, for some time; returns what is wrong
/// when they are quiet.
fn run(server: &Fixture, time: Duration) -> Vec<String> {
    let mut readers: Vec<Reader> = (0..)
        .zip(ALL.iter().chain(ALL))
        .map(|(seed, how)| Reader::new(server, *how, seed))
        .collect();
    let mut writers: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let (mut other, number) = (server.client(), AtomicU64::new(1));
    let (begin, mut round) = (now(), 0);
    while begin.elapsed() < time {
        round += 1;
        // A flush may have removed it.
        if other.integer("HLEN large") < 3000 {
            fill(&mut other);
        }
        let stop = End::default();
        thread::scope(|scope| {
            let bring = stop.brought();
            for reader in &mut readers {
                let (stop, number) = (&stop, &number);
                scope.spawn(move || {
                    while !stop.is_there() {
                        reader.read();
                        if reader.random.u8(..8) == 0 {
                            reader.write(number.fetch_add(1, Ordering::Relaxed));
                        }
                    }
                });
            }
            let (mut left, mut random) = (Vec::new(), fastrand::Rng::with_seed(round));
            for writer in &mut writers {
                let (mut random, number) = (random.fork(), &number);
                left.push(scope.spawn(move || {
                    (0..60).for_each(|_| write(writer, &mut random, number));
                }));
            }
            left.into_iter().for_each(|thread| thread.join().unwrap());
            drop(bring);
        });
        let mut truth = HashMap::new();
        for key in (0..KEYS).map(key) {
            truth.insert(key.clone(), other.run(&format!("GET {key}")));
        }
        truth.insert("large".to_owned(), other.run("HGET large f7"));
        let stale = |reader: &mut Reader| reader.stale(&truth);
        let wrong: Vec<String> = readers.iter_mut().flat_map(stale).collect();
        if !wrong.is_empty() {
            return wrong;
        }
    }
    Vec::new()
}

#[test]
fn nobody_keeps_what_has_changed() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    assert_eq!(run(&server, Duration::from_secs(6)), [""; 0]);
}

#[test]
fn nobody_keeps_what_has_changed_if_pages_are_missing() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    for number in 0..20_000 {
        client.run(&format!("SET other{number} {}", "x".repeat(100)));
    }
    assert_eq!(run(&server, Duration::from_secs(4)), [""; 0]);
}

#[test]
fn nobody_keeps_what_has_changed_if_replies_wait_for_the_log() {
    let server = Fixture::opened_by(options(), open_on_disk);
    assert_eq!(run(&server, Duration::from_secs(4)), [""; 0]);
}

/// A long string takes some time to be copied into the reply: a write that comes then is told.
#[test]
fn a_change_while_the_reply_is_made_is_told_behind_it() {
    let server = Fixture::opened_by(options(), |_| {
        Db::builder().max_memory(256 << 20).open_in_memory()
    });
    let (mut client, mut writer) = (tracking(&server, ""), server.client());
    let long = "x".repeat(1 << 20);
    let (mut random, mut old) = (fastrand::Rng::with_seed(1), 0);
    for round in 0..400 {
        writer.run(&format!("SET k {long}"));
        told(&mut client);
        let delay = Duration::from_micros(random.u64(..1500));
        let value = thread::scope(|scope| {
            scope.spawn(|| {
                let begin = now();
                while begin.elapsed() < delay {}
                assert_eq!(writer.run("SET k short"), "+OK");
            });
            client.send(b"GET k\r\n");
            loop {
                match client.answer() {
                    Answer::Push(_) => {}
                    Answer::Bulk(value) => break value,
                    other => panic!("{other:?}"),
                }
            }
        });
        if value.len() > 100 {
            old += 1;
            assert_eq!(told(&mut client), ">([\"k\"])", "round {round}");
        }
    }
    assert!(old > 10, "{old} replies were overtaken");
}
