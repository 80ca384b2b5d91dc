//! Transactions of several commands: PANDO BEGIN, LOCK, SAVEPOINT, ROLLBACK, COMMIT.

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};
use crate::until_end::End;

/// Waits until `is_so`, which takes seconds at most.
#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = pando_sync::time::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never is");
        thread::yield_now();
    }
}

#[test]
fn commands_between_begin_and_commit_are_one_change() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("GET a", "\"1\""),
        ("INCRBY a 10", ":11"),
        ("DEL b", ":1"),
        ("APPEND c x", ":2"),
        ("SET d 4 EX 100", "+OK"),
        ("MGET a b c d", "[\"11\" nil \"3x\" \"4\"]"),
        ("EXISTS a b c d", ":3"),
        ("KEYS *", "[\"a\" \"c\" \"d\"]"),
        ("SCAN 0 COUNT 100", "[\"0\" [\"a\" \"c\" \"d\"]]"),
        ("DBSIZE", ":3"),
        ("TTL d", ":100"),
    ]);
    other.check(&[
        ("MGET a b c d", "[\"1\" \"2\" \"3\" nil]"),
        ("DBSIZE", ":3"),
    ]);
    client.check(&[("PANDO COMMIT", "+OK")]);
    other.check(&[
        ("MGET a b c d", "[\"11\" nil \"3x\" \"4\"]"),
        ("DBSIZE", ":3"),
    ]);
    client.check(&[
        ("PANDO BEGIN", "+OK"),
        ("SET a 0", "+OK"),
        ("SELECT 1", "+OK"),
        ("SET a 1", "+OK"),
        ("PANDO ROLLBACK", "+OK"),
        ("EXISTS a", ":0"),
        ("SELECT 0", "+OK"),
        ("GET a", "\"11\""),
        ("PANDO BEGIN", "+OK"),
        ("SET a 0", "+OK"),
        ("RESET", "+RESET"),
        ("GET a", "\"11\""),
        ("PANDO COMMIT", "-ERR PANDO COMMIT without PANDO BEGIN"),
    ]);
}

#[test]
fn what_is_refused_says_why() {
    let server = Fixture::new();
    let mut client = server.client();
    let refused = "-ERR Command not allowed inside a transaction";
    client.check(&[
        ("PANDO COMMIT", "-ERR PANDO COMMIT without PANDO BEGIN"),
        ("PANDO ROLLBACK", "-ERR PANDO ROLLBACK without PANDO BEGIN"),
        (
            "PANDO SAVEPOINT",
            "-ERR PANDO SAVEPOINT without PANDO BEGIN",
        ),
        ("PANDO LOCK a", "-ERR PANDO LOCK without PANDO BEGIN"),
        ("PANDO BEGIN SNAPSHOT SNAPSHOT", "-ERR syntax error"),
        ("PANDO BEGIN NONE", "-ERR syntax error"),
        ("PANDO BEGIN TIMEOUT", "-ERR syntax error"),
        ("PANDO BEGIN TIMEOUT 0", "-ERR timeout is not positive"),
        (
            "PANDO BEGIN TIMEOUT x",
            "-ERR value is not an integer or out of range",
        ),
        ("MULTI", "+OK"),
        ("PANDO BEGIN", refused),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("PANDO BEGIN readonly snapshot timeout 5000", "+OK"),
        ("PANDO BEGIN", "-ERR PANDO BEGIN calls can not be nested"),
        ("SET a 1", "-ERR this transaction is READONLY"),
        ("GET a", "nil"),
        ("MULTI", refused),
        ("DISCARD", refused),
        ("EXEC", refused),
        ("WATCH a", refused),
        ("FLUSHALL", refused),
        ("FLUSHDB", refused),
        ("WAIT 1 0", refused),
        ("PANDO ROLLBACK x", "-ERR syntax error"),
        ("PANDO ROLLBACK TO 1", "-ERR there is no such savepoint"),
        ("PANDO COMMIT", "+OK"),
        ("SET a 1", "+OK"),
    ]);
}

