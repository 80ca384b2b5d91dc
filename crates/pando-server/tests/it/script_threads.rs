//! Tests of scripts that take long, and go on on threads of their own (decision 095).

use std::collections::BTreeSet;
use std::net::Shutdown;

use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::device::faulty::{Fault, FaultPlan, Operation};

use crate::client::{Client, encode, show};
use crate::failures::{FRAMES, send_sets, serve};
use crate::fixture::{Fixture, open_on_disk, options};
use crate::scripts::{cold_with, eval, filling};
use crate::statistics::fields;

/// Options of a server with one loop: whatever holds that holds everybody.
fn one_loop() -> ServerOptions {
    ServerOptions {
        threads: 1,
        ..options()
    }
}

/// Computes until it is ended.
const ENDLESS: &str = "while true do end";

/// Returns the number of commands that have gone to script threads.
fn moved(client: &mut Client) -> u64 {
    let count = &fields(client, "stats")["scripts_moved"];
    count.parse().expect("INFO counts them")
}

/// Returns a script that computes for a while, and returns 1.
fn computing(rounds: u32) -> String {
    format!("local n = 0 for i = 1, {rounds} do n = n + i % 7 end return 1")
}

/// Returns one of [`computing`] that takes more than `least`.
fn computing_for(client: &mut Client, least: Duration) -> String {
    let mut rounds = 1_000_000;
    loop {
        let script = computing(rounds);
        let began = now();
        assert_eq!(eval(client, &script, &[], &[]), ":1");
        let took = now().duration_since(began);
        if took >= least {
            return script;
        }
        rounds = rounds.saturating_mul(2);
    }
}

/// Returns how often commands have waited for the store.
fn suspended(client: &mut Client) -> u64 {
    let count = &fields(client, "stats")["suspended_commands"];
    count.parse().expect("INFO counts them")
}

fn send_eval(client: &mut Client, script: &str) {
    client.send(&encode(&["EVAL", script, "0"]));
}

#[test]
fn others_of_the_same_loop_go_on_beside_a_script() {
    let server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    let script = computing_for(&mut client, Duration::from_secs(1));
    send_eval(&mut client, &script);
    client.send(&encode(&["SET", "behind", "1"]));
    let (began, mut longest, mut pings) = (now(), Duration::ZERO, 0);
    while !client.has_answer() {
        let sent = now();
        other.check(&[("PING", "+PONG")]);
        longest = longest.max(now().duration_since(sent));
        pings += 1;
    }
    let took = now().duration_since(began);
    assert_eq!(show(&client.answer()), ":1");
    // A command behind it has waited for it.
    assert_eq!(show(&client.answer()), "+OK");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(longest < Duration::from_millis(200), "{longest:?}");
    assert!(pings >= 20, "{pings} pings in {took:?}");
}

