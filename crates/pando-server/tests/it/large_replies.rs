//! Replies with large collections, which are read while they are sent.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pando_server::{DebugCommands, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};

use crate::client::{Client, encode, show};
use crate::durability::shared;
use crate::fixture::{Fixture, open_counted, open_small, options};
use crate::trees::many;
use crate::until_end::End;

/// More than what is read into memory.
const COUNT: usize = 40_000;
const REFUSED: &str = "-ERR the command reads a collection as a whole that does not fit into the \
                       memory for a reply";

fn element(number: usize) -> String {
    format!("{number:06}")
}

/// Makes a large collection of each type, of the same elements; scores and positions are numbers.
fn fill(client: &mut Client) {
    for start in (0..COUNT).step_by(2000) {
        let numbers = || start..start + 2000;
        let pairs = numbers().flat_map(|n| [element(n), format!("v{n}")]);
        assert_eq!(many(client, &["HSET", "h"], pairs), ":2000");
        assert_eq!(
            many(client, &["SADD", "s"], numbers().map(element)),
            ":2000"
        );
        let scored = numbers().flat_map(|n| [n.to_string(), element(n)]);
        assert_eq!(many(client, &["ZADD", "z"], scored), ":2000");
        let end = format!(":{}", start + 2000);
        assert_eq!(many(client, &["RPUSH", "l"], numbers().map(element)), end);
    }
}

/// Returns the elements of a reply that is an array or a set of them.
#[track_caller]
fn elements(answer: Answer) -> Vec<String> {
    let text = |item| match item {
        Answer::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => show(&other),
    };
    match answer {
        Answer::Array(items) | Answer::Set(items) => items.into_iter().map(text).collect(),
        other => panic!("{:.100}", show(&other)),
    }
}

#[track_caller]
fn check_all(client: &mut Client) {
    let all: Vec<String> = (0..COUNT).map(element).collect();
    let range = |range: std::ops::Range<usize>| all[range].to_vec();
    let back = |range: std::ops::Range<usize>| all[range].iter().rev().cloned().collect::<Vec<_>>();
    for (command, expected) in [
        ("LRANGE l 0 -1", range(0..COUNT)),
        ("LRANGE l 1 -1", range(1..COUNT)),
        ("LRANGE l 777 20777", range(777..20_778)),
        ("LRANGE l -20000 -1", range(20_000..COUNT)),
        ("ZRANGE z 0 -1", range(0..COUNT)),
        ("ZRANGE z 5 30000", range(5..30_001)),
        ("ZREVRANGE z 0 -1", back(0..COUNT)),
        ("ZRANGE z 5 30000 REV", back(COUNT - 30_001..COUNT - 5)),
        ("ZRANGEBYSCORE z (10 +inf", range(11..COUNT)),
        ("ZRANGEBYSCORE z -inf +inf", range(0..COUNT)),
        ("ZREVRANGEBYSCORE z 39000 (10", back(11..39_001)),
        (
            "ZRANGE z 39000 10 BYSCORE REV LIMIT 100 20000",
            back(18_901..38_901),
        ),
        ("ZRANGE z -inf +inf BYSCORE LIMIT 5 18000", range(5..18_005)),
    ] {
        assert!(elements(client.run_raw(command)) == expected, "{command}");
    }
    let sorted = |answer| {
        let mut elements = elements(answer);
        elements.sort();
        elements
    };
    for command in ["SMEMBERS s", "HKEYS h"] {
        assert!(sorted(client.run_raw(command)) == all, "{command}");
    }
    let mut values: Vec<String> = (0..COUNT).map(|n| format!("v{n}")).collect();
    values.sort();
    assert!(sorted(client.run_raw("HVALS h")) == values);
}

/// Returns pairs of a reply, which is a map in the third version of the protocol, or has pairs.
#[track_caller]
fn pairs(answer: Answer) -> Vec<(String, String)> {
    let pair = |one: &Answer, other: &Answer| (show(one), show(other));
    match answer {
        Answer::Map(pairs) => pairs.iter().map(|(one, other)| pair(one, other)).collect(),
        Answer::Array(items) => match items[0] {
            Answer::Array(_) => items
                .iter()
                .map(|item| match item {
                    Answer::Array(of) if of.len() == 2 => pair(&of[0], &of[1]),
                    other => panic!("{}", show(other)),
                })
                .collect(),
            _ => items.chunks(2).map(|of| pair(&of[0], &of[1])).collect(),
        },
        other => panic!("{:.100}", show(&other)),
    }
}

