//! Notifications of keyspace events: which come, in which order, and when they do not.

use pando_server::{DebugCommands, ServerOptions};
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Mutex, Rank, thread};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};

/// A client that has subscribed to all events of all keys, by name.
fn listener(server: &Fixture) -> Client {
    let mut client = server.client();
    client.check(&[
        ("CONFIG SET notify-keyspace-events EAnm", "+OK"),
        (
            "PSUBSCRIBE __keyevent*",
            "[\"psubscribe\" \"__keyevent*\" :1]",
        ),
    ]);
    client
}

/// Returns what the listener has received up to now, in short.
fn told(listener: &mut Client, publisher: &mut Client) -> Vec<String> {
    let mark = "__keyevent done";
    let published = publisher.call(&["PUBLISH", mark, ""]);
    assert_eq!(show(&published), ":1");
    let mut found = Vec::new();
    loop {
        let event = next(listener);
        if event == "__keyevent done " {
            return found;
        }
        found.push(event);
    }
}

/// Returns the next message of the listener: `event@database key`.
fn next(listener: &mut Client) -> String {
    let shown = show(&listener.answer());
    let mut parts = shown.trim_matches(['[', ']']).split('"').skip(5).step_by(2);
    let (channel, text) = (
        parts.next().expect(&shown),
        parts.next().unwrap_or_default(),
    );
    match channel
        .strip_prefix("__keyevent@")
        .and_then(|rest| rest.split_once("__:"))
    {
        Some((database, event)) => format!("{event}@{database} {text}"),
        None => format!("{channel} {text}"),
    }
}

/// Waits until the listener has got `wanted`, in this order, and nothing else.
#[track_caller]
fn await_told(listener: &mut Client, publisher: &mut Client, wanted: &[&str]) {
    let (begun, mut found) = (now(), Vec::new());
    while found.len() < wanted.len() {
        found.extend(told(listener, publisher));
        assert!(begun.elapsed() < Duration::from_secs(20), "{found:?}");
        thread::yield_now();
    }
    assert_eq!(found, wanted);
}

#[test]
fn events_go_to_the_channels_that_are_asked_for() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("SELECT 3", "+OK"), ("SET a 1", "+OK")]);
    other.check(&[("PSUBSCRIBE *", "[\"psubscribe\" \"*\" :1]")]);
    client.check(&[
        ("SET a 2", "+OK"),
        (
            "CONFIG GET notify-keyspace-events",
            "[\"notify-keyspace-events\" \"\"]",
        ),
        ("CONFIG SET notify-keyspace-events $gKE", "+OK"),
        (
            "CONFIG GET notify-keyspace-events",
            "[\"notify-keyspace-events\" \"g$KE\"]",
        ),
        ("SET a 3", "+OK"),
        ("LPUSH l 1", ":1"),
        ("CONFIG SET notify-keyspace-events gE", "+OK"),
        ("DEL a", ":1"),
        ("CONFIG SET notify-keyspace-events g$", "+OK"),
        ("SET a 4", "+OK"),
        ("PUBLISH done x", ":1"),
    ]);
    let message =
        |channel: &str, text: &str| format!("[\"pmessage\" \"*\" \"{channel}\" \"{text}\"]");
    for wanted in [
        message("__keyspace@3__:a", "set"),
        message("__keyevent@3__:set", "a"),
        message("__keyevent@3__:del", "a"),
        message("done", "x"),
    ] {
        assert_eq!(show(&other.answer()), wanted);
    }
}

/// Commands in one transaction of any kind tell what they have done when it has committed, in
/// their order, and nothing if it has not.
#[test]
fn events_of_a_transaction_come_with_its_commit() {
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("MULTI", "+OK"),
        ("SET a 1 EX 100", "+QUEUED"),
        ("LPUSH a x", "+QUEUED"),
        ("GET none", "+QUEUED"),
        ("DEL a", "+QUEUED"),
    ]);
    assert_eq!(told(&mut listener, &mut other), [""; 0]);
    client.check(&[(
        "EXEC",
        "[+OK -WRONGTYPE Operation against a key holding the wrong kind of value nil :1]",
    )]);
    assert_eq!(
        told(&mut listener, &mut other),
        [
            "new@0 a",
            "set@0 a",
            "expire@0 a",
            "keymiss@0 none",
            "del@0 a"
        ]
    );
    client.check(&[("WATCH a", "+OK"), ("MULTI", "+OK"), ("SET b 1", "+QUEUED")]);
    other.check(&[("SET a 2", "+OK")]);
    client.check(&[("EXEC", "nil")]);
    assert_eq!(told(&mut listener, &mut other), ["new@0 a", "set@0 a"]);
    // A command of it that is refused has told nothing; the others have.
    client.check(&[
        ("MULTI", "+OK"),
        ("ZUNIONSTORE d 1 none WHAT", "+QUEUED"),
        ("SET a 3", "+QUEUED"),
        ("EXEC", "[-ERR syntax error +OK]"),
    ]);
    assert_eq!(told(&mut listener, &mut other), ["set@0 a"]);
    // Refused before it begins: the whole of it.
    client.check(&[
        ("MULTI", "+OK"),
        ("SET b 1", "+QUEUED"),
        (
            "WHAT",
            "-ERR unknown command 'WHAT', with args beginning with: ",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
    ]);
    assert_eq!(told(&mut listener, &mut other), [""; 0]);
}

