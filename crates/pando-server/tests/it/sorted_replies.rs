//! Replies with elements that are sorted on disk before they are sent (decision 131).

use std::collections::BTreeMap;

use pando_resp::Answer;
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Mutex, Rank, thread};
use pandodb::statistics::Measure;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};
use crate::large_replies::{figure, keeping_expired};
use crate::trees::many;
use crate::until_end::End;

type Scores = BTreeMap<String, f64>;

/// Long enough for several runs of a sort.
fn member(number: usize) -> String {
    format!("{number:06}{}", "m".repeat(100))
}

/// Adds members with these scores.
fn add(client: &mut Client, key: &str, scores: &Scores) {
    let all: Vec<(&String, &f64)> = scores.iter().collect();
    for some in all.chunks(1000) {
        let pairs = some
            .iter()
            .flat_map(|(member, score)| [score.to_string(), (*member).clone()]);
        many(client, &["ZADD", key], pairs);
    }
}

/// Returns members and scores of a reply in which each has one.
#[track_caller]
fn scored(answer: &Answer) -> Vec<(String, f64)> {
    let text = |item: &Answer| show(item).trim_matches('"').to_owned();
    let number = |item: &Answer| text(item).trim_start_matches(',').parse().unwrap();
    match answer {
        Answer::Array(items) => match items.first() {
            Some(Answer::Array(_)) => items
                .iter()
                .map(|item| match item {
                    Answer::Array(of) if of.len() == 2 => (text(&of[0]), number(&of[1])),
                    other => panic!("{}", show(other)),
                })
                .collect(),
            _ => items
                .chunks(2)
                .map(|of| (text(&of[0]), number(&of[1])))
                .collect(),
        },
        other => panic!("{:.100}", show(other)),
    }
}

/// Returns what is shown of these scores: by them, then by name.
fn in_order(scores: &Scores) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = scores.clone().into_iter().collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    all
}

fn union(inputs: &[(&Scores, f64)], add: fn(f64, f64) -> f64) -> Scores {
    let mut all = Scores::new();
    for (scores, weight) in inputs {
        for (member, score) in *scores {
            let score = weight * score;
            let sum = all.entry(member.clone());
            sum.and_modify(|sum| *sum = add(*sum, score))
                .or_insert(score);
        }
    }
    all
}

fn common(scores: Scores, with: &Scores, is_common: bool) -> Scores {
    let of = |member: &String| with.contains_key(member) == is_common;
    scores
        .into_iter()
        .filter(|(member, _)| of(member))
        .collect()
}

