//! SWAPDB: databases change places for everybody at once.

use pando_sync::thread;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_counted, open_on_disk, open_small, options};
use crate::tracking::{told, tracking};
use crate::trees::{client_of, fill, many};
use crate::until_end::End;

/// Sends a command whose reply comes later.
fn begin(client: &mut Client, command: &str) {
    client.send(&encode(&words(command)));
}

fn wait_for_waiters(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    while !client.text("INFO clients").contains(&line) {
        thread::yield_now();
    }
}

#[test]
fn databases_change_places_with_all_that_they_have() {
    check_swap(&Fixture::new());
}

/// The other databases get tables of the kind that the first one has.
#[test]
fn databases_of_an_old_store_change_places_with_all_that_they_have() {
    check_swap(&Fixture::opened_by(options(), open_counted));
}

fn check_swap(server: &Fixture) {
    let mut client = client_of(server);
    client.check(&[("SET own 0", "+OK"), ("SET t 0 EX 1000", "+OK")]);
    fill(&mut client, 200);
    client.check(&[
        ("XADD x 1-1 f v", "\"1-1\""),
        ("XGROUP CREATE x g 0", "+OK"),
        ("SELECT 7", "+OK"),
        ("SET own 7", "+OK"),
        ("RPUSH l a b c", ":3"),
        ("SWAPDB 0 7", "+OK"),
        ("DBSIZE", ":7"),
        ("GET own", "\"0\""),
        ("TTL t", ":1000"),
        ("HLEN h", ":200"),
        ("HGET h f77", "\"v77\""),
        ("ZRANK z m00003", ":21"),
        ("LINDEX l -1", "\"e199\""),
        ("SISMEMBER s m9", ":1"),
        ("XLEN x", ":1"),
        (
            "XREADGROUP GROUP g c STREAMS x >",
            "[[\"x\" [[\"1-1\" [\"f\" \"v\"]]]]]",
        ),
    ]);
    // Large collections that are made now get ids that nothing has there.
    for number in 0..8 {
        let pairs = (0..200).flat_map(|n| [format!("g{n}"), "w".to_owned()]);
        let name = format!("new{number}");
        assert_eq!(many(&mut client, &["HSET", &name], pairs), ":200");
    }
    client.check(&[
        ("HGET h f77", "\"v77\""),
        ("HLEN h", ":200"),
        ("HGET h g77", "nil"),
        ("SCARD s", ":200"),
        ("ZCARD z", ":200"),
        ("SISMEMBER s m9", ":1"),
        ("LLEN l", ":200"),
        ("LRANGE l 0 1", "[\"e0\" \"e1\"]"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":2"),
        ("GET own", "\"7\""),
        ("LRANGE l 0 -1", "[\"a\" \"b\" \"c\"]"),
        ("HSET h a b c d e f g h i j k l m n o p", ":8"),
        ("SWAPDB 7 0", "+OK"),
        ("HLEN h", ":200"),
        ("HLEN new7", ":200"),
        ("SWAPDB 0 7", "+OK"),
        ("HGETALL h", "[\"a\" \"b\" \"c\" \"d\" \"e\" \"f\" \"g\" \"h\" \"i\" \"j\" \"k\" \"l\" \"m\" \"n\" \"o\" \"p\"]"),
        ("SELECT 7", "+OK"),
        ("HGET new0 f77", "nil"),
        ("HLEN new0", ":200"),
    ]);
}

