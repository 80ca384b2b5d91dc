//! Clients that keep what they have read are told to forget it: CLIENT TRACKING.

use pando_resp::Answer;
use pando_server::ServerOptions;
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};

/// Returns a client with RESP3 that has called CLIENT TRACKING ON with these options.
pub(crate) fn tracking(server: &Fixture, with: &str) -> Client {
    let mut client = server.client();
    assert!(matches!(client.run_raw("HELLO 3"), Answer::Map(_)));
    client.check(&[(&format!("CLIENT TRACKING ON {with}"), "+OK")]);
    client
}

/// Returns what a client was told so far, in one line.
#[track_caller]
pub(crate) fn told(client: &mut Client) -> String {
    client.send(b"PING\r\n");
    let mut all = Vec::new();
    loop {
        match show(&client.answer()) {
            pong if pong == "+PONG" || pong == "[\"pong\" \"\"]" => break,
            message => all.push(message),
        }
    }
    let all = all.join(" ");
    all.replace("\"invalidate\" ", "").replace("]) >([", " ")
}

/// Runs `command` and checks what the client is told after it.
#[track_caller]
fn check_told(client: &mut Client, script: &[(&str, &str)]) {
    for (command, expected) in script {
        client.run_raw(command);
        assert_eq!(told(client), *expected, "{command}");
    }
}

/// Runs a command of each pair at `other`, and checks what `client` is told after it.
#[track_caller]
fn check_other(other: &mut Client, client: &mut Client, script: &[(&str, &str)]) {
    for (command, expected) in script {
        let reply = other.run(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        assert_eq!(told(client), *expected, "{command}");
    }
}

#[test]
fn who_tracks_again_after_reset_is_told_of_keys_of_before() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    other.run("SET a 1");
    check_told(&mut client, &[("GET a", "")]);
    client.check(&[("RESET", "+RESET")]);
    client.run_raw("HELLO 3");
    client.check(&[("CLIENT TRACKING ON", "+OK")]);
    check_told(&mut client, &[("GET a", "")]);
    check_other(&mut other, &mut client, &[("SET a 2", ">([\"a\"])")]);
}

#[test]
fn a_client_hears_of_the_keys_that_it_has_read_once() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    other.run("MSET a 1 b 2 c 3");
    check_told(&mut client, &[("GET a", ""), ("MGET b c nosuch", "")]);
    check_other(
        &mut other,
        &mut client,
        &[
            ("SET x 1", ""),
            ("SET a 2", ">([\"a\"])"),
            ("SET a 3", ""),
            ("EXPIRE b 100", ">([\"b\"])"),
            ("SET nosuch 1", ">([\"nosuch\"])"),
            // Keys of all databases are the same.
            ("SELECT 5", ""),
            ("SET c 1", ">([\"c\"])"),
            ("SELECT 0", ""),
        ],
    );
    // Of one command that changes several keys it is told at once.
    client.run_raw("EXISTS d b c");
    check_other(&mut other, &mut client, &[("DEL c b", ">([\"c\" \"b\"])")]);
    // What writes is no read, though it answers what was there.
    for command in ["GETEX a", "GETSET a 1", "SET a 1 GET", "INCR a"] {
        client.run_raw(command);
    }
    assert_eq!(told(&mut client), "");
    check_other(&mut other, &mut client, &[("SET a 1", "")]);
    // A command that is refused has told the client something all the same.
    check_told(
        &mut client,
        &[("LRANGE a 0 -1", ""), ("SET a 2", ">([\"a\"])")],
    );
    // Other types, and commands whose keys are counted.
    other.run("RPUSH l x");
    other.run("ZADD z 1 x");
    for (read, write, key) in [
        ("LLEN l", "RPUSH l y", "l"),
        ("ZUNION 2 z z2", "ZADD z2 1 x", "z2"),
        ("OBJECT ENCODING z", "ZINCRBY z 1 x", "z"),
        ("TTL s", "SADD s x", "s"),
        ("XREAD STREAMS st 0", "XADD st * f v", "st"),
        ("SORT_RO l ALPHA", "LPOP l", "l"),
        ("SMEMBERS s", "RENAME s t", "s"),
        ("SMEMBERS s", "COPY t s", "s"),
        ("GET p", "PFADD p x", "p"),
        ("PFCOUNT p", "PFADD p y", "p"),
    ] {
        client.run_raw(read);
        let expected = format!(">([\"{key}\"])");
        check_other(&mut other, &mut client, &[(write, &expected)]);
    }
}

