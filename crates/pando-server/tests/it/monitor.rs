//! MONITOR: which commands are shown, to whom, and in which order.

use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
#[cfg(feature = "scripts")]
use crate::fixture::open_small;
use crate::fixture::{Fixture, options};

/// Returns a client that sees all commands.
fn monitor(server: &Fixture) -> Client {
    let mut client = server.client();
    client.check(&[("MONITOR", "+OK")]);
    client
}

/// Returns the next line without its time, and with `client` in place of an address.
fn next(monitor: &mut Client) -> String {
    let line = show(&monitor.answer());
    let (time, rest) = line.split_once(" [").expect(&line);
    let (seconds, micros) = time[1..].split_once('.').expect(&line);
    assert!(time.starts_with('+') && micros.len() == 6, "{line}");
    assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000, "{line}");
    let (caller, command) = rest.split_once("] ").expect(&line);
    let (database, caller) = caller.split_once(' ').expect(&line);
    let caller = match caller.starts_with("127.0.0.1:") {
        true => "client",
        false => caller,
    };
    format!("{database} {caller} {}", command.replace('"', ""))
}

/// Returns the lines up to now.
fn shown(monitor: &mut Client, other: &mut Client) -> Vec<String> {
    assert_eq!(other.run("PING end"), "\"end\"");
    up_to(monitor, " client PING end")
}

