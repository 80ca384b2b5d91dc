//! Commands that write, mixed in pipelines, have the same effect as one by one.

use std::collections::BTreeSet;

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::thread;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_small, options};
use crate::model::Twin;
use crate::pipeline_runs::{figures, together_count};
use crate::statistics::fields;

/// Sends commands together.
fn send<S: AsRef<str>>(client: &mut Client, commands: &[S]) {
    let bytes = commands.iter().map(|text| encode(&words(text.as_ref())));
    client.send(&bytes.collect::<Vec<_>>().concat());
}

/// Sends commands together. Returns their replies as text.
fn run_all<S: AsRef<str>>(client: &mut Client, commands: &[S]) -> Vec<String> {
    send(client, commands);
    commands.iter().map(|_| show(&client.answer())).collect()
}

/// Commands that a seed determines.
struct Random(Rng);

impl Random {
    /// Returns one of few keys; one of them is too long to be stored as it is.
    fn key(&mut self) -> String {
        match self.0.u64(..60) {
            0 => "folded".repeat(1000),
            n => format!("k{}", n % 12),
        }
    }

    /// Returns a value: mostly a number, sometimes one that lies in pages of its own, or in chunks.
    fn value(&mut self) -> String {
        let text = self.0.u64(..1000).to_string();
        match self.0.u64(..100) {
            0 => text.repeat(20_000),
            1..4 => text.repeat(300),
            4..20 => format!("x{text}"),
            _ => text,
        }
    }

    /// Returns a command that writes, if its arguments are right.
    fn write(&mut self) -> String {
        let (key, other, value) = (self.key(), self.key(), self.value());
        const END: &str = "99999999999";
        match self.0.u64(..36) {
            0..5 => format!("INCR {key}"),
            5 => format!("decrby {key} {value}"),
            6 => format!("INCRBYFLOAT {key} 0.5"),
            7..10 => format!("SET {key} {value}"),
            10 => format!("SET {key} {value} NX"),
            11 => format!("SET {key} {value} XX GET"),
            12 => format!("SET {key} {value} KEEPTTL"),
            13..15 => format!("SET {key} {value} EXAT {END}"),
            15 => format!("SET {key} {value} EX"),
            16 => format!("SETNX {key} {value}"),
            17 => format!("SETEX {key} -1 {value}"),
            18 => format!("APPEND {key} {value}"),
            19 => format!("SETRANGE {key} 3 {value}"),
            20 => format!("SETRANGE {key} -3 {value}"),
            21 => format!("GETSET {key} {value}"),
            22 => format!("GETDEL {key}"),
            23 => format!("GETEX {key} PERSIST"),
            24 => format!("GETEX {key} EXAT {END}"),
            25..27 => format!("DEL {key} {other} {key}"),
            27 => format!("UNLINK {key}"),
            28 => format!("MSET {key} {value} {other} 7"),
            29 => self.of_many_keys("MSET", " 9"),
            30 => format!("MSET {key} {value} {other}"),
            31 if self.0.bool() => self.of_many_keys("DEL", ""),
            31 => format!("MSETNX {key} {value} {other} 8"),
            32 => format!("EXPIREAT {key} {END} NX"),
            33 => format!("PEXPIREAT {key} 88888888888888 GT"),
            34 => format!("EXPIRE {key} -1"),
            _ => format!("PERSIST {key}"),
        }
    }

    /// Returns a command of up to forty keys, each followed by `value`.
    fn of_many_keys(&mut self, name: &str, value: &str) -> String {
        let count = self.0.usize(1..40);
        let keys = (0..count).map(|_| format!(" {}{value}", self.key()));
        format!("{name}{}", keys.collect::<String>())
    }

    /// Returns a command that is none of a pipeline run, or of another one.
    fn other(&mut self) -> String {
        let key = self.key();
        match self.0.u64(..12) {
            0..3 => format!("GET {key}"),
            3 => self.of_many_keys("EXISTS", ""),
            4 => format!("PEXPIRETIME {key}"),
            5 => self.of_many_keys("MGET", ""),
            6 => "SELECT 1".to_owned(),
            7 => "SELECT 0".to_owned(),
            8 => "DBSIZE".to_owned(),
            9 => "INCR".to_owned(),
            10 => "NOSUCH".to_owned(),
            _ if self.0.u64(..8) == 0 => "FLUSHDB".to_owned(),
            _ => "MULTI INCR k1 DEL k2 EXEC".to_owned(),
        }
    }

