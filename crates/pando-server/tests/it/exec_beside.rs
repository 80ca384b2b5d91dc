//! Commands of EXEC that act beside the store, which no conflict of its transaction takes back.

use pando_resp::Answer;

use crate::client::{Client, encode, show};
use crate::cold::{KEYS, filled, suspended};
use crate::fixture::Fixture;

/// The commands that run between MULTI and EXEC, as in Redis.
const AT_ONCE: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];

/// Number of keys that an EXEC reads, of which some are not in memory.
const READS: usize = 3;

/// Waits until CLIENT LIST shows that client `id` waits for elements.
fn wait_for_wait(asks: &mut Client, id: &str) {
    let command = format!("CLIENT LIST ID {id}");
    while !asks.text(&command).contains("flags=b ") {
        pando_sync::thread::yield_now();
    }
}

#[test]
fn an_exec_whose_watched_key_has_changed_does_nothing_beside_the_store() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let (mut victim, mut waiter) = (server.client(), server.client());
    let [victim_id, waiter_id] =
        [&mut victim, &mut waiter].map(|of| of.integer("CLIENT ID").to_string());
    let kill = format!("CLIENT KILL ID {victim_id}");
    let unblock = format!("CLIENT UNBLOCK {waiter_id}");
    other.run("CONFIG SET slowlog-max-len 50 slowlog-log-slower-than 0");
    waiter.send(&encode(&["BLPOP", "none", "0"]));
    wait_for_wait(&mut other, &waiter_id);
    let mut commands = vec![
        "CONFIG SET slowlog-max-len 40",
        &kill,
        &unblock,
        "CLIENT PAUSE 100000 WRITE",
        "CLIENT SETNAME renamed",
        "SLOWLOG RESET",
        "SCRIPT FLUSH",
    ];
    let has_scripts = cfg!(feature = "scripts");
    if has_scripts {
        other.run("SCRIPT LOAD return");
    } else {
        commands.pop();
    }
    for key in ["there", "absent"] {
        for command in &commands {
            other.run("SET there 1");
            other.run("DEL absent");
            client.check(&[(&format!("WATCH {key}"), "+OK")]);
            other.run(&format!("SET {key} 2"));
            client.check(&[("MULTI", "+OK"), (command, "+QUEUED"), ("EXEC", "nil")]);
        }
    }
    other.check(&[
        ("CONFIG GET slowlog-max-len", "[\"slowlog-max-len\" \"50\"]"),
        // Nobody has begun a pause.
        ("RPUSH none x", ":1"),
    ]);
    assert!(other.integer("SLOWLOG LEN") > 10);
    client.check(&[("CLIENT GETNAME", "nil")]);
    victim.check(&[("PING", "+PONG")]);
    assert_eq!(show(&waiter.answer()), "[\"none\" \"x\"]");
    if has_scripts {
        // The digest of `return`.
        let exists = "SCRIPT EXISTS 63143b6f8007b98c53ca2149822777b3566f9241";
        other.check(&[(exists, "[:1]")]);
    }
}

#[test]
fn multi_queues_all_but_six_commands() {
    let server = Fixture::new();
    let (mut client, mut asks) = (server.client(), server.client());
    let Answer::Array(names) = asks.run_raw("COMMAND LIST") else {
        panic!("COMMAND LIST replies an array");
    };
    let names: Vec<String> = (names.iter())
        .map(|name| show(name).trim_matches('"').to_owned())
        .collect();
    let (mut queued, mut refused) = (0, 0);
    for name in &names {
        let is_container = names.iter().any(|of| of.starts_with(&format!("{name}|")));
        if is_container || AT_ONCE.contains(&&name[..]) {
            continue;
        }
        let info = asks.run(&format!("COMMAND INFO {name}"));
        let arity = info.split(' ').find_map(|word| word.strip_prefix(':'));
        let arity: isize = arity.unwrap().parse().unwrap();
        let mut words: Vec<&str> = name.split('|').collect();
        words.resize(arity.unsigned_abs().max(words.len()), "1");
        client.check(&[("MULTI", "+OK")]);
        let reply = show(&client.call(&words));
        if info.contains("+no_multi") {
            refused += 1;
            let text = "-ERR Command not allowed inside a transaction";
            assert_eq!(reply, text, "{name}");
        } else {
            queued += 1;
            assert_eq!(reply, "+QUEUED", "{name}");
        }
        client.check(&[("DISCARD", "+OK")]);
    }
    assert!(queued > 150 && refused > 3, "{queued} {refused}");
}

/// Runs an EXEC of `command` and of reads of some keys from number `first` on. Returns true if it
/// has waited for a page.
fn run_cold(client: &mut Client, asks: &mut Client, command: &str, first: usize) -> bool {
    client.check(&[("MULTI", "+OK"), (command, "+QUEUED")]);
    for number in first..first + READS {
        client.run(&format!("GET key:{}", number * 1237 % KEYS));
    }
    let before = suspended(asks);
    let reply = client.run("EXEC");
    assert!(reply.starts_with("[:1 \""), "{command}: {reply}");
    suspended(asks) > before
}