#[test]
fn events_between_begin_and_commit_come_with_the_commit() {
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("PANDO BEGIN", "+OK"),
        ("SET a 1", "+OK"),
        ("GET none", "nil"),
        ("PANDO SAVEPOINT", ":1"),
        ("SET b 1", "+OK"),
        ("PANDO ROLLBACK TO 1", "+OK"),
        ("SET c 1", "+OK"),
    ]);
    assert_eq!(told(&mut listener, &mut other), ["keymiss@0 none"]);
    client.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(
        told(&mut listener, &mut other),
        ["new@0 a", "set@0 a", "new@0 c", "set@0 c"]
    );
    client.check(&[
        ("PANDO BEGIN", "+OK"),
        ("SET a 2", "+OK"),
        ("PANDO ROLLBACK", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("GET a", "\"1\""),
        ("SET b 2", "+OK"),
    ]);
    other.check(&[("SET a 3", "+OK")]);
    assert!(client.run("PANDO COMMIT").starts_with("-CONFLICT"));
    client.check(&[
        ("PANDO ROLLBACK", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("SET d 2", "+OK"),
    ]);
    drop(client);
    assert_eq!(told(&mut listener, &mut other), ["set@0 a"]);
}

#[test]
fn an_expired_key_is_told_once_by_who_removes_it() {
    let server = Fixture::with(ServerOptions {
        debug_commands: DebugCommands::Local,
        ..options()
    });
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events Exhg", "+OK")]);
    client.check(&[
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        ("SET a 1 PX 1", "+OK"),
    ]);
    client.check(&[
        ("SET b 1 PX 1", "+OK"),
        ("HSET h f 1 g 2", ":2"),
        ("HPEXPIRE h 1 FIELDS 1 f", "[:1]"),
        ("HSET i f 1", ":1"),
        ("HPEXPIRE i 1 FIELDS 1 f", "[:1]"),
    ]);
    told(&mut listener, &mut other);
    while client.run("EXISTS a b i") != ":0" || client.run("HLEN h") != ":1" {
        thread::yield_now();
    }
    // Reads remove nothing.
    assert_eq!(told(&mut listener, &mut other), [""; 0]);
    client.check(&[
        ("SET a 2", "+OK"),
        ("HSET h k 3", ":1"),
        ("HSET i k 3", ":1"),
        ("WATCH b", "+OK"),
        ("UNWATCH", "+OK"),
    ]);
    assert_eq!(
        told(&mut listener, &mut other),
        [
            "expired@0 a",
            "hexpired@0 h",
            "hset@0 h",
            "hexpired@0 i",
            "del@0 i",
            "hset@0 i",
            "expired@0 b"
        ]
    );
    // And now the cleaner, which finds nothing of those.
    client.check(&[
        ("SET c 1 PX 1", "+OK"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "+OK"),
    ]);
    await_told(&mut listener, &mut other, &["expire@0 c", "expired@0 c"]);
    client.check(&[("HPEXPIRE i 5 FIELDS 1 k", "[:1]")]);
    await_told(
        &mut listener,
        &mut other,
        &["hexpire@0 i", "hexpired@0 i", "del@0 i"],
    );
    client.check(&[("HPEXPIRE h 5 FIELDS 1 k", "[:1]")]);
    await_told(&mut listener, &mut other, &["hexpire@0 h", "hexpired@0 h"]);
}

/// Each expiry is told once, be it that the cleaner or a write is first.
#[test]
fn no_expiry_is_told_twice_or_lost() {
    const KEYS: usize = 400;
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events Ex", "+OK")]);
    for key in 0..KEYS {
        client.check(&[(&format!("SET {key} 1 PX {}", 80 + key % 40), "+OK")]);
    }
    // Writes race with the cleaner: of these keys they are seldom late.
    let begun = now();
    while begun.elapsed() < Duration::from_millis(250) {
        for key in (0..KEYS).step_by(2) {
            client.check(&[(&format!("SETRANGE {key} 1 x"), ":2")]);
        }
    }
    let mut found = Vec::new();
    while found.len() < KEYS {
        found.extend(told(&mut listener, &mut other));
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", found.len());
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    found.extend(told(&mut listener, &mut other));
    found.sort_unstable();
    let mut wanted: Vec<String> = (0..KEYS).map(|key| format!("expired@0 {key}")).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// Commands of a pipeline share a commit; one of them that cannot go along takes nothing of the
/// others away, and tells its own once.
#[test]
fn commands_of_a_pipeline_tell_each_its_own() {
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    let long = "x".repeat(3 << 20);
    client.check(&[(&format!("SET long {long}"), "+OK")]);
    told(&mut listener, &mut other);
    let commands = [
        "SET a 1",
        "INCR a",
        "LPUSH a x",
        "SETRANGE long 5 y",
        "DEL a none",
        "RPUSH l x",
        "LPOP l",
        "GET none",
        "GET other",
    ];
    let bytes: Vec<u8> = commands
        .iter()
        .flat_map(|command| encode(&command.split(' ').collect::<Vec<_>>()))
        .collect();
    client.send(&bytes);
    for _ in commands {
        let _ = client.answer();
    }
    assert_eq!(
        told(&mut listener, &mut other),
        [
            "new@0 a",
            "set@0 a",
            "incrby@0 a",
            "setrange@0 long",
            "del@0 a",
            "new@0 l",
            "rpush@0 l",
            "lpop@0 l",
            "del@0 l",
            "keymiss@0 none",
            "keymiss@0 other"
        ]
    );
}

/// Commands that are run again, since pages are missing, tell what
/// they have done once.
#[test]
fn runs_that_are_repeated_tell_nothing() {
    const KEYS: usize = 300;
    let server = Fixture::opened_by(options(), open_small);
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events E$l", "+OK")]);
    let value = "v".repeat(3000);
    for key in 0..KEYS {
        client.check(&[(&format!("SET {key} {value}"), "+OK")]);
    }
    told(&mut listener, &mut other);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..40 {
        let keys: Vec<usize> = (0..6).map(|_| random.usize(0..KEYS)).collect();
        client.check(&[("MULTI", "+OK")]);
        for key in &keys {
            client.check(&[(&format!("APPEND {key} x"), "+QUEUED")]);
        }
        client.run("EXEC");
        let wanted: Vec<String> = keys.iter().map(|key| format!("append@0 {key}")).collect();
        assert_eq!(told(&mut listener, &mut other), wanted);
    }
}

/// Number of rounds of each client, and of clients, in the tests with many.
#[cfg(feature = "scripts")]
const ROUNDS: usize = 600;
#[cfg(feature = "scripts")]
const CLIENTS: usize = 4;

/// Clients on both loops write the same keys. Of each key the events come in the order in which the
/// values were written, and each one comes once.
#[cfg(feature = "scripts")]
fn events_come_in_order(open: fn(&std::path::Path) -> pandodb::Result<pandodb::Db>) {
    let server = Fixture::opened_by(options(), open);
    let mut listener = listener(&server);
    let mut other = server.client();
    other.check(&[("CONFIG SET notify-keyspace-events Egl$", "+OK")]);
    let address = server.address;
    // The value that a list gets tells its place; an event has no value, so the keys are named by
    // it: whoever gets N from the counter renames the token to N.
    other.check(&[("SET 0 token", "+OK"), ("SET next 0", "+OK")]);
    let script = "local n = redis.call('get', 'next') \
                  redis.call('rename', n, n + 1) \
                  return redis.call('set', 'next', n + 1)";
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for round in 0..ROUNDS {
                    let done = match round % 3 {
                        0 => client.call(&["RPUSH", "noise", "x"]),
                        _ => client.call(&["EVAL", script, "0"]),
                    };
                    assert!(!show(&done).starts_with('-'), "{done:?}");
                }
            })
        })
        .collect();
    let renames = CLIENTS * ROUNDS * 2 / 3;
    let (mut at, mut pushes) = (0, 0);
    while at < renames || pushes < CLIENTS * ROUNDS / 3 {
        let event = next(&mut listener);
        if event == "rpush@0 noise" {
            pushes += 1;
            continue;
        }
        if matches!(&*event, "set@0 0" | "set@0 next") && at == 0 {
            continue;
        }
        let rest = [next(&mut listener), next(&mut listener)];
        assert_eq!(event, format!("rename_from@0 {at}"));
        assert_eq!(
            rest,
            [format!("rename_to@0 {}", at + 1), "set@0 next".to_owned()]
        );
        at += 1;
    }
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    assert_eq!(told(&mut listener, &mut other), [""; 0]);
}