#[test]
fn what_is_shown_is_what_is_there() {
    for is_old in [false, true] {
        let server = match is_old {
            false => Fixture::opened_by(options(), open_small),
            true => Fixture::opened_by(options(), open_counted),
        };
        let mut client = server.client();
        fill(&mut client);
        for version in [2, 3] {
            client.run(&format!("HELLO {version}"));
            check_all(&mut client);
            let is_set = matches!(client.run_raw("SMEMBERS s"), Answer::Set(_));
            assert_eq!(is_set, version == 3);
            let mut hash = pairs(client.run_raw("HGETALL h"));
            hash.sort();
            let field = |n| (format!("\"{}\"", element(n)), format!("\"v{n}\""));
            assert!(hash == (0..COUNT).map(field).collect::<Vec<_>>());
            let score = |n| match version {
                2 => format!("\"{n}\""),
                _ => format!(",{n}"),
            };
            let member = |n| (format!("\"{}\"", element(n)), score(n));
            let shown = pairs(client.run_raw("ZRANGE z 0 -1 WITHSCORES"));
            assert!(shown == (0..COUNT).map(member).collect::<Vec<_>>());
            let shown = pairs(client.run_raw("ZREVRANGEBYSCORE z +inf 7 WITHSCORES"));
            assert!(shown == (7..COUNT).rev().map(member).collect::<Vec<_>>());
        }
    }
}

/// Few elements may be too long together as well. They are shown; a transaction would have to have
/// them in memory.
#[test]
fn what_is_longer_than_memory_is_shown() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let long = |n: usize| format!("{n:06}-{}", "e".repeat(120_000));
    for n in 0..400 {
        let (element, score) = (long(n), n.to_string());
        client.call(&["RPUSH", "l", &element]);
        client.call(&["SADD", "s", &element]);
        client.call(&["HSET", "h", &score, &element]);
        client.call(&["ZADD", "z", &score, &element]);
    }
    let all: Vec<String> = (0..400).map(long).collect();
    assert!(elements(client.run_raw("LRANGE l 0 -1")) == all);
    assert!(elements(client.run_raw("LRANGE l 100 350")) == all[100..351]);
    assert!(elements(client.run_raw("ZRANGE z 0 -1")) == all);
    assert!(elements(client.run_raw("ZRANGEBYSCORE z 5 300")) == all[5..301]);
    for command in ["SMEMBERS s", "HVALS h"] {
        let mut shown = elements(client.run_raw(command));
        shown.sort();
        assert!(shown == all, "{command}");
    }
    client.check(&[
        ("MULTI", "+OK"),
        ("SMEMBERS s", "+QUEUED"),
        ("PING", "+QUEUED"),
    ]);
    assert_eq!(client.run("EXEC"), format!("[{REFUSED} +PONG]"));
    let mut shown = elements(client.run_raw("SORT s BY nosort DESC"));
    shown.sort();
    assert!(shown == all, "SORT");
    client.call(&["SADD", "one", &long(7)]);
    assert!(elements(client.run_raw("SINTER s one")) == [long(7)]);
    for (command, expected) in [
        ("SUNION s one", &all[..]),
        ("SINTER s s", &all[..]),
        ("SDIFF s one s2", &[&all[..7], &all[8..]].concat()),
    ] {
        let mut shown = elements(client.run_raw(command));
        shown.sort();
        assert!(shown == expected, "{command}");
    }
}

