//! LPOS, LINSERT and LREM of large lists, which walk over the rows in many turns (decision 120),
//! beside a list in memory.

use fastrand::Rng;
use pando_resp::Answer;
use pando_server::{Durability, ServerOptions, check_rows};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::Db;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_counted, open_on_disk, open_small, options};
use crate::list_blocks::{List, Step, client_of, number, on_disk, run, step};
use crate::until_end::End;

/// Returns an element: of each length there are few, so that many are equal, and of most a leaf
/// has few, so that a walk takes many turns.
fn element(random: &mut Rng) -> Vec<u8> {
    let (bytes, kinds) = match random.u32(..40) {
        0..4 => (3, 4),
        4..36 => (240, 12),
        36..39 => (300, 6),
        _ => (3000, 2),
    };
    vec![b'a' + random.u8(..kinds); bytes]
}

/// Which matches LPOS is asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    rank: i64,
    count: Option<usize>,
    compared: usize,
}

fn places_of(list: &List, element: &[u8], asked: Asked) -> Vec<usize> {
    let most = match asked.count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let compared = if asked.compared == 0 {
        usize::MAX
    } else {
        asked.compared
    };
    let skipped = usize::try_from(asked.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let all = list.iter().enumerate();
    let is_match = |(_, of): &(usize, &Vec<u8>)| *of == element;
    let places: Vec<usize> = match asked.rank > 0 {
        true => all
            .take(compared)
            .filter(is_match)
            .map(|(place, _)| place)
            .collect(),
        false => {
            let back = all.rev().take(compared);
            back.filter(is_match).map(|(place, _)| place).collect()
        }
    };
    places.into_iter().skip(skipped).take(most).collect()
}

fn position(random: &mut Rng, list: &List) -> Step {
    let sought = element(random);
    let rank = match random.u32(..3) {
        0 => 1,
        1 => random.i64(1..60),
        _ => -random.i64(1..60),
    };
    let asked = Asked {
        rank,
        count: [None, Some(0), Some(1), Some(random.usize(..80))][random.usize(..4)],
        compared: [0, random.usize(..100), random.usize(..5000)][random.usize(..3)],
    };
    let places = places_of(list, &sought, asked);
    let mut options = vec!["RANK".to_owned(), rank.to_string()];
    if let Some(count) = asked.count {
        options.extend(["COUNT".to_owned(), count.to_string()]);
    }
    options.extend(["MAXLEN".to_owned(), asked.compared.to_string()]);
    let options = options.into_iter().map(String::into_bytes);
    let reply = match (asked.count, places.first()) {
        (Some(_), _) => Answer::Array(places.iter().map(|of| number(*of)).collect()),
        (None, Some(first)) => number(*first),
        (None, None) => Answer::Null,
    };
    let more: Vec<_> = std::iter::once(sought).chain(options).collect();
    step(&["LPOS", "l"], &more, reply)
}

fn insert(random: &mut Rng, list: &mut List) -> Step {
    let (pivot, new) = (element(random), element(random));
    let is_before = random.bool();
    let side = if is_before { "BEFORE" } else { "AFTER" };
    let reply = match list.iter().position(|of| *of == pivot) {
        None if list.is_empty() => number(0),
        None => Answer::Integer(-1),
        Some(at) => {
            list.insert(at + usize::from(!is_before), new.clone());
            number(list.len())
        }
    };
    step(&["LINSERT", "l", side], &[pivot, new], reply)
}

fn remove(random: &mut Rng, list: &mut List) -> Step {
    let gone = element(random);
    let most = match random.u32(..6) {
        0 => 0,
        1 => random.usize(1..200),
        _ => random.usize(1..4),
    };
    let is_back = random.bool() && most > 0;
    let equal = list.iter().enumerate().filter(|(_, of)| **of == gone);
    let mut places: Vec<usize> = equal.map(|(at, _)| at).collect();
    if is_back {
        places.reverse();
    }
    places.truncate(if most == 0 { usize::MAX } else { most });
    let reply = number(places.len());
    places.sort_unstable();
    places.iter().rev().for_each(|at| drop(list.remove(*at)));
    let sign = if is_back { "-" } else { "" };
    step(&["LREM", "l", &format!("{sign}{most}")], &[gone], reply)
}

/// Leaves a part of the list, or few elements of it, or none.
fn trim(random: &mut Rng, list: &mut List) -> Step {
    let length = list.len();
    let from = random.usize(..length);
    let kept = match random.u32(..4) {
        0 => from..from + random.usize(..20),
        1 => 0..from,
        2 => from..length,
        _ => from / 2..length - random.usize(..length / 2 + 1),
    };
    list.truncate(kept.end);
    list.drain(..kept.start.min(list.len()));
    let (from, to) = match kept.end {
        // The last one would be -1.
        0 => (length, length),
        end => (kept.start, end - 1),
    };
    let (from, to) = (from.to_string(), to.to_string());
    let ok = Answer::Simple("OK".into());
    step(&["LTRIM", "l", &from, &to], &[], ok)
}

fn steps(random: &mut Rng, list: &mut List) -> Vec<Step> {
    let count = random.usize(1..8);
    let mut steps = Vec::new();
    for _ in 0..count {
        if list.len() < 2500 && random.u32(..4) == 0 || list.is_empty() {
            let new: Vec<_> = (0..random.usize(1..900)).map(|_| element(random)).collect();
            list.extend(new.iter().cloned());
            steps.push(step(&["RPUSH", "l"], &new, number(list.len())));
        }
        steps.push(match random.u32(..11) {
            10 if random.u32(..4) == 0 && !list.is_empty() => trim(random, list),
            0..3 => position(random, list),
            3..6 => insert(random, list),
            6..=8 => remove(random, list),
            _ => {
                let new = element(random);
                list.push_front(new.clone());
                step(&["LPUSH", "l"], &[new], number(list.len()))
            }
        });
    }
    steps
}

/// Edits a list in all ways that commands are run.
fn walk_for(
    (rounds, seed): (usize, u64),
    open: impl Fn() -> Fixture,
    reopen: Option<&dyn Fn() -> Db>,
) {
    let (mut random, mut list) = (Rng::with_seed(seed), List::new());
    let server = open();
    let mut client = client_of(&server);
    for _ in 0..rounds {
        let steps = steps(&mut random, &mut list);
        run(&mut client, &mut random, &steps);
        if random.u32(..8) == 0 {
            let all = list.iter().map(|of| Answer::Bulk(of.clone())).collect();
            let shown = client.run_raw("LRANGE l 0 -1");
            assert!(shown == Answer::Array(all), "seed {seed}");
        }
    }
    let all = list.iter().map(|of| Answer::Bulk(of.clone())).collect();
    assert!(
        client.run_raw("LRANGE l 0 -1") == Answer::Array(all),
        "seed {seed}"
    );
    drop(client);
    drop(server);
    if let Some(reopen) = reopen {
        let report = check_rows(&reopen()).expect("a store that can be read");
        assert_eq!(report.descriptions, [""; 0], "seed {seed}");
    }
}

#[test]
fn walks_find_what_a_list_in_memory_has() {
    let seeds = std::env::var("PANDO_SEEDS").map_or(3, |of| of.parse().unwrap());
    for seed in 0..seeds {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let reopen = || open_on_disk(path).unwrap();
        walk_for((250, seed), || on_disk(path), Some(&reopen));
    }
}

#[test]
fn walks_find_what_a_list_in_memory_has_with_few_frames() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let open = || {
        let path = path.clone();
        Fixture::opened_by(options(), move |_| open_small(&path))
    };
    let reopen = || open_on_disk(&path).unwrap();
    walk_for((60, 11), open, Some(&reopen));
}