#[test]
fn savepoints_are_gone_back_to() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("PANDO BEGIN", "+OK"),
        ("PANDO SAVEPOINT", ":1"),
        ("SET a 1", "+OK"),
        ("PANDO SAVEPOINT", ":2"),
        ("SET a 2", "+OK"),
        ("SET b 2", "+OK"),
        ("PANDO ROLLBACK TO 2", "+OK"),
        ("MGET a b", "[\"1\" nil]"),
        ("PANDO SAVEPOINT", ":3"),
        ("DEL a", ":1"),
        ("PANDO ROLLBACK TO 1", "+OK"),
        ("EXISTS a", ":0"),
        ("PANDO ROLLBACK TO 2", "-ERR there is no such savepoint"),
        ("PANDO ROLLBACK TO 0", "-ERR there is no such savepoint"),
        ("PANDO ROLLBACK TO -1", "-ERR there is no such savepoint"),
        ("SET c 3", "+OK"),
        ("PANDO ROLLBACK TO 1", "+OK"),
        ("SET d 4", "+OK"),
        ("PANDO COMMIT", "+OK"),
        ("KEYS *", "[\"d\"]"),
    ]);
}

/// Which anomalies each level allows, and what the errors say.
#[test]
fn each_level_conflicts_as_it_says() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    // A lost update, a write skew, a phantom.
    let cases: [(&str, [&str; 3]); 3] = [
        ("READCOMMITTED", ["+OK"; 3]),
        ("SNAPSHOT", ["-CONFLICT key x", "+OK", "+OK"]),
        (
            "SERIALIZABLE",
            ["-CONFLICT key x", "-CONFLICT key y", "-CONFLICT range z z"],
        ),
    ];
    for (level, outcomes) in cases {
        for (case, outcome) in outcomes.into_iter().enumerate() {
            let (read, write, elsewhere) = [
                ("GET x", "SET x 1", "SET x 2"),
                ("GET y", "SET x 1", "SET y 2"),
                ("KEYS *", "SET x 1", "SET z 2"),
            ][case];
            client.check(&[("FLUSHALL", "+OK"), ("MSET x 0 y 0", "+OK")]);
            assert_eq!(client.run(&format!("PANDO BEGIN {level}")), "+OK");
            client.run(read);
            other.check(&[(elsewhere, "+OK")]);
            client.check(&[(write, "+OK"), ("PANDO COMMIT", outcome)]);
            if outcome != "+OK" {
                // Everything but a rollback repeats it.
                client.check(&[
                    ("PANDO COMMIT", outcome),
                    ("GET x", outcome),
                    ("PING", outcome),
                    ("PANDO BEGIN", outcome),
                    ("PANDO ROLLBACK TO 1", outcome),
                    ("PANDO ROLLBACK", "+OK"),
                    ("PING", "+PONG"),
                ]);
            }
        }
    }
    // A database that was emptied.
    client.check(&[("PANDO BEGIN", "+OK"), ("GET x", "\"0\"")]);
    other.check(&[("FLUSHDB", "+OK")]);
    client.check(&[
        ("GET x", "\"0\""),
        ("SET x 3", "+OK"),
        ("PANDO COMMIT", "-CONFLICT range - +"),
        ("PANDO ROLLBACK", "+OK"),
        ("GET x", "nil"),
    ]);
}

