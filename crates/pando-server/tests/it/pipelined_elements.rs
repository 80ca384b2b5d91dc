//! Pipelines, and EXEC, of commands that name elements of collections which are larger than memory:
//! pages that are missing are read together.

use fastrand::Rng;
use pando_stats::Measure;
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};

/// Number of elements of each collection.
const COUNT: usize = 40_000;
/// Number of commands of a pipeline.
const COMMANDS: usize = 2_000;
/// Reads in flight, on average; it would be 1 if each command waited for its own page.
const DEPTH: f64 = 3.0;

/// Makes a set, a hash and a sorted set of [`COUNT`] even numbers: values and scores are the same.
fn fill(client: &mut Client) {
    for start in (0..COUNT).step_by(2_000) {
        let numbers = (start..start + 2_000).map(|number| (2 * number).to_string());
        let once: Vec<String> = numbers.collect();
        let twice: Vec<String> = once
            .iter()
            .flat_map(|of| [of.clone(), of.clone()])
            .collect();
        for (name, key, words) in [
            ("SADD", "s", &once),
            ("HSET", "h", &twice),
            ("ZADD", "z", &twice),
        ] {
            let start = [name, key].map(str::to_owned);
            let command: Vec<String> = start.iter().chain(words).cloned().collect();
            assert_eq!(show(&client.call(&command)), ":2000");
        }
    }
}

/// A server whose store has room for a few of its pages, and that store.
fn small() -> (Fixture, Db) {
    let opened = Arc::new(Mutex::new(Rank::Leaf, None));
    let db = opened.clone();
    let server = Fixture::opened_by(options(), move |directory| {
        let db = open_small(directory)?;
        *opened.lock() = Some(db.clone());
        Ok(db)
    });
    fill(&mut server.client());
    let db = db.lock().take().expect("it was opened");
    (server, db)
}

/// Returns how many reads were in flight when one more began, on average.
fn depth(db: &Db) -> f64 {
    db.histogram(Measure::DeviceQueueDepth).mean()
}

type Case = (&'static str, fn(usize) -> String, fn(usize) -> String);

/// Commands of a number, and their replies, if each is sent once and in this order.
const CASES: [Case; 9] = [
    (
        "HGET",
        |of| format!("HGET h {of}"),
        |of| match of % 2 {
            0 => format!("\"{of}\""),
            _ => "nil".to_owned(),
        },
    ),
    (
        "SISMEMBER",
        |of| format!("SISMEMBER s {of}"),
        |of| format!(":{}", 1 - of % 2),
    ),
    (
        "ZSCORE",
        |of| format!("ZSCORE z {of}"),
        |of| match of % 2 {
            0 => format!("\"{of}\""),
            _ => "nil".to_owned(),
        },
    ),
    (
        "SADD",
        |of| format!("SADD s {of}"),
        |of| format!(":{}", of % 2),
    ),
    (
        "HSET",
        |of| format!("HSET h {of} new{of} x{of} y"),
        |of| format!(":{}", 1 + of % 2),
    ),
    (
        "HINCRBY",
        |of| format!("HINCRBY h n{of} {of}"),
        |of| format!(":{of}"),
    ),
    (
        "ZADD",
        |of| format!("ZADD z CH 7 {of}"),
        |_| ":1".to_owned(),
    ),
    (
        "ZINCRBY",
        |of| format!("ZINCRBY z 1 {of}"),
        |_| "\"8\"".to_owned(),
    ),
    ("SREM", |of| format!("SREM s {of}"), |_| ":1".to_owned()),
];

/// Returns [`COMMANDS`] numbers that differ, in any order.
fn numbers(random: &mut Rng) -> Vec<usize> {
    random.choose_multiple(0..2 * COUNT, COMMANDS)
}

#[test]
fn elements_of_a_pipeline_are_read_together() {
    let (server, db) = small();
    let mut client = server.client();
    let mut random = Rng::with_seed(7);
    let numbers = numbers(&mut random);
    for (name, request, reply) in CASES {
        db.reset_statistics();
        let words =
            |of: &usize| -> Vec<String> { request(*of).split(' ').map(str::to_owned).collect() };
        let pipeline: Vec<u8> = numbers.iter().flat_map(|of| encode(&words(of))).collect();
        client.send(&pipeline);
        for of in &numbers {
            assert_eq!(show(&client.answer()), reply(*of), "{}", request(*of));
        }
        // Where a score lies, which is replaced, is known only when it was read.
        let is_known = name != "ZADD";
        let depth = depth(&db);
        assert!(depth > DEPTH || !is_known, "{depth} for {name}");
    }
}

#[test]
fn elements_of_exec_are_read_together() {
    let (server, db) = small();
    let mut client = server.client();
    let mut random = Rng::with_seed(8);
    let numbers = numbers(&mut random);
    for (name, request, reply) in CASES {
        db.reset_statistics();
        assert_eq!(client.run("MULTI"), "+OK");
        for of in &numbers {
            assert_eq!(client.run(&request(*of)), "+QUEUED");
        }
        let replies: Vec<String> = numbers.iter().map(|of| reply(*of)).collect();
        let answer = client.run("EXEC");
        let expected = format!("[{}]", replies.join(" "));
        assert!(answer == expected, "{name}: {answer:.200}");
        let depth = depth(&db);
        assert!(depth > DEPTH, "{depth} for {name}");
    }
}
