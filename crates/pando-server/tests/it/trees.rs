//! Large collections, whose elements have rows of their own.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_counted, open_on_disk, open_small, options};
use crate::statistics::fields;
use crate::until_end::End;

/// Returns a client of a server whose collections become large at once.
pub(crate) fn client_of(server: &Fixture) -> Client {
    let mut client = server.client();
    client.check(&[("CONFIG SET packed-bytes-max 20", "+OK")]);
    client
}

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

/// Sends a command with many arguments.
pub(crate) fn many(
    client: &mut Client,
    words: &[&str],
    arguments: impl Iterator<Item = String>,
) -> String {
    let words = words.iter().map(|word| (*word).to_owned());
    let command: Vec<String> = words.chain(arguments).collect();
    show(&client.call(&command))
}

/// Makes one large collection of each type, of `count` elements.
pub(crate) fn fill(client: &mut Client, count: usize) {
    let pairs = (0..count).flat_map(|n| [format!("f{n}"), format!("v{n}")]);
    assert_eq!(many(client, &["HSET", "h"], pairs), format!(":{count}"));
    let members = (0..count).map(|n| format!("m{n}"));
    assert_eq!(many(client, &["SADD", "s"], members), format!(":{count}"));
    let scored = (0..count).flat_map(|n| [(n * 7 % count).to_string(), format!("m{n:05}")]);
    assert_eq!(many(client, &["ZADD", "z"], scored), format!(":{count}"));
    let elements = (0..count).map(|n| format!("e{n}"));
    assert_eq!(many(client, &["RPUSH", "l"], elements), format!(":{count}"));
}

/// Checks that the collections are those of [`fill`].
fn check_filled(client: &mut Client, count: usize) {
    let middle = count / 2;
    client.check(&[
        ("HLEN h", &format!(":{count}")),
        ("SCARD s", &format!(":{count}")),
        ("ZCARD z", &format!(":{count}")),
        ("LLEN l", &format!(":{count}")),
        ("HGET h f77", "\"v77\""),
        ("SISMEMBER s m9", ":1"),
        ("SISMEMBER s x", ":0"),
        (&format!("LINDEX l {middle}"), &format!("\"e{middle}\"")),
        ("LINDEX l -1", &format!("\"e{}\"", count - 1)),
        ("ZRANK z m00003", ":21"),
        ("ZCOUNT z (10 20", ":10"),
        ("HEXISTS h x", ":0"),
    ]);
    let all = show(&client.call(&["LRANGE", "l", "0", "-1"]));
    let wanted: Vec<String> = (0..count).map(|n| format!("\"e{n}\"")).collect();
    assert_eq!(all, format!("[{}]", wanted.join(" ")));
    let fields = show(&client.call(&["HKEYS", "h"]));
    assert_eq!(fields.split(' ').collect::<BTreeSet<_>>().len(), count);
    let by_rank = show(&client.call(&["ZRANGE", "z", "0", "-1"]));
    let mut scored: Vec<(usize, String)> = (0..count)
        .map(|n| (n * 7 % count, format!("\"m{n:05}\"")))
        .collect();
    scored.sort();
    let wanted: Vec<String> = scored.into_iter().map(|(_, member)| member).collect();
    assert_eq!(by_rank, format!("[{}]", wanted.join(" ")));
}

#[test]
fn large_collections_are_what_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = on_disk(directory.path());
        let mut client = client_of(&server);
        fill(&mut client, 3000);
        check_filled(&mut client, 3000);
    }
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    check_filled(&mut client, 3000);
    // New ones do not get the ids of those that were there.
    let long = "x".repeat(100);
    client.check(&[(&format!("HSET h2 f77 {long} f78 {long}"), ":2")]);
    client.check(&[("RPUSH l2 aaaaaaaaaaaaaa bbbbbbbbbbbbbbb ccccccccccc", ":3")]);
    check_filled(&mut client, 3000);
}

/// Number of rows of elements in the store, which no server has open.
fn rows(path: &Path) -> (u64, u64) {
    let db = Db::builder().max_memory(32 << 20).open(path).unwrap();
    let entries = |name| db.existing_table(name).map_or(0, |table| table.len());
    (entries("db/0/members"), entries("db/1/members"))
}

/// Waits until the cleaner has removed what was given up.
fn after_cleaning(path: &Path, prepare: impl FnOnce(&mut Client)) -> (u64, u64) {
    {
        let server = on_disk(path);
        prepare(&mut client_of(&server));
    }
    let began = now();
    loop {
        {
            let server = on_disk(path);
            let _ready = server.client();
            thread::sleep(Duration::from_millis(1200));
        }
        let rows = rows(path);
        if rows == (0, 0) || began.elapsed() > Duration::from_secs(20) {
            return rows;
        }
    }
}

