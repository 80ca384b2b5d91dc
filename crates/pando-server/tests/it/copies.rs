//! COPY and MOVE of large collections and streams, whose rows a thread copies.

use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::Fixture;
use crate::trees::{client_of, fill, many};
use crate::until_end::End;

/// Makes a hash, a sorted set, a stream and a list, each of which takes more memory than a reply
/// may.
fn fill_longer_than_replies(client: &mut Client) {
    let value = "v".repeat(20_000);
    for start in (0..900).step_by(50) {
        let numbers = || start..start + 50;
        let pairs = numbers().flat_map(|n| [format!("f{n}"), format!("{n}-{value}")]);
        assert_eq!(many(client, &["HSET", "h"], pairs), ":50");
        let scored = numbers().flat_map(|n| [n.to_string(), format!("{n}-{value}")]);
        assert_eq!(many(client, &["ZADD", "z"], scored), ":50");
        for n in numbers() {
            let id = format!("{}-0", n + 1);
            let reply = client.call(&["XADD", "x", &id, "f", &value]);
            assert_eq!(show(&reply), format!("\"{id}\""));
        }
    }
    // They are long, and few.
    for n in 0..150 {
        let element = format!("{n}-{}", "e".repeat(120_000));
        client.call(&["RPUSH", "few", &element]);
    }
}

#[test]
fn what_is_longer_than_a_reply_is_copied() {
    let server = Fixture::new();
    let mut client = server.client();
    fill_longer_than_replies(&mut client);
    let refused = "[-ERR the command reads a collection as a whole that does not fit into the \
                   memory for a reply]";
    client.check(&[
        ("XGROUP CREATE x g 0", "+OK"),
        ("EXPIREAT h 9999999999", ":1"),
        ("MULTI", "+OK"),
        ("SORT few BY nosort", "+QUEUED"),
        ("EXEC", refused),
        ("COPY h h2", ":1"),
        ("COPY h h2", ":0"),
        ("COPY few few2", ":1"),
        ("COPY z h2 REPLACE", ":1"),
        ("COPY z z DB 3", ":1"),
        ("COPY x x2", ":1"),
        ("MOVE h 3", ":1"),
        ("MULTI", "+OK"),
        ("COPY x l2", "+QUEUED"),
        ("COPY l2 l3", "+QUEUED"),
        ("RENAME l2 l4", "+QUEUED"),
        ("EXEC", "[:1 :1 +OK]"),
        ("DEL x z few", ":3"),
        ("EXISTS h h2 few2 l2 l3 l4 x2", ":5"),
        ("LLEN few2", ":150"),
        ("ZCARD h2", ":900"),
        ("XLEN x2", ":900"),
        ("XLEN l3", ":900"),
        ("XLEN l4", ":900"),
    ]);
    let group = client.run("XREADGROUP GROUP g c COUNT 1 STREAMS x2 >");
    assert!(group.starts_with("[[\"x2\" [[\"1-0\" "), "{group:.80}");
    let value = "v".repeat(20_000);
    let shown = format!("\"899-{value}\"");
    assert_eq!(client.run("ZRANGE h2 -1 -1"), format!("[{shown}]"));
    client.check(&[
        ("SELECT 3", "+OK"),
        ("EXPIRETIME h", ":9999999999"),
        ("HLEN h", ":900"),
    ]);
    assert_eq!(client.run("HGET h f899"), shown);
    assert_eq!(client.run("ZRANGE z -1 -1"), format!("[{shown}]"));
    client.check(&[(&format!("ZSCORE z 7-{value}"), "\"7\"")]);
}

/// A copy has one state of what it is of, however often that changes meanwhile.
#[test]
fn a_copy_has_one_state() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 5_000);
    client.check(&[("HSET h a 1000 b 1000", ":2")]);
    let end = End::default();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = server.client();
            let mut changes = 0_u64;
            while !end.is_there() {
                let field = format!("n{changes}");
                writer.run("MULTI");
                writer.run("HINCRBY h a 1");
                writer.run("HINCRBY h b -1");
                writer.run(&format!("HSET h {field} x"));
                writer.run("LMOVE l l LEFT RIGHT");
                writer.run("EXEC");
                changes += 1;
                thread::sleep(Duration::from_millis(changes % 40));
            }
            changes
        });
        let bring = end.brought();
        for _ in 0..60 {
            client.check(&[
                ("COPY h copied REPLACE", ":1"),
                ("COPY l list REPLACE", ":1"),
                ("LLEN list", ":5000"),
            ]);
            let both = client.run("HMGET copied a b");
            let both = both.trim_matches(['[', ']']).replace('"', "");
            let (a, b) = both.split_once(' ').unwrap();
            let (a, b): (u64, u64) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(a + b, 2_000);
            let fields = format!(":{}", 5_002 + a - 1_000);
            client.check(&[("HLEN copied", &fields)]);
            let all = show(&client.call(&["HKEYS", "copied"]));
            assert_eq!(format!(":{}", all.split(' ').count()), fields);
        }
        drop(bring);
        assert!(writer.join().unwrap() > 0);
    });
}

