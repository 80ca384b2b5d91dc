//! Tests of what clients see besides data: arguments that hardly anybody sends, and the moments of
//! start and end.

use std::io::Write as _;
use std::time::Duration;

use pando_server::{DebugCommands, ServerOptions};
use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open, options};
use crate::statistics::fields;

#[test]
fn odd_arguments_are_answered_as_redis_does() {
    let server = Fixture::new();
    let mut client = server.client();
    let count = "-ERR count should be greater than or equal to -1";
    client.check(&[
        ("SLOWLOG GET x", count),
        ("SLOWLOG GET -2", count),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        (
            "MEMORY USAGE k SAMPLES x",
            "-ERR value is not an integer or out of range",
        ),
        ("MEMORY USAGE k SAMPLES 0", "nil"),
        ("SCAN -1", "[\"0\" []]"),
        ("SCAN +0", "[\"0\" []]"),
        ("SCAN -", "-ERR invalid cursor"),
        ("SCAN --1", "-ERR invalid cursor"),
        ("SCAN 99999999999999999999999", "-ERR invalid cursor"),
        ("SHUTDOWN NOSAVE SAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        ("SHUTDOWN WHAT", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SET k abc", "+OK"),
        ("INCRBYFLOAT k inf", "-ERR value is not a valid float"),
        (
            "INCRBYFLOAT nokey inf",
            "-ERR increment would produce NaN or Infinity",
        ),
    ]);
    assert_eq!(show(&client.call(&["SCAN", " 1"])), "-ERR invalid cursor");
    assert_eq!(show(&client.call(&["SCAN", ""])), "[\"0\" [\"k\"]]");
}

/// Text ends at a NUL for Redis.
#[test]
fn errors_show_no_nul() {
    let server = Fixture::new();
    let mut client = server.client();
    assert_eq!(
        show(&client.call(&["what\0ever", "ar\0g", "b"])),
        "-ERR unknown command 'what', with args beginning with: 'ar' 'b' "
    );
    assert_eq!(
        show(&client.call(&["CONFIG", "s\0t"])),
        "-ERR unknown subcommand 's'. Try CONFIG HELP."
    );
}

/// From the answer on the client runs nothing, and nobody sees it.
#[test]
fn a_killed_client_is_gone_when_that_is_answered() {
    let server = Fixture::new();
    let mut client = server.client();
    for round in 0..50 {
        let mut other = server.client();
        let id = other.integer("CLIENT ID");
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), ":1");
        assert_eq!(client.text("CLIENT LIST").lines().count(), 1);
        // The write may fail: it may be closed already.
        let _ = other
            .stream
            .write_all(format!("SET late {round}\r\n").as_bytes());
        assert!(other.is_closed());
        assert_eq!(client.run("EXISTS late"), ":0");
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), ":0");
    }
}

/// What was sent is not owed any more.
#[test]
fn client_list_does_not_count_replies_that_were_sent() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("PING");
    for _ in 0..2 {
        let info = client.text("CLIENT INFO");
        assert!(
            info.contains(" obl=0 ") && info.contains(" omem=0 "),
            "{info}"
        );
    }
}

/// Who comes while the store opens waits a moment, and is served.
#[test]
fn clients_wait_for_a_store_that_opens_quickly() {
    let server = Fixture::opened_by(options(), |path| {
        thread::sleep(Duration::from_millis(200));
        open(path)
    });
    let mut client = server.raw_client();
    client.check(&[("SET a 1", "+OK"), ("GET a", "\"1\"")]);
}

