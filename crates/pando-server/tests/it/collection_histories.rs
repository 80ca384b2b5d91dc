//! Histories of clients that read and write elements of large collections, and parts of a long
//! string, one or several at once: is there an order of all their commands, one after the other,
//! that explains every reply?

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_resp::Answer;
use pando_sim::linear::{self, Action, Call, Key, Value};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::trees::many;

const CLIENTS: u64 = 4;
/// Commands of each client.
const TURNS: u32 = 120;
/// Elements, or places of the string, that are read and written.
const REGISTERS: Key = 4;
/// Elements of the list between two of these, or bytes of the string, of which the first ones are
/// the number.
const APART: u32 = 90;
const DIGITS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hash,
    Sorted,
    Set,
    List,
    /// In pieces.
    String,
}

impl Kind {
    /// Makes it large: `count` other elements lie between those of the test.
    fn fill(self, client: &mut Client, count: u32) {
        let long = "x".repeat(60);
        let numbers = 0..count;
        let batch = |from: u32| (from..count).take(1000);
        for from in numbers.step_by(1000) {
            let name = |n: u32| format!("other-{n}-{long}");
            match self {
                Self::Hash => {
                    let pairs = batch(from).flat_map(|n| [name(n), long.clone()]);
                    many(client, &["HSET", "k"], pairs);
                }
                Self::Sorted => {
                    let pairs = batch(from).flat_map(|n| [(n * 7919 % 1000).to_string(), name(n)]);
                    many(client, &["ZADD", "k"], pairs);
                }
                Self::Set => drop(many(client, &["SADD", "k"], batch(from).map(name))),
                Self::List => drop(many(client, &["RPUSH", "k"], batch(from).map(name))),
                Self::String => {
                    let at = (from * 5).max(REGISTERS * APART).to_string();
                    let text = "x".repeat(5 * 1000);
                    client.call(&["SETRANGE", "k", &at, &text]);
                }
            }
        }
        if self == Self::List {
            for key in 0..REGISTERS {
                client.call(&self.write(key, Some(0)));
            }
        }
    }

    fn initial(self) -> BTreeMap<Key, u64> {
        let has_values = self == Self::List;
        (0..REGISTERS)
            .filter(|_| has_values)
            .map(|key| (key, 0))
            .collect()
    }