fn up_to(monitor: &mut Client, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = next(monitor);
        if line.ends_with(end) {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn what_was_executed_is_shown_and_what_was_refused_is_not() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    client.check(&[("set a 1", "+OK"), ("SELECT 3", "+OK")]);
    assert!(client.run("lpush a x").starts_with(":1"));
    assert!(client.run("get a").starts_with("-WRONGTYPE"));
    for refused in [
        "nosuch",
        "get",
        "config get port",
        "client list",
        "slowlog len",
    ] {
        client.run(refused);
    }
    for executed in ["debug help", "client id", "object help", "command count"] {
        client.run(executed);
    }
    client.send(&encode(&["set", "a\"b", "x\r\n\t\0\u{e9}\\"]));
    assert_eq!(show(&client.answer()), "+OK");
    let found = shown(&mut monitor, &mut client);
    let wanted = [
        "0 client set a 1",
        "3 client SELECT 3",
        "3 client lpush a x",
        "3 client get a",
        "3 client client id",
        "3 client object help",
        "3 client command count",
        "3 client set a\\b x\\r\\n\\t\\x00\\xc3\\xa9\\\\",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn secrets_are_not_shown() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    client.run("AUTH secret");
    client.run("AUTH default secret");
    client.run("HELLO 2 AUTH default secret SETNAME n");
    client.run("CONFIG SET requirepass ''");
    client.run("MULTI");
    client.run("AUTH secret");
    client.run("CONFIG SET requirepass ''");
    client.run("EXEC");
    let found = shown(&mut monitor, &mut client);
    let wanted = [
        "0 client AUTH (redacted)",
        "0 client AUTH (redacted) (redacted)",
        "0 client HELLO 2 AUTH (redacted) (redacted) SETNAME n",
        "0 client MULTI",
        "0 client AUTH (redacted)",
        "0 client EXEC",
    ];
    assert_eq!(found, wanted);
    // The slow log hides the same.
    client.run("CONFIG SET slowlog-log-slower-than 0");
    client.run("HELLO 2 AUTH default secret SETNAME n");
    let slow = client.run("SLOWLOG GET 1");
    let hidden = "[\"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"n\"]";
    assert!(slow.contains(hidden), "{slow}");
}

#[test]
fn strings_in_chunks_are_shown_as_their_length() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let long = "x".repeat(3_000_000);
    assert_eq!(show(&client.call(&["SET", "a", &long])), "+OK");
    client.run("MULTI");
    client.call(&["MSET", "b", "1", "c", &long]);
    client.check(&[("SET d 2", "+QUEUED"), ("EXEC", "[+OK +OK]")]);
    let found = shown(&mut monitor, &mut client);
    let wanted = [
        "0 client SET a ... (3000000 more bytes)",
        "0 client MULTI",
        "0 client MSET b 1 c ... (3000000 more bytes)",
        "0 client SET d 2",
        "0 client EXEC",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn an_exec_is_shown_behind_its_commands() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let mut other = server.client();
    client.run("MULTI");
    client.run("set a 1");
    client.run("SELECT 5");
    client.run("lpush b 1");
    client.run("MONITOR");
    let reply = client.run("EXEC");
    assert_eq!(
        reply,
        "[+OK +OK :1 -ERR MONITOR isn't allowed for DENY BLOCKING client]"
    );
    client.run("WATCH a");
    other.run("SELECT 5");
    other.run("set a 2");
    client.run("MULTI");
    client.run("get a");
    client.check(&[("EXEC", "nil"), ("MULTI", "+OK")]);
    client.run("nosuch");
    assert!(client.run("EXEC x").starts_with("-EXECABORT"));
    client.check(&[("MULTI", "+OK"), ("get a", "+QUEUED"), ("DISCARD", "+OK")]);
    let found = shown(&mut monitor, &mut client);
    let wanted = [
        "0 client MULTI",
        "0 client set a 1",
        "5 client SELECT 5",
        "5 client lpush b 1",
        "5 client EXEC",
        "5 client WATCH a",
        "5 client SELECT 5",
        "5 client set a 2",
        "5 client MULTI",
        "5 client EXEC",
        "5 client MULTI",
        "5 client EXEC x",
        "5 client MULTI",
        "5 client DISCARD",
    ];
    assert_eq!(found, wanted);
}

#[cfg(feature = "scripts")]
#[test]
fn a_script_is_shown_before_its_commands() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let mut eval = |script: &str| show(&client.call(&["eval", script, "0"]));
    let script = "redis.call('select',2); redis.call('time'); redis.pcall('nosuch'); \
                  redis.pcall('config','get','x'); return redis.pcall('incr','n')";
    assert_eq!(eval(script), ":1");
    assert!(eval("foo(").starts_with("-ERR"));
    client.run("MULTI");
    client.call(&["eval", "return redis.call('get', 'n')", "0"]);
    client.run("incr n");
    client.check(&[("EXEC", "[nil :1]")]);
    assert!(client.run("evalsha 0000 0").starts_with("-NOSCRIPT"));
    let found = shown(&mut monitor, &mut client);
    let wanted = [
        &format!("0 client eval {script} 0"),
        "2 lua select 2",
        "2 lua time",
        "2 lua incr n",
        "0 client eval foo( 0",
        "0 client MULTI",
        "0 client eval return redis.call('get', 'n') 0",
        "0 lua get n",
        "0 client incr n",
        "0 client EXEC",
        "0 client evalsha 0000 0",
    ];
    assert_eq!(found, wanted);
}

/// Commands that wait for pages run again from their beginning.
#[cfg(feature = "scripts")]
#[test]
fn what_runs_again_is_shown_once() {
    const KEYS: usize = 4000;
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let text = "x".repeat(1500);
    for key in 0..KEYS {
        client.send(&encode(&["SET", &format!("k{key}"), &text]));
    }
    for _ in 0..KEYS {
        assert_eq!(show(&client.answer()), "+OK");
    }
    let mut monitor = monitor(&server);
    for round in 0..10 {
        let key = |at: usize| format!("k{}", (at * 211 + round * 97) % KEYS);
        client.run("MULTI");
        let mut wanted = vec!["0 client MULTI".to_owned()];
        for at in 0..10 {
            client.run(&format!("get {}", key(at)));
            wanted.push(format!("0 client get {}", key(at)));
        }
        let script = "return redis.call('strlen',KEYS[1]) + redis.call('strlen',KEYS[2])";
        let (one, two) = (key(11), key(12));
        client.call(&["eval", script, "2", &one, &two]);
        wanted.push(format!("0 client eval {script} 2 {one} {two}"));
        wanted.push(format!("0 lua strlen {one}"));
        wanted.push(format!("0 lua strlen {two}"));
        client.send(&encode(&["EXEC"]));
        assert!(show(&client.answer()).ends_with(" :3000]"));
        wanted.push("0 client EXEC".to_owned());
        assert_eq!(shown(&mut monitor, &mut client), wanted);
    }
    let info = client.text("INFO all");
    let suspended = info
        .lines()
        .find_map(|line| line.strip_prefix("suspended_commands:"));
    let suspended: u64 = suspended.expect(&info).parse().unwrap();
    assert!(suspended > 20, "{suspended}");
}

/// Commands that meet conflicts run again, too.
#[cfg(feature = "scripts")]
#[test]
fn what_meets_conflicts_is_shown_once() {
    const ROUNDS: usize = 300;
    let server = Fixture::new();
    let mut monitor = monitor(&server);
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let script = "redis.call('incr','n') return redis.call('get','n')";
                    client.call(&["eval", script, "0"]);
                }
            });
        }
    });
    let mut client = server.client();
    let lines = shown(&mut monitor, &mut client);
    let count = |end: &str| lines.iter().filter(|line| line.ends_with(end)).count();
    let (calls, gets) = (count(" lua incr n"), count(" lua get n"));
    assert_eq!((calls, gets, lines.len()), (1200, 1200, 3600));
    for call in lines.chunks(3) {
        assert!(call[0].starts_with("0 client eval "), "{call:?}");
        assert_eq!(call[1..], ["0 lua incr n", "0 lua get n"]);
    }
}