#[test]
fn keys_and_what_becomes_of_them_are_told_as_redis_does() {
    let server = Fixture::new();
    let mut client = server.client();
    let none = "-ERR The command has no key arguments";
    let count = "-ERR Invalid number of arguments specified for command";
    client.check(&[
        ("COMMAND GETKEYS MEMORY USAGE k", "[\"k\"]"),
        ("COMMAND GETKEYS MEMORY USAGE", count),
        ("COMMAND GETKEYS MEMORY DOCTOR", none),
        (
            "COMMAND GETKEYS MEMORY WHAT k",
            "-ERR Invalid command specified",
        ),
        ("COMMAND GETKEYS SPUBLISH c m", none),
        ("COMMAND GETKEYS SSUBSCRIBE c", none),
        (
            "COMMAND GETKEYS SORT a BY store GET x STORE d",
            "[\"a\" \"d\"]",
        ),
        (
            "COMMAND GETKEYS SORT a BY store STORE d STORE e",
            "[\"a\" \"e\"]",
        ),
        (
            "COMMAND GETKEYS GEORADIUS k 1 1 1 m STOREDIST d",
            "[\"k\" \"d\"]",
        ),
        (
            "COMMAND GETKEYS GEORADIUS k 1 1 1 m STOREDIST d STORE e",
            "[\"k\" \"e\" \"d\"]",
        ),
        // Here, as in Redis, what STORE means does not count.
        (
            "COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE STOREDIST d",
            "[\"k\" \"STOREDIST\" \"d\"]",
        ),
        ("COMMAND GETKEYS GEORADIUS k 1 1 1 m STORE", "[\"k\"]"),
        (
            "COMMAND GETKEYS GEORADIUSBYMEMBER k m 1 m STORE d",
            "[\"k\" \"d\"]",
        ),
        ("COMMAND GETKEYS ZUNIONSTORE d 2 a b", "[\"d\" \"a\" \"b\"]"),
        (
            "COMMAND GETKEYS ZUNIONSTORE d 3 a b",
            "-ERR Invalid arguments specified for command",
        ),
        (
            "COMMAND GETKEYSANDFLAGS LMOVE a b LEFT RIGHT",
            "[[\"a\" [+RW +access +delete]] [\"b\" [+RW +insert]]]",
        ),
        ("COMMAND GETKEYSANDFLAGS SET a b", "[[\"a\" [+OW +update]]]"),
        (
            "COMMAND GETKEYSANDFLAGS SET a b GET",
            "[[\"a\" [+RW +access +update]]]",
        ),
        (
            "COMMAND GETKEYSANDFLAGS BITFIELD a GET u1 0",
            "[[\"a\" [+RO +access]]]",
        ),
        (
            "COMMAND GETKEYSANDFLAGS PING",
            "-ERR wrong number of arguments for 'command|getkeysandflags' command",
        ),
    ]);
    let info = client.run("COMMAND INFO spublish");
    assert!(
        info.contains(":1 :1 :1 ") && info.contains("[+not_key]"),
        "{info}"
    );
}

#[test]
fn replies_are_left_out_as_the_client_asks() {
    let server = Fixture::new();
    let mut client = server.client();
    client.send(
        b"CLIENT REPLY OFF\r\nSET a 1\r\nNOSUCH\r\nCLIENT REPLY SKIP\r\nGET a\r\nGET a\r\n\
          CLIENT REPLY ON\r\nECHO one\r\nCLIENT REPLY SKIP\r\nINCR a\r\nECHO two\r\n",
    );
    for expected in ["+OK", "\"one\"", "\"two\""] {
        assert_eq!(show(&client.answer()), expected);
    }
    // Confirmations come as messages do.
    client.send(
        b"CLIENT REPLY OFF\r\nSUBSCRIBE c\r\nPING\r\nUNSUBSCRIBE c\r\nUNSUBSCRIBE\r\nCLIENT REPLY ON\r\n\
          CLIENT REPLY SKIP\r\nSUBSCRIBE c\r\nUNSUBSCRIBE c\r\nCLIENT REPLY SKIP\r\nECHO no\r\n",
    );
    for expected in [
        "[\"subscribe\" \"c\" :1]",
        "[\"unsubscribe\" \"c\" :0]",
        "[\"unsubscribe\" nil :0]",
        "+OK",
        "[\"subscribe\" \"c\" :1]",
        "[\"unsubscribe\" \"c\" :0]",
    ] {
        assert_eq!(show(&client.answer()), expected);
    }
    // RESET is left out as other commands are, and ends what CLIENT REPLY OFF began.
    client.send(
        b"CLIENT REPLY SKIP\r\nRESET\r\nECHO three\r\nCLIENT REPLY OFF\r\nECHO no\r\nRESET\r\n\
          ECHO four\r\n",
    );
    for expected in ["\"three\"", "+RESET", "\"four\""] {
        assert_eq!(show(&client.answer()), expected);
    }
    client.check(&[
        ("CLIENT REPLY WHAT", "-ERR syntax error"),
        ("MULTI", "+OK"),
        // The reply of an EXEC is one, and its parts are counted.
        (
            "CLIENT REPLY SKIP",
            "-ERR Command not allowed inside a transaction",
        ),
    ]);
}

