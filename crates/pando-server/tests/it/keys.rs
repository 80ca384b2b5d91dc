//! Values that go to other keys, and what is told of keys.

use std::collections::BTreeSet;

use pando_resp::Answer;
use pandodb::Db;

use crate::client::{encode, show};
use crate::fixture::{Fixture, options};

#[test]
fn keys_are_renamed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RENAME none a", "-ERR no such key"),
        ("RENAME none none", "-ERR no such key"),
        ("RENAMENX none a", "-ERR no such key"),
        ("SET a 1", "+OK"),
        ("SET b 2 EXAT 4102444100", "+OK"),
        ("RENAME a a", "+OK"),
        ("RENAMENX a a", ":0"),
        ("RENAMENX a b", ":0"),
        ("MGET a b", "[\"1\" \"2\"]"),
        ("RENAME a b", "+OK"),
        ("MGET a b", "[nil \"1\"]"),
        ("EXPIRETIME b", ":-1"),
        ("EXPIREAT b 4102444050", ":1"),
        ("RENAMENX b c", ":1"),
        ("EXPIRETIME c", ":4102444050"),
        ("MGET b c", "[nil \"1\"]"),
        ("DBSIZE", ":1"),
    ]);
}

#[test]
fn values_are_copied_and_moved_between_databases() {
    let server = Fixture::new();
    let mut client = server.client();
    let same = "-ERR source and destination objects are the same";
    client.check(&[
        ("COPY none b", ":0"),
        ("SET a 1 EXAT 4102444100", "+OK"),
        ("COPY a a", same),
        ("COPY a a DB 0", same),
        ("COPY a b DB 16", "-ERR DB index is out of range"),
        (
            "COPY a b DB x",
            "-ERR value is not an integer or out of range",
        ),
        ("COPY a b DB", "-ERR syntax error"),
        ("COPY a b WHAT", "-ERR syntax error"),
        ("COPY a b", ":1"),
        ("EXPIRETIME b", ":4102444100"),
        ("SET a 2", "+OK"),
        ("COPY a b", ":0"),
        ("COPY a b REPLACE", ":1"),
        ("GET b", "\"2\""),
        ("EXPIRETIME b", ":-1"),
        ("COPY a a DB 3", ":1"),
        ("COPY a a DB 3", ":0"),
        ("COPY a a DB 3 REPLACE", ":1"),
        ("MOVE a 0", same),
        ("MOVE a 16", "-ERR DB index is out of range"),
        ("MOVE a 3", ":0"),
        ("MOVE none 3", ":0"),
        ("EXPIREAT b 4102444070", ":1"),
        ("MOVE b 3", ":1"),
        ("EXISTS a b", ":1"),
        ("SELECT 3", "+OK"),
        ("MGET a b", "[\"2\" \"2\"]"),
        ("EXPIRETIME b", ":4102444070"),
        ("DBSIZE", ":2"),
    ]);
}

#[test]
fn values_go_to_other_keys_inside_exec() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET a 1 EXAT 4102444100", "+OK"),
        ("SET b 2", "+OK"),
        ("MULTI", "+OK"),
        ("RENAME a c", "+QUEUED"),
        ("COPY c d", "+QUEUED"),
        ("MOVE d 1", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("SELECT 0", "+QUEUED"),
        ("EXEC", "[+OK :1 :1 [\"b\" \"c\"] :2 +OK [\"d\"] +OK]"),
        ("EXPIRETIME c", ":4102444100"),
        ("GET d", "nil"),
    ]);
    let mut other = server.client();
    client.check(&[("WATCH x", "+OK"), ("MULTI", "+OK"), ("GET x", "+QUEUED")]);
    other.check(&[("RENAME b x", "+OK")]);
    client.check(&[("EXEC", "nil"), ("GET x", "\"2\"")]);
}

#[test]
fn renamed_keys_of_a_pipeline_are_found_at_their_new_place() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut bytes = Vec::new();
    for n in 0..100 {
        bytes.extend(encode(&["SET", &format!("k{n}"), &n.to_string()]));
        bytes.extend(encode(&[
            "RENAME",
            &format!("k{n}"),
            &format!("k{}", n + 1),
        ]));
        bytes.extend(encode(&["COPY", &format!("k{}", n + 1), "last", "REPLACE"]));
    }
    client.send(&bytes);
    for _ in 0..100 {
        assert_eq!(show(&client.answer()), "+OK");
        assert_eq!(show(&client.answer()), "+OK");
        assert_eq!(show(&client.answer()), ":1");
    }
    client.check(&[
        ("DBSIZE", ":2"),
        ("GET k100", "\"99\""),
        ("GET last", "\"99\""),
    ]);
}

#[test]
fn long_keys_are_renamed_with_their_whole_names() {
    let server = Fixture::new();
    let mut client = server.client();
    let (first, second) = ("x".repeat(5000), "x".repeat(5001));
    client.call(&["SET", &first, "1", "EXAT", "4102444100"]);
    assert_eq!(show(&client.call(&["RENAME", &first, &second])), "+OK");
    assert_eq!(show(&client.call(&["RENAME", &second, "short"])), "+OK");
    client.check(&[("GET short", "\"1\""), ("EXPIRETIME short", ":4102444100")]);
    assert_eq!(show(&client.call(&["COPY", "short", &first])), ":1");
    let Answer::Array(keys) = client.call(&["KEYS", "x*"]) else {
        panic!("KEYS replies an array");
    };
    assert_eq!(keys, [Answer::Bulk(first.into_bytes())]);
}

