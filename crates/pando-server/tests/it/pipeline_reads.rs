//! Commands that read, and run together (decision 119), answer as they do one by one.

use fastrand::Rng;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_counted, options};
use crate::pipeline_runs::together_count;
use crate::statistics::fields;
use crate::until_end::End;

/// Number of elements of a large collection.
const LARGE: usize = 200;

fn not_durable() -> ServerOptions {
    ServerOptions {
        durability: Durability::None,
        ..options()
    }
}

/// Sends commands together. Returns their replies.
fn run_all(client: &mut Client, commands: &[String]) -> Vec<String> {
    let bytes = commands.iter().map(|text| encode(&words(text)));
    client.send(&bytes.collect::<Vec<_>>().concat());
    commands.iter().map(|_| show(&client.answer())).collect()
}

/// Puts collections of each type, small and large ones, and strings.
fn fill(client: &mut Client) {
    for (name, count) in [("small", 5), ("large", LARGE), ("other", LARGE)] {
        for n in 0..count {
            let long = "v".repeat(n % 60);
            for command in [
                format!("HSET h:{name} f{n} {n}{long}"),
                format!("SADD s:{name} m{n}"),
                format!("ZADD z:{name} {} m{n}", n % 50),
                format!("RPUSH l:{name} {n}{long}"),
            ] {
                client.run(&command);
            }
        }
    }
    client.run(&format!("SET string:long {}", "x".repeat(5000)));
    client.run(&format!("SET string:chunks {}", "x".repeat(3_000_000)));
    client.run(&format!("SET string:pieces {}", "ab".repeat(10_000)));
    client.check(&[
        // From the first change on it lies in pieces.
        ("SETRANGE string:pieces 9 changed", ":20000"),
        ("SET string text", "+OK"),
        ("HPEXPIRE h:other 1 FIELDS 2 f3 f150", "[:1 :1]"),
        ("HEXPIRE h:other 1000 FIELDS 1 f4", "[:1]"),
        ("HPEXPIRE h:small 1 FIELDS 1 f2", "[:1]"),
        ("PEXPIRE s:other 1", ":1"),
    ]);
    thread::sleep(Duration::from_millis(10));
}

/// Returns a command that reads one key: mostly one of `kind` and the key `name`.
fn command(random: &mut Rng, (kind, name): (usize, &str)) -> String {
    let n = random.usize(..LARGE + 20);
    let (kind, name) = match random.usize(..6) {
        0 => (
            random.usize(..30),
            ["small", "large", "other", "none"][random.usize(..4)],
        ),
        _ => (kind, name),
    };
    match kind {
        0 => format!("HGET h:{name} f{n}"),
        1 => format!("HEXISTS h:{name} f{n}"),
        2 => format!("HSTRLEN h:{name} f{n}"),
        3 => format!("HLEN h:{name}"),
        4 => format!("HMGET h:{name} f{n} f1 none"),
        5 => format!("SISMEMBER s:{name} m{n}"),
        6 => format!("SMISMEMBER s:{name} m{n} m2"),
        7 => format!("SCARD s:{name}"),
        8 => format!("ZSCORE z:{name} m{n}"),
        9 => format!("ZRANK z:{name} m{n}"),
        10 => format!("ZREVRANK z:{name} m{n} WITHSCORE"),
        11 => format!("ZCOUNT z:{name} ({} {n}", n % 7),
        12 => format!("ZCARD z:{name}"),
        13 => format!("LINDEX l:{name} {}", random.i32(-230..230)),
        14 => format!("LLEN l:{name}"),
        15 => format!("GET string{}", ["", "", ":long", ":none", ":chunks"][n % 5]),
        // Refused.
        16 => format!("HGET {}:{name} f{n}", ["s", "l", "z"][n % 3]),
        17 => "ZSCORE z:large".to_owned(),
        18 => format!("{} h:{name}", ["TYPE", "TTL", "PTTL", "EXISTS"][n % 4]),
        19 => format!("GETBIT string:pieces {}", n * 700),
        20 => format!("{} string:pieces", ["STRLEN", "GET", "TYPE"][n % 3]),
        // Not together with others if the collection is large.
        21 | 22 => format!("LRANGE l:{name} {} {}", n % 3, n / 2),
        23 | 24 => format!("{} h:{name}", ["HGETALL", "HKEYS", "HVALS"][n % 3]),
        25 => format!("SMEMBERS s:{name}"),
        26 => format!("ZRANGE z:{name} {} {n} REV WITHSCORES", n % 3),
        27 => format!("ZRANGE z:{name} ({} {n} BYSCORE LIMIT 1 2", n % 4),
        28 => format!("ZREVRANGEBYLEX z:{name} [m{n} - LIMIT 0 {}", n % 5),
        // Not together with others.
        29 if n > LARGE / 2 => format!("EXISTS h:{name} s:{name} string h:none"),
        _ => format!("LPOS l:{name} {n}"),
    }
}