#[cfg(feature = "scripts")]
#[test]
fn events_come_in_the_order_of_the_commits() {
    events_come_in_order(crate::fixture::open);
}

#[cfg(feature = "scripts")]
#[test]
fn events_come_in_the_order_of_the_commits_on_disk() {
    events_come_in_order(open_on_disk);
}

/// Who is told of a write sees it.
#[test]
fn what_is_told_can_be_read() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut listener = listener(&server);
    let (mut reader, mut other) = (server.client(), server.client());
    other.check(&[("CONFIG SET notify-keyspace-events E$", "+OK")]);
    let writer = thread::spawn(move || {
        for number in 0..400 {
            other.check(&[(&format!("SET k{number} {number}"), "+OK")]);
        }
    });
    for number in 0..400 {
        assert_eq!(next(&mut listener), format!("set@0 k{number}"));
        assert_eq!(
            reader.run(&format!("GET k{number}")),
            format!("\"{number}\"")
        );
    }
    writer.join().unwrap();
}

/// LTRIM tells that it was called, as Redis does, also if its transaction writes nothing.
#[test]
fn what_writes_nothing_is_told_at_once() {
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("RPUSH l a", ":1"), ("LTRIM l 0 -1", "+OK")]);
    let wanted = ["new@0 l", "rpush@0 l", "ltrim@0 l"];
    assert_eq!(told(&mut listener, &mut other), wanted);
    client.check(&[("PANDO BEGIN", "+OK"), ("LTRIM l 0 -1", "+OK")]);
    assert_eq!(told(&mut listener, &mut other), [""; 0]);
    client.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(told(&mut listener, &mut other), ["ltrim@0 l"]);
}