/// Lists of a store of before decision 117 are rows of single elements.
#[test]
fn walks_over_rows_of_single_elements_find_the_same() {
    walk_for(
        (150, 5),
        || Fixture::opened_by(options(), open_counted),
        None,
    );
}

/// Elements of a list that is longer than what a command may have in memory.
const LONG: usize = 80_000;

fn numbered(at: usize) -> String {
    format!("{at:06}{}", "x".repeat(240))
}

/// Returns a server with such a list at `l`: each thousandth element is `seldom`.
fn with_long_list(path: &std::path::Path) -> (Fixture, Client) {
    let path = path.to_owned();
    let options = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    let server = Fixture::opened_by(options, move |_| open_on_disk(&path));
    let mut client = client_of(&server);
    for from in (0..LONG).step_by(1000) {
        let more = (from + 1..from + 1000).map(numbered);
        let all = std::iter::once("seldom".to_owned()).chain(more);
        crate::trees::many(&mut client, &["RPUSH", "l"], all);
    }
    (server, client)
}

#[test]
fn lists_larger_than_memory_are_searched_and_edited() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut client) = with_long_list(directory.path());
    let [near, middle, last] = [7, 40_001, LONG - 1].map(numbered);
    client.check(&[("MULTI", "+OK"), ("SORT l BY nosort", "+QUEUED")]);
    let whole = client.run("EXEC");
    assert!(
        whole.starts_with("[-ERR the command reads a collection as a whole"),
        "{whole}"
    );
    let far = format!(":{}", LONG - 1);
    let places: Vec<String> = (0..LONG).step_by(1000).map(|at| format!(":{at}")).collect();
    client.check(&[
        (&format!("LPOS l {last}"), &far),
        (&format!("LPOS l {last} RANK -1"), &far),
        (&format!("LPOS l {near} RANK -1"), ":7"),
        ("LPOS l none", "nil"),
        ("LPOS l none MAXLEN 70000", "nil"),
        ("LPOS l seldom COUNT 0", &format!("[{}]", places.join(" "))),
        ("LPOS l seldom RANK -80 COUNT 0", "[:0]"),
        ("LINSERT l BEFORE none x", ":-1"),
        (&format!("LINSERT l AFTER {middle} new"), ":80001"),
        (&format!("LINSERT l BEFORE {last} new"), ":80002"),
        ("LPOS l new COUNT 0", "[:40002 :80000]"),
        ("LREM l 1 none", ":0"),
        (&format!("LREM l -1 {near}"), ":1"),
        (&format!("LREM l 1 {middle}"), ":1"),
        ("LREM l -3 seldom", ":3"),
        ("LREM l 3 seldom", ":3"),
        ("LPOS l seldom COUNT 2", "[:2996 :3996]"),
        ("LREM l 0 seldom", ":74"),
        ("LREM l 0 new", ":2"),
        ("LLEN l", ":79918"),
    ]);
    // One transaction may have many such commands.
    client.check(&[("MULTI", "+OK")]);
    for at in 0..12 {
        let at = 500 * at + 250;
        client.check(&[
            (&format!("LINSERT l AFTER {} many", numbered(at)), "+QUEUED"),
            (&format!("LREM l -1 {}", numbered(at + 1)), "+QUEUED"),
        ]);
    }
    let wanted: Vec<_> = (0..12).map(|_| ":79919 :1").collect();
    assert_eq!(client.run("EXEC"), format!("[{}]", wanted.join(" ")));
    client.check(&[("LREM l 0 many", ":12"), ("LLEN l", ":79906")]);
    let [first, last] = [30_010, 50_010].map(numbered);
    let places = [&first, &last].map(|of| client.integer(&format!("LPOS l {of}")));
    client.check(&[
        (&format!("LTRIM l {} {}", places[0], places[1]), "+OK"),
        ("LLEN l", &format!(":{}", places[1] - places[0] + 1)),
        ("LINDEX l 0", &format!("\"{first}\"")),
        ("LINDEX l -1", &format!("\"{last}\"")),
        ("LTRIM l -5 -2", "+OK"),
        ("LLEN l", ":4"),
    ]);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