#[test]
fn what_is_no_pair_of_databases_is_refused_as_by_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (
            "SWAPDB",
            "-ERR wrong number of arguments for 'swapdb' command",
        ),
        (
            "SWAPDB 0",
            "-ERR wrong number of arguments for 'swapdb' command",
        ),
        ("SWAPDB a b", "-ERR invalid first DB index"),
        ("SWAPDB 0 b", "-ERR invalid second DB index"),
        ("SWAPDB 01 1", "-ERR invalid first DB index"),
        ("SWAPDB 4294967296 0", "-ERR invalid first DB index"),
        ("SWAPDB 0 16", "-ERR DB index is out of range"),
        ("SWAPDB -1 0", "-ERR DB index is out of range"),
        ("SWAPDB 16 16", "-ERR DB index is out of range"),
        ("SWAPDB 3 3", "+OK"),
        (
            "COMMAND GETKEYS SWAPDB 0 1",
            "-ERR The command has no key arguments",
        ),
        ("MULTI", "+OK"),
        (
            "SWAPDB 0 1",
            "-ERR Command not allowed inside a transaction",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("PANDO BEGIN", "+OK"),
    ]);
    assert!(client.run("SWAPDB 0 1").starts_with("-ERR"));
    client.check(&[("PANDO ROLLBACK", "+OK")]);
    #[cfg(feature = "scripts")]
    {
        let refused = show(&client.call(&["EVAL", "return redis.call('SWAPDB', 0, 1)", "0"]));
        let expected = "-ERR This Redis command is not allowed from script";
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn databases_are_where_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for life in 0..3 {
        let path = directory.path().to_owned();
        let server = Fixture::opened_by(options(), move |_| open_on_disk(&path));
        let mut client = client_of(&server);
        if life == 0 {
            fill(&mut client, 100);
            client.check(&[
                ("SELECT 1", "+OK"),
                ("HSET h a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8", ":8"),
                ("SWAPDB 1 0", "+OK"),
            ]);
        }
        client.check(&[
            ("SELECT 1", "+OK"),
            ("HLEN h", ":100"),
            ("HGET h f77", "\"v77\""),
            ("SELECT 0", "+OK"),
            ("HLEN h", ":8"),
            ("HGET h d", "\"4\""),
        ]);
        // The ids of this life are new in both.
        let name = format!("new{life}");
        client.check(&[
            (&format!("RPUSH {name} aaa bbb ccc ddd eee fff"), ":6"),
            ("SWAPDB 0 1", "+OK"),
            (&format!("SADD {name} aaa bbb ccc ddd eee fff"), ":6"),
            ("SWAPDB 0 1", "+OK"),
            (&format!("LLEN {name}"), ":6"),
        ]);
        // One is given up, and swept away where it is.
        client.check(&[
            ("DEL h", ":1"),
            ("HSET h a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8", ":8"),
        ]);
    }
}

#[test]
fn watched_keys_of_both_databases_are_changed() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    // By key and database: existed, exists behind the swap, neither; in a database beside.
    let cases = [
        ("0", "here", "0 1", "nil"),
        ("1", "there", "0 1", "nil"),
        ("0", "there", "0 1", "nil"),
        // Redis does not take this one for changed.
        ("0", "none", "0 1", "nil"),
        ("2", "here", "0 1", "[+OK]"),
        ("2", "none", "0 1", "[+OK]"),
        ("0", "here", "0 0", "[+OK]"),
    ];
    client.check(&[
        ("SET here 1", "+OK"),
        ("SELECT 1", "+OK"),
        ("SET there 1", "+OK"),
    ]);
    client.check(&[("SELECT 2", "+OK"), ("SET here 1", "+OK")]);
    for twice in [false, true] {
        for (database, key, swapped, expected) in cases {
            client.check(&[
                (&format!("SELECT {database}"), "+OK"),
                (&format!("WATCH {key}"), "+OK"),
            ]);
            other.check(&[(&format!("SWAPDB {swapped}"), "+OK")]);
            if twice {
                other.check(&[(&format!("SWAPDB {swapped}"), "+OK")]);
            }
            client.check(&[
                ("MULTI", "+OK"),
                ("SET result 1", "+QUEUED"),
                ("EXEC", expected),
            ]);
            if !twice {
                other.check(&[(&format!("SWAPDB {swapped}"), "+OK")]);
            }
        }
    }
}