/// Plain writes of others wait for a lock, then say which key; cycles end.
#[test]
fn locks_make_others_wait() {
    let server = Fixture::opened_by(options(), |_| {
        let options = pandodb::Db::builder().max_memory(32 << 20);
        options
            .lock_timeout(Duration::from_millis(200))
            .open_in_memory()
    });
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK b a b", "+OK")]);
    two.check(&[
        ("SET a 1", "-LOCKTIMEOUT a"),
        ("GET a", "nil"),
        ("SET c 1", "+OK"),
    ]);
    two.send(&encode(&["INCR", "a"]));
    one.check(&[("SET a 5", "+OK"), ("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()), ":6");

    one.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK a", "+OK")]);
    two.check(&[
        ("PANDO BEGIN", "+OK"),
        ("PANDO LOCK b", "+OK"),
        ("PANDO LOCK a", "-LOCKTIMEOUT a"),
        ("GET a", "-LOCKTIMEOUT a"),
        ("PANDO ROLLBACK", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("PANDO LOCK b", "+OK"),
    ]);
    one.send(&encode(&["PANDO", "LOCK", "b"]));
    let cycle = two.run("PANDO LOCK a");
    assert!(
        cycle.starts_with("-DEADLOCK ") || cycle == "-LOCKTIMEOUT a",
        "{cycle}"
    );
    assert!(two.run("PANDO COMMIT").starts_with(&cycle[..8]));
    two.check(&[("PANDO ROLLBACK", "+OK")]);
    let first = show(&one.answer());
    assert!(first == "+OK" || first == "-LOCKTIMEOUT b", "{first}");
    drop(one);
    // The locks of a client that is gone are gone, too, and so is what waits for one.
    let mut set = String::new();
    while set != "+OK" {
        set = two.run("SET a 9");
        assert!(set == "+OK" || set == "-LOCKTIMEOUT a", "{set}");
    }
}

/// A client that does nothing is rolled back, and gives back its locks; one that works is not.
#[test]
fn idle_transactions_are_rolled_back() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[
        ("PANDO BEGIN TIMEOUT 150", "+OK"),
        ("PANDO LOCK a", "+OK"),
        ("SET a 1", "+OK"),
    ]);
    // Waits for the lock.
    two.check(&[("SET a 2", "+OK")]);
    let lost = "-SNAPSHOTENDED the transaction had no command for 150 ms, and was rolled back";
    one.check(&[
        ("GET a", lost),
        ("PANDO COMMIT", lost),
        ("PANDO ROLLBACK", "+OK"),
        ("GET a", "\"2\""),
        ("PANDO BEGIN TIMEOUT 1000", "+OK"),
    ]);
    for _ in 0..60 {
        thread::park_timeout(Duration::from_millis(25));
        one.check(&[("INCR n", ":1"), ("DECR n", ":0")]);
    }
    one.check(&[("PANDO COMMIT", "+OK")]);
}

/// A transaction has the clock of its beginning.
#[test]
fn what_expires_during_a_transaction_is_there_to_its_end() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[
        ("SET a 1 PX 60", "+OK"),
        ("PANDO BEGIN SNAPSHOT READONLY", "+OK"),
        ("GET a", "\"1\""),
    ]);
    wait_until(|| two.run("GET a") == "nil");
    one.check(&[
        ("GET a", "\"1\""),
        ("DBSIZE", ":1"),
        ("PANDO COMMIT", "+OK"),
        ("GET a", "nil"),
    ]);
}

fn number_at(client: &mut Client, key: &str) -> i64 {
    client.text(&format!("GET {key}")).parse().unwrap()
}

/// Transfers between accounts of many clients, each with its own think time: the sum stays, and
/// whoever reads all accounts at a snapshot always sees it.
#[test]
fn transfers_keep_the_sum_with_few_frames() {
    const ACCOUNTS: usize = 600;
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    for number in 0..ACCOUNTS {
        let padding = "x".repeat(200);
        client.check(&[
            (&format!("SET account:{number} 100"), "+OK"),
            (&format!("SET filler:{number} {padding}"), "+OK"),
        ]);
    }
    let all: Vec<String> = (0..ACCOUNTS)
        .map(|number| format!("account:{number}"))
        .collect();
    let all = format!("MGET {}", all.join(" "));
    let sum = |client: &mut Client, command: &str| {
        let shown = client.run(command);
        let numbers = shown.split('"').filter_map(|word| word.parse::<i64>().ok());
        numbers.sum::<i64>()
    };
    let expected = 100 * i64::try_from(ACCOUNTS).unwrap();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u64)
            .map(|seed| {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let (mut done, mut conflicts) = (0, 0);
                    while done < 60 {
                        let mut pick = || format!("account:{}", random.usize(..ACCOUNTS));
                        let (from, to) = (pick(), pick());
                        assert_eq!(client.run("PANDO BEGIN"), "+OK");
                        if done % 3 == 0 {
                            let locked = client.run(&format!("PANDO LOCK {from} {to}"));
                            assert_eq!(locked, "+OK");
                        }
                        let balance = number_at(&mut client, &from);
                        client.run(&format!("SET {from} {}", balance - 1));
                        let balance = number_at(&mut client, &to);
                        client.run(&format!("SET {to} {}", balance + 1));
                        match client.run("PANDO COMMIT").as_str() {
                            "+OK" => done += 1,
                            lost if lost.starts_with("-CONFLICT key account:") => {
                                conflicts += 1;
                                assert_eq!(client.run("PANDO ROLLBACK"), "+OK");
                            }
                            other => panic!("{other}"),
                        }
                    }
                    conflicts
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            assert_eq!(sum(&mut client, &all), expected);
            assert_eq!(client.run("PANDO BEGIN SNAPSHOT READONLY"), "+OK");
            let mut seen = 0;
            for number in 0..ACCOUNTS {
                seen += number_at(&mut client, &format!("account:{number}"));
            }
            assert_eq!(seen, expected);
            client.check(&[("PANDO COMMIT", "+OK")]);
        }
    });
    assert_eq!(sum(&mut client, &all), expected);
}

