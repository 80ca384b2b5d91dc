//! Commands that name many elements of a large collection, and how long others wait for them.

use std::collections::BTreeSet;

use fastrand::Rng;
use pando_server::ServerOptions;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::places::pages_read;

/// Number of elements of each collection.
const COUNT: usize = 40_000;

/// Runs the command with these words behind `start`.
fn many(client: &mut Client, start: &[&str], words: impl IntoIterator<Item = String>) -> String {
    let start = start.iter().map(ToString::to_string);
    let command: Vec<String> = start.chain(words).collect();
    show(&client.call(&command))
}

/// Makes a set, a hash and a sorted set of [`COUNT`] even numbers: values and scores are the same.
fn fill(client: &mut Client) {
    for start in (0..COUNT).step_by(2_000) {
        let numbers = (start..start + 2_000).map(|number| (2 * number).to_string());
        let twice: Vec<String> = numbers.clone().flat_map(|of| [of.clone(), of]).collect();
        assert_eq!(many(client, &["SADD", "s"], numbers), ":2000");
        assert_eq!(many(client, &["HSET", "h"], twice.clone()), ":2000");
        assert_eq!(many(client, &["ZADD", "z"], twice), ":2000");
    }
}

/// Returns an array of what `show_one` returns for each number.
fn array(numbers: &[usize], show_one: impl Fn(usize) -> String) -> String {
    let each: Vec<String> = numbers.iter().map(|number| show_one(*number)).collect();
    format!("[{}]", each.join(" "))
}

/// A few of the pages are in memory. Names come in any order and some of them twice, and each page
/// is read once all the same.
#[test]
fn many_names_are_looked_for_page_after_page() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let mut random = Rng::with_seed(7);
    let numbers: Vec<usize> = (0..20_000).map(|_| random.usize(..2 * COUNT)).collect();
    let is_there = |number: usize| number.is_multiple_of(2);
    let there = array(&numbers, |number| {
        format!(":{}", u8::from(is_there(number)))
    });
    let shown = array(&numbers, |number| match is_there(number) {
        true => format!("\"{number}\""),
        false => "nil".to_owned(),
    });
    let new: BTreeSet<usize> = numbers
        .iter()
        .copied()
        .filter(|of| !is_there(*of))
        .collect();
    let new = format!(":{}", new.len());
    let names: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    for (start, expected) in [
        (&["SMISMEMBER", "s"][..], &there),
        (&["HMGET", "h"], &shown),
        (&["ZMSCORE", "z"], &shown),
        (&["SADD", "s"], &new),
        (&["SADD", "s"], &":0".to_owned()),
    ] {
        let before = pages_read(&mut client);
        let answer = many(&mut client, start, names.clone());
        assert!(answer == *expected, "{start:?}: {answer:.200}");
        let read = pages_read(&mut client) - before;
        assert!(read < COUNT as u64 / 20, "{read} pages for {start:?}");
    }
    // In a transaction as well, which has written some of them, and reads others in between.
    client.check(&[("MULTI", "+OK"), ("HSET h 0 changed", "+QUEUED")]);
    let others: Vec<usize> = numbers.iter().map(|number| number + 1).collect();
    let other_names = || others.iter().map(ToString::to_string);
    assert_eq!(many(&mut client, &["HMGET", "h"], names.clone()), "+QUEUED");
    assert_eq!(many(&mut client, &["HMGET", "h"], other_names()), "+QUEUED");
    client.check(&[("HDEL h 2", "+QUEUED")]);
    assert_eq!(many(&mut client, &["HMGET", "h"], names), "+QUEUED");
    let expected = |numbers: &[usize], is_deleted: bool| {
        array(numbers, |number| match number {
            0 => "\"changed\"".to_owned(),
            2 if is_deleted => "nil".to_owned(),
            _ if is_there(number) && number < 2 * COUNT => format!("\"{number}\""),
            _ => "nil".to_owned(),
        })
    };
    let (before, after) = (expected(&numbers, false), expected(&numbers, true));
    let other = expected(&others, false);
    let answer = client.run("EXEC");
    assert!(
        answer == format!("[:0 {before} {other} :1 {after}]"),
        "{answer:.200}"
    );
}

/// Each of these commands takes several turns, and between these the set changes.
#[test]
fn many_names_are_of_one_moment_beside_writers() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client);
    let is_done = AtomicBool::new(false);
    let names: Vec<String> = (0..10_000).map(|number| (2 * number).to_string()).collect();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Both are there, or neither.
            let mut client = server.client();
            while !is_done.load(Ordering::Relaxed) {
                client.check(&[("SREM s 0 19998", ":2"), ("SADD s 0 19998", ":2")]);
            }
        });
        for _ in 0..20 {
            let answer = many(&mut client, &["SMISMEMBER", "s"], names.clone());
            let (first, last) = (&answer[..3], &answer[answer.len() - 3..]);
            assert_eq!(
                &first[1..],
                &last[..2],
                "one of two that come and go together"
            );
            let added = names.iter().map(|name| format!("{name}new"));
            assert_eq!(many(&mut client, &["SADD", "s"], added.clone()), ":10000");
            assert_eq!(many(&mut client, &["SREM", "s"], added), ":10000");
        }
        is_done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(client.run("SCARD s"), format!(":{COUNT}"));
}

/// One loop has thirty clients with long commands, and a short one has its reply after a few of
/// their turns, not after one of each.
#[test]
fn a_short_command_waits_for_few_turns_of_long_ones() {
    const CLIENTS: usize = 30;
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut client = server.client();
    fill(&mut client);
    let names: Vec<String> = (0..20_000).map(|number| (2 * number).to_string()).collect();
    let of_names = |start: &[&str]| {
        let start = start.iter().map(ToString::to_string);
        encode(&start.chain(names.iter().cloned()).collect::<Vec<_>>())
    };
    // The first has several turns. The other has one: that the one before it took long makes it
    // come late.
    for (long, is_first) in [
        (of_names(&["SADD", "s"]), true),
        (of_names(&["EXISTS"]), false),
    ] {
        let mut count_served = || {
            let mut others: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
            for other in others.iter_mut().filter(|_| !is_first) {
                other.send(&long);
                assert_eq!(show(&other.answer()), ":0");
            }
            others.iter_mut().for_each(|other| other.send(&long));
            let mut served = 0;
            while !others.iter().all(Client::has_answer) {
                assert_eq!(client.run("PING"), "+PONG");
                served += 1;
            }
            for other in &mut others {
                assert_eq!(show(&other.answer()), ":0");
            }
            served
        };
        // Where this thread does not run for a while, few are sent.
        let most = (0..10).map(|_| count_served()).find(|served| *served > 12);
        assert!(most.is_some(), "each time a few beside {CLIENTS} long ones");
    }
}