/// A walk gives others on its loop a turn now and then.
#[test]
fn others_have_turns_during_a_walk() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        durability: Durability::None,
        ..options()
    });
    let mut client = client_of(&server);
    for from in (0..40_000).step_by(1000) {
        let all = (from..from + 1000).map(numbered);
        crate::trees::many(&mut client, &["RPUSH", "l"], all);
    }
    let mut other = server.client();
    for (command, reply) in [
        ("LPOS l none", "nil"),
        ("LREM l 0 none", ":0"),
        ("LREM l -1 none", ":0"),
        ("LINSERT l AFTER none x", ":-1"),
    ] {
        // On a busy machine, a walk may end before its test gets the processor. One that gives
        // nobody a turn ends before the others are served, however often it is asked for.
        let shares = (0..50).any(|_| {
            client.send(&encode(&words(command)));
            for _ in 0..5 {
                other.check(&[("PING", "+PONG")]);
            }
            let shares = !client.has_answer();
            assert_eq!(show(&client.answer()), reply, "{command}");
            shares
        });
        assert!(shares, "{command} has had the loop to itself");
    }
}

/// What changes in one command is bounded by what a commit may have, and not by less.
#[test]
fn removals_are_one_commit() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    // Of each block something stays.
    for from in (0..60_000).step_by(3000) {
        let all = (from..from + 3000).map(|at| match at % 3 {
            0 => "q".repeat(200),
            _ => format!("{at:06}{}", "y".repeat(194)),
        });
        crate::trees::many(&mut client, &["RPUSH", "l"], all);
    }
    let gone = "q".repeat(200);
    let refused = client.run(&format!("LREM l 0 {gone}"));
    assert!(refused.starts_with("-ERR batch of"), "{refused}");
    client.check(&[
        ("LLEN l", ":60000"),
        (&format!("LREM l 3000 {gone}"), ":3000"),
        (&format!("LREM l -3000 {gone}"), ":3000"),
        ("LLEN l", ":54000"),
        (&format!("LPOS l {gone}"), ":6000"),
        (&format!("LPOS l {gone} RANK -1"), ":47997"),
    ]);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