    fn pipeline(&mut self) -> Vec<String> {
        let mut commands = Vec::new();
        for _ in 0..self.0.u64(..150) {
            if self.0.u64(..12) > 0 {
                commands.push(self.write());
                continue;
            }
            match self.other() {
                text if text.starts_with("MULTI") => {
                    let parts = ["MULTI", "INCR k1", "DEL k2 k3", "EXEC"];
                    commands.extend(parts.map(str::to_owned));
                }
                text => commands.push(text),
            }
        }
        commands
    }
}

#[test]
fn writes_of_a_pipeline_mean_what_they_mean_one_by_one() {
    for (seed, durability) in [
        (1, Durability::None),
        (0x9e37_79b9, Durability::Durable),
        (7, Durability::Periodic),
    ] {
        let with = || ServerOptions {
            durability,
            ..options()
        };
        let (together, alone) = (Fixture::with(with()), Fixture::with(with()));
        let (mut client, mut twin) = (together.client(), alone.client());
        let mut random = Random(Rng::with_seed(seed));
        for _ in 0..50 {
            let pipeline = random.pipeline();
            send(&mut client, &pipeline);
            for text in &pipeline {
                let (ours, expected) = (client.answer(), twin.run_raw(text));
                let (ours, expected) = (show(&ours), show(&expected));
                assert!(
                    ours == expected,
                    "{text:.80}: {ours:.80}, not {expected:.80}"
                );
            }
            assert_eq!(figures(&mut client), figures(&mut twin));
        }
        for database in ["SELECT 0", "SELECT 1"] {
            assert_eq!(client.run(database), twin.run(database));
            for number in 0..12 {
                for text in ["GET", "PEXPIRETIME"] {
                    let text = format!("{text} k{number}");
                    assert_eq!(client.run(&text), twin.run(&text), "{text}");
                }
            }
        }
        let (ours, all) = (together_count(&mut client), 50 * 75);
        assert!(ours > all / 2, "{ours} of {all} ran together");
        assert_eq!(together_count(&mut twin), 0);
    }
}

/// Most of them meet a page that is not in memory, many of them after their first write.
#[test]
fn writes_of_data_that_do_not_fit_mean_the_same() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let (mut twin, mut random) = (Twin::default(), Rng::with_seed(5));
    for round in 0..300 {
        let mut pipeline = Vec::new();
        for place in 0..60 {
            let mut key = || format!("key:{}", random.u64(..4000));
            let (one, two, three) = (key(), key(), key());
            let value = random.u64(..1 << 40).to_string().repeat(60);
            pipeline.push(match random.u64(..10) {
                _ if round < 60 => format!("SET key:{} {value}", (round * 60 + place) % 4000),
                0..3 => format!("DEL {one} {two} {three}"),
                3..5 => format!("MSETNX {one} {value} {two} {value} {three} {value}"),
                5 => format!("GETSET {one} {value}"),
                6 => format!("APPEND {one} {value}"),
                7 => format!("SET {one} {place} NX"),
                8 => format!("INCRBY {one} {place}"),
                _ => format!("MSET {one} {value} {two} {place}"),
            });
        }
        let replies = run_all(&mut client, &pipeline);
        for (text, reply) in pipeline.iter().zip(replies) {
            let parts: Vec<_> = text.split(' ').map(str::to_owned).collect();
            let expected = twin.run(&parts);
            assert!(
                reply == expected,
                "{text:.80}: {reply:.80}, not {expected:.80}"
            );
        }
    }
    let all = fields(&mut client, "stats");
    let suspended: u64 = all["suspended_commands"].parse().unwrap();
    assert!(suspended > 1000, "{suspended}: the data fit into memory");
    let together = together_count(&mut client);
    assert!(together > 2000, "{together} ran together");
}

