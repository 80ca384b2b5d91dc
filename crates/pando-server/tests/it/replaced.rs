//! Keys that a transaction of PANDO BEGIN replaces while others give them elements, or pieces, of
//! their own. At the end of each test the fixture looks for rows that no key has.

use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, options};
use crate::trees::{client_of, many};

/// Gives `key` rows of its own, in one of three ways.
fn make_large(client: &mut Client, key: &str, how: &str) {
    match how {
        "list" => {
            let elements = (0..2000).map(|n| format!("element-{n}-{}", "y".repeat(40)));
            assert_eq!(many(client, &["RPUSH", key], elements), ":2000");
        }
        "stream" => {
            client.check(&[(&format!("XADD {key} 1-1 field value"), "\"1-1\"")]);
        }
        "pieces" => {
            let long = "z".repeat(300);
            client.check(&[(&format!("SETRANGE {key} 40000 {long}"), ":40300")]);
        }
        other => panic!("{other}"),
    }
}

/// The moment that a transaction reads may be long over when it commits: that no key of its
/// database had rows of its own then says nothing.
#[test]
fn what_becomes_large_beside_a_transaction_that_overwrites_it_is_a_conflict() {
    for how in ["list", "stream", "pieces"] {
        for level in ["SERIALIZABLE", "SNAPSHOT"] {
            for write in ["SET k x", "MSET j y k x"] {
                let server = Fixture::new();
                let (mut client, mut other) = (server.client(), server.client());
                client.check(&[(&format!("PANDO BEGIN {level}"), "+OK"), (write, "+OK")]);
                make_large(&mut other, "k", how);
                client.check(&[
                    ("PANDO COMMIT", "-CONFLICT key k"),
                    ("PANDO ROLLBACK", "+OK"),
                    ("EXISTS j k", ":1"),
                    (write, "+OK"),
                    ("GET k", "\"x\""),
                ]);
            }
        }
    }
}

/// At this level what was written is looked at, and elements may come before their key. Their rows
/// do not say which key they are of.
#[test]
fn a_conflict_of_elements_is_one_of_the_key_or_of_all_keys() {
    let server = Fixture::new();
    let (mut client, mut other) = (client_of(&server), server.client());
    for command in ["DEL l", "LPOP l", "RPUSH l a", "SET l x"] {
        other.run("FLUSHALL");
        let numbers = (0..50).map(|n| n.to_string());
        assert_eq!(many(&mut other, &["RPUSH", "l"], numbers), ":50");
        client.check(&[("SET x 1", "+OK"), ("PANDO BEGIN SNAPSHOT", "+OK")]);
        let reply = client.run(command);
        other.check(&[(command, &reply)]);
        let conflict = client.run("PANDO COMMIT");
        let expected = ["-CONFLICT range - +", "-CONFLICT key l"];
        assert!(expected.contains(&&*conflict), "{command}: {conflict}");
        client.check(&[("PANDO ROLLBACK", "+OK")]);
    }
}

/// A server whose clients wait for locks as long as a test lasts.
fn patient() -> Fixture {
    Fixture::opened_by(options(), |_| {
        let builder = pandodb::Db::builder().max_memory(32 << 20);
        let builder = builder.lock_timeout(Duration::from_mins(1));
        builder.open_in_memory()
    })
}

const CUT: &str = "SETRANGE k 40000 end";

/// At this level no read is checked, so the key of a row that is written stays locked: whoever
/// gives it pieces comes before the command that replaces it, or after its commit.
#[test]
fn what_a_transaction_at_read_committed_replaces_is_locked() {
    let cut = ":40003";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    // What is there before, the command of the transaction and its reply, and that of the other.
    let cases = [
        ("PING", "SET k x", "+OK", cut),
        ("PING", "MSET j y k x", "+OK", cut),
        ("PING", "SETNX k x", ":1", cut),
        ("SET k s", "INCR n", ":1", cut),
        ("SET k s", "SET k x", "+OK", cut),
        ("SET k s PX 1000000", "PERSIST k", ":1", cut),
        ("SET k s PX 1000000", "APPEND k x", ":2", cut),
        ("SET k s", "GETDEL k", "\"s\"", cut),
        ("SET k s", "DEL j k", ":1", cut),
        ("SET k s", "UNLINK k", ":1", cut),
        ("SET k s", "PEXPIRE k -1", ":1", cut),
        ("SET k s", "MOVE k 1", ":1", cut),
        ("SET k s", "RENAME k j", "+OK", cut),
        ("SET j s", "RENAME j k", "+OK", cut),
        ("MSET j s k s", "COPY j k REPLACE", ":1", cut),
        ("SADD s m", "SUNIONSTORE k s", ":1", wrong),
        ("SADD s 1", "SORT s STORE k", ":1", wrong),
        ("PING", "PFADD k a", ":1", cut),
        ("SET k s", "BITOP NOT k k", ":1", cut),
    ];
    for (before, command, reply, after) in cases {
        let server = patient();
        let (mut client, mut other) = (server.client(), server.client());
        client.run(before);
        client.check(&[("PANDO BEGIN READCOMMITTED", "+OK"), (command, reply)]);
        other.send(&encode(&words(CUT)));
        if command != "INCR n" {
            thread::park_timeout(Duration::from_millis(20));
            assert!(!other.has_answer(), "{command}: the key is locked");
        }
        client.check(&[("PANDO COMMIT", "+OK")]);
        assert_eq!(show(&other.answer()), after, "{command}");
        let now = client.run("GET k");
        assert!(now.ends_with("end\"") || after == wrong, "{command}");
    }
}

