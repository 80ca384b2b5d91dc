//! GETs and SETs that run together have the same effect as one by one.

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::statistics::fields;
use crate::until_end::End;

/// Commands that a seed determines.
struct Random(Rng);

impl Random {
    /// Returns one of few keys, so that they repeat. Some keys are too long to be stored as they
    /// are.
    fn key(&mut self) -> String {
        match self.0.u64(..20) {
            0 => "folded".repeat(1000),
            n => format!("k{}", n * n),
        }
    }

    /// Returns a value. Some values lie in pages of their own, and some in chunks.
    fn value(&mut self) -> String {
        let text = self.0.u64(..1000).to_string();
        match self.0.u64(..60) {
            0 => text.repeat(4000),
            1 => text.repeat(600_000),
            2..8 => text.repeat(300),
            _ => text,
        }
    }

    fn command(&mut self, mostly: u64) -> Vec<String> {
        let (key, value) = (self.key(), self.value());
        let kind = match self.0.u64(..8) {
            0 => self.0.u64(..16),
            _ => mostly,
        };
        let words: &[&str] = match kind {
            0..4 => &["GET", &key],
            4..7 => &["set", &key, &value],
            7 => &["SET", &key, &value, "EX", "1000"],
            8 => &["EXPIRE", &key, "1000"],
            9 => &["DEL", &key],
            10 => &["GET"],
            11 => &["SET", &key],
            12 => &["SET", &key, &value, "NX"],
            13 => &["EXPIRE", &key, "-1"],
            14 => &["DBSIZE"],
            _ => &["TTL", &key],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Returns a pipeline mostly of GETs, mostly of SETs, or of both in turn.
    fn pipeline(&mut self) -> Vec<Vec<String>> {
        let (count, taste) = (self.0.u64(..200), self.0.u64(..3));
        let commands = (0..count).map(|n| {
            let mostly = match taste {
                0 => 0,
                1 => 4,
                _ => (n / 20 % 2) * 4,
            };
            self.command(mostly)
        });
        commands.collect()
    }
}

/// Returns what commands leave in the statistics: calls, refusals and failures of each command,
/// hits and misses, keys, and deadlines.
pub(crate) fn figures(client: &mut Client) -> Vec<String> {
    let mut figures = Vec::new();
    for (name, value) in fields(client, "commandstats keyspace stats") {
        let counted = [
            "keyspace_hits",
            "keyspace_misses",
            "total_commands_processed",
            "total_error_replies",
        ];
        if name.starts_with("cmdstat_") {
            let times = value.split(',').filter(|part| !part.starts_with("usec"));
            figures.push(format!("{name} {}", times.collect::<Vec<_>>().join(",")));
        } else if name.starts_with("db") || counted.contains(&name.as_str()) {
            figures.push(format!("{name} {value}"));
        }
    }
    figures
}

/// Returns true of times to live that differ by what has passed between the two commands.
fn is_later(words: &[String], ours: &Answer, expected: &Answer) -> bool {
    match (ours, expected) {
        (Answer::Integer(ours @ 1..), Answer::Integer(expected @ 1..)) => {
            words[0] == "TTL" && ours.abs_diff(*expected) < 500
        }
        _ => false,
    }
}

/// Returns the number of commands that ran in pipeline runs.
pub(crate) fn together_count(client: &mut Client) -> u64 {
    fields(client, "stats")["commands_together"]
        .parse()
        .unwrap()
}

#[test]
fn pipelines_mean_what_their_commands_mean_one_by_one() {
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
        for _ in 0..60 {
            let pipeline = random.pipeline();
            client.send(
                &pipeline
                    .iter()
                    .flat_map(|words| encode(words))
                    .collect::<Vec<_>>(),
            );
            for words in &pipeline {
                let (ours, expected) = (client.answer(), twin.call(words));
                if !is_later(words, &ours, &expected) {
                    assert_eq!(ours, expected, "{:.80}", format!("{words:?}"));
                }
            }
            assert_eq!(figures(&mut client), figures(&mut twin));
        }
        assert!(client.integer("DBSIZE") > 0);
        // A third of the pipelines has GETs and SETs in turn, and every pipeline has other
        // commands, too.
        let (ours, all) = (together_count(&mut client), 60 * 100);
        assert!(ours > all / 2, "{ours} of {all} ran together");
        assert_eq!(together_count(&mut twin), 0);
    }
}

#[test]
fn pipelines_of_data_that_do_not_fit_mean_the_same() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let mut rows: Vec<Option<String>> = vec![None; 4000];
    let mut random = Random(Rng::with_seed(5));
    for round in 0..300_usize {
        let mut sent = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..100 {
            // First all keys are set, and then random ones are used again.
            let number = match round {
                0..40 => round * 100 + expected.len(),
                _ => random.0.usize(..4000),
            };
            let key = format!("key:{number}");
            if round < 40 || (random.0.u64(..100) < 50) == (round % 2 == 0) {
                let value = random.0.u64(..1 << 40).to_string().repeat(60);
                sent.extend(encode(&["SET", &key, &value]));
                rows[number] = Some(value);
                expected.push("+OK".to_owned());
            } else {
                sent.extend(encode(&["GET", &key]));
                let value = rows[number].as_ref();
                expected
                    .push(value.map_or_else(|| "nil".to_owned(), |value| format!("\"{value}\"")));
            }
        }
        client.send(&sent);
        for expected in expected {
            assert_eq!(show(&client.answer()), expected);
        }
    }
    assert_eq!(client.run("DBSIZE"), ":4000");
    let suspended: u64 = fields(&mut client, "stats")["suspended_commands"]
        .parse()
        .unwrap();
    assert!(suspended > 1000, "{suspended}: the data fit into memory");
    let together = together_count(&mut client);
    assert!(together > 5000, "{together} of 30000 ran together");
}

