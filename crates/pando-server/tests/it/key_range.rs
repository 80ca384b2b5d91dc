//! Tests of PANDO RANGE and PANDO COUNT.

use std::collections::BTreeMap;

use pando_resp::Answer;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};

fn keys(client: &mut Client, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let command = [&[&b"PANDO"[..], b"RANGE"], words].concat();
    let Answer::Array(items) = client.call(&command) else {
        panic!("PANDO RANGE replies an array");
    };
    let key = |item: Answer| match item {
        Answer::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    items.into_iter().map(key).collect()
}

#[test]
fn keys_come_in_order_between_their_bounds() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("MSET b 2 a 1 d 4 c 3", "+OK"),
        ("RPUSH list x", ":1"),
        ("SET gone 1 PXAT 1", "+OK"),
        ("PANDO RANGE - +", "[\"a\" \"b\" \"c\" \"d\" \"list\"]"),
        ("PANDO RANGE + - REV", "[\"list\" \"d\" \"c\" \"b\" \"a\"]"),
        ("PANDO RANGE [b (d", "[\"b\" \"c\"]"),
        ("PANDO RANGE (d [b REV", "[\"c\" \"b\"]"),
        ("PANDO RANGE (b + COUNT 2", "[\"c\" \"d\"]"),
        ("PANDO RANGE + - REV COUNT 2", "[\"list\" \"d\"]"),
        ("PANDO RANGE - + COUNT 0", "[]"),
        ("PANDO RANGE - + TYPE list", "[\"list\"]"),
        ("PANDO RANGE - + TYPE stream", "[]"),
        (
            "PANDO RANGE [c + VALUES",
            "[\"c\" \"3\" \"d\" \"4\" \"list\" nil]",
        ),
        ("PANDO RANGE + -", "[]"),
        ("PANDO RANGE [d [b", "[]"),
        ("PANDO COUNT - +", ":5"),
        ("PANDO COUNT (a [c", ":2"),
        ("PANDO COUNT [x +", ":0"),
        (
            "PANDO RANGE a +",
            "-ERR min or max not valid string range item",
        ),
        (
            "PANDO RANGE - + COUNT x",
            "-ERR value is out of range, must be positive",
        ),
        ("PANDO RANGE - + COUNT", "-ERR syntax error"),
        (
            "PANDO COUNT - + REV",
            "-ERR wrong number of arguments for 'pando|count' command",
        ),
        ("SELECT 3", "+OK"),
        ("PANDO RANGE - +", "[]"),
        ("MULTI", "+OK"),
        (
            "PANDO RANGE - +",
            "-ERR Command not allowed inside a transaction",
        ),
    ]);
}

/// Also keys that are so long that they lie in another order, and bounds that are.
#[test]
fn ranges_of_all_kinds_of_keys_are_those_of_a_sorted_map() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(7);
    let mut model = BTreeMap::new();
    let key = |random: &mut fastrand::Rng| {
        let len = [1, 2, 3, 30, 600, 1100, 2000][random.usize(..7)];
        let same = random.u8(..3);
        let mut key = vec![same; len];
        for _ in 0..2 {
            let at = random.usize(..len);
            key[at] = random.u8(..);
        }
        key
    };
    for number in 0..800 {
        let key = key(&mut random);
        let value = match number % 50 {
            0 => vec![b'x'; 20_000],
            _ => number.to_string().into_bytes(),
        };
        assert_eq!(show(&client.call(&[&b"SET"[..], &key, &value])), "+OK");
        model.insert(key, value);
    }
    for round in 0..60 {
        let (one, other) = (key(&mut random), key(&mut random));
        let (low, high) = (one.clone().min(other.clone()), one.max(other));
        let most = random.usize(1..400);
        let expected = model.range(low.clone()..high.clone()).map(|(key, _)| key);
        let count = expected.clone().count();
        let (low, high) = ([b"[", &low[..]].concat(), [b"(", &high[..]].concat());
        let most_text = most.to_string();
        let limit = [&b"COUNT"[..], most_text.as_bytes()];
        let forward: Vec<_> = expected.clone().take(most).cloned().collect();
        let found = keys(&mut client, &[&[&low[..], &high], &limit[..]].concat());
        assert!(
            found == forward,
            "round {round}: {} of {}",
            found.len(),
            forward.len()
        );
        let backward: Vec<_> = expected.rev().take(most).cloned().collect();
        let found = keys(
            &mut client,
            &[&[&high[..], &low, b"REV"], &limit[..]].concat(),
        );
        assert!(
            found == backward,
            "round {round}: {} of {}",
            found.len(),
            backward.len()
        );
        let pairs: Vec<_> = (model.range(key_of(&low)..key_of(&high)).take(most))
            .flat_map(|(key, value)| [key.clone(), value.clone()])
            .collect();
        let words = [&[&low[..], &high, b"VALUES"], &limit[..]].concat();
        let found = keys(&mut client, &words);
        assert!(found == pairs, "round {round}: values");
        let counted = client.call(&[&b"PANDO"[..], b"COUNT", &low, &high]);
        assert_eq!(show(&counted), format!(":{count}"), "round {round}");
    }
    let pairs = keys(&mut client, &[b"-", b"+", b"VALUES"]);
    let expected: Vec<_> = model
        .into_iter()
        .flat_map(|(key, value)| [key, value])
        .collect();
    assert!(pairs == expected, "all keys and values");
}