/// As in Redis: who has read a stream does not hear of what its groups do.
#[test]
fn groups_of_streams_are_not_told() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    check_told(&mut client, &[("XLEN st", "")]);
    let told = ">([\"st\"])";
    check_other(
        &mut other,
        &mut client,
        &[("XGROUP CREATE st g 0 MKSTREAM", told)],
    );
    for number in 1..=4 {
        other.run(&format!("XADD st {number}-1 f v"));
    }
    for (command, expected) in [
        ("XGROUP CREATE st h $", ""),
        ("XGROUP SETID st h 0", ""),
        ("XGROUP CREATECONSUMER st g c", ""),
        ("XREADGROUP GROUP g c COUNT 2 STREAMS st >", ""),
        ("XCLAIM st g d 0 1-1", ""),
        ("XAUTOCLAIM st g e 0 0", ""),
        ("XACK st g 1-1", ""),
        ("XGROUP DELCONSUMER st g e", ""),
        ("XGROUP DESTROY st h", ""),
        ("XSETID st 9-9", ""),
        ("XDEL st 1-1", told),
        ("XTRIM st MAXLEN 2", told),
        ("XADD st * f v", told),
        ("COPY st st2", ""),
    ] {
        client.run_raw("XLEN st");
        check_other(&mut other, &mut client, &[(command, expected)]);
    }
    client.run_raw("XLEN st2");
    check_other(
        &mut other,
        &mut client,
        &[("COPY st st2 REPLACE", ">([\"st2\"])")],
    );
}

#[test]
fn what_commands_refuse_and_show() {
    let server = Fixture::new();
    let mut client = server.client();
    let only = "mode enabled";
    client.check(&[
        ("CLIENT GETREDIR", ":-1"),
        (
            "CLIENT TRACKINGINFO",
            "[\"flags\" [\"off\"] \"redirect\" :-1 \"prefixes\" []]",
        ),
        (
            "CLIENT CACHING YES",
            &format!(
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                 OPTIN or OPTOUT {only}"
            ),
        ),
        ("CLIENT TRACKING ON OPTIN", "+OK"),
        (
            "CLIENT CACHING NO",
            "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        ("CLIENT CACHING MAYBE", "-ERR syntax error"),
        ("CLIENT CACHING YES", "+OK"),
        (
            "CLIENT TRACKINGINFO",
            "[\"flags\" [\"on\" \"optin\" \"caching-yes\"] \"redirect\" :0 \"prefixes\" []]",
        ),
        ("CLIENT GETREDIR", ":0"),
        (
            "CLIENT TRACKING ON BCAST",
            "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        ),
        (
            "CLIENT TRACKING ON OPTOUT",
            "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        ),
    ]);
}

#[test]
fn what_other_modes_refuse_and_show() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("CLIENT TRACKING ON OPTOUT NOLOOP", "+OK"),
        (
            "CLIENT CACHING YES",
            "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ),
        ("CLIENT CACHING NO", "+OK"),
        (
            "CLIENT TRACKINGINFO",
            "[\"flags\" [\"on\" \"optout\" \"caching-no\" \"noloop\"] \"redirect\" :0 \
             \"prefixes\" []]",
        ),
        ("CLIENT TRACKING OFF", "+OK"),
        ("CLIENT TRACKING ON BCAST PREFIX b PREFIX a", "+OK"),
        (
            "CLIENT TRACKING ON BCAST PREFIX c PREFIX ab",
            "-ERR Prefix 'ab' overlaps with an existing prefix 'a'. Prefixes for a single client \
             must not overlap.",
        ),
        ("CLIENT TRACKING ON BCAST PREFIX c NOLOOP", "+OK"),
        (
            "CLIENT TRACKINGINFO",
            "[\"flags\" [\"on\" \"bcast\" \"noloop\"] \"redirect\" :0 \"prefixes\" [\"a\" \"b\" \
             \"c\"]]",
        ),
    ]);
}

#[test]
fn what_others_see_of_it() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("CLIENT TRACKING ON BCAST PREFIX b PREFIX a PREFIX c", "+OK")]);
    let line = client.text("CLIENT INFO");
    assert!(
        line.contains(" flags=tB ") && line.contains(" redir=0 "),
        "{line}"
    );
    let clients = client.text("INFO");
    for (name, value) in [
        ("tracking_clients", 1),
        ("tracking_total_keys", 0),
        ("tracking_total_prefixes", 3),
    ] {
        assert!(
            clients.contains(&format!("\r\n{name}:{value}\r\n")),
            "{name}"
        );
    }
    client.check(&[
        ("RESET", "+RESET"),
        (
            "CLIENT TRACKINGINFO",
            "[\"flags\" [\"off\"] \"redirect\" :-1 \"prefixes\" []]",
        ),
    ]);
    let line = client.text("CLIENT INFO");
    assert!(
        line.contains(" flags=N ") && line.contains(" redir=-1 "),
        "{line}"
    );
    assert!(
        client
            .text("INFO clients")
            .contains("\r\ntracking_clients:0\r\n")
    );
    assert!(
        client
            .text("INFO stats")
            .contains("\r\ntracking_total_prefixes:0\r\n")
    );
    client.check(&[("CONFIG SET tracking-table-max-keys 7", "+OK")]);
    assert_eq!(client.text_of("CONFIG GET tracking-table-max-keys"), "7");
}

