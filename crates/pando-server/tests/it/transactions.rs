//! Tests of MULTI, EXEC, DISCARD and WATCH.

use std::collections::BTreeSet;

use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::statistics::fields;
use crate::trees::{client_of, fill_long_set, many};
use crate::until_end::End;

#[test]
fn queued_commands_run_together() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", "[]"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("MGET a b", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("EXEC", "[+OK :2 \"2\" [\"2\" nil] :1 [\"a\"]]"),
        ("MULTI", "+OK"),
        ("SET a x", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "\"2\""),
        ("MULTI", "+OK"),
        ("UNWATCH", "+QUEUED"),
        ("EXEC", "[+OK]"),
    ]);
}

#[test]
fn errors_before_exec_refuse_it_and_errors_in_it_do_not() {
    let server = Fixture::new();
    let mut client = server.client();
    for wrong in ["NOSUCH", "GET", "SAVE", "CLIENT WHAT"] {
        client.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
        assert!(client.run(wrong).starts_with("-ERR"));
        client.check(&[
            ("SET b 1", "+QUEUED"),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
            ("EXISTS a b", ":0"),
        ]);
    }
    client.check(&[
        ("MULTI", "+OK"),
        ("SET a x", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("SET b 2", "+QUEUED"),
        (
            "EXEC",
            "[+OK -ERR value is not an integer or out of range +OK]",
        ),
        ("MGET a b", "[\"x\" \"2\"]"),
    ]);
}

#[test]
fn an_exec_that_is_refused_ends_its_transaction() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
                   command";
    client.check(&[
        ("EXEC x", refused),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("EXEC x", refused),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("EXISTS a", ":0"),
        // The refused EXEC also ends all watches.
        ("WATCH a", "+OK"),
        ("EXEC x", refused),
    ]);
    other.check(&[("SET a 2", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("SET a 3", "+QUEUED"), ("EXEC", "[+OK]")]);
}

#[test]
fn a_transaction_sees_its_own_changes_of_whole_databases() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("SET d 4", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("SCAN 0 COUNT 100", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("FLUSHDB", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("GET b", "+QUEUED"),
        ("SET e 5", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("SELECT 3", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("SET f 1", "+QUEUED"),
        (
            "EXEC",
            "[:1 +OK [\"b\" \"c\" \"d\"] [\"0\" [\"b\" \"c\" \"d\"]] :3 +OK :0 nil +OK [\"e\"] +OK [] +OK]",
        ),
        ("KEYS *", "[\"f\"]"),
        ("SELECT 0", "+OK"),
        ("KEYS *", "[\"e\"]"),
    ]);
}

#[test]
fn a_change_of_a_watched_key_refuses_exec() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.run("SET a 1");
    let cases = [
        ("WATCH a", "SET a 2", true),
        ("WATCH a", "DEL a", true),
        ("WATCH none", "SET none 1", true),
        ("WATCH a b c", "SET c 1", true),
        ("WATCH a", "FLUSHALL", true),
        ("WATCH none", "FLUSHALL", false),
        ("WATCH none", "FLUSHDB", false),
        ("WATCH none a", "FLUSHDB", true),
        ("WATCH a", "EXPIRE a 100", true),
        ("WATCH a", "SET other 1", false),
        ("WATCH a", "GET a", false),
    ];
    for (watch, change, refused) in cases {
        other.run("SET a 1");
        client.check(&[(watch, "+OK")]);
        other.run(change);
        client.check(&[
            ("MULTI", "+OK"),
            ("SET done 1", "+QUEUED"),
            ("EXEC", if refused { "nil" } else { "[+OK]" }),
        ]);
        // EXEC ends all watches.
        other.run("SET a changed");
        client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
    }
    client.check(&[("WATCH a", "+OK"), ("UNWATCH", "+OK")]);
    other.run("SET a 3");
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
    // Without a transaction, EXEC and DISCARD do not end watches.
    for (word, refusal) in [
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
    ] {
        client.check(&[("WATCH a", "+OK"), (word, refusal)]);
        other.run("SET a 4");
        client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
    }
    client.check(&[("WATCH a", "+OK"), ("SET a own", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
}

#[test]
fn an_exec_that_is_refused_leaves_the_session_as_it_was() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("SET a zero", "+OK"), ("WATCH a", "+OK")]);
    other.run("SET a one");
    client.check(&[
        ("MULTI", "+OK"),
        ("SELECT 3", "+QUEUED"),
        ("SET a three", "+QUEUED"),
        ("EXEC", "nil"),
        ("GET a", "\"one\""),
    ]);
}

#[test]
fn a_watched_key_that_ends_has_changed() {
    let server = Fixture::new();
    let mut client = server.client();
    // On a slow machine the key may expire before it is watched, and then this is repeated.
    loop {
        client.check(&[("SET a 1 PX 100", "+OK"), ("WATCH a", "+OK")]);
        if client.run("EXISTS a") == ":1" {
            break;
        }
        client.run("UNWATCH");
    }
    thread::sleep(Duration::from_millis(110));
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
}

/// Makes expired keys `over-N`. Returns true if the cleaner has not removed any of them.
fn end_keys(client: &mut Client, count: usize) -> bool {
    for number in 0..count {
        client.send(&encode(&["SET", &format!("over-{number}"), "1", "PX", "1"]));
    }
    for _ in 0..count {
        assert_eq!(show(&client.answer()), "+OK");
    }
    while client.run("GET over-0") != "nil"
        || client.run(&format!("GET over-{}", count - 1)) != "nil"
    {}
    client.run("DBSIZE") == format!(":{count}")
}

#[test]
fn a_key_that_had_ended_before_it_was_watched_has_not_changed_when_it_is_cleaned_away() {
    let server = Fixture::new();
    let mut client = server.client();
    // One key, and more keys than WATCH checks in one step.
    for (count, rounds) in [(1, 20), (1_200, 3)] {
        let mut met = 0;
        while met < rounds {
            met += usize::from(end_keys(&mut client, count));
            let keys: Vec<_> = (0..count).map(|number| format!("over-{number}")).collect();
            client.check(&[(&*format!("WATCH none {}", keys.join(" ")), "+OK")]);
            while client.run("DBSIZE") != ":0" {
                thread::yield_now();
            }
            client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
        }
    }
    // An expired key that is set again has changed.
    let mut other = server.client();
    end_keys(&mut client, 1);
    client.check(&[("WATCH over-0", "+OK")]);
    other.check(&[("SET over-0 2", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
}

#[test]
fn nobody_sees_half_an_exec() {
    let server = Fixture::new();
    let (stop, enough) = (End::default(), End::default());
    let mut first = server.client();
    first.run("MSET x 0 y 0");
    thread::scope(|scope| {
        let bring_stop = stop.brought();
        let bring_enough = enough.brought();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client();
                    let mut done = 0;
                    while !enough.is_there() {
                        client.send(&b"MULTI\r\nINCR x\r\nINCR y\r\nEXEC\r\n".repeat(20));
                        (0..80).for_each(|_| drop(client.answer()));
                        done += 20;
                    }
                    done
                })
            })
            .collect();
        let readers: Vec<_> = ["MGET x y", "EXEC"]
            .into_iter()
            .map(|how| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut client = server.client();
                    while !stop.is_there() {
                        let reply = if how == "EXEC" {
                            client.run("MULTI");
                            client.run("GET x");
                            client.run("GET y");
                            client.run("EXEC")
                        } else {
                            client.run(how)
                        };
                        let values: Vec<&str> = reply.split('"').collect();
                        assert_eq!(values[1], values[3], "{reply}");
                    }
                })
            })
            .collect();
        // This continues until some conflicts have happened between a run and its commit.
        while fields(&mut first, "stats")["transaction_conflicts"]
            .parse::<u64>()
            .unwrap()
            < 3
        {
            thread::yield_now();
        }
        drop(bring_enough);
        let done = writers.into_iter().map(|writer| writer.join().unwrap());
        let done: u64 = done.sum();
        drop(bring_stop);
        for reader in readers {
            reader.join().unwrap();
        }
        first.check(&[("MGET x y", &format!("[\"{done}\" \"{done}\"]"))]);
    });
}