#[test]
fn what_is_given_up_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("data");
    // One row for each field and member, two for a member with a score, four blocks of elements.
    {
        let server = on_disk(&path);
        fill(&mut client_of(&server), 500);
    }
    assert_eq!(rows(&path), (2004, 0));
    let left = after_cleaning(&path, |client| {
        client.check(&[
            ("DEL h", ":1"),
            ("SET s string", "+OK"),
            ("PEXPIRE z 1", ":1"),
            ("RPUSH other 1", ":1"),
            ("RENAME other l", "+OK"),
        ]);
        // Nobody reads the sorted set again.
    });
    assert_eq!(left, (0, 0));
    let left = after_cleaning(&path, |client| {
        client.check(&[("DEL s l", ":2")]);
        fill(client, 500);
        client.check(&[
            ("MOVE h 1", ":1"),
            ("SUNIONSTORE s a-missing-one", ":0"),
            ("ZREMRANGEBYRANK z 0 -1", ":500"),
            ("LTRIM l 5 1", "+OK"),
            ("SELECT 1", "+OK"),
            ("HLEN h", ":500"),
            ("HGET h f499", "\"v499\""),
            ("FLUSHDB", "+OK"),
        ]);
    });
    assert_eq!(left, (0, 0));
    let left = after_cleaning(&path, |client| {
        fill(client, 500);
        let fields = (0..500).map(|n| format!("f{n}"));
        assert_eq!(many(client, &["HDEL", "h"], fields), ":500");
        assert_eq!(client.run("SPOP s 500").split(' ').count(), 500);
        client.check(&[("LTRIM l 500 -1", "+OK"), ("DEL z", ":1")]);
    });
    assert_eq!(left, (0, 0));
}

#[test]
fn copies_and_new_names_have_all_elements() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 300);
    for key in ["h", "s", "z", "l"] {
        client.check(&[
            (&format!("EXPIRE {key} 1000"), ":1"),
            (&format!("COPY {key} {key}2"), ":1"),
            (&format!("RENAME {key} x"), "+OK"),
            (&format!("EXISTS {key}"), ":0"),
            (&format!("RENAME x {key}"), "+OK"),
            (&format!("TTL {key}"), ":1000"),
            (&format!("TTL {key}2"), ":1000"),
            (&format!("PERSIST {key}"), ":1"),
        ]);
    }
    check_filled(&mut client, 300);
    // The copy is one of its own.
    client.check(&[("DEL h s z l", ":4")]);
    for key in ["h", "s", "z", "l"] {
        client.check(&[(&format!("RENAME {key}2 {key}"), "+OK")]);
    }
    check_filled(&mut client, 300);
    client.check(&[
        ("SELECT 1", "+OK"),
        ("SELECT 0", "+OK"),
        ("MOVE z 1", ":1"),
        ("SELECT 1", "+OK"),
        ("ZRANK z m00003", ":21"),
        ("ZCARD z", ":300"),
    ]);
}