    /// The command that gives a register a value, or takes it away.
    fn write(self, key: Key, value: Value) -> Vec<String> {
        let text = match (self, value) {
            (Self::Hash, Some(value)) => format!("HSET k r{key} {value}"),
            (Self::Hash, None) => format!("HDEL k r{key}"),
            (Self::Sorted, Some(value)) => format!("ZADD k {value} r{key}"),
            (Self::Sorted, None) => format!("ZREM k r{key}"),
            (Self::Set, Some(_)) => format!("SADD k r{key}"),
            (Self::Set, None) => format!("SREM k r{key}"),
            (Self::List, value) => format!("LSET k {} {}", key * APART, value.unwrap_or(0)),
            (Self::String, value) => {
                let at = key * APART;
                format!("SETRANGE k {at} {:0DIGITS$}", value.unwrap_or(0))
            }
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// What is written: a member of a set is there or not, and zeros are no number.
    fn value(self, value: u64, random: &mut Rng) -> Value {
        let takes_away = matches!(self, Self::Hash | Self::Sorted | Self::Set);
        match self {
            _ if takes_away && random.u8(..4) == 0 => None,
            Self::Set => Some(1),
            _ => Some(value),
        }
    }

    /// The command that reads one register.
    fn read(self, key: Key) -> String {
        match self {
            Self::Hash => format!("HGET k r{key}"),
            Self::Sorted => format!("ZSCORE k r{key}"),
            Self::Set => format!("SISMEMBER k r{key}"),
            Self::List => format!("LINDEX k {}", key * APART),
            Self::String => {
                let at = key as usize * APART as usize;
                format!("GETRANGE k {at} {}", at + DIGITS - 1)
            }
        }
    }

    /// Returns what a register has by this reply.
    fn number(self, answer: &Answer) -> Value {
        let digits = |bytes: &[u8]| {
            let text = str::from_utf8(bytes).unwrap();
            text.parse::<u64>().unwrap_or_else(|_| panic!("{text}"))
        };
        match answer {
            Answer::Null => None,
            Answer::Integer(number) => (*number > 0).then_some(1),
            Answer::Bulk(bytes) if bytes.iter().all(|byte| *byte == 0) => None,
            Answer::Bulk(bytes) => Some(digits(bytes)),
            other => panic!("{}", show(other)),
        }
    }

    /// Reads all registers with one command, among all others or not.
    fn read_all(self, client: &mut Client, random: &mut Rng) -> Vec<Value> {
        let command = match (self, random.bool()) {
            (Self::Hash, true) => "HMGET k r0 r1 r2 r3",
            (Self::Sorted, true) => "ZMSCORE k r0 r1 r2 r3",
            (Self::Set, true) => "SMISMEMBER k r0 r1 r2 r3",
            (Self::Hash, false) => "HGETALL k",
            (Self::Sorted, false) => "ZRANGE k 0 -1 WITHSCORES",
            (Self::Set, false) => "SMEMBERS k",
            (Self::List, _) => "LRANGE k 0 270",
            (Self::String, _) => "GET k",
        };
        match client.run_raw(command) {
            Answer::Array(all) if self == Self::List => {
                let places = all.iter().step_by(APART as usize);
                places.map(|one| self.number(one)).collect()
            }
            Answer::Array(all) if all.len() == REGISTERS as usize => {
                all.iter().map(|one| self.number(one)).collect()
            }
            Answer::Array(all) => {
                let found = |key: Key| {
                    let name = Answer::Bulk(format!("r{key}").into_bytes());
                    let place = all.iter().position(|one| *one == name)?;
                    match self {
                        Self::Set => Some(1),
                        _ => self.number(&all[place + 1]),
                    }
                };
                (0..REGISTERS).map(found).collect()
            }
            Answer::Bulk(bytes) => {
                let parts = bytes.chunks(APART as usize).take(REGISTERS as usize);
                let number = |part: &[u8]| self.number(&Answer::Bulk(part[..DIGITS].to_vec()));
                parts.map(number).collect()
            }
            other => panic!("{}", show(&other)),
        }
    }
}

/// Runs `commands` in one EXEC, and returns their replies.
fn exec(client: &mut Client, commands: &[Vec<String>]) -> Vec<Answer> {
    let mut sent = encode(&["MULTI"]);
    commands.iter().for_each(|words| sent.extend(encode(words)));
    sent.extend(encode(&["EXEC"]));
    client.send(&sent);
    for _ in 0..=commands.len() {
        client.answer();
    }
    match client.answer() {
        Answer::Array(replies) => replies,
        other => panic!("{}", show(&other)),
    }
}

/// Runs one command or transaction of random registers.
fn turn(kind: Kind, client: &mut Client, random: &mut Rng, value: u64) -> Action {
    let key = random.u32(..REGISTERS);
    let other = (key + 1 + random.u32(..REGISTERS - 1)) % REGISTERS;
    let new = kind.value(value, random);
    match (random.u8(..7), kind) {
        (0, _) => {
            client.call(&kind.write(key, new));
            Action::Write(vec![(key, new)])
        }
        (1, _) => {
            let commands = [kind.write(key, new), kind.write(other, new)];
            exec(client, &commands);
            Action::Write(vec![(key, new), (other, new)])
        }
        (2, Kind::Hash) => {
            let sum = client.integer(&format!("HINCRBY k r{key} 1"));
            Action::Add(key, Some(sum.cast_unsigned()))
        }
        (2, Kind::Sorted) => {
            let sum = client.run_raw(&format!("ZINCRBY k 1 r{key}"));
            Action::Add(key, kind.number(&sum))
        }
        (2, Kind::Set) => match random.bool() {
            true => Action::Swap(
                key,
                None,
                Some(1),
                client.integer(&format!("SADD k r{key}")) > 0,
            ),
            false => {
                let done = client.integer(&format!("SREM k r{key}")) > 0;
                Action::Swap(key, Some(1), None, done)
            }
        },
        (3, Kind::Hash) => {
            let done = client.integer(&format!("HSETNX k r{key} {value}")) > 0;
            Action::Swap(key, None, Some(value), done)
        }
        (2..=4, _) => {
            let found = client.run_raw(&kind.read(key));
            Action::Read(vec![(key, kind.number(&found))])
        }
        (5, _) => {
            let words = |key| kind.read(key).split(' ').map(str::to_owned).collect();
            let found = exec(client, &[words(key), words(other)]);
            Action::Read(vec![
                (key, kind.number(&found[0])),
                (other, kind.number(&found[1])),
            ])
        }
        _ => Action::Read((0..).zip(kind.read_all(client, random)).collect()),
    }
}

/// Lets all clients run, and judges what they have got.
fn judge(server: &Fixture, kind: Kind, (seed, count): (u64, u32)) {
    let mut client = server.client();
    // Pieces of three bytes, so that a number lies in several.
    client.check(&[
        ("FLUSHALL", "+OK"),
        ("CONFIG SET packed-bytes-max 3", "+OK"),
    ]);
    kind.fill(&mut client, count);
    let (clock, values) = (AtomicU64::new(1), AtomicU64::new(1));
    let history: Vec<Call> = thread::scope(|scope| {
        let run = |number: u64| {
            let mut client = server.client();
            let mut random = Rng::with_seed(seed * 100 + number);
            let (clock, values) = (&clock, &values);
            move || {
                let one = |_| {
                    let start = clock.fetch_add(1, Ordering::SeqCst);
                    // So far apart that what is added to one gives no other one.
                    let value = values.fetch_add(1, Ordering::Relaxed) * 10_000;
                    let action = turn(kind, &mut client, &mut random, value);
                    let end = Some(clock.fetch_add(1, Ordering::SeqCst));
                    Call { action, start, end }
                };
                (0..TURNS).map(one).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(run(number)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    });
    if let Err(violation) = linear::check(&history, &kind.initial()) {
        panic!("{kind:?}, seed {seed}, {count} others: {violation}");
    }
}

const KINDS: [Kind; 5] = [
    Kind::Hash,
    Kind::Sorted,
    Kind::Set,
    Kind::List,
    Kind::String,
];

#[test]
fn elements_are_registers() {
    let seeds = std::env::var("PANDO_SEEDS").map_or(3, |seeds| seeds.parse().unwrap());
    let server = Fixture::new();
    for seed in 0..seeds {
        for kind in KINDS {
            judge(&server, kind, (seed, 300));
        }
    }
}

/// Most pages that the commands need have to be read first.
#[test]
fn elements_that_are_not_in_memory_are_registers() {
    let seeds = std::env::var("PANDO_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let server = Fixture::opened_by(options(), open_small);
    for seed in 0..seeds {
        for kind in KINDS {
            judge(&server, kind, (seed, 8000));
        }
    }
}