/// Returns a client of a server in which what has expired stays there, and has to be left out.
pub(crate) fn keeping_expired() -> (Fixture, Client) {
    let options = ServerOptions {
        debug_commands: DebugCommands::Local,
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    client.check(&[("DEBUG SET-ACTIVE-EXPIRE 0", "+OK")]);
    (server, client)
}

/// Fields that have expired are neither counted nor shown.
#[test]
fn expired_fields_are_not_shown() {
    let (_server, mut client) = keeping_expired();
    fill(&mut client);
    let third = || (0..COUNT).step_by(3).map(element);
    for start in (0..third().count()).step_by(1000) {
        let fields: Vec<String> = third().skip(start).take(1000).collect();
        let count = fields.len().to_string();
        let later = if start < 5000 { "1" } else { "60000" };
        many(
            &mut client,
            &["HPEXPIRE", "h", later, "FIELDS", &count],
            fields.into_iter(),
        );
    }
    let gone: BTreeSet<String> = third().take(5000).collect();
    thread::sleep(Duration::from_millis(5));
    let expected: Vec<String> = (0..COUNT)
        .map(element)
        .filter(|of| !gone.contains(of))
        .collect();
    for _ in 0..5 {
        let mut shown = elements(client.run_raw("HKEYS h"));
        shown.sort();
        assert!(shown == expected, "{} fields", shown.len());
        assert_eq!(pairs(client.run_raw("HGETALL h")).len(), expected.len());
        thread::sleep(Duration::from_millis(30));
    }
}

/// What is shown is of one moment, however often the collection changes while it is sent, and
/// whatever becomes of its key.
#[test]
fn a_reply_is_of_one_moment() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    // Small elements of it are changed together, so all of them have the same value.
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            let mut round = 0;
            while !end.is_there() {
                round += 1;
                let values = (0..40).flat_map(|n| [element(n * 1000), format!("round{round}")]);
                many(&mut writer, &["HSET", "h"], values);
                writer.run("LMOVE l l LEFT RIGHT");
                writer.run(&format!("ZADD z {} 000000", round % 2 * 100_000));
            }
        });
        for _ in 0..20 {
            let shown = pairs(client.run_raw("HGETALL h"));
            assert_eq!(shown.len(), COUNT);
            let rounds: BTreeSet<&String> = shown.iter().map(|(_, value)| value).collect();
            let changed = rounds.iter().filter(|value| value.starts_with("\"round"));
            assert!(changed.count() <= 1, "of several moments");
            // A rotation.
            let list = elements(client.run_raw("LRANGE l 0 -1"));
            let first: usize = list[0].parse().unwrap();
            let turned = (0..COUNT).map(|n| element((first + n) % COUNT));
            assert!(list.into_iter().eq(turned));
            let list = elements(client.run_raw("LRANGE l 7 30006"));
            let first: usize = list[0].parse().unwrap();
            let turned = (0..30_000).map(|n| element((first + n) % COUNT));
            assert!(list.into_iter().eq(turned));
            let set = elements(client.run_raw("ZRANGE z 0 -1"));
            let place = if set[0] == element(0) { 0 } else { COUNT - 1 };
            assert_eq!(set[place], element(0));
            assert_eq!(set.len(), COUNT);
        }
    });
}

/// A range is found in the present and read at a snapshot: between them nothing may have changed.
/// An element comes and goes before the range and in the middle of it.
#[test]
fn a_range_is_of_one_moment() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    client.check(&[("ZADD z -1 x", ":1")]);
    let number = |from: usize, to: usize| (from..to).map(element).collect::<Vec<_>>();
    let before = number(4, 30_000);
    let within = [number(5, 15_001), vec!["x".into()], number(15_001, 30_000)].concat();
    assert!(elements(client.run_raw("ZRANGE z 5 30000")) == before);
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            while !end.is_there() {
                writer.check(&[("ZADD z 15000.5 x", ":0"), ("ZADD z -1 x", ":0")]);
            }
        });
        for round in 0..150 {
            let shown = elements(client.run_raw("ZRANGE z 5 30000"));
            assert!(shown == before || shown == within, "round {round}");
        }
    });
}

fn long(number: usize) -> String {
    format!("{number}{}", "v".repeat(300))
}

/// Makes a hash that is longer than what sockets take.
fn fill_long(client: &mut Client) {
    for start in (0..COUNT).step_by(1000) {
        let pairs = (start..start + 1000).flat_map(|n| [element(n), long(n)]);
        many(client, &["HSET", "h"], pairs);
    }
}

/// A client that has begun to read, and reads no further for now.
fn begun(server: &Fixture, command: &str) -> Client {
    let mut client = server.client();
    client.send(&encode(&command.split(' ').collect::<Vec<_>>()));
    client.stream.peek(&mut [0]).unwrap();
    client
}

