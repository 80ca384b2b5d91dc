//! Commands of several connections that write one key and run together (decision 125): each client
//! sees what it would see alone.

use std::collections::BTreeSet;
use std::net::Shutdown;

use fastrand::Rng;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show, words};
use crate::durability::shared;
use crate::fixture::{Fixture, open_small, options};
use crate::pipeline_runs::together_count;
use crate::statistics::fields;

const CLIENTS: usize = 12;

/// Returns a server with so many loops whose collections become large at once if `is_large`.
fn server_of(threads: usize, is_large: bool) -> Fixture {
    let server = Fixture::with(ServerOptions {
        threads,
        durability: Durability::None,
        // On a busy machine who waits for elements may not come within two milliseconds.
        served_first_max: Duration::from_secs(100),
        ..options()
    });
    let mut client = server.client();
    if is_large {
        client.check(&[
            ("CONFIG SET packed-bytes-max 20", "+OK"),
            ("CONFIG SET list-max-listpack-size 4", "+OK"),
        ]);
        for of in ["hash", "set", "zset"] {
            client.check(&[(&format!("CONFIG SET {of}-max-listpack-entries 1"), "+OK")]);
        }
    }
    server
}

/// Returns a server with so little memory that most reads need a page from disk.
fn small_server() -> Fixture {
    let options = ServerOptions {
        threads: 1,
        durability: Durability::None,
        ..options()
    };
    Fixture::opened_by(options, open_small)
}

/// Number of commands that keep a loop busy until others have arrived.
const BUSY: usize = 600;

/// Sends one command of each client, which arrive while the loop is busy with another client, and
/// then takes their replies.
fn run_round(clients: &mut [Client], commands: &[String]) -> Vec<String> {
    send_round(clients, commands);
    let (busy, clients) = clients.split_last_mut().expect("one keeps it busy");
    let replies = clients.iter_mut().zip(commands);
    let replies = replies.map(|(client, _)| show(&client.answer())).collect();
    (0..BUSY).for_each(|_| assert_eq!(show(&busy.answer()), "\"\""));
    replies
}

/// Sends what [`run_round`] does, of which no reply is taken.
fn send_round(clients: &mut [Client], commands: &[String]) {
    let (busy, clients) = clients.split_last_mut().expect("one keeps it busy");
    busy.send(&encode(&["GETRANGE", "none", "0", "9"]).repeat(BUSY));
    for (client, command) in clients.iter_mut().zip(commands) {
        client.send(&encode(&words(command)));
    }
}

/// Returns clients for as many commands, and one more, for [`run_round`].
fn clients_of(server: &Fixture) -> Vec<Client> {
    (0..=CLIENTS).map(|_| server.client()).collect()
}

/// Returns a command whose reply does not depend on what other clients do: it is about elements of
/// client `of`.
fn own_command(random: &mut Rng, of: usize) -> String {
    let (n, m) = (random.u32(..20), random.u32(..9));
    let long = "w".repeat(random.usize(..40));
    match random.u32(..20) {
        0 | 1 => format!("HSET h c{of}:{n} v{m}{long}"),
        2 => format!("HDEL h c{of}:{n}"),
        3 => format!("HINCRBY h c{of}:number {m}"),
        4 => format!("HINCRBY h c{of}:{n} 1"),
        5 => format!("HSETNX h c{of}:{n} {m}"),
        6 | 7 => format!("SADD s c{of}:{n}"),
        8 => format!("SREM s c{of}:{n} c{of}:{m}"),
        9 | 10 => format!("ZADD z {m} c{of}:{n}"),
        11 => format!("ZINCRBY z {m} c{of}:{n}"),
        12 => format!("ZREM z c{of}:{n}"),
        13 => format!("SETBIT bits {} 1", of * 100 + n as usize),
        14 => format!("BITFIELD bits INCRBY u8 {} {m}", 4000 + of * 8),
        // Wrong types, numbers and counts of arguments; and commands that read.
        15 => "LPUSH h x".to_owned(),
        16 => "SADD s".to_owned(),
        17 => format!("HGET h c{of}:{n}"),
        18 => format!("INCR counter{of}"),
        _ => format!("INCRBY counter{of} {long}"),
    }
}