#[test]
fn optimistic_counting_loses_nothing() {
    let server = Fixture::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut done = 0;
                while done < 50 {
                    client.run("WATCH n");
                    let reply = client.run("GET n");
                    let value: i64 = reply.trim_matches('"').parse().unwrap_or(0);
                    client.run("MULTI");
                    client.run(&format!("SET n {}", value + 1));
                    done += i32::from(client.run("EXEC") == "[+OK]");
                }
            });
        }
    });
    assert_eq!(server.client().run("GET n"), "\"150\"");
}

/// A key that did not exist still does not when all are gone; what is written before or after that
/// is a change, whatever becomes of it.
#[test]
fn a_missing_key_is_changed_by_writes_and_not_by_a_flush() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let cases: [(&[&str], bool); 9] = [
        (&["FLUSHALL"], false),
        (&["FLUSHALL", "FLUSHDB", "FLUSHALL"], false),
        (&["SET other 1", "FLUSHALL", "SET other 2"], false),
        (&["SET k 1", "FLUSHALL"], true),
        (&["FLUSHALL", "SET k 1"], true),
        (&["FLUSHALL", "SET k 1", "FLUSHDB"], true),
        (&["FLUSHALL", "SET k 1", "DEL k"], true),
        (&["FLUSHDB", "RPUSH k 1", "FLUSHALL", "FLUSHALL"], true),
        (&["SELECT 1", "SET k 1", "FLUSHDB", "SELECT 0"], false),
    ];
    for (commands, refused) in cases {
        client.check(&[("FLUSHALL", "+OK"), ("WATCH k", "+OK")]);
        for command in commands {
            other.run(command);
        }
        client.check(&[("MULTI", "+OK"), ("SET result 1", "+QUEUED")]);
        let expected = if refused { "nil" } else { "[+OK]" };
        assert_eq!(client.run("EXEC"), expected, "{commands:?}");
    }
    // Watched again behind the flush; and an EXEC that empties the database itself.
    client.check(&[("FLUSHALL", "+OK"), ("WATCH k", "+OK")]);
    other.run("FLUSHALL");
    client.check(&[
        ("WATCH k", "+OK"),
        ("MULTI", "+OK"),
        ("FLUSHALL", "+QUEUED"),
        ("SET k 1", "+QUEUED"),
        ("EXEC", "[+OK +OK]"),
        ("WATCH k", "+OK"),
        ("SELECT 1", "+OK"),
        ("WATCH k", "+OK"),
    ]);
    other.run("FLUSHDB");
    client.check(&[("MULTI", "+OK"), ("EXEC", "nil")]);
}