fn look_ups(client: &mut Client) -> [String; 3] {
    let info = fields(client, "stats");
    ["keyspace_hits", "keyspace_misses", "total_error_replies"].map(|name| info[name].clone())
}

fn check_pipelines(server: &Fixture) {
    let mut client = server.client();
    client.check(&[("CONFIG SET packed-bytes-max 200", "+OK")]);
    for of in ["hash", "set", "zset"] {
        client.check(&[(&format!("CONFIG SET {of}-max-listpack-entries 8"), "+OK")]);
    }
    client.check(&[("CONFIG SET list-max-listpack-size 8", "+OK")]);
    fill(&mut client);
    let mut random = Rng::with_seed(119);
    let before = together_count(&mut client);
    let counted = |client: &mut Client, since: &[String; 3]| -> Vec<i64> {
        let pairs = look_ups(client).into_iter().zip(since.clone());
        let number = |text: String| text.parse::<i64>().unwrap();
        pairs
            .map(|(now, then)| number(now) - number(then))
            .collect()
    };
    for _ in 0..400 {
        let about = (
            random.usize(..30),
            ["small", "large", "large", "other"][random.usize(..4)],
        );
        let count = random.usize(2..40);
        let commands: Vec<_> = (0..count).map(|_| command(&mut random, about)).collect();
        let start = look_ups(&mut client);
        let together = run_all(&mut client, &commands);
        let of_all = counted(&mut client, &start);
        let start = look_ups(&mut client);
        let alone: Vec<_> = commands.iter().map(|text| client.run(text)).collect();
        assert_eq!(together, alone, "{commands:?}");
        assert_eq!(of_all, counted(&mut client, &start), "{commands:?}");
    }
    let count = together_count(&mut client) - before;
    assert!(count > 3000, "{count}");
}

#[test]
fn reads_that_run_together_answer_as_one_by_one() {
    check_pipelines(&Fixture::with(not_durable()));
}

#[test]
fn reads_of_an_old_store_that_run_together_answer_as_one_by_one() {
    check_pipelines(&Fixture::opened_by(not_durable(), open_counted));
}

/// Returns a string of this key: short, too long for a leaf, or, of some, in chunks.
fn string_of(key: usize, round: usize) -> String {
    let bytes = [10, 1900, 2000, 5000, 60_000, 3_000_000];
    let most = if key % 97 == 96 { 6 } else { 5 };
    format!("{key}.{round}.").repeat(bytes[(key + round) % most] / 8 + 1)
}

#[test]
fn gets_of_long_values_run_together() {
    const KEYS: usize = 200;
    let server = Fixture::with(not_durable());
    let mut client = server.client();
    let mut random = Rng::with_seed(148);
    let mut values = vec![None; KEYS];
    for round in 0..60 {
        for _ in 0..20 {
            let key = random.usize(..KEYS);
            values[key] = match random.usize(..5) {
                0 => {
                    client.run(&format!("DEL k{key}"));
                    None
                }
                _ => {
                    let value = string_of(key, round);
                    assert_eq!(client.run(&format!("SET k{key} {value}")), "+OK");
                    Some(value)
                }
            };
        }
        let keys: Vec<_> = (0..100).map(|_| random.usize(..KEYS)).collect();
        let gets: Vec<_> = keys.iter().map(|key| format!("GET k{key}")).collect();
        for (key, reply) in keys.iter().zip(run_all(&mut client, &gets)) {
            let expected = match &values[*key] {
                Some(value) => format!("\"{value}\""),
                None => "nil".to_owned(),
            };
            assert!(reply == expected, "k{key}: {reply:.40}, not {expected:.40}");
        }
    }
    // All but those of strings in chunks, and those behind them while the quota grows again.
    let together = together_count(&mut client);
    assert!(together > 5500, "{together} of 6000 ran together");
}