#[test]
fn caching_is_about_the_next_command() {
    let server = Fixture::new();
    let (mut yes, mut no) = (tracking(&server, "OPTIN"), tracking(&server, "OPTOUT"));
    let mut other = server.client();
    for (client, word, is_in) in [(&mut yes, "YES", true), (&mut no, "NO", false)] {
        let caching = format!("CLIENT CACHING {word}");
        let mut ask = |client: &mut Client, commands: &[&str], are_told: &[bool]| {
            commands
                .iter()
                .for_each(|command| drop(client.run_raw(command)));
            for (key, is_told) in ["a", "b", "c"].into_iter().zip(are_told) {
                other.run(&format!("SET {key} 1"));
                let expected = match *is_told == is_in {
                    true => format!(">([\"{key}\"])"),
                    false => String::new(),
                };
                assert_eq!(told(client), expected, "{word} {commands:?} {key}");
            }
        };
        ask(client, &["GET a"], &[false]);
        ask(client, &[&caching, "GET a", "GET b"], &[true, false]);
        // Commands about the client leave it; all others use it up, also those that fail.
        ask(client, &[&caching, "CLIENT ID", "GET a"], &[true]);
        ask(client, &[&caching, "CLIENT ID x", "GET a"], &[true]);
        for command in [
            "PING",
            "NOSUCH",
            "GET",
            "SET x 1",
            "CLIENT NOSUCH",
            "CLIENT",
        ] {
            ask(client, &[&caching, command, "GET a"], &[false]);
        }
        // It is for the whole of a transaction.
        ask(
            client,
            &[&caching, "MULTI", "GET a", "GET b", "EXEC", "GET c"],
            &[true, true, false],
        );
        ask(
            client,
            &["MULTI", "GET a", &caching, "GET b", "EXEC", "GET c"],
            &[false, true, false],
        );
        ask(
            client,
            &[&caching, "MULTI", "GET a", "DISCARD", "GET b"],
            &[!is_in, false],
        );
        // What comes in one packet.
        client.send(format!("{caching}\r\nGET a\r\nGET b\r\nGET c\r\n").as_bytes());
        (0..4).for_each(|_| drop(client.answer()));
        ask(client, &[], &[true, false, false]);
        // An empty line is a command, too, and so is one of no arguments.
        for nothing in ["", "  ", "*0", "*-1"] {
            client.send(format!("{caching}\r\n{nothing}\r\nGET a\r\n").as_bytes());
            (0..2).for_each(|_| drop(client.answer()));
            ask(client, &[], &[false]);
        }
        client.send(format!("{caching}\r\nMULTI\r\n\r\nGET a\r\nEXEC\r\n").as_bytes());
        (0..4).for_each(|_| drop(client.answer()));
        ask(client, &[], &[true]);
    }
}

