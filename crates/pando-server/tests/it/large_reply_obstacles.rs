//! Large replies beside other things: a full disk, messages about the key that is read, and peers
//! that send nothing more or are gone.

use std::collections::BTreeSet;
use std::net::Shutdown;

use pando_resp::Answer;
use pando_server::Durability;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::expiry_obstacles::fill;
use crate::failures::{key, serve};
use crate::fixture::{Fixture, open_small, options};
use crate::tracking::{told, tracking};
use crate::trees::many;
use crate::until_end::End;

fn member(number: usize) -> String {
    format!("member:{number:06}")
}

fn add_members(client: &mut Client, count: usize) {
    for start in (0..count).step_by(1000) {
        let numbers = start..start + 1000;
        assert_eq!(many(client, &["SADD", "s"], numbers.map(member)), ":1000");
    }
}

#[track_caller]
fn members(answer: Answer) -> BTreeSet<String> {
    let text = |item| match item {
        Answer::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    match answer {
        Answer::Array(items) | Answer::Set(items) => items.into_iter().map(text).collect(),
        other => panic!("{:.200}", show(&other)),
    }
}

fn figure(client: &mut Client, name: &str) -> u64 {
    let text = client.text("INFO everything");
    let at = text.find(name).unwrap() + name.len();
    text[at..].lines().next().unwrap().parse().unwrap()
}

#[track_caller]
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = now() + Duration::from_secs(30);
    while !holds() {
        assert!(now() < limit, "{what} does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Members leave one after the other, which a full disk allows, beside writes that it refuses. Each
/// reply has all that were there at one moment.
#[test]
fn large_replies_are_of_one_moment_on_a_full_disk() {
    const COUNT: usize = 100_000;
    const ROUNDS: usize = 12;
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    add_members(&mut client, COUNT);
    device.set_capacity(80 << 20);
    fill(&mut client, 0, &[]);
    let (end, begun, removed) = (End::default(), AtomicUsize::new(0), AtomicUsize::new(0));
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut remover = server.client();
            for number in 0..COUNT - 1 {
                if end.is_there() {
                    return;
                }
                begun.store(number + 1, Ordering::SeqCst);
                remover.check(&[(&format!("SREM s {}", member(number)), ":1")]);
                removed.store(number + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let mut writer = server.client();
            let long = "x".repeat(20_000);
            for number in 0.. {
                if end.is_there() {
                    return;
                }
                let reply = show(&writer.call(&["SET", &format!("more:{number}"), &long]));
                match reply.starts_with("-ERR no room for writes: ") {
                    true => refused.fetch_add(1, Ordering::SeqCst),
                    false => {
                        assert_eq!(reply, "+OK");
                        0
                    }
                };
            }
        });
        for round in 0..ROUNDS {
            let before = removed.load(Ordering::SeqCst);
            client.send(&encode(&["SMEMBERS", "s"]));
            // Some are sent while nobody reads.
            client.stream.peek(&mut [0]).unwrap();
            let shown_by = begun.load(Ordering::SeqCst);
            if round % 3 == 0 {
                thread::sleep(Duration::from_millis(100));
            }
            let shown = members(client.answer());
            let first = COUNT - shown.len();
            assert!((before..=shown_by).contains(&first), "{first} left");
            assert!(
                shown.into_iter().eq((first..COUNT).map(member)),
                "round {round}"
            );
        }
    });
    assert!(refused.into_inner() > 0, "the disk was not full");
    assert!(removed.into_inner() > 10, "nothing left");
    device.set_capacity(1 << 40);
    while client.run("SADD s more") != ":1" {}
    assert!(members(client.run_raw("SMEMBERS s")).contains("more"));
}

/// What a reply that nobody reads still shows keeps its room, so deletes may be refused as well.
/// With its client that ends.
#[test]
fn large_replies_that_nobody_reads_keep_a_full_disk_full_no_longer_than_their_clients() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    add_members(&mut client, 100_000);
    device.set_capacity(80 << 20);
    let filled = fill(&mut client, 0, &[]);
    assert!(filled > 1000, "{filled}");
    let mut deaf: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut deaf {
        client.send(&encode(&["SMEMBERS", "s"]));
        client.stream.peek(&mut [0]).unwrap();
    }
    let delete = |client: &mut Client, number| client.run(&format!("DEL {}", key(number)));
    let mut deleted = 0;
    for number in 0..300 {
        let reply = delete(&mut client, number);
        if reply.starts_with("-ERR no room for writes: ") {
            break;
        }
        assert_eq!(reply, ":1", "{number}");
        deleted += 1;
    }
    assert!(deleted > 0, "nothing was deleted");
    assert_eq!(members(client.run_raw("SMEMBERS s")).len(), 100_000);
    drop(deaf);
    wait_for("the end of snapshots", || {
        figure(&mut client, "snapshots_in_memory:") == 0
    });
    wait_for("a delete", || delete(&mut client, deleted) == ":1");
    for number in deleted + 1..deleted + 500 {
        assert_eq!(delete(&mut client, number), ":1", "{number}");
    }
    wait_for("room", || client.run("SET room 1") == "+OK");
    assert_eq!(members(client.run_raw("SMEMBERS s")).len(), 100_000);
}