#[test]
fn what_has_begun_goes_on_whatever_becomes_of_the_key() {
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    fill_long(&mut other);
    for change in [
        "DEL x",
        "RENAME x y",
        "SET x 1",
        "HSET x new 1",
        "SWAPDB 0 1",
        "FLUSHALL",
    ] {
        other.run("COPY h x REPLACE");
        let mut slow = begun(&server, "HGETALL x");
        other.run(change);
        for n in 0..200 {
            other.call(&["SET", &format!("k{n}"), &"x".repeat(20_000)]);
        }
        let mut shown = pairs(slow.answer());
        shown.sort();
        let field = |n| (format!("\"{}\"", element(n)), format!("\"{}\"", long(n)));
        assert!(
            shown == (0..COUNT).map(field).collect::<Vec<_>>(),
            "{change}"
        );
        slow.check(&[("PING", "+PONG")]);
        if change == "SWAPDB 0 1" {
            other.check(&[("SWAPDB 0 1", "+OK")]);
        }
    }
}

/// Clients that do not read cost little, and others go on; they are gone in the end.
#[test]
fn clients_that_do_not_read_are_in_nobodys_way() {
    let options = ServerOptions {
        stall_timeout: Duration::from_millis(1500),
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut other = server.client();
    fill_long(&mut other);
    let mut deaf: Vec<Client> = (0..100).map(|_| begun(&server, "HGETALL h")).collect();
    let waiting: usize = (other.text("CLIENT LIST").lines())
        .filter_map(|line| {
            line.split(" omem=")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum();
    assert!(
        waiting < 100 * (64 << 10),
        "{waiting} bytes wait for 100 clients"
    );
    assert_eq!(pairs(other.run_raw("HGETALL h")).len(), COUNT);
    let limit = now() + Duration::from_secs(30);
    while !other.text("INFO clients").contains("connected_clients:1\r") {
        assert!(now() < limit, "{}", other.text("CLIENT LIST"));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        deaf.iter_mut()
            .all(|client| client.stream.peek(&mut [0]).is_ok())
    );
}

/// Of a pipeline of large replies few are open, so its client holds few snapshots; and each counts
/// as one key that was found.
#[test]
fn a_pipeline_has_few_open_replies() {
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    fill_long(&mut other);
    let found = figure(&mut other, "INFO stats", "keyspace_hits:");
    assert_eq!(pairs(other.run_raw("HGETALL h")).len(), COUNT);
    assert_eq!(
        figure(&mut other, "INFO stats", "keyspace_hits:"),
        found + 1
    );
    let mut deaf = server.client();
    deaf.send(&encode(&["HGETALL", "h"]).repeat(50));
    deaf.stream.peek(&mut [0]).unwrap();
    thread::sleep(Duration::from_millis(200));
    let open = |client: &mut Client| figure(client, "INFO everything", "snapshots_in_memory:");
    assert!((1..=2).contains(&open(&mut other)), "{}", open(&mut other));
    drop(deaf);
    let limit = now() + Duration::from_secs(30);
    while open(&mut other) > 0 {
        assert!(now() < limit, "snapshots are left open");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn figure(client: &mut Client, section: &str, name: &str) -> u64 {
    let text = client.text(section);
    let at = text.find(name).unwrap() + name.len();
    text[at..].lines().next().unwrap().parse().unwrap()
}

/// Replies come in the order of their commands, and a client that wants none gets none.
#[test]
fn large_replies_have_their_place_in_a_pipeline() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let commands = [
        "SADD s new",
        "SMEMBERS s",
        "SREM s new",
        "SCARD s",
        "LRANGE l 0 -1",
        "PING",
        "SMEMBERS s",
        "CLIENT REPLY SKIP",
        "SMEMBERS s",
        "GET none",
        "ZRANGE z 1 -1",
    ];
    let sent = commands.map(|command| encode(&command.split(' ').collect::<Vec<_>>()));
    client.send(&sent.concat());
    let mut answer = || client.answer();
    assert_eq!(show(&answer()), ":1");
    assert_eq!(elements(answer()).len(), COUNT + 1);
    assert_eq!(show(&answer()), ":1");
    assert_eq!(show(&answer()), format!(":{COUNT}"));
    assert!(elements(answer()).into_iter().eq((0..COUNT).map(element)));
    assert_eq!(show(&answer()), "+PONG");
    assert_eq!(elements(answer()).len(), COUNT);
    assert_eq!(show(&answer()), "nil");
    assert!(elements(answer()).into_iter().eq((1..COUNT).map(element)));
    client.check(&[("CLIENT REPLY ON", "+OK"), ("PING", "+PONG")]);
    // Inside of EXEC and scripts they are in memory, with what was changed before.
    client.check(&[
        ("MULTI", "+OK"),
        ("LPUSH l first", "+QUEUED"),
        ("LRANGE l 0 -1", "+QUEUED"),
    ]);
    let Answer::Array(mut replies) = client.run_raw("EXEC") else {
        panic!("EXEC was refused");
    };
    let list = elements(replies.pop().unwrap());
    assert_eq!((list.len(), &list[0][..]), (COUNT + 1, "first"));
    let script = "return #redis.call('smembers', KEYS[1])";
    let counted = client.call(&["EVAL", script, "1", "s"]);
    assert_eq!(show(&counted), format!(":{COUNT}"));
}

/// A server that stops does not wait for threads that read.
#[test]
fn a_server_stops_while_replies_are_read() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let mut readers: Vec<Client> = (0..20).map(|_| begun(&server, "HGETALL h")).collect();
    client.send(&encode(&["SHUTDOWN"]));
    for reader in &mut readers {
        // All of it, or the end in the middle.
        if let Some(answer) = reader.try_answer() {
            assert_eq!(pairs(answer).len(), COUNT);
        }
    }
}

/// What sets have in common or together is counted and shown as of one moment, too.
#[test]
fn large_sets_are_combined_for_a_reply() {
    let (_server, mut client) = keeping_expired();
    let members = |range: std::ops::Range<usize>| range.map(element).collect::<BTreeSet<_>>();
    let mut add = |key: &str, all: &BTreeSet<String>| {
        for some in all.iter().cloned().collect::<Vec<_>>().chunks(2000) {
            many(&mut client, &["SADD", key], some.iter().cloned());
        }
    };
    let (a, b, few) = (
        members(0..30_000),
        members(15_000..45_000),
        members(29_990..30_010),
    );
    add("a", &a);
    add("b", &b);
    add("few", &few);
    add("others", &members(100_000..120_000));
    let union = |sets: &[&BTreeSet<String>]| {
        sets.iter()
            .flat_map(|set| set.iter().cloned())
            .collect::<BTreeSet<_>>()
    };
    client.check(&[
        ("SET text x", "+OK"),
        ("SADD gone x", ":1"),
        ("PEXPIRE gone 1", ":1"),
    ]);
    thread::sleep(Duration::from_millis(5));
    for version in [2, 3] {
        client.run(&format!("HELLO {version}"));
        for (command, expected) in [
            ("SUNION a b few", union(&[&a, &b])),
            ("SUNION a none gone", a.clone()),
            ("SINTER a b", a.intersection(&b).cloned().collect()),
            ("SINTER b a b", a.intersection(&b).cloned().collect()),
            ("SINTER a others", BTreeSet::new()),
            ("SINTER a none b", BTreeSet::new()),
            ("SDIFF a b", a.difference(&b).cloned().collect()),
            ("SDIFF a few", a.difference(&few).cloned().collect()),
            ("SDIFF a few b none", a.difference(&b).cloned().collect()),
            ("SDIFF a a", BTreeSet::new()),
        ] {
            let answer = client.run_raw(command);
            assert_eq!(matches!(answer, Answer::Set(_)), version == 3, "{command}");
            let shown = elements(answer);
            assert_eq!(shown.len(), expected.len(), "{command}");
            assert!(
                shown.into_iter().collect::<BTreeSet<_>>() == expected,
                "{command}"
            );
        }
    }
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    client.check(&[("SUNION a b text", wrong), ("SUNION text a b", wrong)]);
}

/// One member moves between sets, so of both and their union each moment has it once or not.
#[test]
fn a_union_is_of_one_moment() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    for start in (0..30_000).step_by(1500) {
        many(
            &mut client,
            &["SADD", "a"],
            (start..start + 1500).map(element),
        );
        many(
            &mut client,
            &["SADD", "b"],
            (start + 15_000..start + 16_500).map(element),
        );
    }
    let end = End::default();
    thread::scope(|scope| {
        let _bring = end.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            while !end.is_there() {
                writer.check(&[("SADD a moving", ":1"), ("SMOVE a b moving", ":1")]);
                writer.check(&[("SMOVE b a moving", ":1"), ("SREM a moving", ":1")]);
            }
        });
        for _ in 0..30 {
            let shown = elements(client.run_raw("SUNION a b"));
            let is_there = shown.iter().any(|member| member == "moving");
            assert_eq!(shown.len(), 45_000 + usize::from(is_there));
            let shown = elements(client.run_raw("SINTER a b"));
            assert_eq!(shown.len(), 15_000);
        }
    });
}