/// Whatever runs together, each client has the replies that it has when all commands run one after
/// the other, and so have the elements.
#[test]
fn clients_of_one_key_see_what_they_see_alone() {
    for (threads, is_large) in [(1, false), (1, true), (2, true)] {
        let (server, twin) = (server_of(threads, is_large), server_of(1, is_large));
        let mut clients = clients_of(&server);
        let mut alone = twin.client();
        for client in clients.iter_mut().step_by(5) {
            client.check(&[("SELECT 3", "+OK")]);
        }
        let mut random = Rng::with_seed(0x5eed + threads as u64);
        for round in 0..600 {
            let commands: Vec<_> = (0..CLIENTS)
                .map(|of| match round % 3 {
                    // All the same command, so that they share a head.
                    0 => format!("HSET h c{of}:{} v{round}", random.u32(..50)),
                    1 => format!("ZADD z {round} c{of}:{}", random.u32(..50)),
                    _ => own_command(&mut random, of),
                })
                .collect();
            let replies = run_round(&mut clients, &commands);
            for (of, (command, reply)) in commands.iter().zip(replies).enumerate() {
                let database = if of % 5 == 0 { "SELECT 3" } else { "SELECT 0" };
                alone.run(database);
                assert_eq!(reply, alone.run(command), "{command}");
            }
        }
        let mut client = server.client();
        for select in ["SELECT 0", "SELECT 3"] {
            for one in [&mut client, &mut alone] {
                one.run(select);
            }
            for command in [
                "HLEN h",
                "SCARD s",
                "ZCARD z",
                "HGETALL h",
                "SMEMBERS s",
                "ZRANGE z 0 -1 WITHSCORES",
                "GET bits",
            ] {
                let sorted = |one: &mut Client| {
                    let text = show(&one.run_raw(command)).replace(['[', ']'], "");
                    let mut parts: Vec<_> = text.split(' ').map(str::to_owned).collect();
                    parts.sort_unstable();
                    parts
                };
                assert!(sorted(&mut client) == sorted(&mut alone), "{command}");
            }
        }
        assert!(together_count(&mut client) > 500, "they run together");
    }
}

/// Elements of a queue that many push to and pop from come out once each, also for those who wait
/// for them.
#[test]
fn a_queue_of_many_clients_loses_and_doubles_nothing() {
    for is_large in [false, true] {
        let server = server_of(1, is_large);
        let mut clients = clients_of(&server);
        let mut waiting = server.client();
        let mut random = Rng::with_seed(77);
        let (mut pushed, mut popped) = (BTreeSet::new(), Vec::new());
        let mut is_waiting = false;
        for round in 0..400 {
            if !is_waiting && random.bool() {
                waiting.send(&encode(&["BLPOP", "q", "0"]));
                is_waiting = true;
            }
            let commands: Vec<_> = (0..CLIENTS)
                .map(|of| match random.u32(..9) {
                    0..4 => format!("LPUSH q {of}:{round}"),
                    4 => format!("RPUSH q {of}:{round}"),
                    5 => "LPOP q".to_owned(),
                    _ => "RPOP q".to_owned(),
                })
                .collect();
            for (command, reply) in commands.iter().zip(run_round(&mut clients, &commands)) {
                match command.split_once(" q ") {
                    Some((_, element)) => assert!(pushed.insert(format!("\"{element}\""))),
                    None if reply == "nil" => {}
                    None => popped.push(reply),
                }
            }
            if is_waiting && waiting.has_answer() {
                let reply = show(&waiting.answer());
                let element = reply
                    .strip_prefix("[\"q\" ")
                    .and_then(|of| of.strip_suffix(']'));
                popped.push(element.expect("it has waited for q").to_owned());
                is_waiting = false;
            }
        }
        let mut last = server.client();
        if is_waiting {
            last.run("LPUSH q last");
            assert!(pushed.insert("\"last\"".to_owned()));
            popped.push(
                show(&waiting.answer())
                    .replace("[\"q\" ", "")
                    .replace(']', ""),
            );
        }
        loop {
            match last.run("LPOP q") {
                reply if reply == "nil" => break,
                reply => popped.push(reply),
            }
        }
        let count = popped.len();
        let once: BTreeSet<_> = popped.into_iter().collect();
        assert_eq!(once.len(), count, "each comes once");
        assert_eq!(once, pushed);
        assert!(together_count(&mut last) > 500, "they run together");
    }
}

/// Clients that go in the middle leave the others as they are.
#[test]
fn clients_that_are_gone_or_killed_do_not_matter_to_those_beside_them() {
    let server = server_of(2, true);
    thread::scope(|scope| {
        for of in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut random = Rng::with_seed(of as u64);
                let mut client = server.client();
                let mut added = 0;
                for number in 0..300 {
                    if random.u32(..10) == 0 {
                        // Gone with a command underway, of which nobody knows whether it ran.
                        client.send(&encode(&["SADD", "s", &format!("c{of}:gone:{number}")]));
                        client = server.client();
                    }
                    if random.u32(..40) == 0 {
                        client.run("CLIENT KILL TYPE normal SKIPME yes ID 0");
                    }
                    let reply = client.run(&format!("SADD s c{of}:{number}"));
                    assert_eq!(reply, ":1");
                    added += 1;
                    assert_eq!(client.run("HINCRBY h all 0"), ":0");
                    assert_eq!(
                        client.run(&format!("HINCRBY h c{of} 1")),
                        format!(":{added}")
                    );
                }
            });
        }
    });
    let mut client = server.client();
    for of in 0..CLIENTS {
        client.check(&[(&format!("HGET h c{of}"), "\"300\"")]);
        for number in 0..300 {
            client.check(&[(&format!("SISMEMBER s c{of}:{number}"), ":1")]);
        }
    }
    assert!(together_count(&mut client) > 500, "they run together");
}

