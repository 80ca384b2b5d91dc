//! Commands of EXEC that act beside the store, which no conflict of its transaction takes back.

use pando_resp::Answer;

use crate::client::{Client, encode, show};
use crate::fixture::Fixture;

/// The commands that run between MULTI and EXEC, as in Redis.
const AT_ONCE: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];

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