/// Commands of one transaction see what those before them have written.
#[test]
fn a_transaction_sees_its_own_elements() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 300);
    client.check(&[
        ("MULTI", "+OK"),
        ("ZADD z 5.5 new", "+QUEUED"),
        ("ZRANK z new", "+QUEUED"),
        ("ZCOUNT z 5 6", "+QUEUED"),
        ("ZRANGE z 5 7", "+QUEUED"),
        ("ZREM z new", "+QUEUED"),
        ("ZRANK z new", "+QUEUED"),
        ("LPUSH l first", "+QUEUED"),
        ("LRANGE l 0 1", "+QUEUED"),
        ("LINDEX l 150", "+QUEUED"),
        ("LTRIM l 1 -1", "+QUEUED"),
        ("HSET h f1 other new 1", "+QUEUED"),
        ("HMGET h f1 new f2", "+QUEUED"),
        ("HDEL h new", "+QUEUED"),
        ("HSET h f1 v1", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        (
            "EXEC",
            "[:1 :6 :3 [\"m00215\" \"new\" \"m00258\"] :1 nil :301 [\"first\" \"e0\"] \"e149\" +OK :1 \
             [\"other\" \"1\" \"v2\"] :1 :0 :300]",
        ),
    ]);
    check_filled(&mut client, 300);
    client.check(&[
        ("MULTI", "+OK"),
        ("FLUSHDB", "+QUEUED"),
        (
            "RPUSH l aaaaaaaaaaaa bbbbbbbbbbbbbb cccccccccccc",
            "+QUEUED",
        ),
        ("LRANGE l 0 -1", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        (
            "EXEC",
            "[+OK :3 [\"aaaaaaaaaaaa\" \"bbbbbbbbbbbbbb\" \"cccccccccccc\"] :0]",
        ),
        ("LINDEX l 1", "\"bbbbbbbbbbbbbb\""),
    ]);
}

/// A transaction of PANDO BEGIN sees the collections of its moment.
#[test]
fn a_transaction_of_many_commands_sees_one_moment() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 300);
    let mut other = server.client();
    client.check(&[("PANDO BEGIN", "+OK"), ("HGET h f1", "\"v1\"")]);
    other.check(&[
        ("HSET h f1 changed", ":0"),
        ("ZADD z 5.5 new", ":1"),
        ("LPOP l", "\"e0\""),
        ("DEL s", ":1"),
    ]);
    check_filled(&mut client, 300);
    client.check(&[("PANDO ROLLBACK", "+OK")]);
    client.check(&[
        ("HGET h f1", "\"changed\""),
        ("ZRANK z new", ":6"),
        ("LLEN l", ":299"),
        ("EXISTS s", ":0"),
    ]);
}

/// One writer moves elements around, and keeps sums; readers on both loops see no other ones.
#[test]
fn readers_see_one_state_of_a_collection() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let scored = (0..200).flat_map(|n| [n.to_string(), format!("m{n:03}")]);
    assert_eq!(many(&mut client, &["ZADD", "z"], scored), ":200");
    let elements = (0..200).map(|n| format!("element-{n:03}"));
    assert_eq!(many(&mut client, &["RPUSH", "l"], elements), ":200");
    // So many that they are read in several turns.
    let pairs = (0..3000).flat_map(|n| [format!("f{n:04}"), "100".to_owned()]);
    assert_eq!(many(&mut client, &["HSET", "h"], pairs), ":3000");
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                while !over.is_there() {
                    let ranks = reader.run("ZRANGE z 0 -1");
                    assert_eq!(ranks.split(' ').count(), 200, "{ranks}");
                    assert_eq!(reader.run("ZCOUNT z -inf +inf"), ":200");
                    let list = reader.run("LRANGE l 0 -1");
                    let list: BTreeSet<&str> = list.split(' ').collect();
                    assert_eq!(list.len(), 200);
                    let middle = reader.run("LRANGE l 50 149");
                    assert_eq!(middle.split(' ').collect::<BTreeSet<_>>().len(), 100);
                    let values = show(&reader.call(&["HVALS", "h"]));
                    let sum: i64 = values
                        .trim_matches(['[', ']'])
                        .split(' ')
                        .map(|value| value.trim_matches('"').parse::<i64>().unwrap())
                        .sum();
                    assert_eq!(sum, 300_000);
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1500 {
            let (a, b) = (random.u32(..200), random.u32(..200));
            client.send(
                &[
                    encode(&["MULTI"]),
                    encode(&["HINCRBY", "h", &format!("f{a:04}"), "3"]),
                    encode(&["HINCRBY", "h", &format!("f{:04}", 2999 - b), "-3"]),
                    encode(&["EXEC"]),
                    encode(&[
                        "ZADD",
                        "z",
                        &random.i32(-50..250).to_string(),
                        &format!("m{a:03}"),
                    ]),
                    encode(&["LMOVE", "l", "l", "LEFT", "RIGHT"]),
                ]
                .concat(),
            );
            for _ in 0..6 {
                let reply = show(&client.answer());
                assert!(!reply.starts_with('-'), "{reply}");
            }
        }
        drop(bring);
    });
}