/// It has deleted one key when it meets a string in chunks.
#[test]
fn a_command_that_has_to_run_alone_is_undone_first() {
    let server = Fixture::new();
    let mut client = server.client();
    let long = "x".repeat(3_000_000);
    assert_eq!(client.run(&format!("SET long {long}")), "+OK");
    let replies = run_all(
        &mut client,
        &[
            "SET a 1",
            "SET b 2",
            "DEL a long b",
            "INCR n",
            "EXISTS a b long",
        ],
    );
    assert_eq!(replies, ["+OK", "+OK", ":3", ":1", ":0"]);
    assert_eq!(client.run(&format!("SET long {long}")), "+OK");
    let replies = run_all(
        &mut client,
        &["INCR n", "APPEND long yz", "INCR n", "STRLEN long", "GET n"],
    );
    assert_eq!(replies, [":2", ":3000002", ":3", ":3000002", "\"3\""]);
    let replies = run_all(
        &mut client,
        &["INCR n", "GETDEL long", "DEL long", "INCR n"],
    );
    assert_eq!(replies[1].len(), 3_000_004, "{:.80}", replies[1]);
    assert_eq!([&replies[0], &replies[2], &replies[3]], [":4", ":0", ":5"]);
}

const CLIENTS: usize = 4;
const ROUNDS: usize = 30;
const INCREMENTS: usize = 60;

/// Runs pipelines that write what other clients write, too. Returns the replies of `INCR all`.
fn contend(client: &mut Client, number: usize) -> Vec<String> {
    let (mut counts, mut random) = (Vec::new(), Rng::with_seed(number as u64));
    for round in 0..ROUNDS {
        let mut pipeline = vec!["INCR all".to_owned(); INCREMENTS];
        pipeline.push("APPEND text x".to_owned());
        pipeline.push(format!("MSET one {number}.{round} two {number}.{round}"));
        // What the commands before it have written is seen by a plain read.
        pipeline.push("GET all".to_owned());
        pipeline.push("MGET one two".to_owned());
        random.shuffle(&mut pipeline);
        let mut newest = 0;
        for (text, reply) in pipeline.iter().zip(run_all(client, &pipeline)) {
            if text == "INCR all" {
                let count: u64 = reply[1..].parse().unwrap();
                assert!(count > newest, "{count} behind {newest}");
                newest = count;
                counts.push(reply);
            } else if text == "GET all" && newest > 0 {
                let count: u64 = reply.trim_matches('"').parse().unwrap();
                assert!(count >= newest, "{count} behind {newest}");
                newest = count;
            } else if text == "MGET one two" {
                let pair = reply.trim_matches(|c| "[]".contains(c));
                let (one, two) = pair.split_once(' ').unwrap();
                assert_eq!(one, two, "half of an MSET");
            }
        }
    }
    counts
}

/// Clients of both loops write the same keys.
#[test]
fn writes_that_conflict_with_others_happen_once() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let mut asks = server.client();
    let mut all = BTreeSet::new();
    // Where there are few processors, loops seldom run at the same time.
    for phase in 1..=20 {
        let counts: Vec<_> = thread::scope(|scope| {
            let clients = clients.iter_mut().enumerate();
            let threads: Vec<_> = clients
                .map(|(number, client)| scope.spawn(move || contend(client, number)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.collect()
        });
        all.extend(counts.into_iter().flatten());
        let count = phase * CLIENTS * ROUNDS * INCREMENTS;
        assert_eq!(all.len(), count);
        assert_eq!(asks.run("GET all"), format!("\"{count}\""));
        let texts = phase * CLIENTS * ROUNDS;
        assert_eq!(asks.run("STRLEN text"), format!(":{texts}"));
        let conflicts = &fields(&mut asks, "stats")["transaction_conflicts"];
        if conflicts.parse::<u64>().unwrap() > 10 {
            break;
        }
    }
    assert!(together_count(&mut asks) > 1000);
}

/// Each of two clients writes its own key, and then reads that of the other: at least one of them
/// sees what the other has written.
#[test]
fn a_plain_read_comes_after_the_writes_before_it() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    let arrived = AtomicUsize::new(0);
    let run = |own: char, other: char| {
        let (mut client, arrived) = (server.client(), &arrived);
        move || {
            let mut seen = Vec::new();
            for round in 0..500 {
                let pipeline = [
                    format!("SET {own}{round} 1"),
                    format!("INCR {own}"),
                    format!("GET {other}{round}"),
                    format!("GET {own}"),
                ];
                arrived.fetch_add(1, Ordering::SeqCst);
                while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                    thread::yield_now();
                }
                let replies = run_all(&mut client, &pipeline);
                assert_eq!(replies[3], format!("\"{}\"", round + 1));
                seen.push(replies[2] == "\"1\"");
            }
            seen
        }
    };
    let (one, two) = thread::scope(|scope| {
        let (one, two) = (scope.spawn(run('x', 'y')), scope.spawn(run('y', 'x')));
        (one.join().unwrap(), two.join().unwrap())
    });
    for (round, seen) in one.iter().zip(&two).enumerate() {
        assert!(*seen.0 || *seen.1, "neither has seen the other in {round}");
    }
}