/// EXECs that wait for pages while the key that they watch is written: each that answers nil has
/// done nothing beside the store.
#[test]
fn an_exec_whose_watched_key_changes_while_it_reads_does_nothing_beside_the_store() {
    const ROUNDS: usize = 400;
    let (server, mut client) = filled();
    let (mut other, mut asks) = (server.client(), server.client());
    let (mut refused, mut value) = (0, "128".to_owned());
    for round in 0..ROUNDS {
        client.check(&[("WATCH w", "+OK"), ("MULTI", "+OK")]);
        let new = (1_000 + round).to_string();
        client.run(&format!("CONFIG SET slowlog-max-len {new}"));
        for number in 0..10 {
            client.run(&format!("GET key:{}", (round * 10 + number) * 1237 % KEYS));
        }
        client.send(&encode(&["EXEC"]));
        other.run(&format!("SET w {round}"));
        match show(&client.answer()).as_str() {
            "nil" => refused += 1,
            _ => value = new,
        }
        let shown = asks.run("CONFIG GET slowlog-max-len");
        assert_eq!(shown, format!("[\"slowlog-max-len\" \"{value}\"]"));
    }
    assert!(refused > 0, "no key has changed in time");
}

/// The replies of commands that act behind the commit stand at their places, between others.
#[test]
fn what_an_exec_does_behind_its_commit_is_in_its_reply() {
    let server = Fixture::new();
    let (mut client, mut asks) = (server.client(), server.client());
    let long = "l".repeat(3_000_000);
    client.run(&format!("SET long {long}"));
    let before = asks.text("INFO errorstats");
    assert!(!before.contains("errorstat_ERR"), "{before}");
    let mut killed = server.client();
    let kill = format!("CLIENT KILL ID {}", killed.integer("CLIENT ID"));
    client.check(&[("WATCH w long", "+OK"), ("MULTI", "+OK")]);
    for command in [
        "GET long",
        "CONFIG SET slowlog-max-len 77",
        "GET long",
        "CONFIG SET slowlog-max-len none",
        &kill,
        "CLIENT KILL SKIPME no",
        "CONFIG GET slowlog-max-len",
        "APPEND long x",
        "GET long",
    ] {
        client.check(&[(command, "+QUEUED")]);
    }
    let reply = client.run("EXEC");
    let expected = format!(
        "[\"{long}\" +OK \"{long}\" -ERR CONFIG SET failed (possibly related to argument \
         'slowlog-max-len') - argument couldn't be parsed into an integer :1 :2 \
         [\"slowlog-max-len\" \"128\"] :3000001 \"{long}x\"]"
    );
    assert_eq!(reply, expected);
    assert!(client.is_closed() && killed.is_closed());
    let mut asks = server.client();
    let shown = asks.run("CONFIG GET slowlog-max-len");
    assert_eq!(shown, "[\"slowlog-max-len\" \"77\"]");
    let after = asks.text("INFO errorstats");
    assert!(after.contains("errorstat_ERR:count=1\r\n"), "{after}");
    let after = asks.text("INFO commandstats");
    let set = after
        .lines()
        .find(|line| line.starts_with("cmdstat_config|set:"));
    assert!(
        set.is_some_and(|of| of.ends_with("failed_calls=1")),
        "{after}"
    );
}

/// EXEC begins again when it has read a page. What it had done before is done, and is not done
/// again.
#[test]
fn what_an_exec_that_runs_again_has_done_is_replied() {
    let (server, mut client) = filled();
    let mut asks = server.client();
    let mut numbers = (0..).step_by(READS);
    let mut next = || numbers.next().unwrap();
    loop {
        let mut killed = server.client();
        let command = format!("CLIENT KILL ID {}", killed.integer("CLIENT ID"));
        let is_cold = run_cold(&mut client, &mut asks, &command, next());
        assert!(killed.is_closed());
        if is_cold {
            break;
        }
    }
    loop {
        let mut waiter = server.client();
        let id = waiter.integer("CLIENT ID").to_string();
        waiter.send(&encode(&["BLPOP", "none", "0"]));
        wait_for_wait(&mut asks, &id);
        let command = format!("CLIENT UNBLOCK {id}");
        let is_cold = run_cold(&mut client, &mut asks, &command, next());
        assert_eq!(show(&waiter.answer()), "nil");
        if is_cold {
            break;
        }
    }
    loop {
        let mut killer = server.client();
        let id = killer.integer("CLIENT ID");
        let command = format!("CLIENT KILL ID {id} SKIPME no");
        let is_cold = run_cold(&mut killer, &mut asks, &command, next());
        assert!(killer.is_closed());
        if is_cold {
            break;
        }
    }
}