/// Collections of a few leaves are read without a transaction. A fast writer keeps sums and ranks.
#[test]
fn readers_without_a_transaction_see_one_state() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let field = |n: u32| format!("field-{n:040}");
    let pairs = (0..150).flat_map(|n| [field(n), "100".to_owned()]);
    assert_eq!(many(&mut client, &["HSET", "h"], pairs), ":150");
    // Two members change their places; those between them stay where they are.
    let scored = (0..150).flat_map(|n| [(n * 10).to_string(), field(n)]);
    assert_eq!(many(&mut client, &["ZADD", "z"], scored), ":150");
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                let between = format!("ZRANK z {}", field(75));
                while !over.is_there() {
                    let values = show(&reader.call(&["HVALS", "h"]));
                    let values = values.trim_matches(['[', ']']).split(' ');
                    let values =
                        values.map(|value| value.trim_matches('"').parse::<i64>().unwrap());
                    assert_eq!(values.sum::<i64>(), 15_000);
                    assert_eq!(reader.run(&between), ":75");
                    assert_eq!(reader.run("ZCOUNT z -inf 745"), ":75");
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..400 {
            let mut sent = Vec::new();
            for _ in 0..20 {
                let (low, high) = (random.u32(..75), random.u32(76..150));
                sent.extend(encode(&["MULTI"]));
                sent.extend(encode(&["HINCRBY", "h", &field(low), "3"]));
                sent.extend(encode(&["HINCRBY", "h", &field(high), "-3"]));
                sent.extend(encode(&[
                    "ZADD",
                    "z",
                    &(high * 10).to_string(),
                    &field(low),
                ]));
                sent.extend(encode(&[
                    "ZADD",
                    "z",
                    &(low * 10).to_string(),
                    &field(high),
                ]));
                sent.extend(encode(&["EXEC"]));
                // And back.
                sent.extend(encode(&["MULTI"]));
                sent.extend(encode(&["ZADD", "z", &(low * 10).to_string(), &field(low)]));
                sent.extend(encode(&[
                    "ZADD",
                    "z",
                    &(high * 10).to_string(),
                    &field(high),
                ]));
                sent.extend(encode(&["EXEC"]));
            }
            client.send(&sent);
            for _ in 0..20 * 10 {
                let reply = show(&client.answer());
                assert!(!reply.starts_with('-'), "{reply}");
            }
        }
        drop(bring);
    });
}

/// RENAME moves a collection. What it gets under its new name is not shown under the old one.
#[test]
fn a_key_shows_no_elements_of_its_next_name() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let pairs = (0..40).flat_map(|n| [format!("field-{n:020}"), "A".to_owned()]);
    assert_eq!(many(&mut client, &["HSET", "a"], pairs), ":40");
    let field = format!("field-{:020}", 7);
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                let gets = encode(&["HGET", "a", &field]).repeat(50);
                while !over.is_there() {
                    reader.send(&gets);
                    for _ in 0..50 {
                        let shown = show(&reader.answer());
                        assert!(["\"A\"", "nil"].contains(&&shown[..]), "{shown}");
                    }
                }
            });
        }
        let there_and_back = [
            encode(&["MULTI"]),
            encode(&["RENAME", "a", "b"]),
            encode(&["HSET", "b", &field, "B"]),
            encode(&["EXEC"]),
            encode(&["MULTI"]),
            encode(&["HSET", "b", &field, "A"]),
            encode(&["RENAME", "b", "a"]),
            encode(&["EXEC"]),
        ]
        .concat()
        .repeat(10);
        for _ in 0..1000 {
            client.send(&there_and_back);
            for _ in 0..80 {
                let reply = show(&client.answer());
                assert!(!reply.starts_with('-'), "{reply}");
            }
        }
        drop(bring);
    });
}

/// A negative count draws with repetitions, of two large elements, too.
#[test]
fn draws_with_repetitions_show_all_pairs() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let (a, b) = ("a".repeat(1000), "b".repeat(1000));
    client.call(&["SADD", "s", &a, &b]);
    client.call(&["HSET", "h", &a, "1", &b, "2"]);
    client.call(&["ZADD", "z", "1", &a, "2", &b]);
    for command in [
        ["SRANDMEMBER", "s"],
        ["HRANDFIELD", "h"],
        ["ZRANDMEMBER", "z"],
    ] {
        let mut pairs = BTreeSet::new();
        for _ in 0..200 {
            let drawn = show(&client.call(&[command[0], command[1], "-2"]));
            let first = |at: usize| drawn.as_bytes()[at] as char;
            pairs.insert([first(2), first(2 + 1000 + 3)]);
        }
        assert_eq!(pairs.len(), 4, "{command:?} {pairs:?}");
    }
}