/// A wait for a lock of the store is no wait for others: the script begins again behind it.
#[cfg(feature = "scripts")]
#[test]
fn a_script_that_waits_for_a_lock_is_shown_with_its_commands() {
    let server = Fixture::new();
    let (mut one, mut two) = (server.client(), server.client());
    let fields = (0..50).map(|n| format!("f{n} value"));
    let fill = format!("HSET s {}", fields.collect::<Vec<_>>().join(" "));
    one.check(&[("CONFIG SET packed-bytes-max 20", "+OK"), (&fill, ":50")]);
    for client in [&mut one, &mut two] {
        client.check(&[("PANDO BEGIN READCOMMITTED", "+OK"), ("HLEN s", ":50")]);
    }
    one.check(&[("HSET s one v", ":1")]);
    let mut monitor = monitor(&server);
    let script = "return redis.call('hset','s','two','v')";
    two.send(&encode(&["eval", script, "1", "s"]));
    thread::park_timeout(Duration::from_millis(50));
    one.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&two.answer()), ":1");
    let mut lines = shown(&mut monitor, &mut one);
    // The loops of both end at the same time.
    lines.retain(|line| line != "0 client PANDO COMMIT");
    let wanted = [&format!("0 client eval {script} 1 s"), "0 lua hset s two v"];
    assert_eq!(lines, wanted);
}

/// A monitor that reads stays, whatever is to be shown.
#[cfg(feature = "scripts")]
#[test]
fn what_a_script_calls_too_often_is_counted() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let script = "for n = 1, 20000 do redis.call('set', 'key', n) end";
    client.run("MULTI");
    client.call(&["eval", script, "0"]);
    client.check(&[("PING", "+QUEUED"), ("EXEC", "[nil +PONG]")]);
    let lines = shown(&mut monitor, &mut client);
    assert_eq!(lines[0], "0 client MULTI");
    assert_eq!(lines[2], "0 lua set key 1");
    let left = lines[lines.len() - 2].strip_prefix("0 lua ... (");
    let left = left.and_then(|text| text.strip_suffix(" more commands)"));
    let left: usize = left.expect("some are counted").parse().unwrap();
    // MULTI and EXEC, EVAL, and the line that counts; PING is among those that are left out.
    assert_eq!(lines.len() - 4 + left, 20_001);
    assert!(lines.len() > 3000);
    let longs = vec!["\u{1}".repeat(50_000); 100];
    let longs: Vec<&str> = longs.iter().map(String::as_str).collect();
    client.call(&[&["RPUSH", "list"], &longs[..]].concat());
    let lines = shown(&mut monitor, &mut client);
    assert!(lines[0].ends_with(" more bytes) ... (99 more arguments)"));
    assert!(lines[0].len() < 70_000);
}

