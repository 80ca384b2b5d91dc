//! Tests of COMMAND, CONFIG, CLIENT, INFO and TIME.

use std::io::Write as _;
use std::time::Duration;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};

#[test]
fn the_table_describes_its_commands() {
    let server = Fixture::new();
    let mut client = server.client();
    let count = client.integer("COMMAND COUNT");
    let Answer::Array(all) = client.call(&["COMMAND"]) else {
        panic!("COMMAND replies an array");
    };
    assert_eq!(i64::try_from(all.len()).unwrap(), count);
    let get = "\"get\" :2 [+readonly +fast] :1 :1 :1 [+@read +@string +@fast] []";
    assert!(
        client
            .run("COMMAND INFO get")
            .starts_with(&format!("[[{get}"))
    );
    client.check(&[
        ("COMMAND INFO nosuch", "[nil]"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[\"a\" \"b\"]"),
        ("COMMAND GETKEYS GET a", "[\"a\"]"),
        ("COMMAND GETKEYS DEL a b c", "[\"a\" \"b\" \"c\"]"),
        (
            "COMMAND GETKEYS PING",
            "-ERR The command has no key arguments",
        ),
        ("COMMAND GETKEYS NOSUCH", "-ERR Invalid command specified"),
        // Scripts need no keys, and none are found if their number is wrong.
        ("COMMAND GETKEYS EVAL x 1 k", "[\"k\"]"),
        ("COMMAND GETKEYS EVAL x 0", "[]"),
        ("COMMAND GETKEYS FCALL_RO f 2 k", "[]"),
        (
            "COMMAND GETKEYS ZUNION 0 k",
            "-ERR Invalid arguments specified for command",
        ),
        (
            "COMMAND GETKEYS GET",
            "-ERR Invalid number of arguments specified for command",
        ),
        (
            "COMMAND LIST FILTERBY PATTERN mse*",
            "[\"mset\" \"msetnx\"]",
        ),
        (
            "COMMAND LIST FILTERBY PATTERN script*",
            "[\"script\" \"script|debug\" \"script|exists\" \"script|flush\" \"script|help\" \
             \"script|kill\" \"script|load\"]",
        ),
        ("COMMAND LIST FILTERBY MODULE x", "[]"),
        (
            "COMMAND WHAT",
            "-ERR unknown subcommand 'WHAT'. Try COMMAND HELP.",
        ),
    ]);
    let listed = client.run("COMMAND LIST FILTERBY ACLCAT scripting");
    assert!(listed.contains("\"script|kill\""), "{listed}");
    let listed = client.run("COMMAND LIST");
    assert!(listed.contains("\"client|list\""), "{listed}");
    client.run("HELLO 3");
    let docs = client.run("COMMAND DOCS get client|id");
    assert!(docs.starts_with("{\"get\"={\"summary\"=\"Returns the string value of a key.\""));
    assert!(docs.contains("\"client|id\"={"));
    let Answer::Map(all) = client.call(&["COMMAND", "DOCS"]) else {
        panic!("COMMAND DOCS replies a map");
    };
    assert_eq!(i64::try_from(all.len()).unwrap(), count);
}

/// What the server itself does not go by.
#[test]
fn flags_and_categories_are_those_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    for (name, expected) in [
        (
            "auth",
            "[+noscript +loading +stale +fast +no_auth +allow_busy] :0 :0 :0 [+@fast +@connection]",
        ),
        (
            "eval_ro",
            "[+readonly +noscript +stale +skip_monitor +no_mandatory_keys +movablekeys] :0 :0 :0 \
             [+@slow +@scripting]",
        ),
        (
            "sort",
            "[+write +denyoom +movablekeys] :1 :1 :1 \
             [+@write +@set +@sortedset +@list +@slow +@dangerous]",
        ),
        (
            "role",
            "[+noscript +loading +stale +fast] :0 :0 :0 [+@admin +@fast +@dangerous]",
        ),
        (
            "command|info",
            "[+loading +stale] :0 :0 :0 [+@slow +@connection]",
        ),
        ("info", "[+loading +stale] :0 :0 :0 [+@slow +@dangerous]"),
        (
            "flushall",
            "[+write] :0 :0 :0 [+@keyspace +@write +@slow +@dangerous]",
        ),
        // Containers have no categories of their subcommands.
        ("xgroup", "[] :0 :0 :0 [+@slow]"),
    ] {
        let info = client.run(&format!("COMMAND INFO {name}"));
        assert!(info.contains(expected), "{info}");
    }
    let list = client.run("ACL CAT");
    assert!(
        list.contains("\"geo\" \"stream\" \"pubsub\"") && list.ends_with("\"scripting\"]"),
        "{list}"
    );
    let streams = client.run("ACL CAT stream");
    assert!(
        streams.contains("\"xgroup|create\"") && !streams.contains("\"xgroup\""),
        "{streams}"
    );
    let own = client.run("COMMAND LIST FILTERBY ACLCAT connection");
    assert!(
        own.contains("\"command|info\"") && !own.contains("\"info\""),
        "{own}"
    );
}

