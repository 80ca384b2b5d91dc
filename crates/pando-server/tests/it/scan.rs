//! Tests of SCAN and KEYS.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, options};
use crate::until_end::End;

/// Makes one call. Returns the next cursor and the keys.
fn step(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    let Answer::Array(reply) = client.call(&words(&format!("SCAN {cursor} {options}"))) else {
        panic!("SCAN replies an array");
    };
    let text = |answer: &Answer| match answer {
        Answer::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let Answer::Array(keys) = &reply[1] else {
        panic!("keys are an array");
    };
    (text(&reply[0]), keys.iter().map(text).collect())
}

fn all(client: &mut Client, options: &str) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let (next, mut found) = step(client, &cursor, options);
        keys.append(&mut found);
        if next == "0" {
            return keys;
        }
        assert!(next.parse::<u64>().unwrap() < 1 << 53);
        cursor = next;
    }
}

fn fill(client: &mut Client, count: usize) -> BTreeSet<String> {
    let keys: BTreeSet<String> = (0..count).map(|n| format!("key:{n}")).collect();
    for key in &keys {
        client.run(&format!("SET {key} v"));
    }
    keys
}

#[test]
fn every_key_is_found_once_in_a_quiet_database() {
    let server = Fixture::new();
    let mut client = server.client();
    assert_eq!(step(&mut client, "0", ""), ("0".to_owned(), vec![]));
    let keys = fill(&mut client, 500);
    for options in [
        "",
        "COUNT 1",
        "COUNT 7",
        "COUNT 1000",
        "TYPE string",
        "MATCH *",
    ] {
        let found = all(&mut client, options);
        assert_eq!(found.len(), keys.len(), "{options}");
        assert_eq!(
            found.into_iter().collect::<BTreeSet<_>>(),
            keys,
            "{options}"
        );
    }
    assert_eq!(all(&mut client, "TYPE hash COUNT 100").len(), 0);
    assert_eq!(all(&mut client, "MATCH key:1? COUNT 100").len(), 10);
    let (_, found) = step(&mut client, "0", "COUNT 25");
    assert_eq!(found.len(), 25);
    client.check(&[
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        (
            "SCAN 0 COUNT x",
            "-ERR value is not an integer or out of range",
        ),
        ("SCAN 0 COUNT", "-ERR syntax error"),
        ("SCAN 0 WHAT 1", "-ERR syntax error"),
        ("KEYS key:4[0-2]", "[\"key:40\" \"key:41\" \"key:42\"]"),
    ]);
}

#[test]
fn keys_that_stay_are_found_while_others_come_and_go() {
    let server = Fixture::new();
    let mut client = server.client();
    let stay = fill(&mut client, 300);
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut other = server.client();
            let mut n = 0;
            while !stop.is_there() {
                n = (n * 7 + 1) % 1000;
                other.run(&format!("SET key:{n}:x v"));
                other.run(&format!("DEL key:{}:x", (n + 500) % 1000));
            }
        });
        for options in ["COUNT 3", "COUNT 10", "COUNT 50"] {
            let found: BTreeSet<String> = all(&mut client, options).into_iter().collect();
            assert!(stay.is_subset(&found), "{options}");
        }
        drop(bring);
    });
}

#[test]
fn an_unknown_cursor_starts_over() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let keys = fill(&mut client, 50);
    let (cursor, first) = step(&mut client, "0", "COUNT 10");
    // A cursor of another database is unknown.
    client.run("SELECT 1");
    client.run("SET elsewhere 1");
    assert_eq!(step(&mut client, &cursor, "").1, ["elsewhere"]);
    // Another connection may continue with the cursor.
    let (_, second) = step(&mut other, &cursor, "COUNT 10");
    assert!(first.iter().all(|key| !second.contains(key)));
    // The cursor can be used repeatedly, also after many other calls.
    for _ in 0..4200 {
        step(&mut other, "0", "COUNT 1");
    }
    assert_eq!(step(&mut other, &cursor, "COUNT 10").1, second);
    for cursor in ["12345", "9223372036854775807", "18446744073709551615"] {
        let (_, found) = step(&mut other, cursor, "COUNT 1000");
        assert_eq!(found.len(), keys.len());
    }
}

