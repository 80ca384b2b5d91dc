//! SCAN and KEYS.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;

use crate::client::{Client, words};
use crate::fixture::Fixture;

/// One call: the next cursor and the keys.
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
        assert!(next.parse::<u64>().unwrap() < 1 << 63);
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
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = server.client();
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n = (n * 7 + 1) % 1000;
                other.run(&format!("SET key:{n}:x v"));
                other.run(&format!("DEL key:{}:x", (n + 500) % 1000));
            }
        });
        for options in ["COUNT 3", "COUNT 10", "COUNT 50"] {
            let found: BTreeSet<String> = all(&mut client, options).into_iter().collect();
            assert!(stay.is_subset(&found), "{options}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_unknown_cursor_starts_over() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let keys = fill(&mut client, 50);
    let (cursor, first) = step(&mut client, "0", "COUNT 10");
    // The cursor of a database that is not selected is not known.
    client.run("SELECT 1");
    client.run("SET elsewhere 1");
    assert_eq!(step(&mut client, &cursor, "").1, ["elsewhere"]);
    // Another connection may go on with it, until the ring has forgotten it.
    let (_, second) = step(&mut other, &cursor, "COUNT 10");
    assert!(first.iter().all(|key| !second.contains(key)));
    for _ in 0..4200 {
        step(&mut other, "0", "COUNT 1");
    }
    assert_eq!(step(&mut other, &cursor, "COUNT 10").1, first);
    for cursor in ["12345", "9223372036854775807", "18446744073709551615"] {
        let (_, found) = step(&mut other, cursor, "COUNT 1000");
        assert_eq!(found.len(), keys.len());
    }
}