#[test]
fn parameters_are_shown_and_set_together() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("CONFIG GET save", "[\"save\" \"\"]"),
        ("CONFIG GET appendonly databases", "[\"appendonly\" \"yes\" \"databases\" \"16\"]"),
        ("CONFIG GET nosuch", "[]"),
        ("CONFIG SET timeout 100 protected-mode no", "+OK"),
        ("CONFIG GET timeout", "[\"timeout\" \"100\"]"),
        (
            "CONFIG SET timeout 200 databases 3",
            "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
        ("CONFIG GET timeout", "[\"timeout\" \"100\"]"),
        (
            "CONFIG SET nosuch 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        (
            "CONFIG SET timeout x",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        ),
        (
            "CONFIG SET timeout 1 timeout 2",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        ("CONFIG SET timeout", "-ERR wrong number of arguments for 'config|set' command"),
        ("CONFIG SET save ''", "+OK"),
        ("CONFIG SET durability periodic", "+OK"),
        ("CONFIG GET appendfsync", "[\"appendfsync\" \"everysec\"]"),
        ("CONFIG RESETSTAT", "+OK"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
    ]);
    assert!(
        client
            .run("CONFIG GET max*")
            .contains("\"maxmemory-policy\" \"noeviction\"")
    );
}

#[test]
fn clients_are_named_listed_and_killed() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let (id, other_id) = (client.integer("CLIENT ID"), other.integer("CLIENT ID"));
    assert_ne!(id, other_id);
    client.check(&[
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT SETINFO LIB-NAME lib", "+OK"),
        ("CLIENT SETINFO LIB-VER 1.2", "+OK"),
        ("CLIENT SETINFO WHAT x", "-ERR Unrecognized option 'WHAT'"),
        ("CLIENT NO-EVICT on", "+OK"),
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        (
            "CLIENT KILL ID 0",
            "-ERR client-id should be greater than 0",
        ),
        ("CLIENT KILL WHAT x", "-ERR syntax error"),
        ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'"),
        ("SELECT 4", "+OK"),
    ]);
    for command in [
        &["CLIENT", "SETNAME"][..],
        &["CLIENT", "SETINFO", "LIB-NAME"],
        &["CLIENT", "SETINFO", "LIB-VER"],
        &["HELLO", "2", "SETNAME"],
    ] {
        let long = "n".repeat(4097);
        assert_eq!(
            show(&client.call(&[command, &[&long]].concat())),
            "-ERR names of clients and libraries have at most 4096 bytes"
        );
    }
    assert_eq!(
        show(&client.call(&["CLIENT", "SETNAME", "a b"])),
        "-ERR Client names cannot contain spaces, newlines or special characters."
    );
    let info = client.text("CLIENT INFO");
    for part in [
        &format!("id={id} "),
        "name=me ",
        "db=4 ",
        "lib-name=lib lib-ver=1.2",
        "cmd=client|info",
        "resp=2",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
    assert_eq!(client.text("CLIENT LIST").lines().count(), 2);
    assert_eq!(
        client
            .text(&format!("CLIENT LIST ID {other_id}"))
            .lines()
            .count(),
        1
    );
    client.check(&[(&format!("CLIENT KILL ID {other_id}"), ":1")]);
    assert!(other.is_closed());
    client.send(b"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$6\r\nSKIPME\r\n$2\r\nno\r\n");
    assert_eq!(show(&client.answer()), ":1");
    assert!(client.is_closed());
}

