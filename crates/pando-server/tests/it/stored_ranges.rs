//! ZRANGESTORE of long ranges, which a thread reads and writes.

use pando_sync::thread;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};
use crate::places::pages_read;
use crate::trees::many;
use crate::until_end::End;

const COUNT: usize = 20_000;

/// Fills a sorted set: three members of each score, some of them long, some with the score -0.
fn fill(client: &mut Client, key: &str) {
    for start in (0..COUNT).step_by(2_000) {
        let scored = (start..start + 2_000).flat_map(|n| {
            let score = match n {
                0 => "-0".to_owned(),
                _ => (n / 3).to_string(),
            };
            let long = if n % 1_000 == 7 { 2_000 } else { 0 };
            [score, format!("{n:06}{}", "m".repeat(long))]
        });
        assert_eq!(many(client, &["ZADD", key], scored), ":2000");
    }
}

/// Returns members and scores, from the lowest on.
fn shown(client: &mut Client, range: &str) -> String {
    client.run(&format!("ZRANGE {range} WITHSCORES"))
}

#[test]
fn long_ranges_are_stored_as_they_are_shown() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "z");
    let same = (0..COUNT).flat_map(|n| ["1".to_owned(), format!("{n:06}")]);
    many(&mut client, &["ZADD", "same"], same);
    for (range, of_reply, count) in [
        ("z 0 -1", "z 0 -1", COUNT),
        ("z 5 15000", "z 5 15000", 14_996),
        ("z 5 15000 REV", "z 4999 19994", 14_996),
        ("z (10 5000 BYSCORE", "z (10 5000 BYSCORE", 14_970),
        ("z 5000 10 BYSCORE REV LIMIT 9 6000", "z 8994 14993", 6_000),
        (
            "z 10 +inf BYSCORE LIMIT 9 6000",
            "z 10 +inf BYSCORE LIMIT 9 6000",
            6_000,
        ),
        ("same [000100 (010000 BYLEX", "same 100 9999", 9_900),
        ("same + - BYLEX REV LIMIT 5 8000", "same 11995 19994", 8_000),
    ] {
        client.check(&[
            ("SET d old EX 100", "+OK"),
            (&format!("ZRANGESTORE d {range}"), &format!(":{count}")),
            ("ZCARD d", &format!(":{count}")),
            ("ZCOUNT d -inf +inf", &format!(":{count}")),
            ("TTL d", ":-1"),
            ("OBJECT ENCODING d", "\"skiplist\""),
        ]);
        let expected = shown(&mut client, of_reply);
        assert!(shown(&mut client, "d 0 -1") == expected, "{range}");
    }
    client.check(&[
        ("ZRANGESTORE d z 0 -1", ":20000"),
        ("ZRANGE d 0 0 WITHSCORES", "[\"000000\" \"-0\"]"),
        ("ZSCORE d 000000", "\"-0\""),
        ("ZSCORE d 012345", "\"4115\""),
        ("ZRANK d 012345", ":12345"),
        ("ZRANGESTORE d z 20000 -1", ":0"),
        ("EXISTS d", ":0"),
        ("ZRANGESTORE z z 10000 -1", ":10000"),
        ("ZRANGE z 0 0", "[\"010000\"]"),
        ("ZREM z 010000", ":1"),
        ("ZCARD z", ":9999"),
    ]);
}

/// What Redis would have in a listpack has no negative zero.
#[test]
fn a_long_range_is_a_listpack_where_those_are_long() {
    let server = Fixture::new();
    let mut client = server.client();
    let scored = (0..COUNT).flat_map(|n| ["-0".to_owned(), format!("{n:06}")]);
    many(&mut client, &["ZADD", "z"], scored);
    client.check(&[
        ("ZRANGESTORE d z 0 8999", ":9000"),
        ("OBJECT ENCODING d", "\"skiplist\""),
        ("ZSCORE d 000000", "\"-0\""),
        ("CONFIG SET zset-max-listpack-entries 9000", "+OK"),
        ("ZRANGESTORE d z 0 8999", ":9000"),
        ("OBJECT ENCODING d", "\"listpack\""),
        ("ZSCORE d 000000", "\"0\""),
        ("ZRANGESTORE d z 0 9000", ":9001"),
        ("OBJECT ENCODING d", "\"skiplist\""),
        ("ZSCORE d 000000", "\"-0\""),
    ]);
}