#[test]
fn large_sorted_sets_are_combined_for_a_reply() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    // Some of them with the same scores.
    let scores = |range: std::ops::Range<usize>, factor: f64| -> Scores {
        let score = |number: usize| factor * (number / 3) as f64;
        range
            .map(|number| (member(number), score(number)))
            .collect()
    };
    let (a, b) = (scores(0..24_000, 1.0), scores(12_000..36_000, -0.5));
    add(&mut client, "a", &a);
    add(&mut client, "b", &b);
    let few: Scores = (10..10_000).map(|number| (member(number), 1.0)).collect();
    for some in few.keys().cloned().collect::<Vec<_>>().chunks(1000) {
        many(&mut client, &["SADD", "few"], some.iter().cloned());
    }
    client.check(&[
        ("SET text x", "+OK"),
        ("ZADD gone 1 x", ":1"),
        ("PEXPIRE gone 1", ":1"),
    ]);
    thread::sleep(Duration::from_millis(5));
    let sum = |a: f64, b: f64| a + b;
    let both = union(&[(&a, 1.0), (&b, 1.0)], sum);
    let all = union(&[(&few, 5.0), (&a, 2.0), (&b, -1.0)], f64::max);
    let expected = [
        ("ZUNION 2 a b", both.clone()),
        ("ZUNION 2 a gone", a.clone()),
        ("ZUNION 3 a b few WEIGHTS 2 -1 5 AGGREGATE MAX", all),
        ("ZINTER 2 b a", common(common(both, &a, true), &b, true)),
        ("ZINTER 2 a none", Scores::new()),
        ("ZDIFF 2 a b", common(a.clone(), &b, false)),
        ("ZDIFF 3 a none few", common(a.clone(), &few, false)),
        ("ZDIFF 2 a a", Scores::new()),
    ];
    for version in [2, 3] {
        client.run(&format!("HELLO {version}"));
        for (command, expected) in &expected {
            let expected = in_order(expected);
            let shown = client.run_raw(&format!("{command} WITHSCORES"));
            assert!(scored(&shown) == expected, "{version} {command}");
            if version == 3 {
                continue;
            }
            let Answer::Array(names) = client.run_raw(command) else {
                panic!("{command}");
            };
            let names: Vec<String> = names.iter().map(show).collect();
            let expected = expected.iter().map(|(member, _)| format!("\"{member}\""));
            assert!(names == expected.collect::<Vec<_>>(), "{version} {command}");
        }
    }
    client.check(&[
        ("ZINTERCARD 2 a b", ":12000"),
        ("ZINTERCARD 3 a b few", ":0"),
        ("ZINTERCARD 2 a b LIMIT 11000", ":11000"),
        ("ZINTERCARD 2 a b LIMIT 13000", ":12000"),
        ("SADD one x", ":1"),
        ("SINTERCARD 2 few few", ":9990"),
        ("SINTERCARD 2 few few LIMIT 9000", ":9000"),
        ("SINTERCARD 2 few one", ":0"),
        ("SINTERCARD 2 few a", WRONG),
        ("ZUNION 2 a text", WRONG),
        ("ZUNION 2 text a", WRONG),
    ]);
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// -0 is sorted as 0, and shown as what it is; infinities of both signs add up to 0.
#[test]
fn zeros_and_infinities_are_what_they_are_in_little_unions() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let number = |number: usize| format!("{number:06}");
    let many_of = (100..9_000).flat_map(|n| [n.to_string(), number(n)]);
    for some in many_of.collect::<Vec<_>>().chunks(2000) {
        many(&mut client, &["ZADD", "z"], some.iter().cloned());
    }
    client.check(&[
        (
            "ZADD z inf 000001 -inf 000002 -0 000003 0 000000 -0 000004",
            ":5",
        ),
        ("ZADD y -inf 000001 5 000002", ":2"),
    ]);
    let shown = client.run_raw("ZUNION 2 y z WITHSCORES");
    let Answer::Array(shown) = shown else {
        panic!("{}", show(&shown));
    };
    let first: Vec<String> = shown.iter().take(12).map(show).collect();
    let expected = [
        ("000002", "-inf"),
        ("000000", "0"),
        ("000001", "0"),
        ("000003", "-0"),
        ("000004", "-0"),
        ("000100", "100"),
    ];
    let expected = expected.iter().flat_map(|(name, score)| [name, score]);
    let expected: Vec<String> = expected.map(|text| format!("\"{text}\"")).collect();
    assert_eq!(first, expected);
}