/// It is shown with its container, also if it was queued or refused, but not what it calls.
#[test]
fn the_last_command_of_a_client_is_shown() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let list = format!("CLIENT LIST ID {}", client.integer("CLIENT ID"));
    let mut check = |client: &mut Client, sent: &str, replies: usize, shown: &str| {
        client.send(format!("{sent}\r\n").as_bytes());
        (0..replies).for_each(|_| drop(client.answer()));
        let line = other.text(&list);
        assert!(line.contains(&format!(" cmd={shown} ")), "{sent}: {line}");
    };
    check(&mut client, "GET k\r\nGET l\r\nSTRLEN k", 3, "strlen");
    for (sent, shown) in [
        ("SET k 1", "set"),
        ("OBJECT ENCODING k", "object|encoding"),
        ("CLIENT TRACKING OFF", "client|tracking"),
        ("NOSUCH", "NULL"),
        ("GET", "get"),
        ("CONFIG NOSUCH", "NULL"),
        ("XGROUP CREATE a b", "xgroup|create"),
        ("CLIENT", "client"),
        ("MULTI", "multi"),
        ("INCR k", "incr"),
        ("CLIENT LIST", "client|list"),
        ("EXEC", "exec"),
        ("EXEC", "exec"),
    ] {
        check(&mut client, sent, 1, shown);
    }
    client.send(b"MULTI\r\nCLIENT INFO\r\nEXEC\r\n");
    let info = (0..3).map(|_| show(&client.answer())).last().unwrap();
    assert!(info.contains(" cmd=exec "), "{info}");
}

#[test]
fn info_has_the_names_that_exporters_read() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a 1");
    client.run("GET a");
    client.run("GET none");
    client.run("NOSUCH");
    client.run("SELECT 5");
    client.run("SET b 1 EX 100");
    let info = client.text("INFO all");
    for part in [
        "# Server\r\nredis_version:7.2.",
        "\r\npando_version:",
        "\r\narch_bits:64\r\n",
        "# Clients\r\nconnected_clients:1\r\n",
        "\r\nmaxmemory:",
        "\r\nloading:0\r\n",
        "\r\nkeyspace_hits:1\r\n",
        "\r\nkeyspace_misses:1\r\n",
        "\r\nrole:master\r\n",
        "\r\nused_cpu_user:",
        "\r\ncluster_enabled:0\r\n",
        "\r\ncmdstat_get:calls=2,usec=",
        "\r\nerrorstat_ERR:count=1\r\n",
        "\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n",
        "\r\ndb5:keys=1,expires=1,avg_ttl=0\r\n",
        "\r\nrun_id:",
        "\r\nprocess_id:",
        "\r\nmaster_repl_offset:0\r\n",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
    let some = client.text("INFO server KEYSPACE");
    assert!(some.starts_with("# Server\r\n") && some.contains("\r\n\r\n# Keyspace\r\n"));
    assert!(!some.contains("# Stats"));
    assert!(!client.text("INFO").contains("cmdstat_"));
    client.run("CONFIG RESETSTAT");
    assert!(client.text("INFO stats").contains("keyspace_hits:0\r\n"));
    assert_eq!(client.text("INFO nosuch"), "");
    let Answer::Array(time) = client.call(&["TIME"]) else {
        panic!("TIME replies an array");
    };
    assert_eq!(time.len(), 2);
    assert!(server.handle.info().contains("db5:keys=1"));
}