#[test]
fn what_a_script_has_done_is_as_it_is_on_its_loop() {
    let server = Fixture::with(one_loop());
    let mut client = server.client();
    let mut subscriber = server.client();
    subscriber.check(&[("SUBSCRIBE c", "[\"subscribe\" \"c\" :1]")]);
    client.run("HELLO 3");
    // TIME and the random numbers are those of the first run.
    let script = "local before = redis.call('TIME') \
                  local first = math.random(1000000000) \
                  redis.call('PUBLISH', 'c', 'once') \
                  redis.call('INCR', 'count') \
                  redis.call('RPUSH', 'list', 'a', 'b') \
                  for i = 1, 3000000 do first = first + 0 end \
                  local after = redis.call('TIME') \
                  redis.call('PUBLISH', 'c', 'last') \
                  return {before[1] == after[1] and before[2] == after[2], \
                          redis.call('LRANGE', 'list', 0, -1)}";
    assert_eq!(eval(&mut client, script, &[], &[]), "[:1 [\"a\" \"b\"]]");
    for text in ["once", "last"] {
        let message = show(&subscriber.answer());
        assert_eq!(message, format!("[\"message\" \"c\" \"{text}\"]"));
    }
    client.check(&[("GET count", "\"1\""), ("LLEN list", ":2")]);
    assert_eq!(moved(&mut client), 1);
    // An EXEC goes on there with all that it has.
    client.check(&[
        ("MULTI", "+OK"),
        ("INCR count", "+QUEUED"),
        ("SUBSCRIBE d", "+QUEUED"),
    ]);
    assert_eq!(eval(&mut client, script, &[], &[]), "+QUEUED");
    client.check(&[("INCR count", "+QUEUED")]);
    client.send(&encode(&["EXEC"]));
    let reply = show(&client.answer());
    assert!(
        reply.starts_with("[:2 >(\"subscribe\" \"d\" :1) [:1 [\"a\" \"b\" \"a\" \"b\"]] :4]"),
        "{reply}"
    );
    assert_eq!(moved(&mut client), 2);
    client.check(&[("GET count", "\"4\""), ("LLEN list", ":4")]);
    // The subscription belongs to the loop.
    server.client().check(&[("PUBLISH d x", ":1")]);
    let message = show(&client.answer());
    assert!(message.contains("\"message\" \"d\" \"x\""), "{message}");
    // A message that comes while a script runs waits behind its reply, and later ones come as ever.
    let mut other = server.client();
    send_eval(&mut client, script);
    wait_for_moves(&mut other, 3);
    other.check(&[("PUBLISH d y", ":1")]);
    assert!(show(&client.answer()).starts_with("[:1 "));
    assert!(show(&client.answer()).contains("\"d\" \"y\""));
    other.check(&[("PUBLISH d z", ":1")]);
    assert!(show(&client.answer()).contains("\"d\" \"z\""));
}

#[test]
fn a_script_is_killed_by_a_client_of_its_loop() {
    let server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    let library = format!("#!lua name=l\nredis.register_function('f', function() {ENDLESS} end)");
    assert_eq!(show(&client.call(&["FUNCTION", "LOAD", &library])), "\"l\"");
    for kill in ["SCRIPT KILL", "FUNCTION KILL"] {
        let refused = other.run(kill);
        assert!(refused.starts_with("-NOTBUSY"), "{refused}");
        match kill {
            "SCRIPT KILL" => {
                send_eval(&mut client, &format!("redis.call('SET', 'a', 1) {ENDLESS}"))
            }
            _ => client.send(&encode(&["FCALL", "f", "0"])),
        }
        let until = now() + Duration::from_secs(20);
        while other.run(kill) != "+OK" {
            assert!(now() < until, "{kill} finds nothing");
            thread::sleep(Duration::from_millis(1));
        }
        let expected = format!("-ERR Script killed by user with {kill}.");
        assert_eq!(show(&client.answer()), expected);
        client.check(&[("EXISTS a", ":0")]);
        assert!(other.run(kill).starts_with("-NOTBUSY"), "nothing runs");
    }
    // The time is that of CONFIG when a run begins.
    client.run("CONFIG SET lua-time-limit 100");
    let reply = eval(&mut client, ENDLESS, &[], &[]);
    assert!(
        reply.starts_with("-ERR the script was ended after 100 ms"),
        "{reply}"
    );
}

#[test]
fn a_script_that_waits_for_many_pages_runs_a_few_times() {
    let server = cold_with(ServerOptions {
        durability: Durability::None,
        ..one_loop()
    });
    let mut client = server.client();
    // One run takes some 100 ms, and one run for each missing page together more than 10 s.
    client.run("CONFIG SET lua-time-limit 5000");
    let reads = "local sum = 0 \
                 for i = 1, 500 do \
                     for j = 1, 10000 do end \
                     sum = sum + #redis.call('GET', 'key:' .. (i * 7 % 4000)) \
                 end \
                 redis.call('INCR', 'count') return sum";
    let sum: usize = (1..=500).map(|i| filling(i * 7 % 4000).len()).sum();
    for round in 1..=3 {
        let before = suspended(&mut client);
        assert_eq!(eval(&mut client, reads, &[], &[]), format!(":{sum}"));
        let waits = suspended(&mut client) - before;
        assert!(waits > 100, "{waits} pages were missing");
        client.check(&[("GET count", &format!("\"{round}\""))]);
        assert_eq!(moved(&mut client), round);
    }
    // In a transaction of the client likewise, and in an EXEC.
    for (begin, end) in [("PANDO BEGIN", "PANDO COMMIT"), ("MULTI", "EXEC")] {
        client.check(&[(begin, "+OK")]);
        let reply = eval(&mut client, reads, &[], &[]);
        let is_queued = begin == "MULTI";
        let expected = if is_queued {
            "+QUEUED".to_owned()
        } else {
            format!(":{sum}")
        };
        assert_eq!(reply, expected);
        let expected = if is_queued {
            format!("[:{sum}]")
        } else {
            "+OK".to_owned()
        };
        client.check(&[(end, &expected)]);
    }
    client.check(&[("GET count", "\"5\"")]);
    assert_eq!(moved(&mut client), 5);
    // The client waits for pages as ever, now that it is back on its loop.
    for n in (0..4000).step_by(37) {
        let value = show(&client.call(&["GET", &format!("key:{n}")]));
        assert_eq!(value, format!("\"{}\"", filling(n)));
    }
}

