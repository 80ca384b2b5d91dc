//! Data that do not fit into memory: commands wait for pages and have the same results.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};

pub(crate) const KEYS: usize = 4000;

fn value(n: usize) -> String {
    format!("{n:x}-").repeat(120)
}

/// Returns an empty server with few frames.
fn small() -> Fixture {
    let options = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    Fixture::opened_by(options, open_small)
}

/// Returns a server whose database has `KEYS` keys and is several times larger than its pool, and a
/// client.
pub(crate) fn filled() -> (Fixture, Client) {
    let server = small();
    let mut client = server.client();
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let sets = chunk
            .iter()
            .map(|n| encode(&["SET", &format!("key:{n}"), &value(*n)]));
        client.send(&sets.collect::<Vec<_>>().concat());
        for _ in chunk {
            assert_eq!(show(&client.answer()), "+OK");
        }
    }
    (server, client)
}

pub(crate) fn suspended(client: &mut Client) -> u64 {
    let info = client.text("INFO stats");
    let at = info.find("suspended_commands:").unwrap() + 19;
    info[at..].lines().next().unwrap().parse().unwrap()
}

#[test]
fn commands_that_wait_for_pages_have_the_same_replies() {
    let (_server, mut client) = filled();
    let order: Vec<usize> = (0..KEYS).map(|n| n * 1237 % KEYS).collect();
    let (before, began) = (suspended(&mut client), now());
    for chunk in order.chunks(200) {
        let gets = chunk.iter().map(|n| encode(&["GET", &format!("key:{n}")]));
        client.send(&gets.collect::<Vec<_>>().concat());
        for n in chunk {
            assert_eq!(
                client.answer(),
                Answer::Bulk(value(*n).into_bytes()),
                "key:{n}"
            );
        }
    }
    let waits = usize::try_from(suspended(&mut client) - before).unwrap();
    assert!(waits > 0, "no command waited for a page");
    assert!(
        waits < KEYS * 5 / 8,
        "{waits} waits: the pipeline is fetched key by key"
    );
    // A completion that waits for a timer of the loop would take hundreds of milliseconds.
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    for chunk in order.chunks(7).take(60) {
        let keys: Vec<String> = chunk.iter().map(|n| format!("key:{n}")).collect();
        let values: Vec<_> = chunk
            .iter()
            .map(|n| Answer::Bulk(value(*n).into_bytes()))
            .collect();
        let words: Vec<&str> = ["MGET"]
            .into_iter()
            .chain(keys.iter().map(String::as_str))
            .collect();
        assert_eq!(client.call(&words), Answer::Array(values));
        client.run("MULTI");
        for key in &keys {
            client.run(&format!("APPEND {key} x"));
            client.run(&format!("EXISTS {key}"));
        }
        let lengths = chunk.iter().map(|n| format!(":{} :1", value(*n).len() + 1));
        let expected = lengths.collect::<Vec<_>>().join(" ");
        assert_eq!(client.run("EXEC"), format!("[{expected}]"));
    }
    let found: BTreeSet<String> = match client.call(&["KEYS", "*"]) {
        Answer::Array(keys) => keys.iter().map(show).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found.len(), KEYS);
}

#[test]
fn one_client_waits_and_its_neighbours_go_on() {
    let (server, mut client) = filled();
    client.run("SET hot v");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cold = server.client();
            for n in 0..400 {
                cold.send(&encode(&[
                    "INCRBYFLOAT",
                    &format!("key:{}", n * 37 % KEYS),
                    "1",
                ]));
                assert_eq!(show(&cold.answer()), "-ERR value is not a valid float");
            }
        });
        for _ in 0..400 {
            assert_eq!(client.run("GET hot"), "\"v\"");
        }
    });
}