#[test]
fn a_broadcast_is_for_all_keys_of_a_prefix() {
    let server = Fixture::new();
    let mut other = tracking(&server, "BCAST NOLOOP PREFIX a");
    let mut all = tracking(&server, "BCAST");
    let mut some = tracking(&server, "BCAST PREFIX a PREFIX bb");
    for (command, of_all, of_some) in [
        ("SET x 1", ">([\"x\"])", ""),
        (
            "MSET ax 1 bb 2 b 3 a 4",
            ">([\"a\" \"ax\" \"b\" \"bb\"])",
            ">([\"a\" \"ax\" \"bb\"])",
        ),
        ("DEL nosuch", "", ""),
        ("FLUSHALL", ">(nil)", ">(nil)"),
    ] {
        other.run(command);
        assert_eq!(told(&mut all), of_all, "{command}");
        let mut parts = told(&mut some);
        // One message for each prefix, in any order.
        if parts == ">([\"bb\" \"a\" \"ax\"])" {
            parts = ">([\"a\" \"ax\" \"bb\"])".to_owned();
        }
        assert_eq!(parts, of_some, "{command}");
        let own = if command == "FLUSHALL" { ">(nil)" } else { "" };
        assert_eq!(told(&mut other), own, "{command}");
    }
    some.run_raw("SET ax 1");
    assert_eq!(told(&mut other), ">([\"ax\"])");
    assert_eq!(told(&mut some), ">([\"ax\"])");
    some.run_raw("CLIENT TRACKING OFF");
    check_other(&mut other, &mut some, &[("SET ax 2", "")]);
}

#[test]
fn who_wants_no_loop_hears_of_the_writes_of_others_only() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, "NOLOOP"), server.client());
    check_told(
        &mut client,
        &[("GET a", ""), ("SET a 1", ""), ("GET a", "")],
    );
    check_other(&mut other, &mut client, &[("SET a 2", ">([\"a\"])")]);
    // What it has read behind its own write it has to hear of.
    client.send(b"MULTI\r\nSET a 3\r\nGET a\r\nEXEC\r\n");
    (0..4).for_each(|_| drop(client.answer()));
    assert_eq!(told(&mut client), "");
    check_other(&mut other, &mut client, &[("SET a 4", ">([\"a\"])")]);
    client.run_raw("GET a");
    check_told(&mut client, &[("FLUSHDB", ">(nil)")]);
}