/// Many elements are drawn once for all runs of a command, and for each command anew.
#[test]
fn commands_of_a_transaction_draw_independently() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    fill(&mut client);
    let some = (0..5000).map(|n| format!("x{n}"));
    assert_eq!(many(&mut client, &["SADD", "few"], some), ":5000");
    client.check(&[
        ("MULTI", "+OK"),
        ("SRANDMEMBER s -3000", "+QUEUED"),
        ("SRANDMEMBER s -3000", "+QUEUED"),
        ("SRANDMEMBER few -3000", "+QUEUED"),
        ("HRANDFIELD h 200", "+QUEUED"),
    ]);
    let Answer::Array(replies) = client.run_raw("EXEC") else {
        panic!("EXEC was refused");
    };
    let drawn: Vec<Vec<String>> = replies.into_iter().map(elements).collect();
    let lengths: Vec<usize> = drawn.iter().map(Vec::len).collect();
    assert_eq!(lengths, [3000, 3000, 3000, 200]);
    assert!(drawn[0] != drawn[1], "the same draws");
    assert!(drawn[2].iter().all(|member| member.starts_with('x')));
    let different = |drawn: &[String]| drawn.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(different(&drawn[3]), 200);
    // Some of 5,000 are drawn twice, and they do not come in the order of their places.
    assert!((1800..2700).contains(&different(&drawn[2])));
    let all = elements(client.run_raw("SMEMBERS few"));
    let place = |member: &String| all.iter().position(|other| other == member).unwrap();
    let places: Vec<usize> = drawn[2].iter().map(place).collect();
    let ascents = places.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((1300..1700).contains(&ascents), "{ascents} ascents");
}