#[test]
fn keys_that_are_not_in_memory_end_all_the_same() {
    let (_server, mut client) = filled();
    for n in 0..600 {
        client.run(&format!("PEXPIRE key:{} {}", n * 6, 1 + n % 100));
    }
    let limit = now() + Duration::from_secs(15);
    let left = i64::try_from(KEYS - 600).unwrap();
    while client.integer("DBSIZE") != left {
        assert!(now() < limit, "{} keys", client.integer("DBSIZE"));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    for durability in [Durability::Durable, Durability::Periodic, Durability::None] {
        for round in 0..2 {
            let path = directory.path().to_owned();
            let options = ServerOptions {
                durability,
                ..options()
            };
            let mut server = Fixture::opened_by(options, move |_| open_small(&path));
            let mut client = server.client();
            let name = durability.name();
            if round == 0 {
                client.run(&format!("SET {name} v"));
                client.run(&format!("SET {name}:long {} EX 1000", "x".repeat(50_000)));
            } else {
                client.check(&[
                    (&format!("GET {name}"), "\"v\""),
                    (&format!("STRLEN {name}:long"), ":50000"),
                    (&format!("EXISTS {name} {name}:long"), ":2"),
                ]);
            }
            server.handle.shutdown();
            server.join().unwrap();
        }
    }
}

#[test]
fn clients_that_go_away_while_they_wait_for_pages_harm_nobody() {
    let (server, mut client) = filled();
    for round in 0..40 {
        let mut going = server.client();
        let commands = (0..64).map(|n| {
            let key = format!("key:{}", (round * 64 + n) * 1237 % KEYS);
            match n % 4 {
                0 => encode(&["APPEND", &key, ""]),
                _ => encode(&["GET", &key]),
            }
        });
        going.send(&commands.collect::<Vec<_>>().concat());
        if round % 2 == 0 {
            // The reply shows that some of the commands have run and the others wait.
            client.integer("DBSIZE");
        }
        drop(going);
    }
    for n in 0..40 {
        let mut killed = server.client();
        let its_id = killed.integer("CLIENT ID");
        killed.send(&encode(&[
            "MGET",
            &format!("key:{}", n * 97 % KEYS),
            "key:1",
        ]));
        assert_eq!(client.run(&format!("CLIENT KILL ID {its_id}")), ":1");
    }
    for n in (0..KEYS).step_by(17) {
        let answer = client.call(&["GET", &format!("key:{n}")]);
        assert_eq!(answer, Answer::Bulk(value(n).into_bytes()), "key:{n}");
    }
    let limit = now() + Duration::from_secs(15);
    loop {
        let clients = client.text("INFO clients");
        if clients.contains("connected_clients:1\r\n") {
            break;
        }
        assert!(now() < limit, "{clients}");
        thread::yield_now();
    }
}

#[test]
fn a_command_of_many_keys_has_its_pages_read_together() {
    let (_server, mut client) = filled();
    for count in [50, 1000] {
        let numbers: Vec<usize> = (0..count).map(|n| n * 1237 % KEYS).collect();
        let keys: Vec<String> = numbers.iter().map(|n| format!("key:{n}")).collect();
        let mut command = vec!["MGET"];
        command.extend(keys.iter().map(String::as_str));
        let before = suspended(&mut client);
        client.send(&encode(&command));
        let values = numbers.iter().map(|n| Answer::Bulk(value(*n).into_bytes()));
        assert_eq!(client.answer(), Answer::Array(values.collect()));
        let waits = suspended(&mut client) - before;
        // The pool has 160 frames, and the device takes 20 reads at a time.
        assert!(waits < count as u64 / 2, "{waits} waits for {count} keys");
    }
}

/// Returns a server with six strings in pages, each longer than all frames together, and a client.
fn with_long_strings() -> (Fixture, Client) {
    let server = small();
    let mut client = server.client();
    for (n, key) in LONG.iter().enumerate() {
        assert_eq!(show(&client.call(&["SET", key, &long(n)])), "+OK");
    }
    (server, client)
}

const LONG: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn long(n: usize) -> String {
    format!("{n}").repeat(1_500_000)
}

fn bulk(text: impl Into<String>) -> Answer {
    Answer::Bulk(text.into().into_bytes())
}

#[test]
fn commands_over_several_long_strings_end() {
    let (_server, mut client) = with_long_strings();
    let with = |name: &'static str| [&[name], &LONG[..]].concat();
    let values = (0..6).map(|n| bulk(long(n))).collect();
    assert_eq!(client.call(&with("MGET")), Answer::Array(values));
    assert_eq!(client.call(&with("EXISTS")), Answer::Integer(6));
    assert_eq!(client.call(&with("TOUCH")), Answer::Integer(6));
    assert_eq!(client.run("KEYS *").len(), client.run("KEYS ?").len());
    let (a, c) = (long(6), long(8));
    assert_eq!(show(&client.call(&["MSET", "a", &a, "b", "7"])), "+OK");
    assert_eq!(
        client.call(&["MSETNX", "x", "1", "c", &c]),
        Answer::Integer(0)
    );
    assert_eq!(
        client.call(&["SET", "f", "short", "XX", "GET"]),
        bulk(long(5))
    );
    assert_eq!(client.call(&["STRLEN", "c"]), Answer::Integer(1_500_000));
    for command in ["MULTI", "GETRANGE a -2 -1", "GETDEL b", "STRLEN d", "TTL e"] {
        client.run(command);
    }
    let expected = vec![
        bulk("66"),
        bulk("7"),
        Answer::Integer(1_500_000),
        Answer::Integer(-1),
    ];
    assert_eq!(client.run_raw("EXEC"), Answer::Array(expected));
    assert_eq!(client.call(&with("DEL")), Answer::Integer(5));
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn commands_over_several_long_strings_end_inside_a_transaction() {
    let (_server, mut client) = with_long_strings();
    assert_eq!(client.run("PANDO BEGIN"), "+OK");
    let with = |name: &'static str| [&[name], &LONG[..]].concat();
    let values = (0..6).map(|n| bulk(long(n))).collect();
    assert_eq!(client.call(&with("MGET")), Answer::Array(values));
    assert_eq!(client.call(&with("EXISTS")), Answer::Integer(6));
    assert_eq!(client.call(&with("DEL")), Answer::Integer(6));
    assert_eq!(client.run("KEYS *"), "[]");
    assert_eq!(client.run("PANDO COMMIT"), "+OK");
    assert_eq!(client.integer("DBSIZE"), 0);
}

/// The expiry cleaner removes long strings that do not fit into the frames together.
#[test]
fn long_strings_expire() {
    let (_server, mut client) = with_long_strings();
    let later = now() + Duration::from_secs(60);
    for key in &LONG[1..] {
        // The one whose deadline changes below lives until then on a slow machine, too.
        let time = if *key == "b" { 2000 } else { 300 };
        assert_eq!(client.integer(&format!("PEXPIRE {key} {time}")), 1);
    }
    // Its entry is moved when it is due.
    assert_eq!(client.integer("EXPIRE b 1000"), 1);
    while client.integer("DBSIZE") != 2 {
        assert!(now() < later, "{} keys are left", client.integer("DBSIZE"));
    }
    assert_eq!(client.call(&["GET", "b"]), bulk(long(1)));
    assert!(client.integer("TTL b") > 900);
}

/// A command that reads more than it may keep of what does not fit into the frames is given up.
#[test]
fn a_command_that_cannot_end_says_so() {
    let (_server, mut client) = with_long_strings();
    for key in 0..200 {
        let text = "x".repeat(100_000);
        assert_eq!(show(&client.call(&["SET", &key.to_string(), &text])), "+OK");
    }
    client.run("MULTI");
    // 20 MB, of which 16 MiB are kept, and 0.6 MB are in frames.
    for key in 0..200 {
        client.run(&format!("GETRANGE {key} 0 0"));
    }
    let text = show(&client.run_raw("EXEC"));
    let expected = "-ERR the command reads long strings that do not fit into memory together";
    assert_eq!(text, expected);
    assert_eq!(client.run("PING"), "+PONG");
}

#[test]
fn a_pattern_with_a_literal_beginning_reads_the_keys_that_have_it() {
    let (_server, mut client) = filled();
    let keys = |answer: Answer| match answer {
        Answer::Array(keys) => keys.len(),
        other => panic!("KEYS replies {other:?}"),
    };
    let before = suspended(&mut client);
    assert_eq!(keys(client.call(&["KEYS", "key:123*"])), 11);
    let of_few = suspended(&mut client) - before;
    assert_eq!(keys(client.call(&["KEYS", "*y:123*"])), 11);
    let of_all = suspended(&mut client) - before - of_few;
    assert!(of_few < 10 && of_all > 3 * of_few, "{of_few} and {of_all}");
}

#[test]
fn keys_at_random_are_fetched() {
    let (_server, mut client) = filled();
    let before = suspended(&mut client);
    client.send(&encode(&["RANDOMKEY"]).repeat(500));
    let drawn: BTreeSet<String> = (0..500).map(|_| show(&client.answer())).collect();
    assert!(drawn.len() > 350, "{}", drawn.len());
    assert!(drawn.iter().all(|key| key.starts_with("\"key:")));
    assert!(suspended(&mut client) > before + 50, "all were in memory");
}