/// A subscriber is not told of a write before that is durable.
#[test]
fn what_is_told_is_durable() {
    let store = Arc::new(Mutex::new(Rank::Caller, None));
    let slot = store.clone();
    let server = Fixture::opened_by(options(), move |directory| {
        let db = open_on_disk(directory)?;
        *slot.lock() = Some(db.clone());
        Ok(db)
    });
    let mut listener = listener(&server);
    let mut client = server.client();
    let db = store.lock().take().expect("the store is open");
    client.check(&[("CONFIG SET notify-keyspace-events E$", "+OK")]);
    for number in 0..300 {
        client.send(&encode(&["SET", "k", &number.to_string()]));
        assert_eq!(next(&mut listener), "set@0 k");
        assert!(db.durable_lsn() >= db.newest_lsn(), "{number}");
        assert_eq!(show(&client.answer()), "+OK");
    }
}

/// EXEC with FLUSHALL is committed by a thread of the engine: others go on, and no event is lost.
#[test]
fn a_commit_elsewhere_tells_its_events_as_well() {
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events E$", "+OK")]);
    for round in 0..50 {
        client.send(&encode(&["MULTI"]));
        for command in ["SET a 1", "FLUSHALL", "SET b 1", "EXEC"] {
            client.send(&encode(&command.split(' ').collect::<Vec<_>>()));
        }
        let set = format!("SET c {round}");
        other.check(&[(&set, "+OK")]);
        for _ in 0..4 {
            let _ = client.answer();
        }
        assert_eq!(show(&client.answer()), "[+OK +OK +OK]");
        let mut found = told(&mut listener, &mut other);
        let at = found.iter().position(|event| event == "set@0 c");
        found.remove(at.expect("it is told"));
        assert_eq!(found, ["set@0 a", "set@0 b"]);
    }
}

/// A client that goes in the middle of its commands holds nobody's events back.
#[test]
fn who_goes_holds_nobody_back() {
    let server = Fixture::opened_by(options(), open_small);
    let mut listener = listener(&server);
    let mut other = server.client();
    other.check(&[("CONFIG SET notify-keyspace-events E$", "+OK")]);
    for round in 0..60 {
        let mut client = server.client();
        client.send(&encode(&["MULTI"]));
        for command in ["SET a 1", "FLUSHALL", "SET b 1", "EXEC", "SET d 1"] {
            client.send(&encode(&command.split(' ').collect::<Vec<_>>()));
        }
        drop(client);
        other.check(&[(&format!("SET c{round} 1"), "+OK")]);
        let wanted = format!("set@0 c{round}");
        while next(&mut listener) != wanted {}
    }
}

/// The events of one command are as many as its arguments.
#[test]
fn many_events_of_one_command_come_all() {
    const KEYS: usize = 20_000;
    let server = Fixture::new();
    let mut listener = listener(&server);
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events Eg", "+OK")]);
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "v"]);
    let set: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
    assert_eq!(show(&client.call(&set)), "+OK");
    let delete: Vec<&str> = std::iter::once("DEL")
        .chain(keys.iter().map(String::as_str))
        .collect();
    assert_eq!(show(&client.call(&delete)), format!(":{KEYS}"));
    let wanted: Vec<String> = keys.iter().map(|key| format!("del@0 {key}")).collect();
    assert_eq!(told(&mut listener, &mut other), wanted);
}