/// An engine thread empties the tables, also when the client is gone that has asked for it.
#[test]
fn a_flush_is_shown_though_its_client_is_gone() {
    let server = Fixture::opened_by(options(), |_| {
        let patient = Db::builder().lock_timeout(Duration::from_secs(600));
        patient.max_memory(32 << 20).open_in_memory()
    });
    let mut holder = server.client();
    holder.check(&[("SET a 1", "+OK"), ("PANDO BEGIN", "+OK")]);
    holder.check(&[("PANDO LOCK a", "+OK")]);
    let mut monitor = monitor(&server);
    let mut other = server.client();
    let id = other.integer("CLIENT ID");
    assert_eq!(next(&mut monitor), "0 client CLIENT ID");
    // A reply that is not read makes the system tell the server at once that the peer is gone.
    other.send(b"PING\r\nFLUSHALL\r\n");
    assert_eq!(next(&mut monitor), "0 client PING");
    // It waits for the lock.
    thread::park_timeout(Duration::from_millis(100));
    drop(other);
    let begun = now();
    while holder.text("CLIENT LIST").contains(&format!("id={id} ")) {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::yield_now();
    }
    assert_eq!(next(&mut monitor), "0 client FLUSHALL");
    holder.check(&[("PANDO ROLLBACK", "+OK")]);
    while holder.integer("DBSIZE") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn who_waits_is_shown_when_the_wait_begins() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let mut waiting = server.client();
    waiting.send(&encode(&["blpop", "q", "0"]));
    assert_eq!(next(&mut monitor), "0 client blpop q 0");
    client.check(&[("lpush q 1", ":1")]);
    assert_eq!(show(&waiting.answer()), "[\"q\" \"1\"]");
    client.check(&[("lpush q 2", ":1")]);
    waiting.check(&[("blpop q 0", "[\"q\" \"2\"]"), ("blpop q 0.01", "nil")]);
    // Who waited before is not shown when he is served.
    waiting.send(&encode(&["blpop", "q", "0"]));
    while !client.text("CLIENT LIST").contains(" flags=b ") {
        thread::yield_now();
    }
    let mut late = server.client();
    late.check(&[("MONITOR", "+OK")]);
    client.check(&[("lpush q 3", ":1")]);
    assert_eq!(show(&waiting.answer()), "[\"q\" \"3\"]");
    waiting.check(&[("PING", "+PONG")]);
    let wanted = ["0 client lpush q 3", "0 client PING"];
    assert_eq!(shown(&mut late, &mut client), wanted);
    let wanted = [
        "0 client lpush q 1",
        "0 client lpush q 2",
        "0 client blpop q 0",
        "0 client blpop q 0.01",
        "0 client blpop q 0",
        "0 client lpush q 3",
        "0 client PING",
    ];
    assert_eq!(up_to(&mut monitor, " client PING end"), wanted);
}

#[test]
fn pipelines_are_shown_in_order() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    for round in 0..20 {
        // An administrator's command that may be part of a pipeline run.
        let mut bytes = encode(&["PFDEBUG", "TODENSE", "none"]);
        let mut wanted = Vec::new();
        for at in 0..100 {
            let (key, value) = (format!("k{at}"), format!("{round}"));
            let command = match (at / 10) % 3 {
                0 => vec!["SET", &key, &value],
                1 => vec!["GET", &key],
                _ => vec!["INCR", &key],
            };
            bytes.extend(encode(&command));
            wanted.push(format!("0 client {}", command.join(" ")));
        }
        client.send(&bytes);
        (0..101).for_each(|_| drop(client.answer()));
        assert_eq!(shown(&mut monitor, &mut client), wanted);
    }
    let info = client.text("INFO all");
    assert!(info.contains("commands_together:"), "{info}");
    assert!(!info.contains("commands_together:0\r"), "{info}");
}

#[test]
fn a_monitor_may_not_use_keys_until_it_is_reset() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (monitor(&server), server.client());
    let refused = "-ERR Replica can't interact with the keyspace";
    monitor.check(&[
        ("GET a", refused),
        ("SET a 1", refused),
        ("PUBLISH a 1", refused),
        ("DBSIZE", refused),
        ("FLUSHALL", refused),
        ("PANDO RANGE a b", refused),
    ]);
    // Neither is what lies together in a pipeline.
    monitor.send(&[encode(&["SET", "a", "1"]), encode(&["SET", "a", "2"])].concat());
    for _ in 0..2 {
        assert_eq!(show(&monitor.answer()), refused);
    }
    monitor.check(&[("MONITOR", "+OK"), ("PING", "+PONG")]);
    assert_eq!(next(&mut monitor), "0 client PING");
    let list = client.text("CLIENT LIST");
    assert!(list.contains(" flags=O "), "{list}");
    client.check(&[("PING 1", "\"1\"")]);
    assert_eq!(next(&mut monitor), "0 client PING 1");
    monitor.check(&[("RESET", "+RESET")]);
    client.check(&[("PING 2", "\"2\"")]);
    monitor.check(&[("SET a 1", "+OK"), ("PING", "+PONG")]);
    let list = client.text("CLIENT LIST");
    assert!(!list.contains(" flags=O "), "{list}");
}

