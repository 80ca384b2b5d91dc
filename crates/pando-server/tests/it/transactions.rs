//! MULTI, EXEC, DISCARD, WATCH.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::fixture::Fixture;
use crate::statistics::fields;

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
        // What was watched is forgotten, too.
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
        // Watches end with EXEC.
        other.run("SET a changed");
        client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
    }
    client.check(&[("WATCH a", "+OK"), ("UNWATCH", "+OK")]);
    other.run("SET a 3");
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
    // An EXEC or DISCARD that ends no transaction ends no watch.
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
    // On a slow machine the key may end before it is watched: then again.
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

#[test]
fn nobody_sees_half_an_exec() {
    let server = Fixture::new();
    let (stop, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut first = server.client();
    first.run("MSET x 0 y 0");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client();
                    let mut done = 0;
                    while !enough.load(Ordering::Relaxed) {
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
                    while !stop.load(Ordering::Relaxed) {
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
        // Some have come between a run and its commit.
        while fields(&mut first, "stats")["transaction_conflicts"]
            .parse::<u64>()
            .unwrap()
            < 3
        {
            thread::yield_now();
        }
        enough.store(true, Ordering::Relaxed);
        let done = writers.into_iter().map(|writer| writer.join().unwrap());
        let done: u64 = done.sum();
        stop.store(true, Ordering::Relaxed);
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
