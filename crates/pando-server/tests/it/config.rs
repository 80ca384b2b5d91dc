//! Tests of CONFIG: which values are taken, that all are or none, and what is written to a file.

use pando_server::{ConfigRewriter, Error, Parameter, Server, ServerOptions};
use pando_sync::{Mutex, OnceLock, Rank};

use crate::client::{Client, show};
use crate::fixture::{Fixture, options};
use crate::statistics::fields;

fn refused(name: &str, reason: &str) -> String {
    format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
}

#[test]
fn parameters_of_redis_are_taken_and_shown() {
    let server = Fixture::new();
    let mut client = server.client();
    for (name, value, shown) in [
        ("hz", "100", "100"),
        ("lua-time-limit", "77", "77"),
        ("busy-reply-threshold", "78", "78"),
        ("list-compress-depth", "1", "1"),
        ("stream-node-max-bytes", "8kb", "8192"),
        ("lazyfree-lazy-expire", "YES", "yes"),
        ("repl-diskless-load", "SwapDB", "swapdb"),
        ("slave-priority", "5", "5"),
        ("save", "900\u{20}1", "900 1"),
        (
            "latency-monitor-threshold",
            "9223372036854775807",
            "9223372036854775807",
        ),
        ("set-max-listpack-value", "1kb", "1024"),
        ("maxmemory-policy", "noeviction", "noeviction"),
        ("appendonly", "yes", "yes"),
        ("maxclients", "400", "400"),
    ] {
        assert_eq!(
            show(&client.call(&["CONFIG", "SET", name, value])),
            "+OK",
            "{name}"
        );
        let expected = format!("[\"{name}\" \"{shown}\"]");
        assert_eq!(client.run(&format!("CONFIG GET {name}")), expected);
    }
    client.check(&[
        ("CONFIG GET lua-time-limit", "[\"lua-time-limit\" \"78\"]"),
        (
            "CONFIG GET replica-priority",
            "[\"replica-priority\" \"5\"]",
        ),
        ("CONFIG GET HZ h?", "[\"hz\" \"100\"]"),
        (
            "CONFIG GET lazyfree-lazy-expire nosuch",
            "[\"lazyfree-lazy-expire\" \"yes\"]",
        ),
    ]);
}

#[test]
fn what_cannot_be_is_refused_in_the_words_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let integer = "argument couldn't be parsed into an integer";
    let max_seconds = "argument must be between 0 and 2147483647 inclusive";
    for (name, value, reason) in [
        ("hz", "x", integer),
        ("hz", "", integer),
        ("timeout", "-1", max_seconds),
        ("tcp-keepalive", "2147483648", max_seconds),
        (
            "active-expire-effort",
            "11",
            "argument must be between 1 and 10 inclusive",
        ),
        (
            "maxclients",
            "0",
            "argument must be between 1 and 4294967295 inclusive",
        ),
        ("maxmemory", "x", "argument must be a memory value"),
        ("maxmemory", "-5", "argument must be a memory value"),
        (
            "appendfsync",
            "x",
            "argument(s) must be one of the following: everysec, always, no",
        ),
        (
            "maxmemory-policy",
            "allkeys-lru",
            "keys are never evicted: noeviction is all there is",
        ),
        ("appendonly", "maybe", "argument must be 'yes' or 'no'"),
        ("save", "x", "Invalid save parameters"),
        (
            "notify-keyspace-events",
            "q",
            "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
        ),
        ("min-replicas-to-write", "1", "there are no replicas"),
        ("port", "7", "can't set immutable config"),
        ("daemonize", "yes", "can't set immutable config"),
    ] {
        let reply = show(&client.call(&["CONFIG", "SET", name, value]));
        assert_eq!(reply, refused(name, reason), "{name} {value}");
    }
}

/// It moves between what the server was started with and a part of that.
#[test]
fn the_memory_budget_changes_while_the_server_runs() {
    let server = Fixture::new();
    let mut client = server.client();
    let most = 33_554_432;
    for number in 0..60 {
        client.call(&["SET", &format!("k{number}"), &"v".repeat(100_000)]);
    }
    let refusal = client.run("CONFIG SET maxmemory 100mb");
    let prefix = "the running server takes ";
    let least = refusal.split(prefix).nth(1).expect(&refusal);
    let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
    assert!((most / 4..most).contains(&least), "{refusal}");
    let reason = format!("{prefix}{least} to {most} bytes: start it with another max_memory");
    assert_eq!(refusal, refused("maxmemory", &reason));
    for wrong in [1, least - 1, most + 1] {
        let reply = client.run(&format!("CONFIG SET maxmemory {wrong}"));
        assert_eq!(reply, refused("maxmemory", &reason));
    }
    // Nothing is set if another parameter is wrong.
    client.run(&format!("CONFIG SET maxmemory {least} hz x"));
    let budget = |client: &mut Client| {
        let shown = client.run("CONFIG GET maxmemory");
        let memory = fields(client, "memory");
        assert_eq!(
            shown,
            format!("[\"maxmemory\" \"{}\"]", memory["maxmemory"])
        );
        let budget: u64 = memory["maxmemory"].parse().unwrap();
        let parts = [
            "frames",
            "page_table",
            "log_buffers",
            "images",
            "chunk_buffers",
            "tables",
        ];
        let parts = parts.map(|part| &memory[&format!("memory_{part}_budget")]);
        let parts: u64 = parts.iter().map(|part| part.parse::<u64>().unwrap()).sum();
        let rest: u64 = memory["memory_rest_budget"].parse().unwrap();
        assert_eq!(parts + rest, budget);
        budget
    };
    assert_eq!(budget(&mut client), most);
    for bytes in [least, most - 1, least + 1, 0] {
        client.check(&[(&format!("CONFIG SET maxmemory {bytes}"), "+OK")]);
        assert_eq!(budget(&mut client), if bytes == 0 { most } else { bytes });
        for number in 0..60 {
            assert_eq!(client.run(&format!("STRLEN k{number}")), ":100000");
        }
    }
    client.check(&[("CONFIG SET maxmemory 32mb", "+OK")]);
    assert_eq!(budget(&mut client), most);
}