#[test]
fn a_copy_has_what_its_transaction_has_written() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 2_000);
    client.check(&[
        ("MULTI", "+OK"),
        ("SADD s new", "+QUEUED"),
        ("COPY s s2", "+QUEUED"),
        ("SREM s new", "+QUEUED"),
        ("RENAME z y", "+QUEUED"),
        ("COPY y z", "+QUEUED"),
        ("EXEC", "[:1 :1 :1 +OK :1]"),
        ("SISMEMBER s new", ":0"),
        ("SISMEMBER s2 new", ":1"),
        ("SCARD s2", ":2001"),
        ("ZCARD z", ":2000"),
        ("ZCARD y", ":2000"),
        ("PANDO BEGIN", "+OK"),
        ("SADD s new", ":1"),
        ("COPY s s3", ":1"),
        ("COPY l l3", ":1"),
        ("SCARD s3", ":2001"),
        ("PANDO COMMIT", "+OK"),
        ("SISMEMBER s3 new", ":1"),
        ("LINDEX l3 1999", "\"e1999\""),
    ]);
}

/// Fields keep their deadlines, and who waits for a key is told.
#[test]
fn a_copy_is_like_any_other_value() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    fill(&mut client, 2_000);
    client.check(&[
        ("HPEXPIRE h 60 FIELDS 2 f1 f2", "[:1 :1]"),
        ("HEXPIRE h 1000 FIELDS 1 f3", "[:1]"),
        ("COPY h h2", ":1"),
        ("HTTL h2 FIELDS 2 f3 f4", "[:1000 :-1]"),
    ]);
    thread::sleep(Duration::from_millis(70));
    client.check(&[
        ("HMGET h2 f1 f2 f4", "[nil nil \"v4\"]"),
        // Fields that have expired come along, and are not there.
        ("COPY h h3", ":1"),
        ("HMGET h3 f1 f2 f4", "[nil nil \"v4\"]"),
    ]);
    while client.run("HLEN h3") != ":1998" || client.run("HLEN h2") != ":1998" {
        thread::sleep(Duration::from_millis(5));
    }
    let (mut pops, mut reads) = (server.client(), server.client());
    pops.send(&encode(&["BLPOP", "new", "20"]));
    reads.send(&encode(&[
        "XREAD", "BLOCK", "20000", "STREAMS", "xnew", "0",
    ]));
    for n in 0..600 {
        client.run(&format!("XADD x {}-0 f v", n + 1));
    }
    client.check(&[("COPY l new", ":1"), ("COPY x xnew", ":1")]);
    assert_eq!(show(&pops.answer()), "[\"new\" \"e0\"]");
    let read = show(&reads.answer());
    assert!(read.starts_with("[[\"xnew\" [[\"1-0\" "), "{read:.80}");
    client.check(&[("LLEN new", ":1999"), ("WATCH copy", "+OK")]);
    let mut other = server.client();
    other.check(&[("COPY z copy", ":1")]);
    client.check(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil")]);
}

/// Clients that go, and databases that are emptied or change places in the middle.
#[test]
fn nothing_stays_of_copies_that_were_not_finished() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    for round in 0..16_u64 {
        fill(&mut client, 20_000);
        let mut other = server.client();
        other.send(&encode(&["COPY", "h", "d"]));
        thread::sleep(Duration::from_millis(round * 2));
        match round % 4 {
            0 => drop(other),
            1 => {
                client.check(&[("FLUSHALL", "+OK")]);
                other.answer();
            }
            2 => {
                client.check(&[("SWAPDB 0 1", "+OK")]);
                other.answer();
            }
            _ => {
                client.check(&[("DEL h", ":1")]);
                other.answer();
            }
        }
        client.check(&[("FLUSHALL", "+OK")]);
    }
}