/// A long string that is replaced during the transaction is sent as it was.
#[test]
fn long_strings_are_read_as_they_were() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let (mut one, mut two) = (server.client(), server.client());
    let old = vec![b'o'; 3 << 20];
    let new = vec![b'n'; 2 << 20];
    let set = |client: &mut Client, value: &[u8]| {
        let answer = client.call(&[b"SET".as_slice(), b"long", value]);
        assert_eq!(show(&answer), "+OK");
    };
    set(&mut one, &old);
    one.check(&[("PANDO BEGIN", "+OK"), ("STRLEN long", ":3145728")]);
    set(&mut two, &new);
    one.check(&[
        ("STRLEN long", ":3145728"),
        ("GETRANGE long 3145720 -1", "\"oooooooo\""),
    ]);
    let text = one.text("GET long");
    assert_eq!(text.len(), old.len());
    assert!(text.bytes().all(|byte| byte == b'o'));
    one.check(&[
        ("APPEND long z", ":3145729"),
        ("GETRANGE long 3145726 -1", "\"ooz\""),
        ("PANDO COMMIT", "-CONFLICT key long"),
        ("PANDO ROLLBACK", "+OK"),
        ("STRLEN long", ":2097152"),
        ("PANDO BEGIN", "+OK"),
        ("APPEND long z", ":2097153"),
        ("SETRANGE long 0 abc", ":2097153"),
        ("KEYS *", "[\"long\"]"),
        ("PANDO COMMIT", "+OK"),
        ("GETRANGE long 0 3", "\"abcn\""),
        ("GETRANGE long -2 -1", "\"nz\""),
    ]);
}

/// A greedy client: what a transaction takes is bounded, and shown.
#[test]
fn a_transaction_that_takes_too_much_is_told() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[("PANDO BEGIN", "+OK")]);
    let value = vec![b'v'; 200 << 10];
    let mut refused = String::new();
    for number in 0..200 {
        let key = format!("key:{number}");
        let answer = one.call(&[b"SET".as_slice(), key.as_bytes(), &value]);
        refused = show(&answer);
        if refused != "+OK" {
            break;
        }
    }
    assert_eq!(
        refused,
        "-ERR the transaction takes too much memory, and was rolled back"
    );
    // What was sent behind it is not committed without it.
    one.check(&[("PANDO COMMIT", &refused), ("PANDO ROLLBACK", "+OK")]);
    let big = vec![b'v'; 100 << 10];
    one.check(&[("PANDO BEGIN", "+OK")]);
    for number in 0..100 {
        let key = format!("key:{number}");
        let answer = one.call(&[b"SET".as_slice(), key.as_bytes(), &big]);
        assert_eq!(show(&answer), "+OK");
    }
    let list = two.text("CLIENT LIST");
    let line = list.lines().find(|line| line.contains("cmd=set")).unwrap();
    let memory = line
        .split(' ')
        .find_map(|word| word.strip_prefix("multi-mem="));
    assert!(
        memory.unwrap().parse::<usize>().unwrap() > 100 * big.len(),
        "{line}"
    );
    // The log takes no such batch: then only ROLLBACK is left.
    let commit = one.run("PANDO COMMIT");
    assert!(
        commit.starts_with("-ERR ") && commit.contains("batch"),
        "{commit}"
    );
    assert_eq!(one.run("GET a"), commit);
    one.check(&[("PANDO ROLLBACK", "+OK"), ("DBSIZE", ":0")]);
    let keys: Vec<String> = (0..10_001).map(|number| number.to_string()).collect();
    let lock = |count: usize| format!("PANDO LOCK {}", keys[..count].join(" "));
    let refused = "-ERR a transaction locks 10000 keys at most";
    one.check(&[
        ("PANDO BEGIN", "+OK"),
        (&lock(10_001), refused),
        (&lock(10_000), "+OK"),
        ("PANDO LOCK another", refused),
        ("PANDO COMMIT", "+OK"),
    ]);
}