#[test]
fn each_write_of_a_pipeline_run_has_its_place_in_the_figures() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET text x", "+OK"),
        ("CONFIG SET slowlog-log-slower-than 0", "+OK"),
        ("CONFIG RESETSTAT", "+OK"),
        ("SLOWLOG RESET", "+OK"),
    ]);
    let commands = [
        "INCR n",
        "INCR text",
        "GETSET text y",
        "INCR n",
        "DEL n none",
    ];
    let replies = run_all(&mut client, &commands);
    let error = "-ERR value is not an integer or out of range";
    assert_eq!(replies, [":1", error, "\"x\"", ":2", ":1"]);
    assert_eq!(together_count(&mut client), 5);
    let Answer::Array(entries) = client.call(&["SLOWLOG", "GET", "7"]) else {
        panic!("no array");
    };
    // The newest is INFO.
    let arguments = entries.iter().rev().skip(1).map(|entry| match entry {
        Answer::Array(parts) => show(&parts[3]).replace(['[', ']', '"'], ""),
        other => panic!("{other:?}"),
    });
    assert_eq!(arguments.take(5).collect::<Vec<_>>(), commands);
    let all = fields(&mut client, "commandstats errorstats stats");
    let calls = |name: &str| all[&format!("cmdstat_{name}")].clone();
    assert!(calls("incr").starts_with("calls=3,") && calls("incr").ends_with("failed_calls=1"));
    assert!(calls("del").starts_with("calls=1,"));
    assert_eq!(all["errorstat_ERR"], "count=1");
    assert_eq!(all["keyspace_hits"], "1");
}

#[test]
fn a_write_of_a_pipeline_run_is_a_change_of_what_is_watched() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    for write in [
        "INCR n",
        "APPEND n 1",
        "DEL n",
        "SET n 1 EX 100",
        "GETDEL n",
    ] {
        client.check(&[
            ("SET n 1", "+OK"),
            ("WATCH n", "+OK"),
            ("MULTI", "+OK"),
            ("SET x 1", "+QUEUED"),
        ]);
        run_all(&mut other, &["INCR a", write, "INCR b"]);
        client.check(&[("EXEC", "nil")]);
    }
    assert_eq!(together_count(&mut other), 15);
}

/// SET reads the row that it replaces once there are expiry entries: those of commands before it
/// on the same connection, too, in the same pipeline or an earlier one.
#[test]
fn a_row_that_is_replaced_takes_its_expiry_entry_along() {
    let server = Fixture::new();
    let mut client = server.client();
    for keys in [1, 3] {
        for round in 0..3 {
            for end in ["", " EX 100", "", " EX 100", ""] {
                let set = |key: usize| format!("SET k{key} {round}{end}");
                let commands: Vec<_> = (0..keys).map(set).collect();
                run_all(&mut client, &commands);
                let info = client.text("INFO keyspace");
                let expected = if end.is_empty() { 0 } else { keys };
                let expected = format!("expires={expected},");
                assert!(info.contains(&expected), "{info}, not {expected}");
            }
            let commands = [
                "SET k0 1 EX 100",
                "MSET k0 2 a 2",
                "SET k0 3 EX 9",
                "SET k0 4",
            ];
            run_all(&mut client, &commands);
            assert!(client.text("INFO keyspace").contains("expires=0,"));
        }
    }
}