/// The message about a key that is changed while its elements are sent comes behind them.
#[test]
fn messages_about_a_key_come_behind_its_large_reply() {
    const COUNT: usize = 40_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    add_members(&mut other, COUNT);
    let long = "v".repeat(300);
    for start in (0..COUNT).step_by(1000) {
        let pairs = (start..start + 1000).flat_map(|n| [member(n), long.clone()]);
        many(&mut other, &["HSET", "h"], pairs);
    }
    other.check(&[("SET a 1", "+OK")]);
    for (with, change, message) in [
        ("", "HSET h new 1", "h"),
        ("", "DEL h", "h"),
        ("BCAST", "HSET h new 2", "h"),
        ("OPTOUT", "RENAME h h2", "h"),
    ] {
        other.run("COPY h kept");
        let mut client = tracking(&server, with);
        client.check(&[("GET a", "\"1\"")]);
        // This is more than the sockets take: it is changed in the middle.
        client.send(&[encode(&["HGETALL", "h"]), encode(&["GET", "none"])].concat());
        client.stream.peek(&mut [0]).unwrap();
        let fields = other.integer("HLEN h");
        let reply = other.run(change);
        assert!(!reply.starts_with('-'), "{change}: {reply}");
        // A write of another key that it has read.
        other.check(&[("SET a 1", "+OK")]);
        thread::sleep(Duration::from_millis(20));
        match client.answer() {
            Answer::Map(pairs) => {
                assert_eq!(i64::try_from(pairs.len()), Ok(fields), "{with} {change}")
            }
            answer => panic!("{with} {change}: {:.200}", show(&answer)),
        }
        let mut behind = vec![show(&client.answer())];
        while behind.last().unwrap() != "nil" {
            behind.push(show(&client.answer()));
        }
        behind.pop();
        behind.push(told(&mut client));
        let behind = behind.join(" ");
        assert!(
            behind.contains(&format!("\"{message}\"")),
            "{with} {change}: {behind}"
        );
        assert!(behind.contains("\"a\""), "{with} {change}: {behind}");
        other.run("DEL h2");
        other.run("RENAME kept h");
    }
}

/// A client that has not seen a change in a large reply is told of it behind the reply.
#[test]
fn who_was_shown_less_than_there_is_is_told() {
    const COUNT: usize = 20_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    add_members(&mut other, COUNT);
    let mut client = tracking(&server, "");
    let mut random = fastrand::Rng::with_seed(5);
    let (mut told_of, mut seen) = (0, 0);
    for round in 0..60 {
        let new = format!("new:{round}");
        let wait = Duration::from_micros(random.u64(..4000));
        client.send(&encode(&["SMEMBERS", "s"]));
        thread::sleep(wait);
        other.check(&[(&format!("SADD s {new}"), ":1")]);
        // Told before the reply, it forgets what it has, which is not this reply.
        let mut answer = client.answer();
        while matches!(answer, Answer::Push(_)) {
            answer = client.answer();
        }
        let shown = members(answer);
        let told = told(&mut client);
        match shown.contains(&new) {
            true => seen += 1,
            false => {
                assert!(told.contains("\"s\""), "round {round}: {told}");
                told_of += 1;
            }
        }
    }
    assert!(told_of > 0, "{seen} were seen, none was told of");
}

/// A peer that has shut down its sending side gets all of a large reply, and of a pipeline.
#[test]
fn a_peer_that_sends_nothing_more_has_its_large_replies() {
    const COUNT: usize = 100_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    add_members(&mut other, COUNT);
    for waits in [false, true] {
        let mut client = server.client();
        let commands = [
            encode(&["SMEMBERS", "s"]),
            encode(&["SADD", "s", "more"]),
            encode(&["SMEMBERS", "s"]),
            encode(&["SREM", "s", "more"]),
            encode(&["PING"]),
        ];
        client.send(&commands.concat());
        if waits {
            client.stream.peek(&mut [0]).unwrap();
        }
        client.stream.shutdown(Shutdown::Write).unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(members(client.answer()).len(), COUNT);
        assert_eq!(show(&client.answer()), ":1");
        assert_eq!(members(client.answer()).len(), COUNT + 1);
        assert_eq!(show(&client.answer()), ":1");
        assert_eq!(show(&client.answer()), "+PONG");
        assert!(client.is_closed());
    }
}

/// Nothing is read for a peer that is gone: its snapshots end, and its connection.
#[test]
fn nothing_is_read_for_a_peer_that_is_gone() {
    const COUNT: usize = 100_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    add_members(&mut other, COUNT);
    for round in 0..40 {
        let mut client = server.client();
        client.send(&encode(&["SMEMBERS", "s"]).repeat(20));
        match round % 4 {
            0 => {}
            // With an unread reply, the end of the connection is a reset.
            1 => {
                client.stream.peek(&mut [0]).unwrap();
            }
            2 => client.stream.shutdown(Shutdown::Write).unwrap(),
            _ => {
                client.stream.peek(&mut [0]).unwrap();
                client.stream.shutdown(Shutdown::Both).unwrap();
            }
        }
    }
    wait_for("the end of connections", || {
        figure(&mut other, "connected_clients:") == 1
    });
    wait_for("the end of snapshots", || {
        figure(&mut other, "snapshots_in_memory:") == 0
    });
    // Nobody reads on.
    let scanned = figure(&mut other, "scan_leaves_total:");
    thread::sleep(Duration::from_millis(100));
    let more = figure(&mut other, "scan_leaves_total:") - scanned;
    assert!(more < 100, "{more} leaves were read");
}