#[test]
fn messages_go_to_another_client() {
    let server = Fixture::new();
    let (mut old, mut new, mut other) = (server.client(), server.client(), server.client());
    new.run_raw("HELLO 3");
    let ids = [old.integer("CLIENT ID"), new.integer("CLIENT ID")];
    old.check(&[(
        "SUBSCRIBE __redis__:invalidate",
        "[\"subscribe\" \"__redis__:invalidate\" :1]",
    )]);
    let mut readers = Vec::new();
    for id in ids {
        let mut reader = server.client();
        reader.check(&[(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK")]);
        reader.check(&[("CLIENT GETREDIR", &format!(":{id}")), ("GET a", "nil")]);
        readers.push(reader);
    }
    other.run("SET a 1");
    let message = "[\"message\" \"__redis__:invalidate\" [\"a\"]]";
    assert_eq!(
        (told(&mut old), told(&mut new)),
        (message.to_owned(), ">([\"a\"])".to_owned())
    );
    other.run("FLUSHALL");
    let message = "[\"message\" \"__redis__:invalidate\" nil]";
    assert_eq!(
        (told(&mut old), told(&mut new)),
        (message.to_owned(), ">(nil)".to_owned())
    );
    // With RESP2 it must have subscribed to something.
    old.run("UNSUBSCRIBE");
    readers
        .iter_mut()
        .for_each(|reader| drop(reader.run("GET a")));
    other.run("SET a 1");
    assert_eq!(
        (told(&mut old), told(&mut new)),
        (String::new(), ">([\"a\"])".to_owned())
    );
    // One that is gone is missed with the next message.
    readers[1].run_raw("HELLO 3");
    readers
        .iter_mut()
        .for_each(|reader| drop(reader.run("GET a")));
    let id = new.integer("CLIENT ID");
    drop(new);
    let limit = now() + Duration::from_secs(20);
    while other.text("CLIENT LIST").contains(&format!("id={id} ")) {
        assert!(now() < limit);
        thread::yield_now();
    }
    other.run("SET a 2");
    assert_eq!(
        told(&mut readers[1]),
        format!(">(\"tracking-redir-broken\" :{id})")
    );
    let info = readers[1].run("CLIENT TRACKINGINFO");
    assert!(info.contains("~(\"on\" \"broken_redirect\")"), "{info}");
    assert!(readers[1].text("CLIENT INFO").contains(" flags=tR "));
    readers[1].run("CLIENT TRACKING ON");
    assert!(readers[1].text("CLIENT INFO").contains(" flags=t "));
    let text = "-ERR The client ID you want redirect to does not exist";
    other.check(&[(&format!("CLIENT TRACKING ON REDIRECT {id}"), text)]);
}

#[test]
fn transactions_read_for_their_client_and_write_for_others() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), tracking(&server, ""));
    let run = |client: &mut Client, commands: &[&str]| {
        let all = commands.join("\r\n") + "\r\n";
        client.send(all.as_bytes());
        let replies: Vec<_> = commands.iter().map(|_| show(&client.answer())).collect();
        replies.join(" ")
    };
    run(
        &mut client,
        &["MULTI", "GET a", "MGET b c", "SET d 1", "EXEC"],
    );
    assert_eq!(told(&mut client), "");
    run(
        &mut other,
        &["MULTI", "SET a 1", "SET c 2", "SET d 3", "EXEC"],
    );
    assert_eq!(told(&mut client), ">([\"a\" \"c\"])");
    // What is not committed changes nothing.
    client.run_raw("GET a");
    run(
        &mut other,
        &["WATCH x", "SET x 1", "MULTI", "SET a 2", "EXEC"],
    );
    assert_eq!(told(&mut client), "");
    // Its own writes are told behind the reply.
    let replies = run(&mut client, &["MULTI", "GET a", "SET a 5", "EXEC"]);
    assert_eq!(replies, "+OK +QUEUED +QUEUED [\"1\" +OK]");
    assert_eq!(told(&mut client), ">([\"a\"])");
    // The options may change in it.
    run(
        &mut client,
        &[
            "MULTI",
            "GET a",
            "CLIENT TRACKING OFF",
            "GET e",
            "CLIENT TRACKING ON",
            "GET c",
            "EXEC",
        ],
    );
    other.run("MSET a 1 e 1 c 1");
    assert_eq!(told(&mut client), ">([\"a\" \"c\"])");
    // Transactions of several steps: what they read is of an earlier moment.
    run(&mut client, &["PANDO BEGIN", "GET a"]);
    assert_eq!(told(&mut client), ">([\"a\"])");
    run(&mut client, &["SET a 7", "PANDO COMMIT"]);
    client.run_raw("GET a");
    other.run_raw("GET a");
    run(&mut other, &["PANDO BEGIN", "SET a 8", "GET b"]);
    assert_eq!(told(&mut client), "");
    assert_eq!(told(&mut other), ">([\"b\"])");
    run(&mut other, &["PANDO COMMIT"]);
    assert_eq!(told(&mut client), ">([\"a\"])");
    assert_eq!(told(&mut other), ">([\"a\"])");
}

#[cfg(feature = "scripts")]
#[test]
fn scripts_read_for_their_client() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    let eval = |client: &mut Client, name: &str, text: &str| {
        let reply = show(&client.call(&[name, text, "1", "key"]));
        assert!(!reply.starts_with('-'), "{reply}");
    };
    let check = |other: &mut Client, client: &mut Client, expected: &str| {
        other.run("MSET key 1 a 1 b 1");
        assert_eq!(told(client), expected);
    };
    // Not the keys of the script, but those of its commands.
    eval(&mut client, "EVAL", "return redis.call('get', 'a')");
    check(&mut other, &mut client, ">([\"a\"])");
    eval(
        &mut client,
        "EVAL_RO",
        "redis.pcall('llen', 'b') return redis.call('get', 'a')",
    );
    check(&mut other, &mut client, ">([\"a\" \"b\"])");
    let library = "#!lua name=l\nredis.register_function{function_name='f', flags={'no-writes'}, \
                   callback=function() return redis.call('get', 'b') end}";
    other.call(&["FUNCTION", "LOAD", library]);
    for name in ["FCALL", "FCALL_RO"] {
        eval(&mut client, name, "f");
        check(&mut other, &mut client, ">([\"b\"])");
    }
    client.send(b"MULTI\r\nFCALL_RO f 1 key\r\nGET a\r\nEXEC\r\n");
    (0..4).for_each(|_| drop(client.answer()));
    check(&mut other, &mut client, ">([\"a\" \"b\"])");
    // Those that it writes, for others.
    client.run_raw("GET a");
    eval(
        &mut other,
        "EVAL",
        "redis.call('set', 'a', 1) return redis.call('get', 'b')",
    );
    assert_eq!(told(&mut client), ">([\"a\"])");
    let optin = "redis.call('get', 'a')";
    let mut client = tracking(&server, "OPTIN");
    eval(&mut client, "EVAL", optin);
    check(&mut other, &mut client, "");
    client.run_raw("CLIENT CACHING YES");
    eval(&mut client, "EVAL", optin);
    check(&mut other, &mut client, ">([\"a\"])");
}