/// More clients than are sorted for at a time, some of which are gone or read nothing, beside one
/// that moves a member between both sets: each reply has it once.
#[test]
fn many_unions_at_once_are_each_of_one_moment() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let of = |range: std::ops::Range<usize>| -> Scores {
        range
            .map(|number| (member(number), number as f64))
            .collect()
    };
    add(&mut client, "a", &of(0..9_000));
    add(&mut client, "b", &of(20_000..29_000));
    client.check(&[("ZADD a 1 moving", ":1")]);
    let mut deaf: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for client in &mut deaf {
        client.send(b"ZUNION 2 a b\r\n");
    }
    // The buffers of a socket do not have all of these.
    deaf[0].send(&b"ZUNION 2 a b\r\n".repeat(8));
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            while !end.is_there() {
                for (one, other) in [("a", "b"), ("b", "a")] {
                    writer.run("MULTI");
                    writer.run(&format!("ZREM {one} moving"));
                    writer.run(&format!("ZADD {other} 1 moving"));
                    writer.run("EXEC");
                }
            }
        });
        let readers: Vec<_> = (0..8)
            .map(|number| {
                let (mut client, mut gone) = (server.client(), server.client());
                scope.spawn(move || {
                    for _ in 0..3 {
                        gone.send(b"ZUNION 2 b a\r\n");
                        let Answer::Array(shown) = client.run_raw("ZUNION 2 a b") else {
                            panic!("{number}");
                        };
                        assert_eq!(shown.len(), 18_001);
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
    });
    let bytes = |client: &mut Client| figure(client, "INFO pando", "temporary_bytes:");
    assert!(bytes(&mut client) > 0);
    for number in (0..deaf.len()).chain([0; 8]) {
        let Answer::Array(shown) = deaf[number].answer() else {
            panic!("it is an array");
        };
        assert_eq!(shown.len(), 18_001);
    }
    // Those of the clients that are gone may still be sorted.
    let limit = now() + Duration::from_secs(30);
    while bytes(&mut client) > 0 {
        assert!(now() < limit, "files are left");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Fills a list, a set and a sorted set with the same numbers, and some of the keys that patterns
/// name.
fn fill_for_sort(client: &mut Client) {
    // Each number twice in the list, in no order.
    let number = |place: usize| ((place * 7_919) % 9_973).to_string();
    let all: Vec<String> = (0..18_000).map(number).collect();
    for some in all.chunks(2000) {
        many(client, &["RPUSH", "l"], some.iter().cloned());
    }
    let different: Vec<String> = (0..17_000).map(|number| (number * 3).to_string()).collect();
    for some in different.chunks(1000) {
        many(client, &["SADD", "s"], some.iter().cloned());
        let scored = some
            .iter()
            .rev()
            .flat_map(|name| ["5".to_owned(), name.clone()]);
        many(client, &["ZADD", "z"], scored);
    }
    for number in (0..9_973).step_by(7) {
        client.call(&["SET", &format!("w{number}"), &(number % 50).to_string()]);
        let (key, weight) = (format!("h{number}"), (number % 11).to_string());
        client.call(&[
            "HSET",
            &key,
            "f",
            &weight,
            "g",
            "",
            "of",
            &format!("t{number}"),
        ]);
    }
    // A large hash, a hash whose field has expired, a string in chunks, one of which a part was
    // changed, and one in pieces; what has expired, and what is no string.
    let fields = (0..3000).flat_map(|field| [format!("{field}"), "x".repeat(20)]);
    many(client, &["HSET", "h14"], fields);
    client.call(&["HSET", "h21", "f", "-7", "of", "gone"]);
    client.check(&[
        ("HPEXPIRE h21 1 FIELDS 2 f of", "[:1 :1]"),
        ("SET w28 -1 PX 1", "+OK"),
        ("DEL w35", ":1"),
        ("RPUSH w35 a", ":1"),
    ]);
    let long: String = (0..300_000_u32)
        .map(|place| char::from_digit(10 + place % 23, 36).unwrap())
        .collect();
    client.call(&["SET", "long7", &long]);
    client.call(&["SET", "long14", &long]);
    client.check(&[("SETRANGE long14 270000 PATCHED", ":300000")]);
    let huge = long.repeat(10);
    for key in ["huge7", "huge14"] {
        client.call(&["SET", key, &huge]);
    }
    client.check(&[("SETRANGE huge14 2700000 PATCHED", ":3000000")]);
    client.call(&["SET", "long21", &long[..9000]]);
    client.check(&[("SETRANGE long21 5000 PIECE", ":9000")]);
    thread::sleep(Duration::from_millis(5));
}

/// Inside of EXEC everything is sorted in memory.
#[test]
fn large_collections_are_sorted_as_small_ones_are() {
    let (server, mut client) = keeping_expired();
    fill_for_sort(&mut client);
    let mut other = server.client();
    for version in [3, 2] {
        client.run(&format!("HELLO {version}"));
        other.run(&format!("HELLO {version}"));
        let commands = [
            "SORT l BY w* DESC GET # GET w* LIMIT 100 16000",
            "SORT l",
            "SORT l DESC",
            "SORT l ALPHA",
            "SORT_RO l ALPHA DESC LIMIT 17000 5000",
            "SORT l LIMIT 17990 100",
            "SORT l LIMIT 18000 1",
            "SORT l LIMIT -5 3",
            "SORT l LIMIT 3 0",
            "SORT l BY w*",
            "SORT l BY w* ALPHA",
            "SORT l BY w* ALPHA DESC",
            "SORT l BY h*->f GET h*->of GET # GET none GET h*->none",
            "SORT l BY h*->g GET h*->f",
            "SORT s BY h*->7 ALPHA DESC GET h*->7",
            "SORT l BY nosort GET # GET long* LIMIT 0 4000",
            "SORT l GET huge* GET # LIMIT 0 50",
            "SORT l BY nosort DESC",
            "SORT l BY long* ALPHA LIMIT 16000 2000",
            "SORT l GET long* LIMIT 0 50",
            "SORT l BY nosort LIMIT 17995 10",
            "SORT s",
            "SORT s DESC GET #",
            "SORT s BY nosort",
            "SORT s BY nosort DESC LIMIT 5 5",
            "SORT z ALPHA",
            "SORT z BY nosort DESC LIMIT 3 16000",
            "SORT z BY nosort",
            "SORT z BY w*",
            "SORT l BY h*->of",
            "SORT l BY l",
        ];
        let count = if version == 3 { 3 } else { commands.len() };
        for command in &commands[..count] {
            other.check(&[("MULTI", "+OK"), (command, "+QUEUED")]);
            let Answer::Array(expected) = other.run_raw("EXEC") else {
                panic!("{command}");
            };
            let shown = client.run_raw(command);
            assert!(
                shown == expected[0],
                "{version} {command}: {:.300}",
                show(&shown)
            );
        }
    }
}

/// What is looked up is looked up in memory inside of EXEC.
#[test]
fn large_collections_are_stored_in_order() {
    let server = Fixture::opened_by(options(), open_small);
    let (mut client, mut other) = (server.client(), server.client());
    fill_for_sort(&mut client);
    client.check(&[("SET to x", "+OK")]);
    for command in [
        "SORT l STORE to",
        "SORT l BY w* ALPHA DESC GET # GET w* GET none STORE to",
        "SORT l BY h*->f GET h*->of LIMIT 16000 500 STORE to",
        "SORT s BY nosort GET long* GET # STORE to",
        "SORT s BY nosort GET # GET long* LIMIT 1 100 STORE to",
        "SORT z DESC STORE to",
        "SORT z BY nosort DESC LIMIT 1 16000 STORE to",
        "SORT l LIMIT 20000 1 STORE to",
        "SORT l GET long* STORE l",
    ] {
        client.check(&[("DEL to", ":1"), ("ZADD to 1 a", ":1")]);
        if !command.contains("GET") {
            let (reply, _) = command.split_once(" STORE").unwrap();
            let shown = client.run_raw(reply);
            client.run(&command.replace("STORE to", "STORE other"));
            let stored = client.run_raw("LRANGE other 0 -1");
            assert!(stored == shown, "{command}: {:.300}", show(&stored));
        }
        other.check(&[
            ("MULTI", "+OK"),
            (&command.replace("STORE ", "STORE 2"), "+QUEUED"),
        ]);
        let expected = other.run("EXEC");
        assert_eq!(format!("[{}]", client.run(command)), expected, "{command}");
        let key = command.rsplit(' ').next().unwrap();
        for question in ["LRANGE @ 0 -1", "OBJECT ENCODING @", "LLEN @", "TTL @"] {
            let shown = client.run_raw(&question.replace('@', key));
            let expected = client.run_raw(&question.replace('@', &format!("2{key}")));
            assert!(
                shown == expected,
                "{command} {question}: {:.300}",
                show(&shown)
            );
        }
        // The next element has its own place.
        let (one, other) = (format!("RPUSH {key} new"), format!("RPUSH 2{key} new"));
        assert_eq!(client.run(&one), client.run(&other), "{command}");
        let ends = ["LRANGE @ -3 -1", "LRANGE @ 0 -1"];
        for question in ends.map(|question| question.replace('@', key)) {
            let expected = client.run_raw(&question.replace(key, &format!("2{key}")));
            assert!(
                client.run_raw(&question) == expected,
                "{command} {question}"
            );
        }
        client.call(&["SET", "to", "x"]);
    }
    client.check(&[("DEL l", ":1")]);
    fill_for_sort(&mut client);
    // What a transaction has changed itself counts.
    client.check(&[
        ("MULTI", "+OK"),
        ("SET w8 1000", "+QUEUED"),
        ("SORT l BY w* DESC LIMIT 0 1 STORE first", "+QUEUED"),
        ("EXEC", "[+OK :1]"),
        ("LRANGE first 0 -1", "[\"8\"]"),
    ]);
    let refused = "-ERR One or more scores can't be converted into double";
    client.check(&[
        ("SORT l STORE to", ":18000"),
        ("RPUSH l text", ":18001"),
        ("SORT l", refused),
        ("SORT l STORE to", refused),
        ("LLEN to", ":18000"),
    ]);
}

/// A commit that has no room for what others read ends their snapshots. Who has sent nothing yet
/// begins again.
#[test]
fn sorts_begin_again_if_their_moment_ends() {
    let server = Fixture::opened_by(options(), |directory| {
        pandodb::Db::builder()
            .max_memory(8 << 20)
            .frames(160)
            .settle_snapshots_after(Duration::MAX)
            .open(directory)
    });
    let mut client = server.client();
    fill_for_sort(&mut client);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = server.client();
            let value = "v".repeat(900);
            for _ in 0..40 {
                let pairs = (0..600).flat_map(|n| [format!("other{n}"), value.clone()]);
                many(&mut writer, &["MSET"], pairs);
                thread::sleep(Duration::from_millis(30));
            }
        });
        while !writer.is_finished() {
            client.check(&[
                ("SORT l GET h*->of GET # STORE to", ":36000"),
                ("LINDEX to 35999", "\"9972\""),
            ]);
        }
    });
}