#[test]
fn commands_wait_for_the_end_of_a_pause() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        (
            "CLIENT PAUSE x",
            "-ERR timeout is not an integer or out of range",
        ),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        (
            "CLIENT PAUSE 1 x",
            "-ERR CLIENT PAUSE mode must be WRITE or ALL",
        ),
        ("CLIENT PAUSE 100000 WRITE", "+OK"),
        ("GET a", "nil"),
    ]);
    // Writes wait, alone, in a pipeline and in an EXEC; reads do not.
    other.send(b"GET a\r\n");
    assert_eq!(show(&other.answer()), "nil");
    other.send(&encode(&["SET", "a", "1"]).repeat(64));
    let mut third = server.client();
    third.check(&[("MULTI", "+OK"), ("INCR n", "+QUEUED")]);
    third.send(b"EXEC\r\n");
    // So does a subcommand that writes.
    let mut fourth = server.client();
    fourth.check(&[
        ("MULTI", "+OK"),
        ("GET a", "+QUEUED"),
        ("XGROUP CREATE s g $ MKSTREAM", "+QUEUED"),
    ]);
    fourth.send(b"EXEC\r\n");
    thread::sleep(Duration::from_millis(50));
    // They count as blocked.
    assert_eq!(fields(&mut client, "clients")["blocked_clients"], "3");
    let list = client.text("CLIENT LIST");
    assert!(
        list.contains(" cmd=set ") && list.contains(" cmd=exec "),
        "{list}"
    );
    client.check(&[("EXISTS a n s", ":0"), ("CLIENT UNPAUSE", "+OK")]);
    (0..64).for_each(|_| assert_eq!(show(&other.answer()), "+OK"));
    assert_eq!(show(&third.answer()), "[:1]");
    assert!(show(&fourth.answer()).ends_with(" +OK]"));
    // A pause of all ends by itself, also for commands that need no data.
    let began = pando_sync::time::now();
    client.check(&[("CLIENT PAUSE 300", "+OK"), ("ECHO x", "\"x\"")]);
    assert!(began.elapsed() >= Duration::from_millis(250));
}

/// The clock of a transaction that a client steps through stands still; its pause is of the time
/// that was asked for all the same.
#[test]
fn a_pause_of_an_old_transaction_has_its_whole_time() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("PANDO BEGIN", "+OK")]);
    thread::sleep(Duration::from_millis(400));
    let began = pando_sync::time::now();
    client.check(&[("CLIENT PAUSE 300", "+OK")]);
    other.check(&[("ECHO x", "\"x\"")]);
    assert!(began.elapsed() >= Duration::from_millis(250));
    client.check(&[("PANDO ROLLBACK", "+OK")]);
}