#[test]
fn who_waits_for_a_key_of_either_database_is_served() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut waiters: Vec<Client> = (0..6).map(|_| server.client()).collect();
    client.check(&[
        ("RPUSH l a b", ":2"),
        ("ZADD z 1 m", ":1"),
        ("XADD x 1-1 f v", "\"1-1\""),
        ("SELECT 1", "+OK"),
        ("XADD y 1-1 f v", "\"1-1\""),
        ("XGROUP CREATE y g $", "+OK"),
        ("RPUSH other o", ":1"),
    ]);
    let waits = [
        ("1", "BLPOP l 0"),
        ("1", "BLPOP l 0"),
        ("1", "BZPOPMIN z 0"),
        ("1", "XREAD BLOCK 0 STREAMS x 0"),
        ("1", "XREADGROUP GROUP g c BLOCK 0 STREAMS y >"),
        ("0", "BRPOP other 0"),
    ];
    for (number, (waiter, (database, command))) in waiters.iter_mut().zip(waits).enumerate() {
        waiter.check(&[(&format!("SELECT {database}"), "+OK")]);
        begin(waiter, command);
        wait_for_waiters(&mut client, number + 1);
    }
    client.check(&[("SWAPDB 0 1", "+OK")]);
    let expected = [
        "[\"l\" \"a\"]",
        "[\"l\" \"b\"]",
        "[\"z\" \"m\" \"1\"]",
        "[[\"x\" [[\"1-1\" [\"f\" \"v\"]]]]]",
    ];
    for (waiter, expected) in waiters.iter_mut().zip(expected) {
        assert_eq!(show(&waiter.answer()), expected);
    }
    let gone = show(&waiters[4].answer());
    assert!(
        gone.starts_with("-NOGROUP") || gone.starts_with("-UNBLOCKED"),
        "{gone}"
    );
    assert_eq!(show(&waiters[5].answer()), "[\"other\" \"o\"]");
}

#[test]
fn who_keeps_keys_forgets_all_and_no_key_has_an_event() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET k 1", "+OK"),
        ("CONFIG SET notify-keyspace-events KEA", "+OK"),
    ]);
    let mut keeper = tracking(&server, "");
    assert_eq!(keeper.run("GET k"), "\"1\"");
    let mut subscriber = server.client();
    begin(&mut subscriber, "PSUBSCRIBE __key*");
    assert!(show(&subscriber.answer()).contains("psubscribe"));
    client.check(&[("SWAPDB 0 1", "+OK"), ("SET seen 1", "+OK")]);
    assert_eq!(told(&mut keeper), ">(nil)");
    assert!(show(&subscriber.answer()).contains("seen"));
}

#[test]
fn keys_expire_where_they_are() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    for number in 0..300 {
        client.run(&format!("SET k{number} v PX {}", 20 + number));
        client.run(&format!("HSET h{number} aaa bbb ccc ddd eee fff"));
        client.run(&format!("PEXPIRE h{number} {}", 20 + number));
    }
    client.check(&[("SET lasting v PX 1000000", "+OK"), ("SWAPDB 0 9", "+OK")]);
    client.check(&[
        ("SET here v PX 1000000", "+OK"),
        ("DBSIZE", ":1"),
        ("SELECT 9", "+OK"),
    ]);
    while client.run("DBSIZE") != ":1" {
        client.run("SWAPDB 9 4");
        client.run("SWAPDB 4 9");
        thread::yield_now();
    }
    client.check(&[
        ("EXISTS lasting", ":1"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":1"),
    ]);
}

/// What all keys of a database say, if they belong together.
fn of_one(replies: &[String], what: &str) {
    let number = |text: &str| {
        let mut digits = text.split(|byte: char| !byte.is_ascii_digit());
        digits.find(|digits| !digits.is_empty()).map(str::to_owned)
    };
    let first = number(&replies[0]);
    for reply in replies {
        let mut numbers = reply.split_ascii_whitespace().map(number);
        assert!(numbers.all(|of| of == first), "{what}: {replies:?}");
    }
}

/// Gives a hash, a list and a string of the selected database the value `number`, together.
fn write_all(client: &mut Client, number: usize) {
    let mut hash = vec!["HSET".to_owned(), "h".to_owned()];
    let mut list = vec!["RPUSH".to_owned(), "l".to_owned()];
    for field in 0..40 {
        hash.extend([format!("f{field}"), number.to_string()]);
        list.push(number.to_string());
    }
    client.check(&[("MULTI", "+OK"), ("DEL l", "+QUEUED")]);
    assert_eq!(show(&client.call(&hash)), "+QUEUED");
    assert_eq!(show(&client.call(&list)), "+QUEUED");
    client.check(&[(&format!("SET s {number}"), "+QUEUED")]);
    assert!(client.run("EXEC").ends_with("+OK]"));
}

