//! Pipelines, and EXEC, of commands that name elements of collections which are larger than memory:
//! pages that are missing are read together.

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::ServerOptions;
use pando_stats::Measure;
use pando_sync::{Arc, Mutex, Rank, thread};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::statistics::fields;
use crate::until_end::End;

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

/// A server with so many loops whose store has room for a few of its pages, and that store.
fn small(threads: usize) -> (Fixture, Db) {
    let opened = Arc::new(Mutex::new(Rank::Leaf, None));
    let db = opened.clone();
    let options = ServerOptions {
        threads,
        ..options()
    };
    let server = Fixture::opened_by(options, move |directory| {
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

/// Returns the reply that shows a number that is there at first.
fn shown(of: usize) -> String {
    match of % 2 {
        0 => format!("\"{of}\""),
        _ => "nil".to_owned(),
    }
}

type Case = (&'static str, fn(usize) -> String, fn(usize) -> String);

/// Commands of a number, and their replies, if each is sent once and in this order.
const CASES: [Case; 9] = [
    ("HGET", |of| format!("HGET h {of}"), shown),
    (
        "SISMEMBER",
        |of| format!("SISMEMBER s {of}"),
        |of| format!(":{}", 1 - of % 2),
    ),
    ("ZSCORE", |of| format!("ZSCORE z {of}"), shown),
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
    let (server, db) = small(2);
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
    let (server, db) = small(2);
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

/// Sends MULTI and HGETs of some of the elements.
fn queue_reads(client: &mut Client, numbers: &[usize]) {
    assert_eq!(client.run("MULTI"), "+OK");
    for of in numbers {
        assert_eq!(client.run(&format!("HGET h {of}")), "+QUEUED");
    }
}

/// Returns how often commands waited for the engine.
fn waits(client: &mut Client) -> u64 {
    let text = &fields(client, "stats")["suspended_commands"];
    text.parse().expect("it is a number")
}

/// While EXEC reads its keys, the keys of the commands behind it are asked for. Those count for
/// themselves: it asks for as many elements as if nothing were behind it.
#[test]
fn what_is_behind_exec_takes_no_room_of_its_elements() {
    let (server, _) = small(1);
    let mut client = server.client();
    let numbers = numbers(&mut Rng::with_seed(9));
    let mut waited = Vec::new();
    for behind in [0, 500] {
        queue_reads(&mut client, &numbers);
        let gets = (0..behind).flat_map(|of| encode(&["STRLEN", &format!("none{of}")]));
        let before = waits(&mut server.client());
        client.send(
            &encode(&["EXEC"])
                .into_iter()
                .chain(gets)
                .collect::<Vec<u8>>(),
        );
        let Answer::Array(values) = client.answer() else {
            panic!("EXEC replies an array");
        };
        assert_eq!(values.len(), COMMANDS);
        (0..behind).for_each(|_| assert_eq!(show(&client.answer()), ":0"));
        waited.push(waits(&mut server.client()) - before);
    }
    assert!(waited[1] < 2 * waited[0], "{waited:?}");
}

/// Where others keep the device busy, EXEC asks for many pages at each wait as well.
#[test]
fn exec_waits_for_many_pages_beside_others_that_read() {
    const OTHERS: usize = 2;
    let (server, _) = small(1);
    let mut client = server.client();
    assert_eq!(client.run("PANDO PROFILE ON"), "+OK");
    let numbers = numbers(&mut Rng::with_seed(10));
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        for seed in 0..OTHERS {
            let (server, end) = (&server, &end);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = Rng::with_seed(seed as u64);
                while !end.is_there() {
                    let names = (0..300).map(|_| random.usize(0..2 * COUNT).to_string());
                    let pipeline = names.flat_map(|of| encode(&["SISMEMBER", "s", &of]));
                    client.send(&pipeline.collect::<Vec<u8>>());
                    (0..300).for_each(|_| drop(client.answer()));
                }
            });
        }
        queue_reads(&mut client, &numbers);
        client.run("EXEC");
    });
    let profile = client.run("PANDO PROFILE GET");
    let runs = profile.split("\"runs\" :").nth(1).unwrap();
    let runs: usize = runs.split([' ', ']']).next().unwrap().parse().unwrap();
    // It is about 300; it would be 1200 if it waited for its own page most of the time.
    assert!(runs < 700, "{profile}");
}
