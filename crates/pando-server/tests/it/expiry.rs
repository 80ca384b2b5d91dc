//! Keys with deadlines.

use pando_sync::thread;
use pando_sync::time::{Duration, now, unix_ms};

use crate::client::Client;
use crate::fixture::Fixture;

#[test]
fn deadlines_are_set_asked_and_removed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("EXPIRE none 10", ":0"),
        ("TTL none", ":-2"),
        ("SET a 1", "+OK"),
        ("TTL a", ":-1"),
        ("PERSIST a", ":0"),
        ("EXPIRE a 100", ":1"),
        ("TTL a", ":100"),
        ("EXPIRE a 200 NX", ":0"),
        ("EXPIRE a 50 GT", ":0"),
        ("EXPIRE a 200 GT", ":1"),
        ("EXPIRE a 300 LT", ":0"),
        ("EXPIRE a 150 LT", ":1"),
        ("EXPIRE a 120 XX", ":1"),
        ("TTL a", ":120"),
        ("PERSIST a", ":1"),
        ("TTL a", ":-1"),
        ("EXPIRE a 10 XX", ":0"),
        ("EXPIRE a 10 GT", ":0"),
        ("EXPIRE a 10 LT", ":1"),
        (
            "EXPIRE a 10 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "EXPIRE a 10 GT LT",
            "-ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE a 10 what", "-ERR Unsupported option what"),
        ("EXPIRE a x", "-ERR value is not an integer or out of range"),
        (
            "EXPIRE a 9223372036854775807",
            "-ERR invalid expire time in 'expire' command",
        ),
        (
            "PEXPIRE a 9223372036854775807",
            "-ERR invalid expire time in 'pexpire' command",
        ),
    ]);
}

#[test]
fn deadlines_are_kept_and_replaced_by_other_commands() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET a 1", "+OK"),
        ("EXPIREAT a 33177117420", ":1"),
        ("EXPIRETIME a", ":33177117420"),
        ("PEXPIRETIME a", ":33177117420000"),
        ("PEXPIREAT a 33177117420123", ":1"),
        ("PEXPIRETIME a", ":33177117420123"),
        ("GET a", "\"1\""),
        ("SET a 2 KEEPTTL", "+OK"),
        ("PEXPIRETIME a", ":33177117420123"),
        ("SET a 2", "+OK"),
        ("TTL a", ":-1"),
        ("GETEX a EX 100", "\"2\""),
        ("TTL a", ":100"),
        ("GETEX a", "\"2\""),
        ("TTL a", ":100"),
        ("GETEX a PERSIST", "\"2\""),
        ("TTL a", ":-1"),
        ("GETEX a EX 1 PERSIST", "-ERR syntax error"),
        (
            "GETEX a EX -1",
            "-ERR invalid expire time in 'getex' command",
        ),
        // The option may be repeated, and the last one counts.
        ("GETEX a EX 5 ex 300", "\"2\""),
        ("TTL a", ":300"),
        ("SET a 2 EX 5 XX EX 200", "+OK"),
        ("TTL a", ":200"),
        ("GETEX a PERSIST persist", "\"2\""),
        ("TTL a", ":-1"),
        ("SET a 2 EX 5 PX 5", "-ERR syntax error"),
        ("SET a 2 EX 5 KEEPTTL", "-ERR syntax error"),
        ("SET a 2 KEEPTTL EX 5", "-ERR syntax error"),
        ("GETEX a PERSIST EX 5", "-ERR syntax error"),
        // A missing key cannot expire.
        ("GETEX nothing EX -1", "nil"),
        ("EXPIRE a -1", ":1"),
        ("EXISTS a", ":0"),
        ("SET a 1", "+OK"),
        ("EXPIREAT a 1", ":1"),
        ("GET a", "nil"),
        ("DBSIZE", ":0"),
    ]);
    let at = unix_ms() / 1000 + 100;
    client.run(&format!("SET b 1 EXAT {at}"));
    assert_eq!(client.run("EXPIRETIME b"), format!(":{at}"));
}

#[test]
fn ended_keys_are_gone_when_read() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a 1 PX 30");
    client.run("SET b 1");
    assert_eq!(client.run("PEXPIRE b 30"), ":1");
    thread::sleep(Duration::from_millis(40));
    client.check(&[
        ("MGET a b", "[nil nil]"),
        ("EXISTS a b", ":0"),
        ("KEYS *", "[]"),
        ("SET a 2 NX", "+OK"),
        ("TTL a", ":-1"),
        ("INCR b", ":1"),
        ("TTL b", ":-1"),
    ]);
    thread::sleep(Duration::from_millis(300));
    client.check(&[("MGET a b", "[\"2\" \"1\"]"), ("DBSIZE", ":2")]);
}