#[test]
fn each_command_of_a_pipeline_run_is_in_the_slow_log() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG SET slowlog-log-slower-than 0");
    client.run("SLOWLOG RESET");
    let sets = (0..5).map(|n| encode(&["SET", &format!("k{n}"), "v"]));
    let gets = (0..5).map(|n| encode(&["GET", &format!("k{n}")]));
    client.send(&sets.chain(gets).collect::<Vec<_>>().concat());
    (0..10).for_each(|_| drop(client.answer()));
    let Answer::Array(entries) = client.call(&["SLOWLOG", "GET", "10"]) else {
        panic!("no array");
    };
    let arguments = entries.iter().rev().map(|entry| match entry {
        Answer::Array(parts) => show(&parts[3]),
        other => panic!("{other:?}"),
    });
    let expected = (0..5).map(|n| format!("[\"SET\" \"k{n}\" \"v\"]"));
    let expected = expected.chain((0..5).map(|n| format!("[\"GET\" \"k{n}\"]")));
    assert_eq!(arguments.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn a_get_of_a_pipeline_run_finds_no_value_that_has_ended() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("SET a 1 PX 1", "+OK"), ("SET b 2", "+OK")]);
    thread::sleep(Duration::from_millis(3));
    client.send(
        &[encode(&["GET", "b"]), encode(&["GET", "a"])]
            .concat()
            .repeat(4),
    );
    for _ in 0..4 {
        assert_eq!(show(&client.answer()), "\"2\"");
        assert_eq!(show(&client.answer()), "nil");
    }
}

#[test]
fn a_pipeline_run_of_others_is_a_change_of_what_is_watched() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("WATCH k3", "+OK"),
        ("MULTI", "+OK"),
        ("SET x 1", "+QUEUED"),
    ]);
    let sets = (0..8).map(|n| encode(&["SET", &format!("k{n}"), "v"]));
    other.send(&sets.collect::<Vec<_>>().concat());
    (0..8).for_each(|_| drop(other.answer()));
    client.check(&[("EXEC", "nil"), ("GET x", "nil"), ("GET k7", "\"v\"")]);
}

#[test]
fn a_session_between_multi_and_exec_queues() {
    let server = Fixture::new();
    let mut client = server.client();
    let words: &[&[&str]] = &[
        &["MULTI"],
        &["SET", "a", "1"],
        &["SET", "b", "2"],
        &["GET", "a"],
        &["GET", "b"],
        &["EXEC"],
        &["GET", "a"],
        &["GET", "b"],
    ];
    client.send(
        &words
            .iter()
            .flat_map(|words| encode(words))
            .collect::<Vec<_>>(),
    );
    let answers: Vec<_> = (0..words.len()).map(|_| show(&client.answer())).collect();
    let expected = "+OK +QUEUED +QUEUED +QUEUED +QUEUED [+OK +OK \"1\" \"2\"] \"1\" \"2\"";
    assert_eq!(answers.join(" "), expected);
}

#[test]
fn a_session_that_has_not_authenticated_is_refused() {
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".to_owned()),
        ..options()
    });
    let mut client = server.client();
    let set = encode(&["SET", "a", "1"]);
    client.send(
        &[
            set.clone(),
            set.clone(),
            encode(&["AUTH", "secret"]),
            set.clone(),
            set,
        ]
        .concat(),
    );
    let answers: Vec<_> = (0..5).map(|_| show(&client.answer())).collect();
    assert!(answers[0].starts_with("-NOAUTH") && answers[1].starts_with("-NOAUTH"));
    assert_eq!(answers[2..], ["+OK", "+OK", "+OK"]);
}

/// A writer sets two keys to the same number in one command, and readers get one key and then the
/// other. A reader that has seen a number must not see an older one afterwards.
#[test]
fn a_get_sees_nothing_older_than_the_get_before_it() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    // This makes the two keys lie in different leaves.
    let filler = (0..60).map(|n| encode(&["SET", &format!("b{n:02}"), &"x".repeat(3000)]));
    let mut writer = server.client();
    writer.send(&filler.collect::<Vec<_>>().concat());
    (0..60).for_each(|_| assert_eq!(show(&writer.answer()), "+OK"));
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        // Clients are distributed over the loops, so some of these do not share a loop with the
        // writer.
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client();
                let pairs = [encode(&["GET", "a"]), encode(&["GET", "c"])].concat();
                let asked = pairs.repeat(100);
                while !stop.is_there() {
                    client.send(&asked);
                    let mut newest = 0;
                    for place in 0..200 {
                        let number = match client.answer() {
                            Answer::Bulk(value) => String::from_utf8(value).unwrap(),
                            _ => "0".to_owned(),
                        };
                        let number: usize = number.parse().unwrap();
                        assert!(number >= newest, "{number} after {newest} at {place}");
                        newest = number;
                    }
                }
            });
        }
        for round in 0..400 {
            let numbers = (0..50).map(|n| (round * 50 + n).to_string());
            let sets = numbers.map(|number| encode(&["MSET", "a", &number, "c", &number]));
            writer.send(&sets.collect::<Vec<_>>().concat());
            (0..50).for_each(|_| assert_eq!(show(&writer.answer()), "+OK"));
        }
        drop(bring);
    });
}