/// Its lines are replies, and not messages.
#[test]
fn a_monitor_that_wants_no_replies_is_shown_nothing() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.send(b"CLIENT REPLY OFF\r\nMONITOR\r\n");
    while !client.text("CLIENT LIST").contains(" flags=O ") {
        thread::yield_now();
    }
    for round in 0..3 {
        client.check(&[("SET a 1", "+OK")]);
        monitor.send(b"CLIENT REPLY ON\r\n");
        let mut line = show(&monitor.answer());
        // Those that came before it wanted no replies.
        while line.contains(r#""CLIENT" "LIST""#) {
            line = show(&monitor.answer());
        }
        assert_eq!(line, "+OK");
        assert_eq!(next(&mut monitor), "0 client CLIENT REPLY ON");
        client.check(&[("SET a 2", "+OK")]);
        assert_eq!(next(&mut monitor), "0 client SET a 2", "{round}");
        // Of the reply that is skipped alone nothing is missing.
        monitor.send(b"CLIENT REPLY SKIP\r\nPING\r\n");
        assert_eq!(next(&mut monitor), "0 client CLIENT REPLY SKIP");
        assert_eq!(next(&mut monitor), "0 client PING");
        monitor.send(b"CLIENT REPLY OFF\r\n");
        let silent = |list: &str| {
            let mut lines = list.lines().filter(|line| line.contains(" flags=O "));
            lines.any(|line| line.contains(" cmd=client|reply "))
        };
        while !silent(&client.text("CLIENT LIST")) {
            thread::yield_now();
        }
    }
}

#[test]
fn a_monitor_may_subscribe_and_speak_resp3() {
    let server = Fixture::new();
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.run("HELLO 3");
    monitor.check(&[
        ("SUBSCRIBE a", ">(\"subscribe\" \"a\" :1)"),
        ("MONITOR", "+OK"),
    ]);
    client.check(&[("PUBLISH a x", ":1")]);
    assert_eq!(show(&monitor.answer()), ">(\"message\" \"a\" \"x\")");
    assert_eq!(next(&mut monitor), "0 client PUBLISH a x");
    let list = client.text("CLIENT LIST");
    assert!(list.contains(" flags=OP "), "{list}");
}

/// Monitors of all loops see the same lines in the same order, and those of each client as it has
/// sent them.
#[test]
fn all_monitors_see_one_order() {
    const CLIENTS: usize = 8;
    const COMMANDS: usize = 300;
    let server = Fixture::new();
    let mut monitors: Vec<Client> = (0..4).map(|_| monitor(&server)).collect();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut connection = server.client();
            scope.spawn(move || {
                for at in 0..COMMANDS {
                    connection.run(&format!("incr {client}:{at}"));
                }
            });
        }
    });
    let mut seen = Vec::new();
    for monitor in &mut monitors {
        let lines: Vec<_> = (0..CLIENTS * COMMANDS)
            .map(|_| show(&monitor.answer()))
            .collect();
        seen.push(lines);
    }
    assert!(seen.iter().all(|lines| *lines == seen[0]));
    let mut next = [0; CLIENTS];
    for line in &seen[0] {
        let key = line.rsplit('"').nth(1).unwrap();
        let (client, at) = key.split_once(':').unwrap();
        let next = &mut next[client.parse::<usize>().unwrap()];
        assert_eq!(*next, at.parse::<usize>().unwrap(), "{line}");
        *next += 1;
    }
}

#[test]
fn a_monitor_that_does_not_read_is_closed_and_holds_nobody_up() {
    let server = Fixture::new();
    let (mut client, mut deaf) = (server.client(), monitor(&server));
    let set = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 300kb 0 0",
    ];
    assert_eq!(show(&client.call(&set)), "+OK");
    let text = "x".repeat(20_000);
    let begun = now();
    let has_monitor = |client: &mut Client| client.text("CLIENT LIST").contains(" flags=O ");
    while has_monitor(&mut client) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        client.run(&format!("SET a {text}"));
    }
    // What had left before it was closed; the last line may be cut.
    while let Some(line) = deaf.try_answer() {
        assert!(show(&line).contains("SET"), "{line:?}");
    }
    // Nobody else is.
    let mut other = monitor(&server);
    client.check(&[("PING", "+PONG")]);
    assert_eq!(next(&mut other), "0 client PING");
}
