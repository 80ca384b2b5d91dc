//! Elements of large collections that are put one at a time: a command of one element finds its row
//! by the name, and one of several makes a part of the collection in memory. Both leave the same.

use std::path::Path;

use fastrand::Rng;
use pando_server::check_rows;
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_on_disk, options};
use crate::pipeline_runs::together_count;

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

fn name(random: &mut Rng) -> String {
    let number = random.u32(..60);
    match number {
        // Too long for the key of a row.
        0..3 => format!("{number}{}", "n".repeat(5000)),
        _ => format!("n{number}"),
    }
}

/// Returns a command of one element for a collection whose name ends with `{}`, and one with the
/// same element twice.
fn put(random: &mut Rng) -> [String; 2] {
    let name = name(random);
    let twice = |start: &str, element: &str| {
        [
            format!("{start} {element}"),
            format!("{start} {element} {element}"),
        ]
    };
    let score = match random.u32(..12) {
        0 => "-0".to_owned(),
        1 => "inf".to_owned(),
        _ => random.i32(-3..9).to_string(),
    };
    let option = ["", " NX", " XX", " GT", " LT", " GT CH", " CH"][random.usize(..7)];
    match random.u32(..10) {
        0..3 => twice("SADD s{}", &name),
        3..6 => twice("HSET h{}", &format!("{name} v{}", random.u32(..4))),
        6 => twice("HMSET h{}", &format!("{name} {}", "w".repeat(300))),
        _ => twice(&format!("ZADD z{{}}{option}"), &format!("{score} {name}")),
    }
}

/// Returns a command that is the same for both.
fn other(random: &mut Rng) -> String {
    let name = name(random);
    match random.u32(..14) {
        0..3 => format!("SREM s{{}} {name}"),
        3..6 => format!("HDEL h{{}} {name}"),
        6..9 => format!("ZREM z{{}} {name}"),
        9 => format!("HEXPIRE h{{}} 1000 FIELDS 1 {name}"),
        10 => format!("HPERSIST h{{}} FIELDS 1 {name}"),
        11 => format!("ZINCRBY z{{}} 1.5 {name}"),
        12 => format!("SISMEMBER s{{}} {name}"),
        _ => format!("HGET h{{}} {name}"),
    }
}

/// Sends commands together, in a transaction or not. Returns their replies.
fn run_all(client: &mut Client, commands: &[String], in_transaction: bool) -> Vec<String> {
    if in_transaction {
        client.check(&[("MULTI", "+OK")]);
    }
    let bytes = commands.iter().map(|text| encode(&words(text)));
    client.send(&bytes.collect::<Vec<_>>().concat());
    let mut replies: Vec<_> = commands.iter().map(|_| show(&client.answer())).collect();
    if in_transaction {
        replies = vec![client.run("EXEC")];
    }
    replies
}

fn sorted(client: &mut Client, command: &str) -> Vec<String> {
    let all = client.run(command);
    let all = all.trim_matches(['[', ']']);
    let mut all: Vec<_> = all.split(' ').map(str::to_owned).collect();
    if command.starts_with('H') {
        all = all.chunks(2).map(|pair| pair.join("=")).collect();
    }
    all.sort();
    all
}

#[test]
fn one_element_is_put_as_several_are() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = crate::trees::client_of(&server);
    for of in ["hash", "set", "zset"] {
        client.check(&[(&format!("CONFIG SET {of}-max-listpack-entries 1"), "+OK")]);
    }
    let mut random = Rng::with_seed(31);
    let before = together_count(&mut client);
    for round in 0..300 {
        // They grow, and become so few that they are packed.
        let puts = if round / 25 % 2 == 0 { 3 } else { 1 };
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for _ in 0..random.usize(1..24) {
            if random.u32(..4) < puts {
                let [one, two] = put(&mut random);
                short.push(one.replace("{}", "0"));
                long.push(two.replace("{}", "1"));
            } else {
                let command = other(&mut random);
                short.push(command.replace("{}", "0"));
                long.push(command.replace("{}", "1"));
            }
        }
        let in_transaction = round % 3 == 0;
        let one = run_all(&mut client, &short, in_transaction);
        let other = run_all(&mut client, &long, in_transaction);
        assert_eq!(one, other, "{short:?}");
        for read in ["SMEMBERS s{}", "HGETALL h{}", "ZRANGE z{} 0 -1 WITHSCORES"] {
            let [one, other] = ["0", "1"].map(|of| sorted(&mut client, &read.replace("{}", of)));
            assert_eq!(one, other, "{read} after {short:?}");
        }
        for read in ["SCARD s{}", "HLEN h{}", "ZCARD z{}", "OBJECT ENCODING s{}"] {
            let [one, other] = ["0", "1"].map(|of| client.run(&read.replace("{}", of)));
            assert_eq!(one, other, "{read} after {short:?}");
        }
    }
    let together = together_count(&mut client) - before;
    assert!(together > 1000, "{together} commands ran together");
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
    assert!(report.large >= 3, "{report:?}");
}

/// What is written of one element is told, as what is written of several.
#[test]
fn one_element_that_is_put_is_told() {
    let server = Fixture::new();
    let (mut client, mut listener) = (crate::trees::client_of(&server), server.client());
    crate::trees::fill(&mut client, 600);
    client.check(&[("CONFIG SET notify-keyspace-events KA", "+OK")]);
    listener.run("PSUBSCRIBE __keyspace@0__:*");
    client.check(&[
        ("SADD s new", ":1"),
        ("SADD s new", ":0"),
        ("HSET h new 1", ":1"),
        ("HSET h new 1", ":0"),
        ("ZADD z 1 new", ":1"),
        ("ZADD z 1 new", ":0"),
        ("ZADD z CH 2 new", ":1"),
        ("ZINCRBY z -2 new", "\"0\""),
        ("ZADD z XX INCR 1 nobody", "nil"),
        ("SCARD s", ":601"),
        ("HLEN h", ":601"),
        ("ZCARD z", ":601"),
    ]);
    for (key, event) in [
        ("s", "sadd"),
        ("h", "hset"),
        ("h", "hset"),
        ("z", "zadd"),
        ("z", "zadd"),
        ("z", "zincr"),
    ] {
        let told = show(&listener.answer());
        let (of, what) = (format!("__keyspace@0__:{key}\""), format!("\"{event}\""));
        assert!(
            told.contains(&of) && told.contains(&what),
            "{told}: {event}"
        );
    }
    client.check(&[
        (
            "SADD h x",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "HSET z x 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "ZADD s 1 x",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("ZADD z INCR -inf inf", "\"-inf\""),
        (
            "ZINCRBY z inf inf",
            "-ERR resulting score is not a number (NaN)",
        ),
    ]);
}

/// A field that comes alone leaves the deadlines of others what they are.
#[test]
fn one_field_that_is_put_keeps_the_deadlines_of_others() {
    let server = Fixture::new();
    let mut client = crate::trees::client_of(&server);
    crate::trees::fill(&mut client, 600);
    client.check(&[
        ("HPEXPIRE h 60 FIELDS 1 f1", "[:1]"),
        ("HEXPIRE h 1000 FIELDS 1 f2", "[:1]"),
        ("HSET h f2 again", ":0"),
        ("HEXPIRE h 1000 FIELDS 1 f3", "[:1]"),
        ("HSET h new 1", ":1"),
        ("HTTL h FIELDS 2 f2 new", "[:-1 :-1]"),
    ]);
    thread::sleep(Duration::from_millis(100));
    client.check(&[
        ("HLEN h", ":600"),
        ("HGET h f1", "nil"),
        ("HGET h f2", "\"again\""),
    ]);
}
