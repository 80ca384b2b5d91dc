//! Commands of many keys, and EXEC of many commands, of a store that does not fit into memory.

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};
use crate::places::pages_read;

/// Number of keys.
const COUNT: usize = 40_000;

/// Runs the command with these words behind its name.
fn many(client: &mut Client, name: &str, words: impl IntoIterator<Item = String>) -> String {
    let command: Vec<String> = [name.to_owned()].into_iter().chain(words).collect();
    show(&client.call(&command))
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

/// Gives each even number a key with it as value, some of them long.
fn fill(client: &mut Client) {
    for start in (0..COUNT).step_by(2_000) {
        let pairs = (start..start + 2_000).flat_map(|of| [key(2 * of), value(2 * of)]);
        assert_eq!(many(client, "MSET", pairs), "+OK");
    }
}

fn value(number: usize) -> String {
    match number % 5_000 {
        // Longer than what is read of a row at first.
        0 => number.to_string().repeat(1_000),
        _ => number.to_string(),
    }
}

/// Shows the reply of an MGET of these numbers.
fn shown(numbers: &[usize]) -> String {
    let one = |number: &usize| match number.is_multiple_of(2) && *number < 2 * COUNT {
        true => format!("\"{}\"", value(*number)),
        false => "nil".to_owned(),
    };
    let each: Vec<String> = numbers.iter().map(one).collect();
    each.join(" ")
}

/// A third of the pages is in memory. Keys come in any order, some of them twice, and each page is
/// read once all the same, before the command begins, and perhaps once more when it commits.
#[test]
fn many_keys_are_read_page_after_page() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let mut random = Rng::with_seed(7);
    let numbers: Vec<usize> = (0..20_000).map(|_| random.usize(..2 * COUNT)).collect();
    let keys = || numbers.iter().map(|number| key(*number));
    let there = numbers
        .iter()
        .filter(|number| number.is_multiple_of(2))
        .count();
    let mut different: Vec<usize> = numbers.iter().copied().filter(|of| of % 2 == 0).collect();
    different.sort_unstable();
    different.dedup();
    let mget = format!("[{}]", shown(&numbers));
    let (exists, none) = (format!(":{there}"), ":0".to_owned());
    let deleted = format!(":{}", different.len());
    let pairs = || numbers.iter().flat_map(|of| [key(*of), format!("new{of}")]);
    for (name, words, expected) in [
        ("MGET", keys().collect::<Vec<_>>(), &mget),
        ("EXISTS", keys().collect(), &exists),
        ("TOUCH", keys().collect(), &exists),
        ("MSETNX", pairs().collect(), &none),
        ("DEL", keys().collect(), &deleted),
        ("UNLINK", keys().collect(), &none),
        ("MSET", pairs().collect(), &"+OK".to_owned()),
    ] {
        let before = pages_read(&mut client);
        let answer = many(&mut client, name, words);
        assert!(answer == *expected, "{name}: {answer:.200}");
        let read = pages_read(&mut client) - before;
        assert!(read < COUNT as u64 / 20, "{read} pages for {name}");
    }
    for number in numbers.iter().step_by(97) {
        let expected = format!("\"new{number}\"");
        assert_eq!(client.run(&format!("GET {}", key(*number))), expected);
    }
}

/// So do those of EXEC, which answers as if each command were alone.
#[test]
fn exec_of_many_commands_reads_page_after_page() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let mut random = Rng::with_seed(8);
    let numbers: Vec<usize> = (0..8_000).map(|_| random.usize(..2 * COUNT)).collect();
    let before = pages_read(&mut client);
    client.check(&[("MULTI", "+OK"), ("SET key:0 changed", "+QUEUED")]);
    for number in &numbers {
        assert_eq!(client.run(&format!("GET {}", key(*number))), "+QUEUED");
    }
    client.check(&[("GET key:0", "+QUEUED"), ("GET key:2", "+QUEUED")]);
    let expected = format!("[+OK {} \"changed\" \"2\"]", shown(&numbers));
    let answer = client.run("EXEC");
    assert!(answer == expected, "{answer:.200}");
    let read = pages_read(&mut client) - before;
    assert!(read < COUNT as u64 / 20, "{read} pages");
    // Keys behind a SELECT are of another database.
    client.check(&[("MULTI", "+OK")]);
    for number in &numbers[..500] {
        assert_eq!(client.run(&format!("GET {}", key(*number))), "+QUEUED");
    }
    client.check(&[("SELECT 1", "+QUEUED"), ("GET key:2", "+QUEUED")]);
    let expected = format!("[{} +OK nil]", shown(&numbers[..500]));
    let answer = client.run("EXEC");
    assert!(answer == expected, "{answer:.200}");
}

/// What many keys have is of one moment, whatever others write while they are read.
#[test]
fn many_keys_are_of_one_moment_beside_writers() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let is_done = AtomicBool::new(false);
    let (first, last) = (key(2), key(2 * COUNT - 2));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = server.client();
            let mut round = 0;
            while !is_done.load(Ordering::Relaxed) {
                round += 1;
                let set = format!("MSET {first} {round} {last} {round}");
                assert_eq!(client.run(&set), "+OK");
            }
        });
        for _ in 0..20 {
            let between = (0..3_000).map(|of| key(2 * (of * 13 + 2)));
            let keys = [first.clone()].into_iter().chain(between);
            let answer = many(&mut client, "MGET", keys.chain([last.clone()]));
            let mut values = answer.trim_matches(['[', ']']).split(' ');
            assert_eq!(
                values.next(),
                values.next_back(),
                "of two that are set together"
            );
        }
        is_done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}