#[test]
fn histograms_are_shown_to_who_asks_for_them_and_gauges_to_all() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a 1");
    for _ in 0..3 {
        client.run("GET a");
    }
    for all in ["INFO", "INFO all", "INFO everything"] {
        assert!(!client.text(all).contains("# Histograms"), "{all}");
    }
    let info = client.text("INFO histograms");
    let line = |name: &str| {
        let found = info.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name} in {info}"))
    };
    let gets = line("command_get:count=3,sum=");
    let (sum, buckets) = gets.split_once(",buckets=").unwrap();
    let buckets: Vec<(u64, u64)> = buckets
        .split(' ')
        .map(|bucket| {
            let (end, count) = bucket.split_once(':').unwrap();
            (end.parse().unwrap(), count.parse().unwrap())
        })
        .collect();
    assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 3);
    let most: u64 = buckets.iter().map(|(end, count)| end * count).sum();
    let sum: u64 = sum.parse().unwrap();
    assert!(sum > 0 && sum <= most, "{info}");
    line("log_flush_ns:count=");
    assert!(!info.contains("command_mget"), "never called");
    let info = client.text("INFO pando");
    for gauge in ["frames", "wired_frames", "pin_frames", "pin_frames_max"] {
        assert!(info.contains(&format!("\r\n{gauge}:")), "{gauge} in {info}");
    }
}

/// Clients of four loops that write without a pause: once CLIENT KILL has replied, nothing that
/// they have sent is carried out.
#[test]
fn a_killed_client_does_nothing_more() {
    let server = Fixture::with(ServerOptions {
        threads: 4,
        durability: Durability::None,
        ..options()
    });
    let mut client = server.client();
    for round in 0..40 {
        let mut victims: Vec<_> = (0..16).map(|_| server.client()).collect();
        // Loops have taken them.
        for victim in &mut victims {
            victim.run("PING");
        }
        let commands = encode(&["INCR", "n"]).repeat(300);
        thread::scope(|scope| {
            for victim in &mut victims {
                scope.spawn(|| while victim.stream.write_all(&commands).is_ok() {});
            }
            while client.run("GET n") == "nil" {
                thread::yield_now();
            }
            let killed = client.run("CLIENT KILL TYPE normal SKIPME yes");
            let counted = client.run("GET n");
            assert_eq!(killed, ":16");
            thread::sleep(Duration::from_millis(5));
            assert_eq!(client.run("GET n"), counted, "round {round}");
        });
        client.run("DEL n");
    }
    assert_eq!(client.run("PING"), "+PONG");
}

/// The letters come in the order of Redis.
#[test]
fn client_list_has_a_letter_for_each_state() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let flags = |client: &mut Client| {
        let text = client.text("CLIENT INFO");
        let (_, rest) = text.split_once(" flags=").unwrap();
        rest.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(flags(&mut client), "N");
    client.check(&[("CLIENT NO-EVICT on", "+OK")]);
    assert_eq!(flags(&mut client), "e");
    client.check(&[
        ("CLIENT NO-TOUCH ON", "+OK"),
        ("CLIENT TRACKING ON BCAST", "+OK"),
    ]);
    assert_eq!(flags(&mut client), "tBeT");
    client.check(&[
        ("CLIENT NO-EVICT OFF", "+OK"),
        ("CLIENT NO-EVICT WHAT", "-ERR syntax error"),
        ("CLIENT NO-TOUCH WHAT", "-ERR syntax error"),
    ]);
    assert_eq!(flags(&mut client), "tBT");
    client.send(&encode(&["BLPOP", "none", "0"]));
    while !other.text("CLIENT LIST").contains(" flags=btBT ") {
        thread::yield_now();
    }
    other.check(&[("RPUSH none a", ":1")]);
    assert_eq!(show(&client.answer()), "[\"none\" \"a\"]");
    client.check(&[("CLIENT TRACKING OFF", "+OK"), ("RESET", "+RESET")]);
    assert_eq!(flags(&mut client), "N");
}