/// Between its command and its thread, a list may change that is sorted to be stored.
#[test]
fn lists_that_change_all_the_time_are_stored_in_order() {
    let server = Fixture::new();
    let mut client = server.client();
    for start in (0..20_000).step_by(1_000) {
        let numbers = (start..start + 1_000).map(|number: u32| number.to_string());
        many(&mut client, &["RPUSH", "l"], numbers);
    }
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut writer = server.client();
                while !end.is_there() {
                    writer.run("LPUSH l 1");
                    writer.run("RPOP l");
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let sorters = [1, 2, 3].map(|number| {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for _ in 0..20 {
                    let stored = client.run(&format!("SORT l STORE d{number}"));
                    let count = stored.strip_prefix(':').map(str::parse::<u32>);
                    let is_whole = matches!(count, Some(Ok(20_000..=20_002)));
                    assert!(is_whole, "{stored}");
                }
            })
        });
        for sorter in sorters {
            sorter.join().expect("each result is whole");
        }
    });
}

/// A directory in which no file can be made is told, and the next command goes on.
#[test]
fn without_space_for_it_a_sort_is_an_error() {
    let options = pando_server::ServerOptions {
        dir: "/there/is/no/such/directory".to_owned(),
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    let some: Scores = (0..9_000).map(|number| (member(number), 0.0)).collect();
    add(&mut client, "a", &some);
    let refused = "-ERR cannot read the collection: cannot make a temporary file in \
                   /there/is/no/such/directory: No such file or directory (os error 2)";
    let shown = client.run("ZUNION 1 a");
    assert!(shown.starts_with(refused), "{shown:.300}");
    client.check(&[("ZINTERCARD 2 a a", ":9000"), ("ZUNION 1 none", "[]")]);
    // It is refused before it begins, or not at all.
    let numbers = (0..17_000)
        .map(|number| number.to_string())
        .collect::<Vec<_>>();
    for some in numbers.chunks(1000) {
        many(&mut client, &["RPUSH", "l"], some.iter().cloned());
    }
    let shown = client.run("SORT l");
    assert!(shown.starts_with(refused), "{shown:.300}");
    let Answer::Array(shown) = client.run_raw("SORT l BY nosort DESC") else {
        panic!("it is an array");
    };
    assert_eq!(
        (show(&shown[0]), shown.len()),
        ("\"16999\"".to_owned(), 17_000)
    );
}

/// Fills a list with so many numbers, from `first` on.
fn push_numbers(client: &mut Client, list: &str, first: usize, count: usize) {
    let numbers: Vec<String> = (first..first + count).map(|of| of.to_string()).collect();
    for some in numbers.chunks(1000) {
        many(client, &["RPUSH", list], some.iter().cloned());
    }
}

/// What is looked up lies all over the store: many pages are read at the same time.
#[test]
fn values_that_are_not_in_memory_are_read_together() {
    const COUNT: usize = 18_000;
    let opened = Arc::new(Mutex::new(Rank::Leaf, None));
    let db = opened.clone();
    let server = Fixture::opened_by(options(), move |directory| {
        let db = open_small(directory)?;
        *opened.lock() = Some(db.clone());
        Ok(db)
    });
    let mut client = server.client();
    let number = |place: usize| (place * 7_919) % COUNT;
    for first in (0..COUNT).step_by(1000) {
        let some = first..first + 1000;
        many(
            &mut client,
            &["RPUSH", "l"],
            some.clone().map(|place| number(place).to_string()),
        );
        let pairs = some.flat_map(|at| [format!("w{at}"), format!("{:0100}", COUNT - at)]);
        many(&mut client, &["MSET"], pairs);
    }
    client.check(&[("SAVE", "+OK")]);
    let db = db.lock().take().unwrap();
    let depth_of = |client: &mut Client, command: &str| {
        db.reset_statistics();
        let Answer::Array(shown) = client.call(&command.split(' ').collect::<Vec<_>>()) else {
            panic!("{command} shows elements");
        };
        (shown, db.histogram(Measure::DeviceQueueDepth).max())
    };
    let (shown, depth) = depth_of(&mut client, "SORT l BY w* LIMIT 0 3");
    assert_eq!(
        shown.iter().map(show).collect::<Vec<_>>(),
        ["\"17999\"", "\"17998\"", "\"17997\""]
    );
    assert!(depth >= 8, "{depth}");
    let (shown, depth) = depth_of(&mut client, "SORT l BY nosort GET w* GET # LIMIT 10 500");
    let expected = (10..510).flat_map(|place| {
        let value = format!("\"{:0100}\"", COUNT - number(place));
        [value, format!("\"{}\"", number(place))]
    });
    assert!(shown.iter().map(show).eq(expected));
    assert!(depth >= 8, "{depth}");
}

/// A script that runs again since a key has changed may want another order than before.
#[cfg(feature = "scripts")]
#[test]
fn what_a_script_stores_has_the_order_of_its_last_run() {
    let server = Fixture::new();
    let mut client = server.client();
    push_numbers(&mut client, "l", 0, 17_000);
    let script = "local order = redis.call('GET', KEYS[1]) \
                  redis.call('SORT', KEYS[2], order, 'STORE', KEYS[3]) \
                  return order";
    client.check(&[("SET order ASC", "+OK")]);
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            while !end.is_there() {
                for order in ["DESC", "ASC"] {
                    writer.run(&format!("SET order {order}"));
                    thread::sleep(Duration::from_millis(7));
                }
            }
        });
        for round in 0..20 {
            let order = show(&client.call(&["EVAL", script, "3", "order", "l", "to"]));
            let first = match &order[..] {
                "\"ASC\"" => "\"0\"",
                "\"DESC\"" => "\"16999\"",
                other => panic!("{other}"),
            };
            client.check(&[("LLEN to", ":17000")]);
            assert_eq!(client.run("LINDEX to 0"), first, "{round}: {order}");
        }
    });
}