/// An EXEC that takes several turns waits for the end of a pause that begins between two of them.
#[test]
fn a_pause_holds_an_exec_between_its_turns() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let text = "abcdefghij".repeat(600);
    client.check(&[(&format!("SET one {text}"), "+OK")]);
    client.check(&[(&format!("SET two {text}x"), "+OK")]);
    let shown = format!("CLIENT LIST ID {}", client.integer("CLIENT ID"));
    for round in 0.. {
        assert!(round < 50, "no EXEC was held");
        other.run("DEL n");
        client.check(&[
            ("MULTI", "+OK"),
            ("LCS one two LEN", "+QUEUED"),
            ("INCR n", "+QUEUED"),
        ]);
        client.send(b"EXEC\r\n");
        // It has had a turn.
        while !other.text(&shown).contains(" cmd=exec ") {
            thread::yield_now();
        }
        other.check(&[("CLIENT PAUSE 100000 WRITE", "+OK")]);
        // Unless it was at its end.
        let mut is_held = false;
        while !is_held && other.run("EXISTS n") == ":0" {
            is_held = fields(&mut other, "clients")["blocked_clients"] == "1";
        }
        assert_eq!(other.run("EXISTS n") == ":0", is_held);
        other.check(&[("CLIENT UNPAUSE", "+OK")]);
        assert_eq!(show(&client.answer()), "[:6000 :1]");
        if is_held {
            break;
        }
    }
}

/// The server ends although a command waits for the end of a pause.
#[test]
fn a_pause_does_not_hold_up_the_end() {
    let mut server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("CLIENT PAUSE 1000000", "+OK")]);
    other.send(b"SET a 1\r\n");
    thread::sleep(Duration::from_millis(50));
    let began = pando_sync::time::now();
    server.handle.shutdown();
    server.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(other.is_closed());
}

#[test]
fn a_value_of_another_type_was_found() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("SET s 1", "+OK"), ("RPUSH l a", ":1"), ("SADD m a", ":1")]);
    let counts = |client: &mut Client| {
        let all = fields(client, "stats");
        ["keyspace_hits", "keyspace_misses"].map(|name| all[name].parse::<u64>().unwrap())
    };
    for (command, hits, misses) in [
        ("GET l", 1, 0),
        ("LRANGE s 0 -1", 1, 0),
        ("STRLEN l", 1, 0),
        ("XLEN s", 1, 0),
        ("SINTER m s", 2, 0),
        ("SDIFF none m l", 2, 1),
    ] {
        let before = counts(&mut client);
        let reply = client.run(command);
        assert!(reply.starts_with("-WRONGTYPE "), "{command}: {reply}");
        let after = counts(&mut client);
        let grown = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(grown, [hits, misses], "{command}");
    }
    // In a pipeline, too.
    let before = counts(&mut client);
    client.send(&encode(&["GET", "l"]).repeat(20));
    (0..20).for_each(|_| assert!(show(&client.answer()).starts_with("-WRONGTYPE ")));
    assert_eq!(counts(&mut client), [before[0] + 20, before[1]]);
}

#[test]
fn what_is_not_there_is_called_so() {
    let server = Fixture::new();
    let mut client = server.client();
    let no_cluster = "-ERR This instance has cluster support disabled";
    let no_modules = "-ERR MODULE command not allowed. If the enable-module-command option is set \
                      to \"local\", you can run it from a local connection, otherwise you need to \
                      set this option in the configuration file, and then restart the server.";
    client.check(&[
        ("ROLE", "[\"master\" :0 []]"),
        ("MODULE LIST", "[]"),
        ("MODULE LOAD x", no_modules),
        ("MODULE X", "-ERR unknown subcommand 'X'. Try MODULE HELP."),
        ("CLUSTER INFO", no_cluster),
        ("CLUSTER KEYSLOT x", no_cluster),
        (
            "CLUSTER X",
            "-ERR unknown subcommand 'X'. Try CLUSTER HELP.",
        ),
        ("READONLY", no_cluster),
        ("REPLICAOF NO ONE", "+OK"),
        ("REPLICAOF a b", "-ERR Invalid master port"),
        ("SLAVEOF a 1", "-ERR replication is not there yet"),
        ("FAILOVER", "-ERR FAILOVER requires connected replicas."),
        ("ACL WHOAMI", "\"default\""),
        ("ACL USERS", "[\"default\"]"),
        ("ACL CAT nosuch", "-ERR Unknown category 'nosuch'"),
        (
            "ACL SETUSER x",
            "-ERR ACL SETUSER is not supported: there is no user but default",
        ),
        (
            "MIGRATE localhost 6379 s 0 1",
            "-ERR MIGRATE is not supported: it would have to wait for another server: read a key \
             with DUMP here, and send it to the other one with RESTORE",
        ),
        ("MEMORY PURGE", "+OK"),
        ("LATENCY GRAPH x", "-ERR No samples available for event 'x'"),
        ("COMMAND INFO migrate", "[nil]"),
    ]);
    assert!(client.run("ACL CAT write").contains("\"set\""));
    assert!(client.text("LOLWUT").starts_with("Redis ver. 7.2."));
}