/// A LOCK that has to wait for one of its last keys already holds the others.
#[test]
fn a_lock_of_many_keys_that_waits_takes_all() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    let keys: Vec<String> = (0..6000).map(|number| format!("k{number:04}")).collect();
    one.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK k5999", "+OK")]);
    two.check(&[("PANDO BEGIN", "+OK")]);
    let lock = format!("PANDO LOCK {}", keys.join(" "));
    two.send(&encode(&lock.split(' ').collect::<Vec<_>>()));
    thread::park_timeout(Duration::from_millis(200));
    one.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()), "+OK");
    one.check(&[("SET k5999 1", "-LOCKTIMEOUT k5999")]);
    two.check(&[("PANDO COMMIT", "+OK")]);
}

/// A reply that is longer than what may be owed is complete before its commit waits for a lock.
#[test]
fn a_long_reply_whose_commit_waits_is_sent() {
    let server = Fixture::opened_by(options(), |_| {
        let options = pandodb::Db::builder().max_memory(64 << 20);
        options
            .lock_timeout(Duration::from_millis(300))
            .open_in_memory()
    });
    let (mut one, mut two) = (server.client(), server.client());
    let value = vec![b'v'; 2_200_000];
    let set = one.call(&[b"SET".as_slice(), b"k", &value]);
    assert_eq!(show(&set), "+OK");
    one.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK k", "+OK")]);
    two.check(&[("GETSET k 1", "-LOCKTIMEOUT k")]);
    two.send(&encode(&["GETDEL", "k"]));
    thread::park_timeout(Duration::from_millis(100));
    one.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()).len(), value.len() + 2);
    two.check(&[("EXISTS k", ":0")]);
}

/// Keys that expire while they are locked do not keep others from being removed.
#[test]
fn others_expire_beside_a_lock() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    two.check(&[("SET a 1 PX 50", "+OK")]);
    one.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK a", "+OK")]);
    for number in 0..200 {
        two.check(&[(&format!("SET k{number} 1 PX 80"), "+OK")]);
    }
    wait_until(|| two.run("DBSIZE") == ":1");
    one.check(&[("PANDO ROLLBACK", "+OK")]);
    wait_until(|| two.run("DBSIZE") == ":0");
}

/// What is in the head of a large collection must be true of its elements, at a level that checks
/// no reads, too: who writes it locks it, and who waited for that reads it anew.
#[test]
fn large_collections_are_locked_by_who_writes_them() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    let fields = (0..50).map(|n| format!("f{n} value"));
    let fill = format!("HSET s {}", fields.collect::<Vec<_>>().join(" "));
    one.check(&[
        ("CONFIG SET packed-bytes-max 20", "+OK"),
        (&fill, ":50"),
        ("PANDO BEGIN READCOMMITTED", "+OK"),
        ("HLEN s", ":50"),
        ("HSET s one v", ":1"),
    ]);
    two.send(&encode(&["DEL", "s"]));
    thread::park_timeout(Duration::from_millis(50));
    one.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()), ":1");
    one.check(&[("HGETALL s", "[]"), (&fill, ":50")]);
    // Both write, one after the other.
    for client in [&mut one, &mut two] {
        client.check(&[("PANDO BEGIN READCOMMITTED", "+OK"), ("HLEN s", ":50")]);
    }
    one.check(&[("HSET s one v", ":1")]);
    two.send(&encode(&["HSET", "s", "two", "v"]));
    thread::park_timeout(Duration::from_millis(50));
    one.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()), ":1");
    two.check(&[("HLEN s", ":52"), ("PANDO COMMIT", "+OK")]);
    one.check(&[("HLEN s", ":52"), ("HMGET s one two", "[\"v\" \"v\"]")]);
    assert_eq!(one.run("HKEYS s").split(' ').count(), 52);
    // One that is rolled back has changed nothing, and others go on.
    one.check(&[
        ("PANDO BEGIN READCOMMITTED", "+OK"),
        ("DEL s", ":1"),
        ("PANDO ROLLBACK", "+OK"),
    ]);
    two.check(&[("HDEL s two", ":1"), ("HLEN s", ":51")]);
}