/// The other comes first: what it has made is found, and given up.
#[test]
fn what_a_transaction_at_read_committed_replaces_is_read_under_its_lock() {
    for command in ["SET k x", "DEL k", "MSET k x j x", "SORT s STORE k"] {
        let server = patient();
        let (mut client, mut other) = (server.client(), server.client());
        client.check(&[
            ("SADD s 1", ":1"),
            ("PANDO BEGIN READCOMMITTED", "+OK"),
            ("GET k", "nil"),
        ]);
        other.check(&[("PANDO BEGIN READCOMMITTED", "+OK"), (CUT, ":40003")]);
        client.send(&encode(&words(command)));
        thread::park_timeout(Duration::from_millis(20));
        assert!(!client.has_answer(), "{command}: the key is locked");
        other.check(&[("PANDO COMMIT", "+OK")]);
        assert!(!show(&client.answer()).starts_with('-'), "{command}");
        client.check(&[("PANDO COMMIT", "+OK")]);
        assert_ne!(client.run("STRLEN k"), ":40003", "{command}");
    }
}

/// A command of many keys locks them together, and scripts lock what they write.
#[test]
fn many_keys_are_locked_at_once() {
    let server = patient();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("PANDO BEGIN READCOMMITTED", "+OK")]);
    let pairs = (0..20_000).flat_map(|n| [format!("k{n}"), "x".to_owned()]);
    assert_eq!(many(&mut client, &["MSET"], pairs), "+OK");
    other.send(&encode(&["SETRANGE", "k19999", "40000", "end"]));
    let dels = (0..20_000).map(|n| format!("k{n}"));
    assert_eq!(many(&mut client, &["DEL"], dels), ":20000");
    client.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&other.answer()), ":40003");
    client.check(&[("DBSIZE", ":1")]);
}

#[cfg(feature = "scripts")]
#[test]
fn scripts_in_a_transaction_at_read_committed_lock_what_they_write() {
    for script in [
        "return redis.call('SET', KEYS[1], 'x')",
        "redis.call('GET', 'k') redis.call('DEL', 'k') return redis.call('SET', 'j', 'x')",
    ] {
        let server = patient();
        let (mut client, mut other) = (server.client(), server.client());
        client.check(&[("SET k s", "+OK"), ("PANDO BEGIN READCOMMITTED", "+OK")]);
        assert_eq!(show(&client.call(&["EVAL", script, "1", "k"])), "+OK");
        other.send(&encode(&words(CUT)));
        thread::park_timeout(Duration::from_millis(20));
        assert!(!other.has_answer(), "the key is locked");
        client.check(&[("PANDO COMMIT", "+OK")]);
        assert_eq!(show(&other.answer()), ":40003");
    }
}

/// FLUSHDB waits for the lock when it has looked at the tables of its database already. Then the
/// one for elements is made.
#[test]
fn what_becomes_large_while_a_flush_waits_goes_with_it() {
    for flush in ["FLUSHDB", "FLUSHALL"] {
        let server = patient();
        let (mut client, mut other) = (server.client(), server.client());
        let mut flusher = server.client();
        client.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK lock", "+OK")]);
        flusher.send(&encode(&[flush]));
        thread::park_timeout(Duration::from_millis(50));
        make_large(&mut other, "k", "list");
        client.check(&[("PANDO COMMIT", "+OK")]);
        assert_eq!(show(&flusher.answer()), "+OK");
        other.check(&[("EXISTS k", ":0"), ("DBSIZE", ":0")]);
        make_large(&mut other, "k", "list");
    }
}

/// A SET that reads nothing waits for a lock at its commit. Meanwhile its key becomes the first one
/// of the database that has rows of its own.
#[test]
fn what_becomes_large_while_a_set_waits_is_given_up() {
    for how in ["list", "stream", "pieces"] {
        for sets in [&["SET k x"][..], &["MSET j y k x"], &["SET j y", "SET k x"]] {
            let server = patient();
            let (mut client, mut other) = (server.client(), server.client());
            client.check(&[
                ("PANDO BEGIN READCOMMITTED", "+OK"),
                ("PANDO LOCK k", "+OK"),
            ]);
            let sent: Vec<u8> = sets.iter().flat_map(|set| encode(&words(set))).collect();
            other.send(&sent);
            thread::park_timeout(Duration::from_millis(20));
            make_large(&mut client, "k", how);
            client.check(&[("PANDO COMMIT", "+OK")]);
            for _ in sets {
                assert_eq!(show(&other.answer()), "+OK");
            }
            client.check(&[("GET k", "\"x\"")]);
        }
    }
}