/// A list from which all goes is given up: nothing is written for each row.
#[test]
fn a_list_of_equal_elements_is_removed_whatever_its_length() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let many = "q".repeat(250);
    for _ in 0..20 {
        let all = (0..2000).map(|_| many.clone());
        crate::trees::many(&mut client, &["RPUSH", "l"], all);
    }
    client.check(&[
        (&format!("LREM l -39000 {many}"), ":39000"),
        (&format!("LREM l 0 {many}"), ":1000"),
        ("EXISTS l", ":0"),
    ]);
}

/// With the smallest `packed-bytes-max` even an empty list has more bytes than what is packed.
#[test]
fn a_list_that_loses_all_elements_is_gone_whatever_is_packed() {
    let server = Fixture::new();
    let mut client = server.client();
    let long = "z".repeat(20_000);
    for packed in 0..4 {
        client.check(&[
            (&format!("CONFIG SET packed-bytes-max {packed}"), "+OK"),
            (&format!("RPUSH l {long} a b a"), ":4"),
            (&format!("LREM l 0 {long}"), ":1"),
            ("LREM l 1 b", ":1"),
            ("LREM l -2 a", ":2"),
            ("EXISTS l", ":0"),
            ("LLEN l", ":0"),
            ("RPUSH l c", ":1"),
            ("DEL l", ":1"),
        ]);
    }
}

/// Others write the list all the time: each change has a walk begin anew, until it has the key to
/// itself.
#[test]
fn walks_end_while_others_write_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut client) = with_long_list(directory.path());
    let (stop, rounds) = (End::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        let _bring = stop.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                // Nobody waits for rounds that it does not make any more.
                let _bring = stop.brought();
                let mut other = server.client();
                while !stop.is_there() {
                    other.send(&b"RPUSH l y\r\nRPOP l\r\n".repeat(8));
                    (0..16).for_each(|_| assert!(!show(&other.answer()).starts_with('-')));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while rounds.load(Ordering::Relaxed) < 100 && !stop.is_there() {
            thread::sleep(Duration::from_millis(1));
        }
        let middle = numbered(70_001);
        client.check(&[
            ("LREM l 0 none", ":0"),
            (&format!("LREM l -1 {middle}"), ":1"),
            (&format!("LPOS l {}", numbered(70_002)), ":70001"),
        ]);
        let pivot = numbered(70_002);
        let length = client.call(&["LINSERT", "l", "BEFORE", &pivot, &middle]);
        assert!(matches!(length, Answer::Integer(80_000..)), "{length:?}");
        let transaction = [
            encode(&["MULTI"]),
            encode(&["LREM", "l", "1", &middle]),
            encode(&["LPOS", "l", &pivot]),
            encode(&["EXEC"]),
        ];
        client.send(&transaction.concat());
        let ended = (0..4).map(|_| show(&client.answer())).last().unwrap();
        assert_eq!(ended, "[:1 :70001]");
        let before = rounds.load(Ordering::Relaxed);
        while rounds.load(Ordering::Relaxed) < before + 100 && !stop.is_there() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    client.check(&[("LLEN l", ":79999")]);
}

/// LINSERT finds an element, and then loads its block: in between, others may have made that
/// shorter.
#[test]
fn blocks_change_between_a_search_and_what_is_put_there() {
    const LISTS: usize = 64;
    let server = Fixture::new();
    let mut client = client_of(&server);
    let long = "y".repeat(3000);
    for list in 0..LISTS {
        let short = (0..11).map(|at| format!("e{at}"));
        let all = short.chain(std::iter::repeat_n(long.clone(), 4));
        crate::trees::many(&mut client, &["RPUSH", &format!("l{list}")], all);
    }
    let of_all = |command: &str| {
        let lists = (0..LISTS).map(|list| command.replace("{}", &list.to_string()));
        lists.collect::<String>()
    };
    let stop = End::default();
    thread::scope(|scope| {
        let _bring = stop.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut other = server.client();
                let all = of_all("LPOP l{}\r\n") + &of_all("LPUSH l{} e0\r\n");
                let all = all.repeat(4);
                while !stop.is_there() {
                    other.send(all.as_bytes());
                    (0..8 * LISTS).for_each(|_| drop(other.answer()));
                }
            });
        }
        let all = of_all("LINSERT l{} AFTER e10 x\r\n") + &of_all("LREM l{} 1 x\r\n");
        for _ in 0..300 {
            client.send(all.as_bytes());
            for _ in 0..2 * LISTS {
                let answer = show(&client.answer());
                assert!(!answer.contains("ERR"), "{answer}");
            }
        }
    });
    for list in 0..LISTS {
        let list = format!("l{list}");
        client.check(&[
            (&format!("LLEN {list}"), ":15"),
            (&format!("LPOS {list} e10"), ":10"),
        ]);
    }
}