/// Returns the bytes that the watches of all connections take.
fn watched_bytes(client: &mut Client) -> u64 {
    fields(client, "memory")["memory_watches"].parse().unwrap()
}

#[test]
fn long_keys_are_watched_without_being_kept() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let key = |number: usize| format!("{}{number}", "k".repeat(900_000));
    let resident =
        |of: &mut Client| -> u64 { fields(of, "memory")["used_memory_rss"].parse().unwrap() };
    let before = resident(&mut other);
    for number in 0..600 {
        let reply = client.call(&["WATCH", &key(number)]);
        assert_eq!(show(&reply), "+OK");
    }
    // The keys are 540 MB. The bound leaves room for other tests that run at the same time.
    let grown = resident(&mut other).saturating_sub(before);
    assert!(grown < 300_000_000, "{grown} bytes");
    let used = watched_bytes(&mut other);
    assert!((600..1_000_000).contains(&used), "{used}");
    other.call(&["SET", &key(77), "v"]);
    client.check(&[("MULTI", "+OK"), ("EXEC", "nil")]);
    assert_eq!(watched_bytes(&mut other), 0);
}

/// Returns a WATCH of `count` keys with a common prefix.
fn watch_many(prefix: &str, count: usize) -> Vec<u8> {
    let mut words = vec!["WATCH".to_owned()];
    words.extend((0..count).map(|number| format!("{prefix}{number}")));
    encode(&words)
}

#[test]
fn many_keys_are_watched_in_time_and_all_of_them() {
    let open = |_: &std::path::Path| pandodb::Db::builder().max_memory(64 << 20).open_in_memory();
    let server = Fixture::opened_by(options(), open);
    let (mut client, mut other) = (server.client(), server.client());
    let prefix = "x".repeat(100);
    // The client times out after 20 seconds.
    for changed in [0, 31_234, 59_999] {
        client.send(&watch_many(&prefix, 60_000));
        assert_eq!(show(&client.answer()), "+OK");
        other.run(&format!("SET {prefix}{changed} v"));
        client.check(&[("MULTI", "+OK"), ("EXEC", "nil")]);
    }
    client.send(&watch_many(&prefix, 60_000));
    assert_eq!(show(&client.answer()), "+OK");
    client.check(&[("MULTI", "+OK"), ("EXEC", "[]")]);
}