/// Writers change collections in ways that show to nobody: what is read together must not show
/// parts of them.
#[test]
fn reads_that_run_together_show_no_parts_of_changes() {
    let server = Fixture::with(not_durable());
    let mut client = server.client();
    for n in 0..LARGE {
        client.run(&format!("HSET h f{n} 1"));
        client.run(&format!("RPUSH l {n}"));
        client.run(&format!("ZADD z {n} m{n:03}"));
    }
    let asked = [
        ("HGET h f7", "\"1\""),
        ("LINDEX l 100", "\"100\""),
        ("ZRANK z m150", ":150"),
        ("ZCOUNT z -inf 149", ":150"),
    ];
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        for reader in 0..2 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = Rng::with_seed(reader);
                while !stop.is_there() {
                    let (command, expected) = asked[random.usize(..asked.len())];
                    let mut commands = vec![command.to_owned(); 64];
                    let mut replies = vec![expected; 64];
                    // What was read before of another key stays.
                    let place = random.usize(..3);
                    commands[place] = "HLEN none".to_owned();
                    replies[place] = ":0";
                    assert_eq!(run_all(&mut client, &commands), replies, "{command}");
                }
            });
        }
        let mut writer = server.client();
        let begun = now();
        for round in 0.. {
            if now().duration_since(begun) > Duration::from_secs(3) {
                break;
            }
            let other: Vec<_> = (0..LARGE).map(|n| format!("f{n} 1")).collect();
            let (left, right) = (round % 100, (round + 50) % 100);
            let commands = [
                "MULTI".to_owned(),
                // Another low member for one of them.
                format!("ZREM z m{left:03}"),
                format!("ZADD z {left}.5 m{left:03}"),
                format!("ZREM z m{right:03}"),
                format!("ZADD z {right} m{right:03}"),
                "RPOPLPUSH l l".to_owned(),
                "LMOVE l l LEFT RIGHT".to_owned(),
                "EXEC".to_owned(),
                format!("HSET n {}", other.join(" ")),
                "RENAME n h".to_owned(),
            ];
            run_all(&mut writer, &commands);
        }
        drop(bring);
    });
}

/// Whoever reads in one pipeline sees no older state behind a newer one.
#[test]
fn reads_that_run_together_see_nothing_older_than_those_before_them() {
    let server = Fixture::with(not_durable());
    let stop = End::default();
    let put = |client: &mut Client, key: &str, number: usize| {
        let pairs: Vec<_> = (0..LARGE).map(|n| format!("f{n} {number}")).collect();
        client.run(&format!("HSET {key} {}", pairs.join(" ")))
    };
    put(&mut server.client(), "h", 0);
    thread::scope(|scope| {
        let bring = stop.brought();
        for reader in 0..2 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = Rng::with_seed(reader);
                let mut newest = 0_usize;
                while !stop.is_there() {
                    let command = |_| format!("HGET h f{}", random.usize(..LARGE));
                    let commands: Vec<_> = (0..100).map(command).collect();
                    for reply in run_all(&mut client, &commands) {
                        let number = reply
                            .trim_matches('"')
                            .parse()
                            .expect("each field is there");
                        assert!(number >= newest, "{number} after {newest}");
                        newest = number;
                    }
                }
            });
        }
        let mut writer = server.client();
        for round in 1..600 {
            match round % 3 {
                0 => assert_eq!(put(&mut writer, "h", round), ":0"),
                1 => {
                    assert_eq!(put(&mut writer, "n", round), format!(":{LARGE}"));
                    writer.check(&[("RENAME n h", "+OK")]);
                }
                _ => writer.check(&[
                    ("COPY h n", ":1"),
                    (&format!("HSET n f0 {}", round - 1), ":0"),
                    ("COPY n h REPLACE", ":1"),
                    ("DEL n", ":1"),
                ]),
            }
        }
        drop(bring);
    });
}

/// A command that may show all of a collection runs together with others if that is packed.
#[test]
fn only_small_collections_are_shown_together() {
    let server = Fixture::with(not_durable());
    let mut client = server.client();
    client.check(&[
        ("CONFIG SET packed-bytes-max 200", "+OK"),
        ("CONFIG SET hash-max-listpack-entries 8", "+OK"),
    ]);
    for n in 0..LARGE {
        client.run(&format!("HSET large f{n} value"));
    }
    client.run("HSET small f1 one f2 two");
    // Returns how many commands of a pipeline of a client ran together.
    let count = |client: &mut Client, commands: &[&str]| {
        let before = together_count(client);
        let commands: Vec<_> = commands.iter().map(|text| (*text).to_owned()).collect();
        for (reply, command) in run_all(client, &commands).iter().zip(&commands) {
            let is_value = command.starts_with("HGET ");
            assert!(
                reply.starts_with(if is_value { "\"value\"" } else { "[\"f" }),
                "{reply}"
            );
        }
        together_count(client) - before
    };
    let (value, all) = ("HGET large f7", "HGETALL large");
    let small = ["HGETALL small", "HKEYS small"].repeat(30);
    for (commands, together) in [
        (&small[..], 60),
        (&[all, all, all], 0),
        (&[value, all, all], 1),
        (&[value, value, all, all], 2),
    ] {
        assert_eq!(
            count(&mut server.client(), commands),
            together,
            "{commands:?}"
        );
    }
    // One that was large has others run alone for some time.
    assert_eq!(count(&mut client, &[all, all, all]), 0);
    assert_eq!(count(&mut client, &small), 0);
    while count(&mut client, &small) < 60 {}
}