/// Each reply waits for the log.
#[test]
fn replies_wait_until_what_they_show_is_durable() {
    let (server, slot) = shared();
    let mut clients = clients_of(&server);
    clients[0].run("PING");
    let db = slot.lock().take().expect("the store is open");
    for round in 0..300 {
        let commands = vec!["INCR n".to_owned(); CLIENTS];
        let replies = run_round(&mut clients, &commands);
        let durable = db.durable_lsn();
        let numbers: BTreeSet<_> = replies
            .iter()
            .map(|reply| reply[1..].parse().unwrap())
            .collect();
        let first = round * CLIENTS + 1;
        assert_eq!(numbers, (first..first + CLIENTS).collect());
        assert!(durable >= db.newest_lsn(), "round {round}");
    }
    assert!(together_count(&mut clients[0]) > 500, "they run together");
}

/// Subscribers hear of each command, and who has read the key of the change.
#[test]
fn those_who_watch_a_key_hear_of_each_command() {
    const ROUNDS: usize = 100;
    let server = server_of(1, true);
    let mut clients = clients_of(&server);
    clients[0].check(&[("CONFIG SET notify-keyspace-events KEA", "+OK")]);
    let (mut subscriber, mut reader) = (server.client(), server.client());
    subscriber.run("SUBSCRIBE __keyevent@0__:hset");
    reader.run("HELLO 3");
    reader.check(&[("CLIENT TRACKING on", "+OK")]);
    for round in 0..ROUNDS {
        reader.run("HLEN h");
        let commands: Vec<_> = (0..CLIENTS)
            .map(|of| format!("HSET h c{of} {round}"))
            .collect();
        run_round(&mut clients, &commands);
        let message = show(&reader.answer());
        assert!(message.contains("invalidate"), "{message}");
    }
    for _ in 0..ROUNDS * CLIENTS {
        let message = show(&subscriber.answer());
        assert!(message.contains("__keyevent@0__:hset"), "{message}");
    }
    assert!(together_count(&mut clients[0]) > 500, "they run together");
    assert!(!subscriber.has_answer(), "there is one for each");
}

/// Who waits for elements is woken by those that come together, and nobody takes them before.
#[test]
fn who_waits_for_elements_comes_first() {
    let server = server_of(1, false);
    let mut clients = clients_of(&server);
    let mut waiting = server.client();
    let watching = &mut server.client();
    for round in 0..60 {
        waiting.send(&encode(&["BLPOP", "q", "0"]));
        while !fields(watching, "clients")["blocked_clients"].eq("1") {
            thread::yield_now();
        }
        let mut commands = vec!["RPOP q".to_owned(); CLIENTS];
        commands[round % CLIENTS] = format!("LPUSH q {round}");
        let replies = run_round(&mut clients, &commands);
        assert_eq!(show(&waiting.answer()), format!("[\"q\" \"{round}\"]"));
        for (command, reply) in commands.iter().zip(replies) {
            let expected = if command == "RPOP q" { "nil" } else { ":1" };
            assert_eq!(reply, expected, "round {round}");
        }
    }
    assert!(together_count(&mut clients[0]) > 200, "they run together");
}

/// A command that has to wait for pages is undone, and begins by itself; its events are told once.
#[test]
fn commands_that_wait_for_pages_leave_nothing_behind() {
    let server = small_server();
    let mut clients = clients_of(&server);
    let long = "w".repeat(200);
    for start in (0..2500).step_by(100) {
        let mut call = vec!["HSET".to_owned(), "h".to_owned()];
        (start..start + 100).for_each(|n| call.extend([format!("f{n}"), long.clone()]));
        assert_eq!(show(&clients[0].call(&call)), ":100");
    }
    clients[0].check(&[("CONFIG SET notify-keyspace-events KEA", "+OK")]);
    let mut subscriber = server.client();
    subscriber.run("SUBSCRIBE __keyevent@0__:hset");
    let mut random = Rng::with_seed(9);
    const ROUNDS: usize = 150;
    for round in 0..ROUNDS {
        let commands: Vec<_> = (0..CLIENTS)
            .map(|of| match random.u32(..3) {
                0 => format!("HSET h new{of}:{round} v"),
                // One that is most likely in memory, and two that may not be.
                _ => format!("HSET h new{of}:{round} v b{of}:{round} v c{of}:{round} v"),
            })
            .collect();
        for (command, reply) in commands.iter().zip(run_round(&mut clients, &commands)) {
            let count = (words(command).len() - 2) / 2;
            assert_eq!(reply, format!(":{count}"), "{command}");
        }
    }
    for _ in 0..ROUNDS * CLIENTS {
        let message = show(&subscriber.answer());
        assert!(message.contains("__keyevent@0__:hset"), "{message}");
    }
    let together = together_count(&mut clients[0]);
    assert!(together > 100, "{together} run together");
    assert!(!subscriber.has_answer(), "there is one for each");
}