/// Few members may be too long together as well.
#[test]
fn a_range_longer_than_memory_is_stored() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let long = |n: usize| format!("{n:06}-{}", "e".repeat(120_000));
    for n in 0..150 {
        client.call(&["ZADD", "z", &n.to_string(), &long(n)]);
    }
    client.check(&[
        ("ZRANGESTORE d z 1 -1", ":149"),
        ("ZCARD d", ":149"),
        ("ZCOUNT d 1 149", ":149"),
    ]);
    for n in [1, 70, 149] {
        let score = show(&client.call(&["ZSCORE", "d", &long(n)]));
        assert_eq!(score, format!("\"{n}\""));
        let reply = client.run(&format!("ZRANGE d {n} {n} BYSCORE"));
        assert!(reply == format!("[\"{}\"]", long(n)), "{n}");
    }
}

/// A twentieth of the rows is in memory. Those that come in another order than they are kept in are
/// sorted before they are written: else a page would be read for almost each of them.
#[test]
fn rows_of_what_is_stored_are_written_page_after_page() {
    const COUNT: usize = 40_000;
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    for start in (0..COUNT).step_by(2_000) {
        let numbers = start..start + 2_000;
        let scored = numbers.clone().flat_map(|n| [n.to_string(), n.to_string()]);
        assert_eq!(many(&mut client, &["ZADD", "z"], scored), ":2000");
        let placed = numbers.flat_map(|n| {
            let degrees = [7_919, 104_729].map(|by| (n * by % COUNT) as f64 / COUNT as f64);
            let [longitude, latitude] = degrees.map(|degrees| degrees.to_string());
            [longitude, latitude, n.to_string()]
        });
        assert_eq!(many(&mut client, &["GEOADD", "g"], placed), ":2000");
    }
    let near = "GEOSEARCHSTORE d g FROMLONLAT 0.5 0.5 BYRADIUS 500 km";
    for (command, count) in [
        ("ZRANGESTORE d z 0 -1", COUNT),
        ("ZUNIONSTORE d 2 z few", COUNT),
        (near, COUNT),
        (&format!("{near} STOREDIST"), COUNT),
        (&format!("{near} COUNT 39000"), 39_000),
        (&format!("{near} COUNT 39000 DESC STOREDIST"), 39_000),
    ] {
        client.run("DEL d");
        let before = pages_read(&mut client);
        assert_eq!(client.run(command), format!(":{count}"), "{command}");
        let read = pages_read(&mut client) - before;
        assert!(read < COUNT as u64 / 20, "{read} pages for {command}");
    }
}

#[test]
fn a_stored_range_has_what_its_transaction_has_written() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "z");
    client.check(&[
        ("MULTI", "+OK"),
        ("ZADD z -1 new", "+QUEUED"),
        ("ZRANGESTORE d z 0 9999", "+QUEUED"),
        ("ZRANGESTORE e d 0 8999", "+QUEUED"),
        ("ZRANGESTORE e e 1 -1", "+QUEUED"),
        ("ZREM z new", "+QUEUED"),
        ("EXEC", "[:1 :10000 :9000 :8999 :1]"),
        ("ZRANGE d 0 1", "[\"new\" \"000000\"]"),
        ("ZRANGE e 0 0", "[\"000000\"]"),
        ("ZCARD e", ":8999"),
    ]);
}

/// A member comes and goes before the range, and others swap what they have.
#[test]
fn a_stored_range_has_one_state() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "z");
    client.check(&[("ZADD z 10000 a 10000 b 10000 c", ":3")]);
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            let mut round = 0;
            while !end.is_there() {
                round += 1;
                writer.run("MULTI");
                writer.run("ZINCRBY z 1 a");
                writer.run("ZINCRBY z -1 b");
                let score = if round % 2 == 0 { -1 } else { 5_000 };
                writer.run(&format!("ZADD z {score} c"));
                writer.run("EXEC");
                thread::sleep(pando_sync::time::Duration::from_millis(20 + round % 60));
            }
        });
        for round in 0..8 {
            client.check(&[
                ("ZRANGESTORE d z 1 -1", ":20002"),
                ("ZCARD d", ":20002"),
                ("ZCOUNT d -inf +inf", ":20002"),
            ]);
            let scores = client.run("ZMSCORE d a b c 000000");
            let scores = scores.trim_matches(['[', ']']).replace('"', "");
            let scores: Vec<&str> = scores.split(' ').collect();
            let number = |at: usize| scores[at].parse::<f64>().unwrap();
            assert_eq!(number(0) + number(1), 20_000.0, "{round}");
            // One of them is the first of all, and left out.
            let left = (scores[2], scores[3]);
            assert!(
                matches!(left, ("nil", "-0") | (_, "nil")),
                "{round} {left:?}"
            );
        }
    });
}