/// Any command keeps a transaction, and what comes in of a long one; a client that does not read
/// its replies keeps nothing.
#[test]
fn only_clients_that_do_something_keep_their_transactions() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    one.check(&[("PANDO BEGIN TIMEOUT 300", "+OK"), ("SET a 1", "+OK")]);
    for _ in 0..10 {
        thread::park_timeout(Duration::from_millis(60));
        one.check(&[("PING", "+PONG")]);
    }
    let set = encode(&["SET", "b", &"v".repeat(100)]);
    for piece in set.chunks(15) {
        thread::park_timeout(Duration::from_millis(60));
        one.send(piece);
    }
    assert_eq!(show(&one.answer()), "+OK");
    one.check(&[("PANDO COMMIT", "+OK"), ("MGET a", "[\"1\"]")]);

    let long = "v".repeat(512 << 10);
    two.check(&[(&format!("SET long {long}"), "+OK")]);
    one.check(&[("PANDO BEGIN TIMEOUT 100", "+OK"), ("PANDO LOCK a", "+OK")]);
    one.send(&encode(&["GET", "long"]).repeat(400));
    let mut set = String::new();
    while set != "+OK" {
        set = two.run("SET a 2");
        assert!(set == "+OK" || set == "-LOCKTIMEOUT a", "{set}");
    }
    drop(one);
}

/// Keys in errors are one word each.
#[test]
fn errors_name_keys_of_any_bytes() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    let long = vec![b'l'; 5000];
    let cases: [(&[u8], &str); 5] = [
        (b"plain:1", "-CONFLICT key plain:1"),
        (b"two words", "-CONFLICT key \"two words\""),
        (
            b"a\r\n-ERR \xff\"",
            "-CONFLICT key \"a\\r\\n-ERR \\xff\\\"\"",
        ),
        (b"", "-CONFLICT key \"\""),
        (&long, "..."),
    ];
    for (key, expected) in cases {
        one.check(&[("PANDO BEGIN", "+OK")]);
        assert_eq!(show(&one.call(&[b"GET".as_slice(), key])), "nil");
        assert_eq!(show(&two.call(&[b"SET".as_slice(), key, b"1"])), "+OK");
        one.check(&[("SET x 1", "+OK")]);
        let lost = one.run("PANDO COMMIT");
        assert!(
            lost == expected || key.len() > 100 && lost.ends_with(expected),
            "{lost}"
        );
        one.check(&[("PANDO ROLLBACK", "+OK")]);
    }
}

/// Keys that nobody writes are read at once, whatever is written beside them: after one conflict
/// the command reads at a snapshot.
#[test]
fn many_keys_are_read_after_one_conflict_at_most() {
    const KEYS: usize = 20_000;
    // A snapshot that is ended, since the writer is much faster, would be a conflict more.
    let server = Fixture::opened_by(options(), |directory| {
        pandodb::Db::builder().max_memory(512 << 20).open(directory)
    });
    let mut client = server.client();
    let names: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    let pairs: Vec<String> = names.iter().map(|name| format!("{name} 1")).collect();
    assert_eq!(client.run(&format!("MSET {}", pairs.join(" "))), "+OK");
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        let mut writer = server.client();
        let stopped = &stop;
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            while !stopped.is_there() {
                let set = |_| encode(&["SET", &format!("other{}", random.u32(..)), "1"]);
                writer.send(&(0..64).map(set).collect::<Vec<_>>().concat());
                (0..64).for_each(|_| assert_eq!(show(&writer.answer()), "+OK"));
            }
        });
        let conflicts = |client: &mut Client| {
            let info = client.text("INFO stats");
            let mut lines = info.lines();
            let line = lines.find_map(|line| line.strip_prefix("transaction_conflicts:"));
            line.unwrap().trim().parse::<usize>().unwrap()
        };
        // The writer alone meets none.
        let before = conflicts(&mut client);
        let exists = format!("EXISTS {}", names.join(" "));
        for _ in 0..10 {
            assert_eq!(client.run(&exists), format!(":{KEYS}"));
        }
        let met = conflicts(&mut client) - before;
        assert!(met <= 10, "{met} conflicts in 10 commands");
        drop(bring);
    });
}