/// A long key is kept whole in the row, which leaves less room for the value.
/// A long key is in the row, beside the string or the elements: these then lie elsewhere.
#[test]
fn a_long_new_key_leaves_less_room_for_the_value() {
    let server = Fixture::opened_by(options(), |_| {
        let options = Db::builder().max_memory(64 << 20);
        options.chunk_values_over(200_000).open_in_memory()
    });
    let mut client = server.client();
    let long_key = "k".repeat(60_000);
    let refusal = client.run(&format!("HSET h f {}", "x".repeat(300_000)));
    let refused = "-ERR an element of a hash has 300001 bytes: longer ones than ";
    let most = refusal.strip_prefix(refused).and_then(|rest| {
        let number = rest.split(' ').next();
        number.and_then(|number| number.parse::<usize>().ok())
    });
    let most = most.unwrap_or_else(|| panic!("{refusal}"));
    let value = "x".repeat(most - 1000);
    client.check(&[
        (&format!("SET s {value}"), "+OK"),
        (&format!("HSET h f {value}"), ":1"),
        ("MULTI", "+OK"),
        ("SET before 1", "+QUEUED"),
        (&format!("RENAME s {long_key}"), "+QUEUED"),
        (&format!("COPY h {long_key}h"), "+QUEUED"),
        (&format!("RENAME h {long_key}i"), "+QUEUED"),
        ("SET behind 1", "+QUEUED"),
        ("EXEC", "[+OK +OK :1 +OK +OK]"),
        (&format!("HGET {long_key}h f"), &format!("\"{value}\"")),
        (&format!("HGET {long_key}i f"), &format!("\"{value}\"")),
        (&format!("GET {long_key}"), &format!("\"{value}\"")),
        ("EXISTS s h", ":0"),
        ("MGET before behind", "[\"1\" \"1\"]"),
        (&format!("RENAME {long_key} s"), "+OK"),
        ("GET s", &format!("\"{value}\"")),
    ]);
}

#[test]
fn expired_keys_do_not_go_to_others() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET old 1 PXAT 1", "+OK"),
        ("RENAME old b", "-ERR no such key"),
        ("COPY old b", ":0"),
        ("MOVE old 1", ":0"),
        ("SET a 1", "+OK"),
        ("SET old 1 PXAT 1", "+OK"),
        ("RENAMENX a old", ":1"),
        ("EXPIRETIME old", ":-1"),
        ("SET c 2", "+OK"),
        ("SET other 1 PXAT 1", "+OK"),
        ("COPY c other", ":1"),
        ("GET other", "\"2\""),
    ]);
}

#[test]
fn objects_are_described_as_redis_would() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("OBJECT ENCODING none", "nil"),
        ("OBJECT REFCOUNT none", "nil"),
        ("SET a 12", "+OK"),
        ("OBJECT ENCODING a", "\"int\""),
        ("OBJECT REFCOUNT a", ":1"),
        ("OBJECT IDLETIME a", ":0"),
        ("SET a -9223372036854775808", "+OK"),
        ("OBJECT ENCODING a", "\"int\""),
        ("SET a 012", "+OK"),
        ("OBJECT ENCODING a", "\"embstr\""),
        (
            "OBJECT",
            "-ERR wrong number of arguments for 'object' command",
        ),
        (
            "OBJECT ENCODING",
            "-ERR wrong number of arguments for 'object|encoding' command",
        ),
        (
            "OBJECT WHAT",
            "-ERR unknown subcommand 'WHAT'. Try OBJECT HELP.",
        ),
        ("CLIENT UNBLOCK 1", ":0"),
        ("CLIENT UNBLOCK 1 ERROR", ":0"),
        (
            "CLIENT UNBLOCK 1 WHAT",
            "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        ),
        (
            "CLIENT UNBLOCK x",
            "-ERR value is not an integer or out of range",
        ),
    ]);
    assert!(
        client
            .run("OBJECT FREQ a")
            .starts_with("-ERR An LFU maxmemory policy is not selected")
    );
    for (length, encoding) in [(44, "embstr"), (45, "raw"), (100_000, "raw")] {
        client.call(&["SET", "a", &"x".repeat(length)]);
        client.check(&[("OBJECT ENCODING a", &format!("\"{encoding}\""))]);
    }
}

#[test]
fn keys_come_at_random() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("RANDOMKEY", "nil"),
        (
            "RANDOMKEY x",
            "-ERR wrong number of arguments for 'randomkey' command",
        ),
    ]);
    // Also one of those that are not stored as they are.
    let long = "l".repeat(5000);
    client.check(&[(&format!("SET {long} 1"), "+OK"), ("SET b 1 PX 1", "+OK")]);
    pando_sync::thread::sleep(pando_sync::time::Duration::from_millis(5));
    for _ in 0..20 {
        assert_eq!(
            client.run("RANDOMKEY"),
            format!("\"{long}\""),
            "b has expired"
        );
    }
    client.check(&[(&format!("DEL {long}"), ":1")]);
    let sets = (0..500).map(|number| encode(&["SET", &format!("k{number}"), "v"]));
    client.send(&sets.collect::<Vec<_>>().concat());
    (0..500).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    client.send(&encode(&["RANDOMKEY"]).repeat(5000));
    let drawn: BTreeSet<String> = (0..5000).map(|_| show(&client.answer())).collect();
    assert!(drawn.len() > 450 && drawn.len() <= 500, "{}", drawn.len());
    assert!(drawn.iter().all(|key| key.starts_with("\"k")));
    // What the own transaction has deleted does not come, and others still see it.
    client.check(&[("FLUSHALL", "+OK"), ("SET a 1", "+OK"), ("MULTI", "+OK")]);
    client.check(&[("DEL a", "+QUEUED"), ("RANDOMKEY", "+QUEUED")]);
    other.check(&[("RANDOMKEY", "\"a\"")]);
    client.check(&[("EXEC", "[:1 nil]"), ("RANDOMKEY", "nil")]);
}