#[test]
fn expired_keys_and_fields_are_told_when_they_are_removed() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    other.run("SET a 1 PX 400");
    other.run("HSET h f 1 g 2");
    other.check(&[("HPEXPIRE h 400 FIELDS 1 f", "[:1]")]);
    client.run_raw("GET a");
    client.run_raw("HGET h f");
    // At once, or one after the other.
    let mut all = show(&client.answer());
    while !(all.contains("\"a\"") && all.contains("\"h\"")) {
        all += &show(&client.answer());
    }
    client.check(&[("GET a", "nil"), ("HLEN h", ":1")]);
}

#[test]
fn a_client_that_waits_hears_of_keys_and_tracks_what_it_gets() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    client.run_raw("GET a");
    client.send(b"XREAD BLOCK 0 STREAMS s $\r\n");
    while !other.text("INFO clients").contains("blocked_clients:1") {
        thread::yield_now();
    }
    other.run("SET a 1");
    assert_eq!(show(&client.answer()), ">(\"invalidate\" [\"a\"])");
    other.run("XADD s 1-1 f v");
    let reply = show(&client.answer());
    assert!(reply.starts_with("{\"s\"="), "{reply}");
    assert_eq!(told(&mut client), "");
    check_other(&mut other, &mut client, &[("XADD s 1-2 f v", ">([\"s\"])")]);
}

#[test]
fn there_are_no_more_keys_than_may_be() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    other.run("CONFIG SET tracking-table-max-keys 100");
    let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    client.run_raw(&format!("MGET {}", keys.join(" ")));
    let evicted = told(&mut client).matches("\"k").count();
    assert_eq!(evicted, 400);
    let stats = other.text("INFO stats");
    assert!(stats.contains("\r\ntracking_total_keys:100\r\n"), "{stats}");
    assert!(
        stats.contains("\r\ntracking_total_items:100\r\n"),
        "{stats}"
    );
    // A lower limit counts, too, without any further read.
    other.run("CONFIG SET tracking-table-max-keys 1");
    let limit = now() + Duration::from_secs(20);
    while !other
        .text("INFO stats")
        .contains("\r\ntracking_total_keys:1\r\n")
    {
        assert!(now() < limit);
        thread::sleep(Duration::from_millis(20));
    }
    // And so do keys whose clients are gone.
    drop(client);
    while !other
        .text("INFO stats")
        .contains("\r\ntracking_total_keys:0\r\n")
    {
        assert!(now() < limit);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        other
            .text("INFO clients")
            .contains("\r\ntracking_clients:0\r\n")
    );
}

#[test]
fn many_keys_of_a_command_are_told_in_turns() {
    let server = Fixture::new();
    let (mut client, mut other) = (tracking(&server, ""), server.client());
    let keys: Vec<String> = (0..10_000).map(|number| format!("k{number} v")).collect();
    client.run_raw(&format!("MGET {}", keys.join(" ")));
    other.check(&[(&format!("MSET {}", keys.join(" ")), "+OK")]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        assert!(seen.insert(show(&client.answer())), "once each");
    }
    assert!(seen.contains(">(\"invalidate\" [\"k4096\"])"));
    other.run("SET k4097 x");
    assert_eq!(told(&mut client), "");
}

/// Whoever begins to track between a write and its commit has to forget everything.
/// Number of replies of [`LONG`] bytes that a client asks for and does not read, and their length.
const REPLIES: usize = 100;
const LONG: usize = 200_000;

/// Sends many commands with long replies, and waits until the sockets take no more of these.
fn read_later(client: &mut Client, other: &mut Client) {
    let command = format!("CLIENT LIST ID {}", client.integer("CLIENT ID"));
    client.send(&encode(&["GET", "long"]).repeat(REPLIES));
    let unsent = |list: String| {
        let field = list.split(' ').find_map(|field| field.strip_prefix("obl="));
        field.map_or(0, |bytes| bytes.parse::<usize>().unwrap())
    };
    while unsent(other.text(&command)) < 500_000 {
        thread::yield_now();
    }
}