/// Names are looked at before values, the first of them that is wrong is named, and nothing is set.
#[test]
fn all_pairs_are_set_or_none() {
    let server = Fixture::new();
    let mut client = server.client();
    let unknown = "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'";
    client.check(&[
        (
            "CONFIG SET hz 7 HZ x",
            &refused("HZ", "duplicate parameter"),
        ),
        (
            "CONFIG SET maxmemory 1 maxmemory 2",
            &refused("maxmemory", "duplicate parameter"),
        ),
        (
            "CONFIG SET hz 7 timeout x",
            &refused("timeout", "argument couldn't be parsed into an integer"),
        ),
        ("CONFIG SET timeout x nosuch 1", unknown),
        ("CONFIG SET nosuch 1 port 3", unknown),
        ("CONFIG SET hz 7 timeout", "-ERR syntax error"),
        ("CONFIG GET hz", "[\"hz\" \"10\"]"),
        ("CONFIG SET hz 7 timeout 3", "+OK"),
        ("CONFIG GET hz timeout", "[\"hz\" \"7\" \"timeout\" \"3\"]"),
    ]);
}

#[test]
fn appendfsync_and_durability_are_one_parameter() {
    let server = Fixture::new();
    let mut client = server.client();
    for (flush, durability) in [
        ("everysec", "periodic"),
        ("no", "none"),
        ("ALWAYS", "durable"),
    ] {
        assert_eq!(
            client.run(&format!("CONFIG SET appendfsync {flush}")),
            "+OK"
        );
        let expected = format!("[\"durability\" \"{durability}\"]");
        assert_eq!(client.run("CONFIG GET durability"), expected);
        assert_eq!(client.run("SET a 1"), "+OK");
    }
    client.check(&[
        ("CONFIG SET durability periodic", "+OK"),
        ("CONFIG GET appendfsync", "[\"appendfsync\" \"everysec\"]"),
    ]);
}

/// What CONFIG REWRITE has written last. A rewriter lives as long as its program.
fn written() -> &'static Mutex<Vec<Parameter>> {
    static WRITTEN: OnceLock<Mutex<Vec<Parameter>>> = OnceLock::new();
    WRITTEN.get_or_init(|| Mutex::new(Rank::Caller, Vec::new()))
}

fn write_parameters(parameters: &[Parameter]) -> Result<(), String> {
    let mut changed = parameters.iter();
    if changed.any(|of| of.name == "hz" && of.value == "66") {
        return Err("No space left on device".to_owned());
    }
    *written().lock() = parameters.to_vec();
    Ok(())
}

#[test]
fn the_owner_of_the_file_gets_what_has_changed_since_the_start() {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let server = Fixture::with(ServerOptions {
        config_rewriter: Some(ConfigRewriter(&write_parameters)),
        parameters: vec![own("Timeout", "9"), own("slave-priority", "3")],
        ..options()
    });
    let mut client = server.client();
    client.check(&[
        (
            "CONFIG GET timeout replica-priority",
            "[\"replica-priority\" \"3\" \"timeout\" \"9\"]",
        ),
        (
            "CONFIG SET requirepass secret hz 20 lua-time-limit 8",
            "+OK",
        ),
        ("CONFIG SET appendfsync everysec", "+OK"),
        ("CONFIG REWRITE", "+OK"),
    ]);
    let written = written().lock().clone();
    let changed: Vec<(&str, &str)> = written
        .iter()
        .filter(|of| of.is_changed)
        .map(|of| (of.name, of.value.as_str()))
        .collect();
    let expected = [
        ("appendfsync", "everysec"),
        ("busy-reply-threshold", "8"),
        ("hz", "20"),
        ("replica-priority", "3"),
        ("requirepass", "secret"),
        ("timeout", "9"),
    ];
    assert_eq!(changed, expected);
    let names = |name: &str| {
        let mut found = written.iter().filter(|of| of.name == name);
        found.next().map(|of| of.other_names.as_slice())
    };
    assert_eq!(names("replica-priority"), Some(&["slave-priority"][..]));
    assert_eq!(
        names("zset-max-listpack-value"),
        Some(&["zset-max-ziplist-value"][..])
    );
    for absent in ["port", "durability", "slave-priority"] {
        assert_eq!(names(absent), None);
    }
    client.check(&[
        ("CONFIG SET hz 66", "+OK"),
        (
            "CONFIG REWRITE",
            "-ERR Rewriting config file: No space left on device",
        ),
        ("MULTI", "+OK"),
        (
            "CONFIG REWRITE",
            "-ERR Command not allowed inside a transaction",
        ),
    ]);
}

#[test]
fn a_server_does_not_start_with_parameters_that_are_refused() {
    for (name, value, reason) in [
        ("hz", "x", "hz: argument couldn't be parsed into an integer"),
        ("nosuch", "x", "nosuch: there is no such parameter"),
        ("databases", "3", "databases: can't set immutable config"),
    ] {
        let options = ServerOptions {
            parameters: vec![(name.to_owned(), value.to_owned())],
            ..options()
        };
        let error = Server::bind(options).err().unwrap();
        assert!(matches!(error, Error::Parameter { .. }));
        assert_eq!(error.to_string(), reason);
    }
}