#[test]
fn debug_is_there_for_those_who_started_it_so() {
    let refused = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                   \"local\", you can run it from a local connection, otherwise you need to set \
                   this option in the configuration file, and then restart the server.";
    let server = Fixture::new();
    server
        .client()
        .check(&[("DEBUG SLEEP 0", refused), ("DEBUG WHAT", refused)]);
    let server = Fixture::with(ServerOptions {
        debug_commands: DebugCommands::Local,
        ..options()
    });
    let mut client = server.client();
    let began = pando_sync::time::now();
    client.check(&[("DEBUG SLEEP 0.2", "+OK"), ("DEBUG SLEEP 0", "+OK")]);
    assert!(began.elapsed() >= Duration::from_millis(200));
    client.check(&[
        (
            "DEBUG JMAP",
            "-ERR unknown subcommand or wrong number of arguments for 'JMAP'. Try DEBUG HELP.",
        ),
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        (
            "CONFIG GET enable-debug-command",
            "[\"enable-debug-command\" \"local\"]",
        ),
        ("SET a 1 PX 1", "+OK"),
    ]);
    thread::sleep(Duration::from_millis(700));
    // Its row is still there, though nobody sees the key.
    client.check(&[
        ("DBSIZE", ":1"),
        ("GET a", "nil"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "+OK"),
    ]);
    let until = began + Duration::from_secs(20);
    while client.run("DBSIZE") != ":0" {
        assert!(pando_sync::time::now() < until, "the row is removed");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Which of two errors is told is as in Redis.
#[test]
fn arguments_are_looked_at_in_the_order_of_redis() {
    const RANGE: &str = "-ERR value is out of range, value must between -2147483648 and 2147483647";
    const NO_SCRIPT: &str = "-NOSCRIPT No matching script. Please use EVAL.";
    const NO_INTEGER: &str = "-ERR value is not an integer or out of range";
    let form = |name: &str, of: &str| {
        format!("-ERR unknown subcommand or wrong number of arguments for '{name}'. Try {of} HELP.")
    };
    let server = Fixture::new();
    server.client().check(&[
        ("SELECT 99999999999", RANGE),
        ("SELECT -99999999999", RANGE),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("EVALSHA short x", NO_SCRIPT),
        (&format!("EVALSHA {} x", "0".repeat(40)), NO_INTEGER),
        ("CLIENT LIST ID 0 -1", "\"\""),
        ("CLIENT LIST ID 0 x", "-ERR Invalid client ID"),
        ("SRANDMEMBER k x 1", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES 1 SAMPLES x", NO_INTEGER),
        ("MEMORY USAGE k SAMPLES 1 SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES 1 SAMPLES 2", "nil"),
        ("slowlog get 1 2", &form("get", "SLOWLOG")),
        ("CLIENT PAUSE 1 ALL x", &form("PAUSE", "CLIENT")),
    ]);
}