/// All values of a database are the same number, whatever is swapped: in each of them are
/// collections of the same names, written together.
fn beside_swaps(server: &Fixture) {
    let mut client = client_of(server);
    for database in 0..3 {
        client.run(&format!("SELECT {database}"));
        write_all(&mut client, database);
    }
    let ended = End::default();
    thread::scope(|scope| {
        let bring = ended.brought();
        for reader in 0..3 {
            let ended = &ended;
            scope.spawn(move || {
                let mut client = server.client();
                while !ended.is_there() {
                    client.run(&format!("SELECT {}", reader % 2));
                    // Without a transaction, each of them alone.
                    of_one(&[client.run("HVALS h")], "hash");
                    of_one(&[client.run("LRANGE l 0 -1")], "list");
                    assert_eq!(client.run("LLEN l"), ":40");
                    client.run("MULTI");
                    for command in ["GET s", "HVALS h", "LRANGE l 0 -1"] {
                        client.run(command);
                    }
                    of_one(&[client.run("EXEC")], "together");
                    client.check(&[("PANDO BEGIN", "+OK")]);
                    let all =
                        ["GET s", "HVALS h", "LRANGE l 0 -1"].map(|command| client.run(command));
                    client.run("PANDO ROLLBACK");
                    of_one(&all, "interactive");
                }
            });
        }
        let ended = &ended;
        scope.spawn(move || {
            let mut client = server.client();
            for number in 0.. {
                if ended.is_there() {
                    break;
                }
                client.run(&format!("SELECT {}", number % 3));
                write_all(&mut client, 10 + number);
            }
        });
        for swapper in 0..2 {
            let (mut client, pairs) = (server.client(), [["0 1", "1 0"], ["1 2", "0 2"]][swapper]);
            let mut work = move || {
                for number in 0..150 {
                    client.check(&[(&format!("SWAPDB {}", pairs[number % 2]), "+OK")]);
                }
            };
            match swapper {
                0 => drop(scope.spawn(work)),
                _ => work(),
            }
        }
        drop(bring);
    });
}

#[test]
fn nobody_sees_parts_of_two_databases() {
    beside_swaps(&Fixture::new());
}

#[test]
fn nobody_sees_parts_of_two_databases_that_are_on_disk() {
    beside_swaps(&Fixture::opened_by(options(), open_small));
}

#[test]
fn a_transaction_of_several_requests_notices_a_swap() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("SET k 0", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("GET k", "\"0\""),
        ("SET written 1", "+OK"),
    ]);
    other.check(&[("SWAPDB 0 1", "+OK"), ("EXISTS k", ":0")]);
    client.check(&[("GET k", "\"0\"")]);
    let ended = client.run("PANDO COMMIT");
    assert!(ended.starts_with('-'), "{ended}");
    other.check(&[("DBSIZE", ":0"), ("SELECT 1", "+OK"), ("DBSIZE", ":1")]);
}

/// The commands of many clients, and an emptying, go on beside.
#[test]
fn emptyings_and_pipelines_go_on_beside_swaps() {
    let server = Fixture::new();
    let ended = End::default();
    thread::scope(|scope| {
        let bring = ended.brought();
        for number in 0..4 {
            let (server, ended) = (&server, &ended);
            scope.spawn(move || {
                let mut client = server.client();
                let sets: Vec<u8> = (0..20)
                    .flat_map(|key| encode(&words(&format!("SET k{key} {number}"))))
                    .collect();
                while !ended.is_there() {
                    client.run(&format!("SELECT {}", number % 2));
                    client.send(&sets);
                    for _ in 0..20 {
                        assert_eq!(show(&client.answer()), "+OK");
                    }
                    if number == 3 {
                        client.check(&[("FLUSHDB", "+OK")]);
                    }
                }
            });
        }
        let mut client = server.client();
        for _ in 0..200 {
            client.check(&[("SWAPDB 0 1", "+OK")]);
        }
        drop(bring);
    });
}

/// LTRIM looks at its list at both ends: in between it may have become another one.
#[test]
fn lists_are_trimmed_beside_swaps_and_emptyings() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let ended = End::default();
    let push = format!("RPUSH l{}\r\n", " element".repeat(40));
    let trims = (push + "LTRIM l 5 34\r\n").repeat(16);
    thread::scope(|scope| {
        let bring = ended.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut other = server.client();
                while !ended.is_there() {
                    other.send(trims.as_bytes());
                    for _ in 0..16 {
                        let pushed = show(&other.answer());
                        assert!(pushed.starts_with(':'), "{pushed}");
                        assert_eq!(show(&other.answer()), "+OK");
                    }
                }
            });
        }
        for _ in 0..3000 {
            client.check(&[("SWAPDB 0 1", "+OK"), ("FLUSHDB", "+OK")]);
        }
        drop(bring);
    });
}