/// Returns the key of a bound.
fn key_of(bound: &[u8]) -> Vec<u8> {
    bound[1..].to_vec()
}

/// A string in chunks, or values that are too much for a reply, among the short keys, and long keys
/// that come before them and are found later: only what is replied counts.
#[test]
fn only_values_of_the_reply_are_refused() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let long = |of: u8| [vec![of; 1], vec![b'-'; 2000]].concat();
    let refused = "-ERR PANDO RANGE VALUES: a string is so long that only GET shows it";
    let too_long = "-ERR reply exceeds the maximum allowed size";
    let mut set = |key: &[u8], len: usize| {
        let value = vec![b'v'; len];
        assert_eq!(show(&client.call(&[&b"SET"[..], key, &value])), "+OK");
    };
    // In order: a, c, c----, e (in chunks), e----, then i0 to i9, which are too much together, and
    // k----, m.
    set(b"a", 1);
    set(b"c", 1);
    set(&long(b'c'), 1);
    set(b"e", 12 << 20);
    set(&long(b'e'), 1);
    (0..60).for_each(|of| set(format!("i{of:02}").as_bytes(), 400_000));
    set(&long(b'k'), 1);
    set(b"m", 1);
    let mut range = |low: &[u8], high: &[u8], count: &str, reverse: bool| {
        let mut words = vec![&b"PANDO"[..], b"RANGE", low, high, b"VALUES"];
        if reverse {
            words.push(b"REV");
        }
        if !count.is_empty() {
            words.extend([&b"COUNT"[..], count.as_bytes()]);
        }
        match client.call(&words) {
            Answer::Array(all) => {
                let keys = all.iter().step_by(2).map(show);
                let keys = keys.map(|key| key.trim_matches('"').chars().take(4).collect());
                keys.collect::<Vec<String>>().join(" ")
            }
            other => show(&other),
        }
    };
    assert_eq!(range(b"-", b"+", "", false), refused);
    assert_eq!(range(b"-", b"+", "4", false), refused);
    assert_eq!(
        range(b"-", b"+", "3", false),
        "a c c---",
        "e is the third short key"
    );
    assert_eq!(range(b"-", b"+", "2", false), "a c");
    assert_eq!(range(b"+", b"-", "2", true), "m k---");
    assert_eq!(range(b"[f", b"+", "", false), too_long);
    assert_eq!(range(b"[f", b"+", "61", false), too_long);
    assert_eq!(range(b"+", b"[f", "62", true), too_long);
    assert_eq!(range(b"[f", b"-", "", true), refused);
    assert_eq!(
        range(b"[f", b"-", "1", true),
        "e---",
        "e is the first short key"
    );
    assert_eq!(range(b"[f", b"-", "2", true), refused);
    assert_eq!(range(b"[f", b"+", "3", false), "i00 i01 i02");
    assert_eq!(range(b"[d", b"[h", "2", false), refused);
    assert_eq!(range(b"(e", b"[h", "2", false), "e---");
}