fn wait_for_size(client: &mut Client, size: i64) {
    let limit = now() + Duration::from_secs(10);
    while client.integer("DBSIZE") != size {
        assert!(
            now() < limit,
            "{} keys are still there",
            client.integer("DBSIZE")
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ended_keys_are_removed_without_being_read() {
    let server = Fixture::new();
    let mut client = server.client();
    for database in [0, 1, 15] {
        client.run(&format!("SELECT {database}"));
        for key in 0..300 {
            client.run(&format!("SET k{key} v PX {}", 1 + key % 50));
        }
        client.run("SET stays v");
        client.run("SET extended v PX 10");
        client.run("EXPIRE extended 1000");
    }
    for database in [0, 1, 15] {
        client.run(&format!("SELECT {database}"));
        wait_for_size(&mut client, 2);
        client.check(&[("GET stays", "\"v\"")]);
        let left = client.integer("TTL extended");
        assert!((900..=1000).contains(&left), "{left}");
    }
    let info = client.text("INFO stats");
    assert!(info.contains("expired_keys:900"), "{info}");
}

/// While writes pause, nothing is removed, and nobody is told so: it is over for those who read.
#[test]
fn nothing_is_removed_in_a_pause() {
    let server = Fixture::new();
    let (mut client, mut other, mut told) = (server.client(), server.client(), server.client());
    client.run("CONFIG SET notify-keyspace-events Ex");
    told.run("SUBSCRIBE __keyevent@0__:expired");
    loop {
        client.run("SET k v PX 300");
        other.run("CLIENT PAUSE 100000 WRITE");
        if client.integer("PTTL k") > 0 {
            break;
        }
        other.run("CLIENT UNPAUSE");
    }
    while client.run("GET k") != "nil" {
        thread::sleep(Duration::from_millis(10));
    }
    // The cleaner would come several times.
    thread::sleep(Duration::from_millis(600));
    client.check(&[("DBSIZE", ":1"), ("CLIENT UNPAUSE", "+OK")]);
    wait_for_size(&mut client, 0);
    let event = "[\"message\" \"__keyevent@0__:expired\" \"k\"]";
    assert_eq!(crate::client::show(&told.answer()), event);
}

#[test]
fn an_entry_follows_its_key() {
    let server = Fixture::new();
    let mut client = server.client();
    // Each key has one entry, which moves only to an earlier time. INFO counts entries.
    let expires = |client: &mut Client| {
        let info = client.text("INFO keyspace");
        let at = info.find("expires=").unwrap() + 8;
        info[at..]
            .split(',')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    client.run("SET other v");
    for command in [
        "SET a 1 EX 1000",
        "EXPIRE a 2000",
        "EXPIRE a 500",
        "SET a 2 EX 100",
        "SET a 3 KEEPTTL",
        "APPEND a x",
    ] {
        client.run(command);
        assert_eq!(expires(&mut client), 1, "{command}");
    }
    client.run("SET a plain");
    assert_eq!(expires(&mut client), 0);
    client.run("SET a 1 EX 1000");
    client.run("PERSIST a");
    assert_eq!(expires(&mut client), 0);
    client.run("SET a 1 EX 1000");
    client.run("DEL a");
    assert_eq!(expires(&mut client), 0);
}

/// Returns the server's time in milliseconds.
fn time_ms(client: &mut Client) -> u64 {
    let time = client.run("TIME");
    let mut parts = time.split('"').filter_map(|part| part.parse::<u64>().ok());
    let (seconds, micros) = (parts.next().unwrap(), parts.next().unwrap());
    seconds * 1000 + micros / 1000
}

/// As in Redis, what has a deadline lives in its millisecond, and not in the next one.
#[test]
fn a_deadline_is_exact_to_the_millisecond() {
    let server = Fixture::new();
    let mut client = server.client();
    let large: String = (0..1000).map(|of| format!(" f{of} v")).collect();
    for _ in 0..20 {
        client.run("DEL packed large");
        client.check(&[
            ("SET k v", "+OK"),
            ("HSET packed f v g v", ":2"),
            (&format!("HSET large{large}"), ":1000"),
        ]);
        let deadline = time_ms(&mut client) + 8;
        for (give, answer) in [
            (format!("PEXPIREAT k {deadline}"), ":1"),
            (format!("HPEXPIREAT packed {deadline} FIELDS 1 f"), "[:1]"),
            (format!("HPEXPIREAT large {deadline} FIELDS 1 f7"), "[:1]"),
        ] {
            let given = client.run(&give);
            // On a busy machine the deadline may be over before all have it.
            let is_late = time_ms(&mut client) > deadline;
            assert!(given == answer || is_late, "{give}: {given}");
        }
        for (look, living, gone) in [
            ("GET k", "\"v\"", "nil"),
            ("HGET packed f", "\"v\"", "nil"),
            ("HMGET large f7 f8", "[\"v\" \"v\"]", "[nil \"v\"]"),
        ]
        .into_iter()
        .cycle()
        {
            let before = time_ms(&mut client);
            let answer = client.run(look);
            let after = time_ms(&mut client);
            match answer == living {
                true => assert!(before <= deadline, "{look} at {before}: {deadline}"),
                false => {
                    assert_eq!(answer, gone, "{look}");
                    assert!(after > deadline, "{look} at {after}: {deadline}");
                }
            }
            if before > deadline + 2 {
                break;
            }
        }
    }
}