#[test]
fn what_all_connections_watch_is_bounded_and_given_back() {
    let open = |_: &std::path::Path| pandodb::Db::builder().max_memory(16 << 20).open_in_memory();
    let server = Fixture::opened_by(options(), open);
    let (mut first, mut second) = (server.client(), server.client());
    let watch = |client: &mut Client, prefix: &str| {
        client.send(&watch_many(prefix, 5000));
        show(&client.answer())
    };
    assert_eq!(watch(&mut first, "a"), "+OK");
    let used = watched_bytes(&mut second);
    assert_eq!(watch(&mut first, "a"), "+OK");
    assert_eq!(watched_bytes(&mut second), used, "the same keys");
    let refused = watch(&mut second, "b");
    assert!(
        refused.starts_with("-ERR too many watched keys"),
        "{refused}"
    );
    assert_eq!(
        watched_bytes(&mut second),
        used,
        "refused watches take no memory"
    );
    second.check(&[("WATCH one", "+OK"), ("UNWATCH", "+OK")]);
    first.check(&[("UNWATCH", "+OK")]);
    assert_eq!(watch(&mut second, "b"), "+OK");
    drop(second);
    let limit = pando_sync::time::now() + Duration::from_secs(20);
    while watched_bytes(&mut first) > 0 {
        assert!(
            pando_sync::time::now() < limit,
            "a closed connection still watches"
        );
    }
    // A transaction counts towards a client's memory as well.
    let list = first.text("CLIENT LIST");
    assert!(list.contains("multi-mem=0 "), "{list}");
    first.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    let list = first_of(&server, "CLIENT LIST");
    assert!(
        !list.lines().next().unwrap().contains("multi-mem=0 "),
        "{list}"
    );
}

fn first_of(server: &Fixture, command: &str) -> String {
    server.client().text(command)
}

#[test]
fn an_unwatch_that_is_queued_ends_no_watch_of_its_own_transaction() {
    let server = Fixture::opened_by(options(), open_small);
    let (mut client, mut other) = (server.client(), server.client());
    for number in 0..3000 {
        let value = format!("{number:0>1000}");
        other.send(&encode(&["SET", &format!("key:{number}"), &value]));
    }
    for _ in 0..3000 {
        assert_eq!(show(&other.answer()), "+OK");
    }
    client.check(&[("WATCH k", "+OK")]);
    other.check(&[("SET k 1", "+OK")]);
    client.check(&[("MULTI", "+OK"), ("UNWATCH", "+QUEUED")]);
    // These pages are not in memory, so EXEC runs again.
    for number in (0..3000).step_by(100) {
        assert_eq!(client.run(&format!("GET key:{number}")), "+QUEUED");
    }
    client.check(&[("EXEC", "nil")]);
}

/// A key that ends beside a transaction is there in all of its runs, or in none.
#[test]
fn all_runs_of_a_transaction_have_one_clock() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill_long_set(&mut client);
    let elements = (0..40).map(|n| format!("element-{n}"));
    assert_eq!(many(&mut client, &["RPUSH", "l"], elements), ":40");
    let mut seen = BTreeSet::new();
    for round in 0..200 {
        let deadline = (1 + round % 20).to_string();
        client.check(&[("RPUSH a X", ":1")]);
        client.send(&encode(&["PEXPIRE", "a", &deadline]));
        if round % 2 == 1 {
            // Now and then until it has ended.
            thread::sleep(Duration::from_millis(round % 20 + round % 4));
        }
        client.send(
            &[
                encode(&["MULTI"]),
                encode(&["RPUSH", "a", "Z"]),
                encode(&["LMOVE", "a", "l", "LEFT", "RIGHT"]),
                encode(&["LRANGE", "l", "-2", "-1"]),
                encode(&["SINTERCARD", "2", "long", "long"]),
                encode(&["EXEC"]),
            ]
            .concat(),
        );
        let shown = (0..7).map(|_| show(&client.answer())).last().unwrap();
        let of = |moved: &str, length| {
            format!("[:{length} \"{moved}\" [\"element-39\" \"{moved}\"] :8000]")
        };
        assert!([of("X", 2), of("Z", 1)].contains(&shown), "{shown}");
        seen.insert(shown);
        client.run("RPOP l");
        client.run("DEL a");
    }
    assert_eq!(
        seen.len(),
        2,
        "the key ends before some runs, and after others"
    );
}