/// Many clients change the same collections: nothing is lost or counted twice.
#[test]
fn writers_of_one_collection_lose_nothing() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    thread::scope(|scope| {
        for writer in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for n in 0..150 {
                    let name = format!("writer-{writer}-{n}");
                    client.check(&[
                        (&format!("HSET h {name} {n}"), ":1"),
                        (&format!("SADD s {name}"), ":1"),
                        (&format!("ZADD z {n} {name}"), ":1"),
                    ]);
                    let side = if n % 2 == 0 { "RPUSH" } else { "LPUSH" };
                    client.integer(&format!("{side} l {name}"));
                    if n % 3 == 0 {
                        client.check(&[(&format!("HDEL h {name}"), ":1")]);
                    }
                }
            });
        }
    });
    client.check(&[
        ("HLEN h", ":800"),
        ("SCARD s", ":1200"),
        ("ZCARD z", ":1200"),
        ("LLEN l", ":1200"),
        ("ZCOUNT z 10 19", ":80"),
    ]);
    let list = client.run("LRANGE l 0 -1");
    assert_eq!(list.split(' ').collect::<BTreeSet<_>>().len(), 1200);
    let fields = client.run("HKEYS h");
    assert_eq!(fields.split(' ').collect::<BTreeSet<_>>().len(), 800);
}

/// Each element that is there throughout is shown, whatever comes and goes meanwhile.
#[test]
fn an_iteration_shows_what_stays() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 1000);
    for (command, key, name) in [
        ("HSCAN", "h", "f"),
        ("SSCAN", "s", "m"),
        ("ZSCAN", "z", "m"),
    ] {
        let (mut cursor, mut seen, mut steps) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let reply = client.run(&format!("{command} {key} {cursor} COUNT 20"));
            let (next, elements) = reply.trim_start_matches('[').split_once(' ').unwrap();
            cursor = next.trim_matches('"').to_owned();
            let elements = elements.trim_matches(['[', ']']).split(' ');
            seen.extend(elements.map(|of| of.trim_matches('"').to_owned()));
            steps += 1;
            let (gone, new) = (
                format!("{name}{steps:05}x"),
                format!("{name}{:05}x", steps + 1),
            );
            let changes = match key {
                "h" => [format!("HDEL h {gone}"), format!("HSET h {new} 1")],
                "s" => [format!("SREM s {gone}"), format!("SADD s {new}")],
                _ => [format!("ZREM z {gone}"), format!("ZADD z 1 {new}")],
            };
            changes.iter().for_each(|change| {
                client.run(change);
            });
            if cursor == "0" {
                break;
            }
        }
        let wanted = |n: usize| match key {
            "z" => format!("m{n:05}"),
            _ => format!("{name}{n}"),
        };
        for n in 0..1000 {
            assert!(seen.contains(&wanted(n)), "{command} {}", wanted(n));
        }
        assert!((30..60).contains(&steps), "{command} took {steps} steps");
    }
    client.check(&[("HSCAN h 18446744073709551615", "[\"0\" []]")]);
}

/// 9 degrees of freedom: the bound is passed by chance once in a million runs.
#[test]
fn random_elements_of_large_collections_are_as_likely_as_others() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    // Some elements are long, and some were removed.
    let names: Vec<String> = (0..20)
        .map(|n| format!("{n:02}{}", "x".repeat(n % 4 * 300)))
        .collect();
    for name in &names {
        client.run(&format!("SADD s {name}"));
        client.run(&format!("HSET h {name} 1"));
        client.run(&format!("ZADD z 1 {name}"));
    }
    for name in names.iter().step_by(2) {
        client.run(&format!("SREM s {name}"));
        client.run(&format!("HDEL h {name}"));
        client.run(&format!("ZREM z {name}"));
    }
    for command in [
        "SRANDMEMBER s",
        "HRANDFIELD h",
        "ZRANDMEMBER z",
        "SRANDMEMBER s 3",
        "SPOP s",
    ] {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut draws = 0;
        while draws < 3000 {
            let reply = client.run(command);
            let elements = reply.trim_matches(['[', ']']).split(' ');
            for element in elements.map(|of| of.trim_matches('"').to_owned()) {
                if command.starts_with("SPOP") {
                    client.check(&[(&format!("SADD s {element}"), ":1")]);
                }
                *seen.entry(element).or_default() += 1;
                draws += 1;
            }
        }
        assert_eq!(seen.len(), 10, "{command}");
        let expected = f64::from(draws) / 10.0;
        let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
        let chi: f64 = seen.values().map(square).sum();
        assert!(chi < 44.0, "{command}: {chi} {seen:?}");
    }
}