/// Reads all of these replies. Returns the other messages.
fn read_all(client: &mut Client) -> Vec<String> {
    let (mut replies, mut messages) = (0, Vec::new());
    while replies < REPLIES {
        match client.answer() {
            Answer::Bulk(bytes) => {
                assert_eq!(bytes.len(), LONG);
                replies += 1;
            }
            message => messages.push(show(&message)),
        }
    }
    messages
}

/// The limits of subscribers are not for who tracks keys, or has done so, and reads long replies
/// slowly.
#[test]
fn replies_of_those_who_track_have_no_limit() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut other = server.client();
    let limit = |other: &mut Client, limits: &str| {
        let set = ["CONFIG", "SET", "client-output-buffer-limit", limits];
        assert_eq!(show(&other.call(&set)), "+OK");
    };
    other.run(&format!("SET long {}", "x".repeat(LONG)));
    // The hard one: when a message comes.
    limit(&mut other, "pubsub 300kb 0 0");
    let mut tracks = tracking(&server, "");
    tracks.check(&[("GET k", "nil")]);
    read_later(&mut tracks, &mut other);
    other.run("SET k v");
    assert_eq!(read_all(&mut tracks), [">(\"invalidate\" [\"k\"])"]);
    // The soft one: a subscriber as slow as they are is closed.
    limit(&mut other, "pubsub 0 100kb 1");
    let mut has_tracked = tracking(&server, "");
    has_tracked.check(&[("RESET", "+RESET")]);
    let mut subscriber = server.client();
    assert!(matches!(subscriber.run_raw("HELLO 3"), Answer::Map(_)));
    subscriber.run("SUBSCRIBE c");
    for client in [&mut tracks, &mut has_tracked, &mut subscriber] {
        read_later(client, &mut other);
    }
    let limit = now() + Duration::from_secs(60);
    while other.run("PUBSUB NUMSUB c") != "[\"c\" :0]" {
        assert!(now() < limit, "{}", other.text("CLIENT LIST"));
        thread::sleep(Duration::from_millis(20));
    }
    for client in [&mut tracks, &mut has_tracked] {
        assert_eq!(read_all(client), [""; 0]);
    }
}

#[test]
fn writes_that_were_not_noted_are_told_as_everything() {
    let server = Fixture::new();
    let mut other = server.client();
    other.check(&[("PANDO BEGIN", "+OK"), ("SET a 1", "+OK")]);
    let mut client = tracking(&server, "");
    client.run_raw("GET a");
    other.check(&[("SET b 1", "+OK"), ("PANDO COMMIT", "+OK")]);
    assert_eq!(told(&mut client), ">(nil)");
    check_told(&mut client, &[("GET a", ""), ("SET b 1", "")]);
    check_other(&mut other, &mut client, &[("SET a 2", ">([\"a\"])")]);
}

/// An engine thread empties the tables, also when the client is gone that has asked for it.
#[test]
fn a_flush_is_told_though_its_client_is_gone() {
    let server = Fixture::opened_by(options(), |_| {
        let patient = Db::builder().lock_timeout(Duration::from_secs(600));
        patient.max_memory(32 << 20).open_in_memory()
    });
    let (mut client, mut holder) = (tracking(&server, ""), server.client());
    for command in ["FLUSHALL", "MULTI\r\nSET a 2\r\nFLUSHDB\r\nEXEC"] {
        client.check(&[("SET a 1", "+OK")]);
        told(&mut client);
        client.check(&[("GET a", "\"1\"")]);
        // It waits for the lock.
        holder.check(&[("PANDO BEGIN", "+OK"), ("PANDO LOCK a", "+OK")]);
        let mut other = server.client();
        let id = other.integer("CLIENT ID");
        // A reply that is not read makes the system tell the server at once that the peer is gone.
        other.send(format!("PING\r\n{command}\r\n").as_bytes());
        let limit = now() + Duration::from_secs(20);
        thread::sleep(Duration::from_millis(100));
        drop(other);
        while holder.text("CLIENT LIST").contains(&format!("id={id} ")) {
            assert!(now() < limit);
            thread::yield_now();
        }
        assert_eq!(told(&mut client), "");
        holder.check(&[("PANDO ROLLBACK", "+OK")]);
        assert_eq!(show(&client.answer()), ">(\"invalidate\" nil)", "{command}");
        client.check(&[("GET a", "nil")]);
    }
}