/// A client that has sent its last command, and closes, is gone.
#[test]
fn clients_that_close_behind_their_command_are_gone() {
    let server = server_of(1, false);
    let mut client = server.client();
    let mut all: Vec<_> = (0..30).map(|_| clients_of(&server)).collect();
    for clients in &mut all {
        let (busy, clients) = clients.split_last_mut().expect("one keeps it busy");
        busy.send(&encode(&["GETRANGE", "none", "0", "9"]).repeat(BUSY));
        for client in clients {
            client.send(&encode(&["INCR", "n"]));
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        (0..BUSY).for_each(|_| drop(busy.answer()));
    }
    let until = now() + Duration::from_secs(10);
    while client.text("GET n") != (30 * CLIENTS).to_string()
        || fields(&mut client, "clients")["connected_clients"] != "31"
    {
        assert!(
            now() < until,
            "only those are left that have kept the loop busy"
        );
        thread::yield_now();
    }
}

/// A command that has written, and then has to wait for a page, is undone before it begins by
/// itself.
#[test]
fn commands_that_have_written_and_wait_are_undone() {
    const ROUNDS: usize = 200;
    let server = small_server();
    let mut clients = clients_of(&server);
    let long = "w".repeat(900);
    for n in 0..ROUNDS * 10 {
        clients[0].run(&format!("SET cold{n} {long}"));
    }
    clients[0].check(&[("CONFIG SET notify-keyspace-events KEA", "+OK")]);
    let mut subscriber = server.client();
    subscriber.run("SUBSCRIBE __keyevent@0__:del");
    for round in 0..ROUNDS {
        clients[1].run("SET hot x");
        let mut commands = vec![format!("SET hot {round}"); CLIENTS];
        commands[round % CLIENTS] = format!("DEL hot cold{}", round * 7 % (ROUNDS * 10));
        for (command, reply) in commands.iter().zip(run_round(&mut clients, &commands)) {
            let is_delete = command.starts_with("DEL");
            assert_eq!(reply, if is_delete { ":2" } else { "+OK" }, "{command}");
        }
    }
    for _ in 0..2 * ROUNDS {
        let message = show(&subscriber.answer());
        assert!(message.contains("__keyevent@0__:del"), "{message}");
    }
    let together = together_count(&mut clients[0]);
    assert!(together > 100, "{together} run together");
    assert!(!subscriber.has_answer(), "there is one for each key");
}

/// Commands whose commit would have to wait, since a transaction holds their key, begin by
/// themselves: nothing is left of what they replied together.
#[test]
fn commands_that_wait_for_a_lock_reply_once() {
    for is_large in [false, true] {
        let server = server_of(1, is_large);
        let mut clients = clients_of(&server);
        let mut holder = server.client();
        clients[0].run("HSET h c0 0 c1 0");
        for round in 1..=40 {
            let commands: Vec<_> = (0..CLIENTS)
                .map(|of| format!("HINCRBY h c{of} 1"))
                .collect();
            let replies = if round % 2 == 0 {
                run_round(&mut clients, &commands)
            } else {
                holder.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK h", "+OK")]);
                send_round(&mut clients, &commands);
                let (busy, clients) = clients.split_last_mut().expect("one keeps it busy");
                (0..BUSY).for_each(|_| assert_eq!(show(&busy.answer()), "\"\""));
                // What was sent before this has had its turn when it is replied to.
                busy.check(&[("PING", "+PONG")]);
                assert!(clients.iter_mut().all(|client| !client.has_answer()));
                holder.check(&[("PANDO COMMIT", "+OK")]);
                clients.iter_mut().map(|of| show(&of.answer())).collect()
            };
            assert_eq!(replies, vec![format!(":{round}"); CLIENTS]);
            for client in &mut clients {
                client.check(&[("PING", "+PONG")]);
            }
        }
        assert!(together_count(&mut clients[0]) > 100, "they run together");
    }
}