/// Waits until so many commands have gone to script threads.
fn wait_for_moves(client: &mut Client, count: u64) {
    let until = now() + Duration::from_secs(20);
    while moved(client) < count {
        assert!(now() < until, "{} have left", moved(client));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn clients_that_are_killed_or_gone_leave_nothing_behind() {
    let server = Fixture::with(one_loop());
    let mut other = server.client();
    other.run("CONFIG SET lua-time-limit 0");
    let endless = format!("redis.call('SET', 'a', 1) {ENDLESS}");
    // The second one waits in the queue: there is one thread.
    let mut clients = [server.client(), server.client()];
    let ids = clients.each_mut().map(|client| client.integer("CLIENT ID"));
    for (before, client) in clients.iter_mut().enumerate() {
        send_eval(client, &endless);
        wait_for_moves(&mut other, before as u64 + 1);
    }
    let list = other.text("CLIENT LIST");
    assert!(
        ids.iter().all(|id| list.contains(&format!("id={id} "))),
        "{list}"
    );
    // The one in the queue first: it does not wait for the other.
    for (client, id) in clients.iter_mut().zip(ids).rev() {
        other.check(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
        assert!(client.is_closed());
    }
    assert!(other.run("SCRIPT KILL").starts_with("-NOTBUSY"));
    other.check(&[("EXISTS a", ":0")]);
    // The reply to CLIENT KILL comes when the script has ended, which takes some 100 ms here: the
    // hook looks after a thousand instructions, a hundred of which search.
    let slow = "redis.call('SET', 'a', 1) \
                while true do string.find(('a'):rep(100), '^.-.-.-x') end";
    let mut killed = server.client();
    let id = killed.integer("CLIENT ID");
    send_eval(&mut killed, slow);
    wait_for_moves(&mut other, 3);
    other.check(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
    assert!(other.run("SCRIPT KILL").starts_with("-NOTBUSY"));
    // A connection that is reset ends its script: with a reply that was not read, its end is that.
    let mut reset = server.client();
    reset.send(&encode(&["PING"]));
    send_eval(&mut reset, &endless);
    wait_for_moves(&mut other, 4);
    while !reset.has_answer() {
        thread::yield_now();
    }
    drop(reset);
    let until = now() + Duration::from_secs(20);
    while other.text("CLIENT LIST").lines().count() > 1 {
        assert!(now() < until, "{}", other.text("CLIENT LIST"));
        thread::sleep(Duration::from_millis(1));
    }
    assert!(other.run("SCRIPT KILL").starts_with("-NOTBUSY"));
    other.check(&[("EXISTS a", ":0")]);
}

#[test]
fn a_client_that_sends_no_more_has_its_reply() {
    let server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    let script = "redis.call('SET', 'a', 1) for i = 1, 20000000 do end return 1";
    send_eval(&mut client, script);
    wait_for_moves(&mut other, 1);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(show(&client.answer()), ":1");
    assert!(client.is_closed());
    // One that has closed its connection has its script carried out, too.
    let mut client = server.client();
    send_eval(&mut client, &script.replace("'a'", "'b'"));
    wait_for_moves(&mut other, 2);
    drop(client);
    let until = now() + Duration::from_secs(20);
    while other.run("EXISTS a b") != ":2" {
        assert!(now() < until);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_long_scripts_write_the_same_key() {
    const CLIENTS: usize = 200;
    let server = Fixture::new();
    let mut other = server.client();
    other.run("CONFIG SET lua-time-limit 0");
    let script = "local n = tonumber(redis.call('GET', 'n') or '0') \
                  for i = 1, 150000 do end \
                  redis.call('SET', 'n', n + 1) return n";
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| send_eval(client, script));
    let mut seen: Vec<_> = clients
        .iter_mut()
        .map(|client| show(&client.answer()))
        .collect();
    seen.sort_unstable();
    let mut expected: Vec<_> = (0..CLIENTS).map(|n| format!(":{n}")).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    other.check(&[("GET n", "\"200\"")]);
    assert!(moved(&mut other) > 0);
}

#[test]
fn what_happens_to_the_database_and_to_scripts_meanwhile() {
    let server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    other.run("SET a 1");
    // What it has read is emptied: it runs again.
    let script = "local a = redis.call('GET', 'a') for i = 1, 40000000 do end \
                  redis.call('SET', 'b', 1) return a";
    send_eval(&mut client, script);
    wait_for_moves(&mut other, 1);
    other.check(&[("FLUSHALL", "+OK"), ("SCRIPT FLUSH", "+OK")]);
    assert_eq!(show(&client.answer()), "nil");
    client.check(&[("EXISTS a b", ":1")]);
    // A pause holds what begins, and not what runs.
    send_eval(&mut client, script);
    wait_for_moves(&mut other, 2);
    other.check(&[("CLIENT PAUSE 100000 WRITE", "+OK")]);
    assert_eq!(show(&client.answer()), "nil");
    other.check(&[("CLIENT UNPAUSE", "+OK")]);
    // It may take as much memory there.
    let memory = "for i = 1, 3000000 do end local t = {} while true do t[#t + 1] = {#t} end";
    let before = moved(&mut other);
    let reply = eval(&mut client, memory, &[], &[]);
    assert!(reply.starts_with("-ERR not enough memory"), "{reply}");
    assert_eq!(moved(&mut other), before + 1);
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
}

#[test]
fn a_stop_waits_for_scripts_and_not_for_ever() {
    let mut server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    send_eval(
        &mut client,
        "redis.call('SET', 'a', 1) for i = 1, 20000000 do end return 1",
    );
    wait_for_moves(&mut other, 1);
    server.handle.shutdown();
    assert_eq!(show(&client.answer()), ":1");
    server.join().unwrap();
    let mut server = Fixture::with(ServerOptions {
        shutdown_timeout: Duration::from_secs(1),
        ..options()
    });
    let mut other = server.client();
    other.run("CONFIG SET lua-time-limit 0");
    // Some of them wait for a thread.
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| send_eval(client, ENDLESS));
    wait_for_moves(&mut other, 6);
    let began = now();
    other.send(&encode(&["SHUTDOWN", "NOSAVE"]));
    assert!(clients.iter_mut().all(Client::is_closed));
    server.join().unwrap();
    assert!(now().duration_since(began) < Duration::from_secs(30));
}

#[test]
fn a_store_that_fails_meanwhile_holds_nobody() {
    let (server, device) = serve(Durability::None, Some(FRAMES));
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    for first in (0..2000).step_by(100) {
        send_sets(&mut client, first..first + 100);
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    client.check(&[("SAVE", "+OK")]);
    // A page that cannot be read ends the script that needs it.
    let reads = "while true do for i = 1, 1999 do redis.call('GET', 'key:' .. i) end end";
    let library = format!("#!lua name=l\nredis.register_function('f', function() {reads} end)");
    client.call(&["FUNCTION", "LOAD", &library]);
    for (round, call) in [&["EVAL", reads, "0"], &["FCALL", "f", "0"]]
        .iter()
        .enumerate()
    {
        client.send(&encode(*call));
        wait_for_moves(&mut other, round as u64 + 1);
        device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
        let reply = show(&client.answer());
        assert!(reply.starts_with("-ERR"), "{reply}");
        device.clear_faults();
    }
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1");
    // A log that fails lets no script commit.
    let writes = "redis.call('SET', 'a', 1) for i = 1, 20000000 do end return 1";
    send_eval(&mut client, writes);
    wait_for_moves(&mut other, 3);
    device.fail(FaultPlan::sticky(Operation::Sync, "log", 1, Fault::Io));
    other.run("SET b 1");
    assert!(other.run("WAITAOF 1 0 0").starts_with('-'));
    let reply = show(&client.answer());
    assert!(reply.starts_with("-ERR"), "{reply}");
}

#[test]
fn many_that_begin_at_once_do_not_hold_their_loop() {
    const CLIENTS: usize = 300;
    let server = Fixture::with(one_loop());
    let mut other = server.client();
    other.run("CONFIG SET lua-time-limit 0");
    let kill = |other: &mut Client, clients: &mut [Client]| {
        other.check(&[("SCRIPT KILL", "+OK")]);
        for client in clients {
            let reply = show(&client.answer());
            assert_eq!(reply, "-ERR Script killed by user with SCRIPT KILL.");
        }
    };
    // Once it is known to take long.
    let mut first = [server.client()];
    send_eval(&mut first[0], ENDLESS);
    wait_for_moves(&mut other, 1);
    kill(&mut other, &mut first);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| send_eval(client, ENDLESS));
    let (mut longest, mut is_first) = (Duration::ZERO, true);
    while is_first || moved(&mut other) < 1 + CLIENTS as u64 {
        let sent = now();
        other.check(&[("PING", "+PONG")]);
        longest = longest.max(now().duration_since(sent));
        is_first = false;
    }
    // The first milliseconds of each together would take 600.
    assert!(longest < Duration::from_millis(300), "{longest:?}");
    // Those that wait for the thread are killed, too.
    kill(&mut other, &mut clients);
    assert_eq!(eval(&mut other, "return 1", &[], &[]), ":1");
}

#[test]
fn everybody_hears_of_what_a_script_has_done_on_its_thread() {
    let server = Fixture::with(one_loop());
    let (mut client, mut other) = (server.client(), server.client());
    other.run("CONFIG SET notify-keyspace-events KEA");
    let mut monitor = server.client();
    let mut tracker = server.client();
    tracker.run("HELLO 3");
    tracker.check(&[("CLIENT TRACKING ON", "+OK"), ("GET count", "nil")]);
    let mut subscriber = server.client();
    subscriber.check(&[(
        "SUBSCRIBE __keyevent@0__:incrby",
        "[\"subscribe\" \"__keyevent@0__:incrby\" :1]",
    )]);
    let mut waiter = server.client();
    waiter.send(&encode(&["BLPOP", "list", "0"]));
    while fields(&mut other, "clients")["blocked_clients"] != "1" {
        thread::sleep(Duration::from_millis(1));
    }
    client.run("HELLO 3");
    client.check(&[("CLIENT TRACKING ON", "+OK")]);
    monitor.check(&[("MONITOR", "+OK")]);
    let script = "for i = 1, 3000000 do end local old = redis.call('GET', 'mine') \
                  redis.call('INCR', 'count') redis.call('RPUSH', 'list', 'x') return old";
    let before = moved(&mut other);
    assert_eq!(eval(&mut client, script, &[], &[]), "nil");
    assert_eq!(moved(&mut other), before + 1);
    assert_eq!(show(&waiter.answer()), "[\"list\" \"x\"]");
    assert_eq!(show(&tracker.answer()), ">(\"invalidate\" [\"count\"])");
    let event = show(&subscriber.answer());
    assert_eq!(event, "[\"message\" \"__keyevent@0__:incrby\" \"count\"]");
    // What it has read is the client's from now on.
    other.run("SET mine 1");
    assert_eq!(show(&client.answer()), ">(\"invalidate\" [\"mine\"])");
    // Once, in the order of the calls.
    let mut lines = Vec::new();
    while !lines
        .iter()
        .any(|line: &String| line.contains("\"SET\" \"mine\""))
    {
        lines.push(show(&monitor.answer()));
    }
    let named = |words: &str| lines.iter().position(|line| line.contains(words));
    let places = [
        "\"EVAL\"",
        "lua] \"GET\"",
        "lua] \"INCR\"",
        "lua] \"RPUSH\"",
    ]
    .map(named);
    assert!(places.is_sorted() && places[0].is_some(), "{lines:?}");
    let calls = lines.iter().filter(|line| line.contains("lua]")).count();
    assert_eq!(calls, 3, "{lines:?}");
}

#[test]
fn a_command_that_waits_in_a_script_goes_on_with_what_it_has_read() {
    let server = cold_with(ServerOptions {
        durability: Durability::None,
        ..one_loop()
    });
    let mut client = server.client();
    // The pages of all of them do not fit into memory together.
    let script = "for i = 1, 3000000 do end \
                  local names, sum = {}, 0 \
                  for i = 1, 2000 do names[i] = 'key:' .. (i * 1999 % 4000) end \
                  for _, text in ipairs(redis.call('MGET', unpack(names))) do \
                      sum = sum + #text \
                  end return sum";
    let hits = |client: &mut Client| -> u64 {
        let count = &fields(client, "stats")["keyspace_hits"];
        count.parse().expect("INFO counts them")
    };
    let sum: usize = (1..=2000).map(|i| filling(i * 1999 % 4000).len()).sum();
    let before = (hits(&mut client), suspended(&mut client));
    assert_eq!(eval(&mut client, script, &[], &[]), format!(":{sum}"));
    assert!(suspended(&mut client) - before.1 > 100);
    assert_eq!(hits(&mut client) - before.0, 2000);
    assert_eq!(moved(&mut client), 1);
}

#[test]
fn replies_that_wait_for_the_log_go_with_their_connection() {
    let durable = ServerOptions {
        durability: Durability::Durable,
        ..one_loop()
    };
    let server = Fixture::opened_by(durable, open_on_disk);
    let mut client = server.client();
    let script = "for i = 1, 3000000 do end redis.call('INCR', 'a') return 'x'";
    for round in 1..=5 {
        client.send(&encode(&["SET", "b", "1"]));
        send_eval(&mut client, script);
        client.send(&encode(&["GET", "a"]));
        for expected in ["+OK", "\"x\"", &format!("\"{round}\"")] {
            assert_eq!(show(&client.answer()), expected);
        }
    }
    assert_eq!(moved(&mut client), 5);
}

#[test]
fn all_keys_that_a_script_has_written_are_told() {
    const KEYS: usize = 10_000;
    let server = Fixture::with(one_loop());
    let (mut client, mut tracker) = (server.client(), server.client());
    tracker.run("HELLO 3");
    tracker.check(&[("CLIENT TRACKING ON BCAST", "+OK")]);
    let script = format!("for i = 1, {KEYS} do redis.call('SET', 'k:' .. i, 1) end return 1");
    assert_eq!(eval(&mut client, &script, &[], &[]), ":1");
    assert_eq!(moved(&mut client), 1);
    let mut told = BTreeSet::new();
    while told.len() < KEYS {
        let message = show(&tracker.answer());
        let keys = message.split('"').filter(|word| word.starts_with("k:"));
        told.extend(keys.map(str::to_owned));
    }
}

/// One that waits in the queue of the threads does not begin with the clock of before.
#[test]
fn the_clock_of_a_script_is_that_of_its_run() {
    const CLIENTS: u32 = 5;
    let server = Fixture::with(one_loop());
    let mut client = server.client();
    client.run("CONFIG SET lua-time-limit 0");
    let computing = computing_for(&mut client, Duration::from_millis(300));
    let script = format!("local time = redis.call('TIME') redis.call('SET', 'k', 1) {computing}");
    let script = script.replace("return 1", "return {time[1], time[2]}");
    // From now on it leaves its loop before it has done anything.
    let began = now();
    eval(&mut client, &script, &[], &[]);
    let once = now().duration_since(began);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        send_eval(client, &script);
    }
    let times: Vec<Duration> = clients
        .iter_mut()
        .map(|client| {
            let reply = show(&client.answer());
            let words: Vec<u64> = reply
                .trim_matches(['[', ']'])
                .split(' ')
                .map(|word| {
                    word.trim_matches('"')
                        .parse()
                        .expect("a time is two numbers")
                })
                .collect();
            Duration::from_secs(words[0]) + Duration::from_micros(words[1])
        })
        .collect();
    // One thread runs one after the other, and each has its own moment.
    let first = times.iter().min().unwrap();
    let last = times.iter().max().unwrap();
    assert!(*last - *first > once, "{times:?}, each takes {once:?}");
}