/// Two lists change their names for each other again and again while one of them is sorted.
#[test]
fn what_is_stored_in_order_is_what_its_transaction_has_found() {
    let server = Fixture::new();
    let mut client = server.client();
    push_numbers(&mut client, "l", 0, 17_000);
    push_numbers(&mut client, "m", 20_000, 18_000);
    client.check(&[("SET which l", "+OK")]);
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            while !end.is_there() {
                for which in ["m", "l"] {
                    writer.run("MULTI");
                    writer.run("RENAME l between");
                    writer.run("RENAME m l");
                    writer.run("RENAME between m");
                    writer.run(&format!("SET which {which}"));
                    writer.run("EXEC");
                }
            }
        });
        for round in 0..40 {
            client.run("MULTI");
            client.run("GET which");
            client.run("SORT l STORE to");
            client.run("LINDEX to 0");
            let shown = client.run("EXEC");
            let is_right = ["[\"l\" :17000 \"0\"]", "[\"m\" :18000 \"20000\"]"];
            assert!(is_right.contains(&&shown[..]), "{round}: {shown}");
        }
    });
}

/// A transaction sorts what its own commands before have made of the keys.
#[test]
fn what_a_transaction_has_renamed_is_sorted() {
    let server = Fixture::new();
    let mut client = server.client();
    push_numbers(&mut client, "l", 0, 17_000);
    push_numbers(&mut client, "m", 20_000, 18_000);
    push_numbers(&mut client, "n", 40_000, 19_000);
    client.check(&[
        ("MULTI", "+OK"),
        ("SORT n DESC STORE o", "+QUEUED"),
        ("SORT o STORE p", "+QUEUED"),
        ("LINDEX p 0", "+QUEUED"),
        ("COPY l c", "+QUEUED"),
        ("RENAME m l", "+QUEUED"),
        ("SORT c DESC STORE d", "+QUEUED"),
        ("LINDEX d 0", "+QUEUED"),
        ("SORT l STORE e", "+QUEUED"),
        ("LINDEX e 0", "+QUEUED"),
        (
            "EXEC",
            "[:19000 :19000 \"40000\" :1 +OK :17000 \"16999\" :18000 \"20000\"]",
        ),
    ]);
}