/// The longest wait for a fast iteration.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a server with `max_memory` bytes of memory.
fn with_memory(max_memory: u64) -> Fixture {
    Fixture::opened_by(options(), move |_| {
        pandodb::Db::builder()
            .max_memory(max_memory)
            .open_in_memory()
    })
}

/// Sets `count` keys that begin with `prefix`.
fn fill_quickly(client: &mut Client, prefix: &str, count: usize) {
    for from in (0..count).step_by(1000) {
        let batch = from..count.min(from + 1000);
        for number in batch.clone() {
            client.send(&encode(&["SET", &format!("{prefix}{number:06}"), "v"]));
        }
        for _ in batch {
            assert_eq!(show(&client.answer()), "+OK");
        }
    }
}

#[test]
fn a_slow_iteration_beside_fast_ones_ends() {
    // There is room for fewer places than a fast iteration leaves between two steps of the slow
    // one.
    let server = with_memory(16 << 20);
    let mut slow = server.client();
    fill_quickly(&mut slow, "key:", 200);
    slow.run("SELECT 1");
    fill_quickly(&mut slow, &"x".repeat(300), 8000);
    slow.run("SELECT 0");
    let (stop, rounds) = (End::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut fast = server.client();
            fast.run("SELECT 1");
            while !stop.is_there() {
                assert_eq!(all(&mut fast, "COUNT 1").len(), 8000);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        for _ in 0..5 {
            let (next, mut keys) = step(&mut slow, &cursor, "COUNT 50");
            found.append(&mut keys);
            cursor = next;
            let (before, limit) = (rounds.load(Ordering::Relaxed), now() + PATIENCE);
            while cursor != "0" && rounds.load(Ordering::Relaxed) < before + 2 && now() < limit {
                thread::yield_now();
            }
        }
        drop(bring);
        assert_eq!(cursor, "0", "the iteration ends");
        assert_eq!(found.len(), 200);
    });
    let memory = slow.text("INFO memory");
    let used = memory
        .lines()
        .find_map(|line| line.strip_prefix("memory_cursors:"));
    let used: u64 = used.unwrap().parse().unwrap();
    assert!((1 << 20..=2 << 20).contains(&used), "{used}");
}

#[test]
fn an_iteration_among_a_hundred_thousand_that_are_open_ends() {
    const EACH: usize = 25_000;
    let server = with_memory(64 << 20);
    let mut slow = server.client();
    fill_quickly(&mut slow, "key:", 100);
    let (mut cursor, mut found) = step(&mut slow, "0", "COUNT 30");
    thread::scope(|scope| {
        for database in 1..=4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                client.run(&format!("SELECT {database}"));
                fill_quickly(&mut client, "key:", EACH);
                // Two iterations continue from each place, and one of them stops after it.
                let (mut cursor, mut steps) = ("0".to_owned(), 0);
                loop {
                    let command = encode(&["SCAN", &cursor, "COUNT", "1"]);
                    client.send(&command.repeat(2));
                    let next = |answer| match answer {
                        Answer::Array(reply) => show(&reply[0]).trim_matches('"').to_owned(),
                        other => panic!("{other:?}"),
                    };
                    let (one, other) = (next(client.answer()), next(client.answer()));
                    assert_eq!(one, other);
                    if one == "0" {
                        break;
                    }
                    cursor = one;
                    steps += 1;
                }
                assert!(steps >= EACH - 1, "{steps} places");
            });
        }
    });
    while cursor != "0" {
        let (next, mut keys) = step(&mut slow, &cursor, "COUNT 30");
        found.append(&mut keys);
        cursor = next;
    }
    assert_eq!(found.len(), 100, "each key once");
}