/// INFO and CLIENT LIST say who keeps a transaction open, and what that takes.
#[test]
fn open_transactions_are_shown() {
    let server = Fixture::new();
    let (mut one, mut other) = (server.client(), server.client());
    let figure = |client: &mut Client, name: &str| {
        let info = client.text("INFO transactions");
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        let value = value.unwrap_or_else(|| panic!("{name} in {info}"));
        value.trim_start_matches(':').parse::<u64>().unwrap()
    };
    one.check(&[
        ("SET a 1", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("GET a", "\"1\""),
    ]);
    assert_eq!(figure(&mut other, "transactions_open"), 1);
    assert_eq!(figure(&mut other, "snapshots_in_memory:"), 1);
    while figure(&mut other, "transactions_oldest_ms") == 0
        || figure(&mut other, "snapshots_in_memory_oldest_ms") == 0
    {
        thread::yield_now();
    }
    let list = other.text("CLIENT LIST");
    let idle = |line: &&str| line.ends_with(" transaction-ms=0");
    assert_eq!(list.lines().filter(idle).count(), 1, "{list}");
    let commits = figure(&mut other, "commits_refused");
    other.check(&[("SET a 2", "+OK")]);
    one.check(&[
        ("SET b 1", "+OK"),
        ("PANDO COMMIT", "-CONFLICT key a"),
        ("PANDO ROLLBACK", "+OK"),
    ]);
    assert_eq!(figure(&mut other, "commits_refused"), commits + 1);
    assert_eq!(figure(&mut other, "transactions_open"), 0);
    assert_eq!(figure(&mut other, "snapshots_in_memory:"), 0);
    assert_eq!(figure(&mut other, "snapshots_settled:"), 0);
}

/// A key moves to and fro between the first leaf and the last, by EXEC: KEYS finds it once. Values
/// are in leaves, in overflow pages and in chunks.
#[test]
fn keys_shows_one_moment() {
    let server = Fixture::opened_by(options(), |path| {
        let options = pandodb::Db::builder().max_memory(64 << 20).frames(600);
        options.chunk_values_over(16 << 10).open(path)
    });
    let mut client = server.client();
    let lengths = |number: usize| match number % 100 {
        0 => 20_000,
        1..4 => 3_000,
        _ => 100,
    };
    for number in 0..6_000 {
        let value = "v".repeat(lengths(number));
        client.check(&[(&format!("SET key:{number:05} {value}"), "+OK")]);
    }
    client.check(&[("SET a 1", "+OK")]);
    let (stop, moves) = (End::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        let bring = stop.brought();
        let (mut mover, stop, moves) = (server.client(), &stop, &moves);
        scope.spawn(move || {
            // Nobody waits for moves that it does not make any more.
            let _bring = stop.brought();
            for (from, to) in [("a", "z"), ("z", "a")].into_iter().cycle() {
                if stop.is_there() {
                    break;
                }
                let put = format!("SET {to} 1");
                let delete = format!("DEL {from}");
                mover.check(&[
                    ("MULTI", "+OK"),
                    (&put, "+QUEUED"),
                    (&delete, "+QUEUED"),
                    ("EXEC", "[+OK :1]"),
                ]);
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        let enough = |begun: u64| moves.load(Ordering::Relaxed) >= begun + 10;
        for round in 0..20 {
            let begun = moves.load(Ordering::Relaxed);
            let found = client.run("KEYS ?");
            assert!(found == "[\"a\"]" || found == "[\"z\"]", "{round}: {found}");
            while !enough(begun) && !stop.is_there() {
                thread::yield_now();
            }
        }
        let all = client.run("KEYS *");
        assert_eq!(all.split(' ').count(), 6_001);
        drop(bring);
    });
    client.check(&[
        ("PANDO BEGIN", "+OK"),
        ("DBSIZE", ":6001"),
        ("PANDO ROLLBACK", "+OK"),
    ]);
}

/// The memory for old versions is small: the snapshots of commands are ended, and they go on
/// without.
#[test]
fn many_keys_are_read_while_snapshots_are_ended() {
    let server = Fixture::opened_by(options(), |path| {
        let options = pandodb::Db::builder().max_memory(8 << 20).frames(100);
        options.open(path)
    });
    let mut client = server.client();
    let names: Vec<String> = (0..700).map(|number| format!("k{number}")).collect();
    let value = "v".repeat(2000);
    for name in &names {
        client.check(&[(&format!("SET {name} {value}"), "+OK")]);
    }
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        for seed in 0..2 {
            let (mut writer, stop, value) = (server.client(), &stop, &value);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.is_there() {
                    let set = |_| encode(&["SET", &format!("k{}", random.u32(..700)), value]);
                    writer.send(&(0..64).map(set).collect::<Vec<_>>().concat());
                    (0..64).for_each(|_| assert_eq!(show(&writer.answer()), "+OK"));
                }
            });
        }
        let exists = format!("EXISTS {}", names.join(" "));
        for _ in 0..15 {
            assert_eq!(client.run(&exists), ":700");
        }
        drop(bring);
    });
}