/// As long as nothing was sent, damage is an error like others; behind that, the end of the
/// connection. What can be read is.
#[test]
fn damage_is_told_as_long_as_it_can_be() {
    let (mut server, slot) = shared();
    server.is_damaged();
    let mut client = server.client();
    fill(&mut client);
    let db = slot.lock().take().expect("the store is open");
    let members = db.existing_table("db/0/members").expect("the table exists");
    let rows: Vec<_> = members.iter().map(|row| row.unwrap()).collect();
    // A score has 8 bytes behind its flags.
    let of_hash = |value: &[u8]| value.len() < 9 && value.get(1) == Some(&b'v');
    let rows = rows.into_iter().filter(|(key, _)| key[8] == b'E');
    let rows: Vec<_> = rows.filter(|(_, value)| of_hash(value)).collect();
    assert_eq!(rows.len(), COUNT);
    for (place, is_told) in [(0, true), (30_000, false)] {
        let (key, value) = &rows[place];
        members.put(key, b"\x01").unwrap();
        client.send(&encode(&["HGETALL", "h"]));
        match is_told {
            true => {
                let answer = show(&client.answer());
                assert!(answer.starts_with("-ERR the value of this key"), "{answer}");
            }
            false => {
                assert!(client.try_answer().is_none(), "it is cut off");
                client = server.client();
            }
        }
        members.put(key, value).unwrap();
        assert_eq!(pairs(client.run_raw("HGETALL h")).len(), COUNT);
    }
}

/// A large reply shows what others have committed, once it is durable.
#[test]
fn what_is_not_durable_is_not_shown() {
    let (server, slot) = shared();
    let mut client = server.client();
    fill(&mut client);
    let db = slot.lock().take().expect("the store is open");
    let keys = db.existing_table("db/0/keys").expect("the table exists");
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    for read in ["SMEMBERS s", "HGETALL h", "LRANGE l 1 -1", "ZRANGE z 0 -1"] {
        let mut batch = ValidatedBatch::new(&db);
        batch.put(&keys, b"\0other", b"\0x").unwrap();
        let outcome = batch.try_commit(&mut reactor).unwrap();
        let Polled::Ready(Outcome::Committed(Some(lsn))) = outcome else {
            panic!("{read}: no conflict is possible");
        };
        client.run_raw(read);
        assert!(db.durable_lsn() >= lsn, "{read}");
    }
    let mut batch = ValidatedBatch::new(&db);
    batch.delete(&keys, b"\0other");
    let outcome = batch.try_commit(&mut reactor).unwrap();
    assert!(matches!(outcome, Polled::Ready(Outcome::Committed(_))));
}