/// The elements take many times the frames.
#[test]
fn collections_are_larger_than_memory() {
    let options = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    let value = "v".repeat(100);
    let count = 30_000;
    for start in (0..count).step_by(500) {
        let numbers = || start..start + 500;
        let pairs = numbers().flat_map(|n| [format!("field-{n}"), format!("{n}-{value}")]);
        assert_eq!(many(&mut client, &["HSET", "h"], pairs), ":500");
        let elements = numbers().map(|n| format!("{n}-{value}"));
        let length = start + 500;
        assert_eq!(
            many(&mut client, &["RPUSH", "l"], elements),
            format!(":{length}")
        );
        let scored = numbers().flat_map(|n| [n.to_string(), format!("member-{n}-{value}")]);
        assert_eq!(many(&mut client, &["ZADD", "z"], scored), ":500");
    }
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..500 {
        let n = random.usize(..count);
        client.check(&[
            (&format!("HGET h field-{n}"), &format!("\"{n}-{value}\"")),
            (&format!("LINDEX l {n}"), &format!("\"{n}-{value}\"")),
            (&format!("ZRANK z member-{n}-{value}"), &format!(":{n}")),
            (
                &format!("ZRANGE z {n} {n}"),
                &format!("[\"member-{n}-{value}\"]"),
            ),
        ]);
    }
    // One of them fits into a reply, and its leaves are read while others come and go.
    let all = show(&client.call(&["LRANGE", "l", "0", "-1"]));
    assert_eq!(all.split(' ').count(), count);
    let (mut cursor, mut seen) = ("0".to_owned(), 0);
    loop {
        let reply = client.run(&format!("HSCAN h {cursor} COUNT 1000 NOVALUES"));
        let (next, fields) = reply.trim_start_matches('[').split_once(' ').unwrap();
        cursor = next.trim_matches('"').to_owned();
        seen += fields.split(' ').count();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, count);
    let began = now();
    client.check(&[("DEL h", ":1"), ("EXISTS h", ":0"), ("HLEN h", ":0")]);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    client.check(&[("DBSIZE", ":2")]);
}

#[test]
fn names_and_elements_may_be_long() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 100);
    let long = "x".repeat(5000);
    client.check(&[
        (&format!("ZADD z 1 {long}"), ":1"),
        ("ZCARD z", ":101"),
        (&format!("HSET h {long} 1"), ":1"),
        (&format!("HGET h {long}"), "\"1\""),
        (&format!("SADD s {long}"), ":1"),
        (&format!("SISMEMBER s {long}"), ":1"),
        (&format!("LINSERT l BEFORE e50 {long}"), ":101"),
        ("LINDEX l 50", &format!("\"{long}\"")),
    ]);
}

/// A list that shrinks is packed again, and keeps what it has.
#[test]
fn small_ones_are_packed_again() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        client.check(&[("CONFIG SET packed-bytes-max 200", "+OK")]);
        client.check(&[("CONFIG SET list-max-listpack-size 5", "+OK")]);
        fill(&mut client, 300);
        client.check(&[("LPOP l 296", &{
            let gone: Vec<String> = (0..296).map(|n| format!("\"e{n}\"")).collect();
            format!("[{}]", gone.join(" "))
        })]);
        client.check(&[
            ("RPOP l", "\"e299\""),
            ("LRANGE l 0 -1", "[\"e296\" \"e297\" \"e298\"]"),
        ]);
        client.check(&[("DEL h s z", ":3")]);
    }
    assert_eq!(after_cleaning(directory.path(), |_| {}), (0, 0));
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[("LRANGE l 0 -1", "[\"e296\" \"e297\" \"e298\"]")]);
}

/// Makes a set that is read in several turns.
pub(crate) fn fill_long_set(client: &mut Client) {
    for start in (0..8000).step_by(2000) {
        let members = (start..start + 2000).map(|n| format!("{n:05}{}", "m".repeat(90)));
        assert_eq!(many(client, &["SADD", "long"], members), ":2000");
    }
}

/// A run that begins again takes nothing of what another run has written itself.
#[test]
fn a_run_does_not_see_what_an_earlier_one_has_written() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill_long_set(&mut client);
    let elements = (0..40).map(|n| format!("element-{n}"));
    assert_eq!(many(&mut client, &["RPUSH", "l"], elements), ":40");
    let mut other = server.client();
    for round in 0..60 {
        client.check(&[("RPUSH a X", ":1")]);
        client.send(
            &[
                encode(&["MULTI"]),
                encode(&["LMOVE", "a", "l", "LEFT", "RIGHT"]),
                encode(&["LREM", "l", "0", "X"]),
                encode(&["SCARD", "long"]),
                encode(&["SINTERCARD", "2", "long", "long"]),
                encode(&["EXEC"]),
            ]
            .concat(),
        );
        thread::sleep(Duration::from_millis(round % 12));
        other.send(
            &[
                encode(&["MULTI"]),
                encode(&["LPOP", "a"]),
                encode(&["RPUSH", "l", "Y"]),
                encode(&["EXEC"]),
            ]
            .concat(),
        );
        let popped = (0..4).map(|_| show(&other.answer())).last().unwrap();
        let moved = (0..6).map(|_| show(&client.answer())).last().unwrap();
        let ours = moved == "[\"X\" :1 :8000 :8000]" && popped == "[nil :41]";
        let theirs = moved == "[nil :0 :8000 :8000]" && popped == "[\"X\" :41]";
        assert!(ours || theirs, "{moved} {popped}");
        client.check(&[("RPOP l", "\"Y\""), ("LLEN l", ":40")]);
    }
}