/// Values that do not fit beside each other, and long keys before them that push them out.
#[test]
fn values_that_are_pushed_out_are_not_too_long() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    // The short keys z00 to z59 take more than a reply; 58 long ones lie before them.
    for of in 0..60 {
        let value = vec![b'v'; 400_000];
        let key = format!("z{of:02}");
        assert_eq!(
            show(&client.call(&[&b"SET"[..], key.as_bytes(), &value])),
            "+OK"
        );
    }
    for of in 0..58 {
        let key = [format!("k{of:02}").as_bytes(), &[b'-'; 2000]].concat();
        assert_eq!(show(&client.call(&[&b"SET"[..], &key, b"v"])), "+OK");
    }
    let range = |client: &mut Client, count: &str| {
        let words = [&b"PANDO"[..], b"RANGE", b"-", b"+", b"VALUES", b"COUNT"];
        client.call(&[&words[..], &[count.as_bytes()]].concat())
    };
    let Answer::Array(all) = range(&mut client, "60") else {
        panic!("58 long keys, z00 and z01");
    };
    assert_eq!(all.len(), 120);
    assert_eq!(show(&all[118]), "\"z01\"");
    assert_eq!(
        show(&range(&mut client, "118")),
        "-ERR reply exceeds the maximum allowed size"
    );
}

/// A transaction sees its own moment, with its own writes.
#[test]
fn a_range_is_one_of_its_transaction() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("MSET a 1 c 3", "+OK"),
        ("PANDO BEGIN SNAPSHOT", "+OK"),
        ("GET a", "\"1\""),
    ]);
    other.check(&[("MSET b 2 d 4", "+OK"), ("DEL a", ":1")]);
    client.check(&[
        ("SET e 5", "+OK"),
        ("PANDO RANGE - +", "[\"a\" \"c\" \"e\"]"),
        ("PANDO RANGE + - REV COUNT 2", "[\"e\" \"c\"]"),
        ("PANDO COUNT - +", ":3"),
        ("PANDO ROLLBACK", "+OK"),
        (
            "PANDO RANGE - + VALUES",
            "[\"b\" \"2\" \"c\" \"3\" \"d\" \"4\"]",
        ),
    ]);
}

/// A reply has at most 18 MiB here; the long keys take more, and others lie between them.
#[test]
fn of_many_long_keys_no_more_are_held_than_are_asked_for() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let long = |number: usize| [format!("k{number:05}").into_bytes(), vec![b'x'; 60_000]].concat();
    for number in 0..400 {
        assert_eq!(
            show(&client.call(&[&b"SET"[..], &long(number), b"v"])),
            "+OK"
        );
        client.run(&format!("SET k{number:05} v"));
    }
    assert_eq!(
        client.run("PANDO RANGE - +"),
        "-ERR reply exceeds the maximum allowed size"
    );
    assert_eq!(client.run("PANDO COUNT - +"), ":800");
    for (most, from) in [(1, 0), (2, 0), (7, 100), (20, 395)] {
        let short = |number: usize| format!("k{number:05}").into_bytes();
        let all: Vec<Vec<u8>> = (0..400).flat_map(|of| [short(of), long(of)]).collect();
        let bound = [b"[", &short(from)[..]].concat();
        let count = most.to_string();
        let found = keys(&mut client, &[&bound, b"+", b"COUNT", count.as_bytes()]);
        let expected: Vec<_> = all[2 * from..].iter().take(most).cloned().collect();
        assert!(found == expected, "{most} from {from}");
        let words = [b"+", &bound[..], b"REV", b"COUNT", count.as_bytes()];
        let found = keys(&mut client, &words);
        let expected: Vec<_> = all[2 * from..].iter().rev().take(most).cloned().collect();
        assert!(found == expected, "{most} down to {from}");
    }
}
