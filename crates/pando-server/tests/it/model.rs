//! Random commands compared with a naive twin.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_resp::Answer;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, options};

/// Commands that a seed determines.
struct Random(Rng);

impl Random {
    fn key(&mut self) -> String {
        format!("k{}", self.0.u64(..6))
    }
}

/// The naive twin does what Redis does with strings, in the simplest way.
#[derive(Default)]
pub(crate) struct Twin(BTreeMap<String, String>);

impl Twin {
    fn text(value: Option<&String>) -> String {
        value.map_or_else(|| "nil".to_owned(), |value| format!("\"{value}\""))
    }

    /// Returns the reply to a command.
    pub(crate) fn run(&mut self, words: &[String]) -> String {
        let rows = &mut self.0;
        let word = |index: usize| words[index].clone();
        match words[0].as_str() {
            "GET" => Self::text(rows.get(&words[1])),
            "SET" => {
                let there = rows.contains_key(&words[1]);
                let refused = match words.get(3).map(String::as_str) {
                    Some("NX") => there,
                    Some("XX") => !there,
                    _ => false,
                };
                if refused {
                    return "nil".to_owned();
                }
                rows.insert(word(1), word(2));
                "+OK".to_owned()
            }
            "GETSET" => Self::text(rows.insert(word(1), word(2)).as_ref()),
            "GETDEL" => Self::text(rows.remove(&words[1]).as_ref()),
            "APPEND" => {
                let value = rows.entry(word(1)).or_default();
                value.push_str(&words[2]);
                format!(":{}", value.len())
            }
            "STRLEN" => format!(":{}", rows.get(&words[1]).map_or(0, String::len)),
            "INCRBY" => {
                let old = rows
                    .get(&words[1])
                    .map_or(Ok(0), |value| value.parse::<i64>());
                match old {
                    Ok(old)
                        if rows
                            .get(&words[1])
                            .is_none_or(|text| *text == old.to_string()) =>
                    {
                        let new = old + words[2].parse::<i64>().unwrap();
                        rows.insert(word(1), new.to_string());
                        format!(":{new}")
                    }
                    _ => "-ERR value is not an integer or out of range".to_owned(),
                }
            }
            _ => self.run_many(words),
        }
    }

    /// Runs commands of several keys, or of all keys.
    fn run_many(&mut self, words: &[String]) -> String {
        let rows = &mut self.0;
        match words[0].as_str() {
            "DEL" | "EXISTS" => {
                let mut count = 0;
                for key in &words[1..] {
                    let there = match words[0].as_str() {
                        "DEL" => rows.remove(key).is_some(),
                        _ => rows.contains_key(key),
                    };
                    count += i32::from(there);
                }
                format!(":{count}")
            }
            "MGET" => {
                let values: Vec<_> = words[1..]
                    .iter()
                    .map(|key| Self::text(rows.get(key)))
                    .collect();
                format!("[{}]", values.join(" "))
            }
            "MSET" | "MSETNX" => {
                let pairs: Vec<_> = words[1..].chunks(2).collect();
                if words[0] == "MSETNX" && pairs.iter().any(|pair| rows.contains_key(&pair[0])) {
                    return ":0".to_owned();
                }
                for pair in pairs {
                    rows.insert(pair[0].clone(), pair[1].clone());
                }
                if words[0] == "MSET" { "+OK" } else { ":1" }.to_owned()
            }
            "DBSIZE" => format!(":{}", rows.len()),
            "KEYS" => {
                let keys: Vec<_> = rows.keys().map(|key| format!("\"{key}\"")).collect();
                format!("[{}]", keys.join(" "))
            }
            "FLUSHDB" => {
                rows.clear();
                "+OK".to_owned()
            }
            other => panic!("the twin does not know {other}"),
        }
    }
}

fn command(random: &mut Random) -> Vec<String> {
    let (key, other) = (random.key(), random.key());
    let value = random.0.u64(..100).to_string();
    let text = match random.0.u64(..26) {
        0..=3 => format!("GET {key}"),
        4..=6 => format!("SET {key} {value}"),
        7 => format!("SET {key} {value} NX"),
        8 => format!("SET {key} {value} XX"),
        9 => format!("GETSET {key} {value}"),
        10 => format!("GETDEL {key}"),
        11 => format!("APPEND {key} {value}x"),
        12 => format!("STRLEN {key}"),
        13..=15 => format!("INCRBY {key} {value}"),
        16..=17 => format!("DEL {key} {other}"),
        18 => format!("EXISTS {key} {other} {key}"),
        19..=20 => format!("MGET {key} {other}"),
        21 => format!("MSET {key} {value} {other} y"),
        22 => format!("MSETNX {key} {value} {other} z"),
        23 => "DBSIZE".to_owned(),
        24 => "KEYS *".to_owned(),
        _ if random.0.u64(..4) == 0 => "FLUSHDB".to_owned(),
        _ => format!("SET {key} {}", "long".repeat(1000)),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Returns a reply as text, with the keys of KEYS in order.
fn reply(words: &[String], answer: Answer) -> String {
    match answer {
        Answer::Array(mut keys) if words[0] == "KEYS" => {
            keys.sort_by_key(show);
            show(&Answer::Array(keys))
        }
        answer => show(&answer),
    }
}

/// Runs a batch of commands as a pipeline or between MULTI and EXEC.
fn batch(client: &mut Client, twin: &mut Twin, random: &mut Random) {
    let commands: Vec<_> = (0..=random.0.u64(..12)).map(|_| command(random)).collect();
    let expected: Vec<String> = commands.iter().map(|words| twin.run(words)).collect();
    let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
    let answers: Vec<Answer> = if random.0.u64(..3) == 0 {
        client.send(&[encode(&["MULTI"]), bytes, encode(&["EXEC"])].concat());
        assert_eq!(show(&client.answer()), "+OK");
        for _ in &commands {
            assert_eq!(show(&client.answer()), "+QUEUED");
        }
        match client.answer() {
            Answer::Array(answers) => answers,
            other => panic!("EXEC replies {other:?}"),
        }
    } else {
        client.send(&bytes);
        commands.iter().map(|_| client.answer()).collect()
    };
    assert_eq!(answers.len(), commands.len());
    for ((words, expected), answer) in commands.iter().zip(expected).zip(answers) {
        assert_eq!(reply(words, answer), expected, "{words:?} in {commands:?}");
    }
}

#[test]
fn random_commands_have_the_replies_of_the_naive_twin() {
    let in_memory = Fixture::new();
    let on_disk = Fixture::opened_by(options(), open_on_disk);
    let rounds = [
        (&in_memory, 1, 400),
        (&in_memory, 0x9e37_79b9, 400),
        (&on_disk, 0xdead_beef, 100),
    ];
    for (server, seed, batches) in rounds {
        let mut client = server.client();
        client.run("FLUSHALL");
        let (mut twin, mut random) = (Twin::default(), Random(Rng::with_seed(seed)));
        for _ in 0..batches {
            batch(&mut client, &mut twin, &mut random);
        }
    }
}