#[test]
fn a_transaction_makes_the_first_large_collections_of_two_databases() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let long = "x".repeat(300);
    client.check(&[
        ("MULTI", "+OK"),
        ("SELECT 10", "+QUEUED"),
        (&format!("RPUSH q {long} {long}"), "+QUEUED"),
        ("SELECT 11", "+QUEUED"),
        (&format!("RPUSH q {long} {long}"), "+QUEUED"),
        ("EXEC", "[+OK :2 +OK :2]"),
        ("LINDEX q 1", &format!("\"{long}\"")),
    ]);
}

/// Hashes, sets and sorted sets of one element or two come, go and change on two loops.
#[test]
fn small_counts_stay_right_beside_others() {
    let server = Fixture::new();
    let _limit = client_of(&server);
    let (long, other) = ("x".repeat(100), "y".repeat(100));
    thread::scope(|scope| {
        for number in 0..6 {
            let (server, long, other) = (&server, &long, &other);
            scope.spawn(move || {
                let mut client = server.client();
                let commands = [
                    format!("HSET h {long} 1 {other} 2"),
                    format!("HDEL h {long} {other}"),
                    format!("HSET h {other} 3"),
                    format!("SADD s {long} {other}"),
                    format!("SREM s {other} {long}"),
                    format!("ZADD z 1 {long} 2 {other}"),
                    format!("ZREM z {long} {other}"),
                    format!("SPOP s {number}"),
                ];
                let mut random = fastrand::Rng::with_seed(number);
                for _ in 0..800 {
                    let reply = client.run(&commands[random.usize(..commands.len())]);
                    assert!(!reply.starts_with('-'), "{reply}");
                }
            });
        }
    });
    let mut client = server.client();
    for (length, all) in [
        ("HLEN h", "HKEYS h"),
        ("SCARD s", "SMEMBERS s"),
        ("ZCARD z", "ZRANGE z 0 -1"),
    ] {
        let elements =
            client.run(all).matches("xx\"").count() + client.run(all).matches("yy\"").count();
        client.check(&[(length, &format!(":{elements}"))]);
    }
}

/// Rows of other collections lie in the same leaf.
#[test]
fn a_transaction_reads_no_more_than_its_collection() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let mut other = server.client();
    for key in ["b", "a", "c"] {
        let members = (0..30).map(|n| format!("member-{n}"));
        assert_eq!(many(&mut client, &["SADD", key], members), ":30");
    }
    for read in [
        "SMEMBERS a",
        "SSCAN a 0 COUNT 100",
        "SRANDMEMBER a 5",
        "SCARD a",
    ] {
        client.check(&[("PANDO BEGIN", "+OK")]);
        client.run(read);
        client.check(&[("SET k 1", "+OK")]);
        other.run("SADD b x");
        other.run("SADD c x");
        other.run("SREM b x");
        other.run("SREM c x");
        let ended = client.run("PANDO COMMIT");
        assert!(!ended.starts_with('-'), "{read}: {ended}");
    }
    client.check(&[("PANDO BEGIN", "+OK")]);
    client.run("SMEMBERS a");
    client.check(&[("SET k 1", "+OK")]);
    other.check(&[("SADD a x", ":1")]);
    let ended = client.run("PANDO COMMIT");
    assert!(ended.starts_with("-CONFLICT"), "{ended}");
}