#[test]
fn a_cursor_from_before_a_restart_starts_over() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let path = directory.path().to_owned();
        Fixture::opened_by(options(), move |_| {
            pandodb::Db::builder().max_memory(32 << 20).open(&path)
        })
    };
    let mut server = start();
    let mut client = server.client();
    let keys = fill(&mut client, 50);
    let (cursor, first) = step(&mut client, "0", "COUNT 20");
    server.handle.shutdown();
    server.join().unwrap();
    let server = start();
    let mut client = server.client();
    // These places take the slots of the places before the restart.
    let mut cursor_of_now = "0".to_owned();
    for _ in 0..2 {
        cursor_of_now = step(&mut client, &cursor_of_now, "COUNT 20").0;
    }
    let (next, again) = step(&mut client, &cursor, "COUNT 20");
    assert_eq!(again, first);
    let mut found: BTreeSet<String> = again.into_iter().collect();
    let mut cursor = next;
    while cursor != "0" {
        let (next, keys) = step(&mut client, &cursor, "COUNT 20");
        found.extend(keys);
        cursor = next;
    }
    assert_eq!(found, keys);
}

#[test]
fn replies_over_many_keys_are_bounded_however_many_are_asked_for() {
    const COUNT: usize = 70_000;
    let server = with_memory(64 << 20);
    let mut client = server.client();
    fill_quickly(&mut client, &"x".repeat(250), COUNT);
    let (mut cursor, mut found, mut before) = ("0".to_owned(), 0, client.received());
    loop {
        let (next, keys) = step(&mut client, &cursor, "COUNT 1000000000");
        found += keys.len();
        let bytes = client.received() - before;
        assert!(bytes < 1_200_000, "a reply of {bytes} bytes");
        before = client.received();
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, COUNT);
    // The bound is one of the reply: if few keys match, one call covers all of them.
    let (next, keys) = step(&mut client, "0", "COUNT 1000000000 MATCH *0700");
    assert_eq!((next.as_str(), keys.len()), ("0", COUNT.div_ceil(10_000)));
    let reply = client.run("KEYS *");
    assert!(
        reply.starts_with("-ERR"),
        "{}",
        &reply[..reply.len().min(100)]
    );
    assert_eq!(client.run("PING"), "+PONG");
}

#[test]
fn patterns_with_a_literal_beginning_find_what_others_find() {
    let server = Fixture::new();
    let mut client = server.client();
    fill_quickly(&mut client, "a:", 300);
    fill_quickly(&mut client, "b:", 300);
    fill_quickly(&mut client, "c:", 300);
    // Long keys are stored in another order.
    let long: Vec<String> = ["a:", "b:", "bx", "c:"]
        .map(|prefix| format!("{prefix}{}", "l".repeat(5000)))
        .into();
    for key in &long {
        client.call(&["SET", key, "1"]);
    }
    client.run("SET b*x 1");
    let check = |client: &mut Client, pattern: &str, count: usize| {
        let found = all(client, &format!("MATCH {pattern} COUNT 7"));
        assert_eq!(found.len(), count, "{pattern}");
        let unique: BTreeSet<_> = found.iter().collect();
        assert_eq!(unique.len(), count, "{pattern}");
        let Answer::Array(keys) = client.call(&["KEYS", pattern]) else {
            panic!("KEYS replies an array");
        };
        assert_eq!(keys.len(), count, "{pattern}");
    };
    check(&mut client, "b:*", 301);
    check(&mut client, "b*", 303);
    let keys = all(&mut client, "");
    let with_both = |key: &&String| key.starts_with("b:1") && key.ends_with('9');
    check(&mut client, "b:1*9", keys.iter().filter(with_both).count());
    check(&mut client, "b\\*x", 1);
    check(&mut client, "[b]:*", 301);
    check(&mut client, &format!("b:{}*", "l".repeat(100)), 1);
    check(&mut client, &long[3], 1);
    check(&mut client, "d*", 0);
    check(&mut client, "\u{1}*", 0);
    // Inside EXEC, with what EXEC has written and removed.
    client.check(&[
        ("MULTI", "+OK"),
        ("SET d:1 1", "+QUEUED"),
        ("SET e:1 1", "+QUEUED"),
        ("KEYS d:*", "+QUEUED"),
        ("DEL d:1", "+QUEUED"),
        ("KEYS d:*", "+QUEUED"),
        ("SCAN 0 MATCH e:*", "+QUEUED"),
        ("EXEC", "[+OK +OK [\"d:1\"] :1 [] [\"0\" [\"e:1\"]]]"),
    ]);
}