#[test]
fn long_members_are_found_by_their_names_in_ranges() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let long = |end: &str| format!("{}{end}", "L".repeat(1500));
    for member in ["c", "a", "b"] {
        client.check(&[(&format!("ZADD z 0 {}", long(member)), ":1")]);
    }
    for n in 0..30 {
        client.check(&[(&format!("ZADD z 0 short-{n:02}"), ":1")]);
    }
    let (a, b, c) = (long("a"), long("b"), long("c"));
    client.check(&[
        (&format!("ZLEXCOUNT z [{a} [{a}"), ":1"),
        (&format!("ZLEXCOUNT z - [{c}"), ":3"),
        (&format!("ZLEXCOUNT z ({a} ({c}"), ":1"),
        (
            &format!("ZRANGE z [{a} ({c} BYLEX"),
            &format!("[\"{a}\" \"{b}\"]"),
        ),
        ("ZLEXCOUNT z - [short-09", ":13"),
        (&format!("ZREMRANGEBYLEX z [{b} [{b}"), ":1"),
        (&format!("ZSCORE z {b}"), "nil"),
        (&format!("ZSCORE z {c}"), "\"0\""),
        ("ZCARD z", ":32"),
    ]);
}

#[test]
fn elements_are_inserted_at_one_place_again_and_again() {
    insert_at_one_place(&Fixture::new());
    insert_at_one_place(&Fixture::opened_by(options(), open_counted));
}

fn insert_at_one_place(server: &Fixture) {
    let mut client = client_of(server);
    let mut elements: Vec<String> = (0..40).map(|n| format!("element-{n:02}")).collect();
    assert_eq!(
        many(&mut client, &["RPUSH", "l"], elements.iter().cloned()),
        ":40"
    );
    let pivot = "element-20";
    for n in 0..9000 {
        let at = elements.iter().position(|of| of == pivot).unwrap();
        let (side, at) = match n % 2 {
            0 => ("BEFORE", at),
            _ => ("AFTER", at + 1),
        };
        elements.insert(at, format!("new-{n}"));
        let length = i64::try_from(elements.len()).unwrap();
        let command = format!("LINSERT l {side} {pivot} new-{n}");
        assert_eq!(client.integer(&command), length);
        if n % 100 == 99 {
            let all = client.run("LRANGE l 0 -1");
            let wanted: Vec<String> = elements.iter().map(|of| format!("\"{of}\"")).collect();
            assert_eq!(all, format!("[{}]", wanted.join(" ")));
            client.check(&[("LTRIM l 50 -51", "+OK")]);
            elements.drain(..50);
            elements.truncate(elements.len() - 50);
            for end in 0..10 {
                client.integer(&format!("RPUSH l end-{n}-{end}"));
                client.integer(&format!("LPUSH l begin-{n}-{end}"));
                elements.push(format!("end-{n}-{end}"));
                elements.insert(0, format!("begin-{n}-{end}"));
            }
            client.check(&[("LTRIM l 10 -11", "+OK")]);
            elements.drain(..10);
            elements.truncate(elements.len() - 10);
        }
    }
}

/// Each run begins with the first command.
#[test]
fn a_transaction_of_many_long_reads_ends() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill_long_set(&mut client);
    let began = now();
    client.check(&[("MULTI", "+OK")]);
    for _ in 0..4 {
        client.check(&[("SINTERCARD 2 long long", "+QUEUED")]);
    }
    client.check(&[("EXEC", "[:8000 :8000 :8000 :8000]")]);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

/// A command that loads long elements, as in EXEC, ends when they become too many, and does not
/// read the rest: whether they are in memory, or come from disk one after the other.
#[test]
fn long_elements_are_not_read_beyond_what_a_reply_may_have() {
    let element = "e".repeat(200_000);
    let suspended = |client: &mut Client| -> u64 {
        fields(client, "stats")["suspended_commands"]
            .parse()
            .unwrap()
    };
    for is_cold in [true, false] {
        let server = match is_cold {
            true => Fixture::opened_by(options(), open_small),
            false => Fixture::new(),
        };
        let mut client = client_of(&server);
        let count = if is_cold { 300 } else { 150 };
        for _ in 0..count {
            assert!(show(&client.call(&["RPUSH", "l", &element])).starts_with(':'));
        }
        let before = suspended(&mut client);
        let some = show(&client.call(&["LRANGE", "l", "0", "49"]));
        assert_eq!(some.len(), 50 * (element.len() + 3) + 1);
        let of_some = suspended(&mut client) - before;
        client.check(&[("MULTI", "+OK"), ("SORT l BY nosort", "+QUEUED")]);
        let refused = client.run("EXEC");
        assert!(refused.starts_with("[-ERR the command reads a collection as a whole"));
        let of_all = suspended(&mut client) - before - of_some;
        assert!(of_all <= 3 * of_some, "{of_all} waits, {of_some} for fifty");
        assert_eq!(client.run("LLEN l"), format!(":{count}"));
    }
}
