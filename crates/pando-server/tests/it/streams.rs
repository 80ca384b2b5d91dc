//! Streams: what goes beyond single replies, which are compared with those of Redis elsewhere.

use std::ops::Bound;
use std::path::Path;

use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::show;
use crate::client::{Client, encode, words};
use crate::fixture::{Fixture, open_on_disk, open_small, options};
use crate::statistics::fields;

pub(crate) fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

pub(crate) fn begin(client: &mut Client, command: &str) {
    client.send(&encode(&words(command)));
}

pub(crate) fn end(client: &mut Client) -> String {
    show(&client.answer())
}

/// Waits until so many clients wait.
pub(crate) fn wait_for_waiters(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    while !client.text("INFO clients").contains(&line) {
        thread::yield_now();
    }
}

/// Makes a store with a stream of 20 entries, five of which are pending for a consumer.
pub(crate) fn fill_and_deliver(path: &Path) {
    let server = on_disk(path);
    let mut client = server.client();
    fill(&mut client, "s", 20);
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    client.run("XREADGROUP GROUP g c COUNT 5 STREAMS s >");
}

/// Adds the entries with the IDs 1-0 to `count`-0.
pub(crate) fn fill(client: &mut Client, key: &str, count: usize) {
    for number in 1..=count {
        begin(
            client,
            &format!("XADD {key} {number}-0 field value-{number}"),
        );
    }
    for number in 1..=count {
        assert_eq!(end(client), format!("\"{number}-0\""));
    }
}

#[test]
fn entries_are_added_read_and_removed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("XADD s NOMKSTREAM 1-1 a b", "nil"),
        ("XADD s 1-1 a b c d", "\"1-1\""),
        ("XADD s 1-* e f", "\"1-2\""),
        (
            "XADD s 1-1 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("TYPE s", "+stream"),
        ("OBJECT ENCODING s", "\"stream\""),
        ("SCAN 0 TYPE stream", "[\"0\" [\"s\"]]"),
        (
            "XRANGE s - +",
            "[[\"1-1\" [\"a\" \"b\" \"c\" \"d\"]] [\"1-2\" [\"e\" \"f\"]]]",
        ),
        ("XREVRANGE s + (1-1", "[[\"1-2\" [\"e\" \"f\"]]]"),
        ("XDEL s 1-1 1-1 7-7", ":1"),
        ("XDEL s 1-2", ":1"),
        ("XLEN s", ":0"),
        ("EXISTS s", ":1"),
        (
            "XADD s 1-2 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XADD s 18446744073709551615-18446744073709551615 a b",
            "\"18446744073709551615-18446744073709551615\"",
        ),
        (
            "XADD s * a b",
            "-ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        (
            "XREAD STREAMS s 18446744073709551615-18446744073709551615",
            "nil",
        ),
        (
            "GET s",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
    let id = client.run("XADD t * a b");
    let ms: u64 = id
        .trim_matches('"')
        .split('-')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(ms > 1_600_000_000_000, "{id}");
}

#[test]
fn what_is_trimmed_roughly_is_limited() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "s", 500);
    client.check(&[
        ("XTRIM s MAXLEN ~ 10 LIMIT 100", ":100"),
        ("XLEN s", ":400"),
        (
            "XRANGE s - + COUNT 1",
            "[[\"101-0\" [\"field\" \"value-101\"]]]",
        ),
        ("XTRIM s MINID ~ 401 LIMIT 0", ":300"),
        // A hundred go together, or as many as are asked for, unless all go.
        ("XTRIM s MAXLEN ~ 1", ":0"),
        ("XTRIM s MINID ~ 500", ":0"),
        ("XADD s MAXLEN ~ 2 501-0 a b", "\"501-0\""),
        ("XTRIM s MAXLEN ~ 0 LIMIT 99", ":0"),
        ("CONFIG SET stream-node-max-entries 30", "+OK"),
        ("XTRIM s MAXLEN ~ 50 LIMIT 59", ":30"),
        ("XADD s MINID ~ 491 502-0 a b", "\"502-0\""),
        ("XLEN s", ":12"),
        ("XADD s MAXLEN ~ 0 LIMIT 12 503-0 a b", "\"503-0\""),
        ("XLEN s", ":13"),
        ("XTRIM s MINID ~ 600", ":13"),
        ("XADD s MAXLEN 10 600-0 a b", "\"600-0\""),
        ("XLEN s", ":1"),
        ("XADD s MAXLEN 0 601-0 a b", "\"601-0\""),
        ("XRANGE s - +", "[]"),
        // Without LIMIT, a hundred times as many as go together.
        ("CONFIG SET stream-node-max-entries 1", "+OK"),
    ]);
    fill(&mut client, "t", 102);
    client.check(&[("XTRIM t MAXLEN ~ 1", ":100"), ("XLEN t", ":2")]);
}

/// What goes at once fits into a batch, whatever is configured: else each XADD would be refused.
#[test]
fn as_much_is_trimmed_as_a_batch_has_room_for() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "s", 20_500);
    client.check(&[
        ("CONFIG SET stream-node-max-entries 1000000000", "+OK"),
        ("XADD s MAXLEN ~ 15000 20501-0 a b", "\"20501-0\""),
        ("XLEN s", ":20501"),
        ("XADD s MAXLEN ~ 10 20502-0 a b", "\"20502-0\""),
        ("XLEN s", ":10502"),
        ("XTRIM s MINID ~ 19999", ":0"),
        ("XTRIM s MINID ~ 20001", ":10000"),
        ("XTRIM s MAXLEN ~ 0", ":502"),
    ]);
}

#[test]
fn streams_with_their_groups_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let history = "[[\"s\" [[\"1-0\" [\"field\" \"value-1\"]] [\"2-0\" nil]]]]";
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        fill(&mut client, "s", 300);
        client.check(&[
            ("XGROUP CREATE s g 0", "+OK"),
            (
                "XREADGROUP GROUP g one COUNT 2 STREAMS s >",
                "[[\"s\" [[\"1-0\" [\"field\" \"value-1\"]] [\"2-0\" [\"field\" \"value-2\"]]]]]",
            ),
            ("XDEL s 2-0", ":1"),
        ]);
    }
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[
        ("XLEN s", ":299"),
        ("XREADGROUP GROUP g one STREAMS s 0", history),
        (
            "XREADGROUP GROUP g two COUNT 1 STREAMS s >",
            "[[\"s\" [[\"3-0\" [\"field\" \"value-3\"]]]]]",
        ),
        (
            "XPENDING s g",
            "[:3 \"1-0\" \"3-0\" [[\"one\" \"2\"] [\"two\" \"1\"]]]",
        ),
        ("RENAME s t", "+OK"),
        ("COPY t u", ":1"),
        ("XACK t g 1-0 3-0", ":2"),
        (
            "XPENDING u g",
            "[:3 \"1-0\" \"3-0\" [[\"one\" \"2\"] [\"two\" \"1\"]]]",
        ),
        ("XPENDING t g", "[:1 \"2-0\" \"2-0\" [[\"one\" \"1\"]]]"),
        ("MOVE u 1", ":1"),
        ("SELECT 1", "+OK"),
        ("XLEN u", ":299"),
    ]);
}

/// Number of rows of elements in the store, which no server has open.
pub(crate) fn rows(path: &Path) -> u64 {
    let db = Db::builder().max_memory(32 << 20);
    let db = db.open(path).expect("no server has it open");
    db.existing_table("db/0/members")
        .map_or(0, |table| table.len())
}

#[test]
fn what_is_removed_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    {
        let server = on_disk(&path);
        let mut client = server.client();
        fill(&mut client, "s", 100);
        fill(&mut client, "other", 100);
        client.check(&[
            ("XGROUP CREATE s g 0", "+OK"),
            ("XGROUP CREATE s h 0", "+OK"),
        ]);
        assert!(
            client
                .run("XREADGROUP GROUP g c STREAMS s >")
                .contains("100-0")
        );
        assert!(
            client
                .run("XREADGROUP GROUP h c COUNT 10 STREAMS s >")
                .contains("10-0")
        );
    }
    // The id and the entries; a group, a consumer and its name; two for what is pending.
    assert_eq!(rows(&path), 2 + 200 + 2 * 3 + 2 * 110);
    {
        let server = on_disk(&path);
        server.client().check(&[
            ("XGROUP DESTROY s h", ":1"),
            ("XGROUP DELCONSUMER s g c", ":100"),
            ("XTRIM other MAXLEN 0", ":100"),
        ]);
    }
    assert_eq!(rows(&path), 2 + 100 + 1);
    {
        let server = on_disk(&path);
        server.client().check(&[("DEL s other", ":2")]);
    }
    let began = now();
    while rows(&path) > 0 {
        assert!(began.elapsed() < Duration::from_secs(20));
        let server = on_disk(&path);
        let _ready = server.client();
        thread::sleep(Duration::from_millis(1200));
    }
}

#[test]
fn all_who_wait_for_a_stream_get_what_comes() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut readers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    client.check(&[("XADD s 1-0 a b", "\"1-0\"")]);
    for reader in &mut readers {
        begin(reader, "XREAD BLOCK 0 STREAMS none s 0 $");
    }
    wait_for_waiters(&mut client, 6);
    client.check(&[("XADD s 2-0 c d", "\"2-0\"")]);
    for reader in &mut readers {
        assert_eq!(end(reader), "[[\"s\" [[\"2-0\" [\"c\" \"d\"]]]]]");
        // Who waits for a later one sleeps on, and keeps no other from waking up.
        begin(reader, "XREAD BLOCK 0 STREAMS s 5");
    }
    let mut other = server.client();
    begin(&mut other, "XREAD BLOCK 0 STREAMS s 2");
    wait_for_waiters(&mut client, 7);
    client.check(&[("XADD s 3-0 e f", "\"3-0\"")]);
    assert_eq!(end(&mut other), "[[\"s\" [[\"3-0\" [\"e\" \"f\"]]]]]");
    wait_for_waiters(&mut client, 6);
    // Neither a lower ID nor a value of another type is what they wait for.
    client.check(&[
        ("DEL s", ":1"),
        ("SET s string", "+OK"),
        ("DEL s", ":1"),
        ("XADD s 4-0 g h", "\"4-0\""),
        ("XADD s 6-0 i j", "\"6-0\""),
    ]);
    for reader in &mut readers {
        assert_eq!(end(reader), "[[\"s\" [[\"6-0\" [\"i\" \"j\"]]]]]");
    }
    client.check(&[
        ("XREAD BLOCK 20 STREAMS s $", "nil"),
        ("MULTI", "+OK"),
        ("XREAD BLOCK 0 STREAMS s $", "+QUEUED"),
        ("EXEC", "[nil]"),
    ]);
}

#[test]
fn each_entry_goes_to_one_consumer_of_a_group() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    let consumers: Vec<_> = (0..4)
        .map(|number| {
            let mut client = server.client();
            thread::spawn(move || {
                let mut got = Vec::new();
                loop {
                    let command =
                        format!("XREADGROUP GROUP g c{number} COUNT 3 BLOCK 0 STREAMS s >");
                    let reply = client.run(&command);
                    let ids = reply.split('"').filter(|part| part.ends_with("-0"));
                    got.extend(ids.map(str::to_owned));
                    if reply.contains("\"end\"") {
                        return got;
                    }
                }
            })
        })
        .collect();
    wait_for_waiters(&mut client, 4);
    for number in 1..=300 {
        client.run(&format!("XADD s {number}-0 a b"));
    }
    // Each of them has to see one end: what comes after the first one may be taken by the same.
    for number in 301..=304 {
        client.run(&format!("XADD s {number}-0 end end"));
        thread::sleep(Duration::from_millis(30));
    }
    let mut number = 305;
    while client.text("INFO clients").contains("blocked_clients:0")
        || !consumers.iter().all(|of| of.is_finished())
    {
        client.run(&format!("XADD s {number}-0 end end"));
        number += 1;
        thread::sleep(Duration::from_millis(10));
        if consumers.iter().all(|of| of.is_finished()) {
            break;
        }
    }
    let mut got: Vec<String> = consumers
        .into_iter()
        .flat_map(|of| of.join().unwrap())
        .collect();
    let count = got.len();
    got.sort();
    got.dedup();
    assert_eq!(got.len(), count, "an entry went to two");
    assert!((1..=300).all(|number| got.contains(&format!("{number}-0"))));
    let pending = client.run("XPENDING s g");
    assert!(pending.starts_with(&format!("[:{count} ")), "{pending}");
}

/// Options come in any order. An option that is there twice is one argument too many, which is
/// looked at behind key and group, as in Redis.
#[test]
fn groups_are_made_with_options_in_any_order() {
    let server = Fixture::new();
    let mut client = server.client();
    let no_key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you \
                  may want to use the MKSTREAM option to create an empty stream automatically.";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let too_many = |of: &str| {
        format!("-ERR unknown subcommand or wrong number of arguments for '{of}'. Try XGROUP HELP.")
    };
    let (create, set) = (&too_many("CREATE")[..], &too_many("SETID")[..]);
    client.check(&[
        ("SET str x", "+OK"),
        ("XGROUP CREATE a g $ mkstream entriesread 3", "+OK"),
        ("XGROUP CREATE b g $ ENTRIESREAD 3 MKSTREAM", "+OK"),
        ("XGROUP CREATE c g $ MKSTREAM MKSTREAM", "+OK"),
        ("XGROUP CREATE a h 0 MKSTREAM MKSTREAM MKSTREAM", "+OK"),
        ("XGROUP CREATE none g 0 ENTRIESREAD 1 ENTRIESREAD 2", no_key),
        (
            "XGROUP CREATE str g 0 ENTRIESREAD 1 ENTRIESREAD 2",
            wrong_type,
        ),
        (
            "XGROUP CREATE none g 0 MKSTREAM ENTRIESREAD 1 ENTRIESREAD 2",
            create,
        ),
        ("XGROUP CREATE a g 0 ENTRIESREAD 1 ENTRIESREAD 2", create),
        ("XGROUP CREATE str g 0 ENTRIESREAD", create),
        ("XGROUP CREATE str g 0 BOGUS", create),
        ("XGROUP SETID none g 0 ENTRIESREAD 1 ENTRIESREAD 2", no_key),
        (
            "XGROUP SETID str g 0 ENTRIESREAD 1 ENTRIESREAD 2",
            wrong_type,
        ),
        (
            "XGROUP SETID a x 0 ENTRIESREAD 1 ENTRIESREAD 2",
            "-NOGROUP No such consumer group 'x' for key name 'a'",
        ),
        ("XGROUP SETID a g 0 ENTRIESREAD 1 ENTRIESREAD 2", set),
        ("XGROUP SETID str g 0 MKSTREAM", set),
        ("EXISTS none", ":0"),
        ("XGROUP SETID a g 0 ENTRIESREAD 5", "+OK"),
    ]);
    for (key, read) in [("a", 5), ("b", 3)] {
        let groups = client.run(&format!("XINFO GROUPS {key}"));
        assert!(
            groups.contains(&format!("\"entries-read\" :{read} ")),
            "{groups}"
        );
    }
}

#[test]
fn who_waits_for_a_group_learns_that_it_is_gone() {
    let server = Fixture::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let ways: [(&[&str], &str); 9] = [
        (&["DEL s"], gone),
        (&["UNLINK s"], gone),
        (&["XGROUP DESTROY s g"], gone),
        (&["RENAME s t"], gone),
        (&["MOVE s 1"], gone),
        (&["FLUSHALL"], gone),
        (&["PEXPIRE s 30"], gone),
        (&["SET s string"], wrong),
        (&["MULTI", "DEL s", "LPUSH s a", "EXEC"], wrong),
    ];
    for (commands, expected) in ways {
        client.run("FLUSHALL");
        client.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
        begin(&mut waiter, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        wait_for_waiters(&mut client, 1);
        for command in commands {
            let reply = client.run(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        assert_eq!(end(&mut waiter), expected, "{commands:?}");
    }
}

#[test]
fn a_change_of_any_row_is_seen_by_who_watches_the_key() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, "s", 5);
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    let changes = [
        "XADD s 9-0 a b",
        "XDEL s 3-0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "XACK s g 1-0",
        "XGROUP CREATECONSUMER s g d",
        "XSETID s 10-0",
    ];
    for change in changes {
        client.check(&[("WATCH s", "+OK"), ("MULTI", "+OK"), ("XLEN s", "+QUEUED")]);
        other.run(change);
        client.check(&[("EXEC", "nil")]);
    }
    client.check(&[
        ("WATCH s", "+OK"),
        ("MULTI", "+OK"),
        ("XADD s 20-0 a b", "+QUEUED"),
        ("XADD s MAXLEN 1 20-* c d", "+QUEUED"),
        ("XRANGE s - +", "+QUEUED"),
        ("EXEC", "[\"20-0\" \"20-1\" [[\"20-1\" [\"c\" \"d\"]]]]"),
    ]);
}

/// What 7.2 tells and does that 7.0, beside which random commands run, does not.
#[test]
fn consumers_are_told_as_in_redis_7_2() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("XADD s 1 a b", "\"1-0\""),
        ("XGROUP CREATE s g $", "+OK"),
        // It is there once it has asked, and has got nothing.
        ("XREADGROUP GROUP g c STREAMS s >", "nil"),
        ("XGROUP CREATECONSUMER s g c", ":0"),
        ("XINFO GROUPS s", "[[\"name\" \"g\" \"consumers\" :1 \"pending\" :0 \"last-delivered-id\" \"1-0\" \"entries-read\" nil \"lag\" :0]]"),
    ]);
    let number_behind = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\" :")).unwrap();
        let end = rest.find([' ', ']']).unwrap();
        rest[..end].parse::<i64>().unwrap()
    };
    let consumers = client.run("XINFO CONSUMERS s g");
    assert!(number_behind(&consumers, "idle") < 20_000, "{consumers}");
    assert_eq!(number_behind(&consumers, "inactive"), -1);
    let full = client.run("XINFO STREAM s FULL");
    assert!(number_behind(&full, "seen-time") > 1_600_000_000_000);
    assert_eq!(number_behind(&full, "active-time"), -1);
    client.run("XADD s 2 a b");
    client.run("XREADGROUP GROUP g c STREAMS s >");
    thread::sleep(Duration::from_millis(30));
    // It is seen, and gets nothing.
    client.check(&[("XREADGROUP GROUP g c STREAMS s >", "nil")]);
    let consumers = client.run("XINFO CONSUMERS s g");
    let inactive = number_behind(&consumers, "inactive");
    assert!((30..20_000).contains(&inactive), "{consumers}");
    assert!(number_behind(&consumers, "idle") <= inactive - 30);
    client.check(&[
        ("XDEL s 2", ":1"),
        (
            "XSETID s 1-5",
            "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ),
        ("XCLAIM s g d 0 2-0", "[]"),
        ("XPENDING s g", "[:0 nil nil nil]"),
    ]);
}

/// Returns what `commands` have cost: rows read, leaves copied by scans, rows written or deleted.
fn cost(client: &mut Client, commands: &[&str]) -> [u64; 3] {
    let names = [
        "gets_total",
        "scan_leaves_total",
        "puts_total",
        "deletes_total",
    ];
    let counts = |client: &mut Client| {
        let fields = fields(client, "pando");
        names.map(|name| fields[name].parse::<u64>().expect("a number"))
    };
    let before = counts(client);
    for command in commands {
        let reply = client.run(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    let after = counts(client);
    let by = |at: usize| after[at] - before[at];
    [by(0), by(1), by(2) + by(3)]
}

#[test]
fn a_deep_stream_costs_what_a_small_one_costs() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut costs = Vec::new();
    for (key, count) in [("small", 100), ("deep", 20_000)] {
        fill(&mut client, key, count);
        client.run(&format!("XGROUP CREATE {key} g 0"));
        // All of it is pending, and one consumer has ten entries.
        let most = format!(
            "XREADGROUP GROUP g many COUNT {} STREAMS {key} >",
            count - 20
        );
        client.run(&most);
        client.run(&format!("XREADGROUP GROUP g few COUNT 10 STREAMS {key} >"));
        let (first, second) = (count - 19, count - 18);
        let commands = [
            format!("XADD {key} {}-0 a b", count + 1),
            format!("XADD {key} MAXLEN {count} {}-0 a b", count + 2),
            format!("XREADGROUP GROUP g few COUNT 1 STREAMS {key} >"),
            format!("XREADGROUP GROUP g few STREAMS {key} 0"),
            format!("XACK {key} g {first}-0"),
            format!("XCLAIM {key} g many 0 {second}-0"),
            format!("XPENDING {key} g"),
            format!("XPENDING {key} g - + 3"),
            format!("XRANGE {key} 50 + COUNT 3"),
            format!("XREVRANGE {key} + - COUNT 3"),
            format!("XDEL {key} 60-0"),
            format!("XINFO GROUPS {key}"),
            format!("XLEN {key}"),
        ];
        let cost = |command: &String| cost(&mut client, &[command]);
        costs.push(commands.iter().map(cost).collect::<Vec<_>>());
    }
    for (number, (small, deep)) in costs[0].iter().zip(&costs[1]).enumerate() {
        let of = format!("command {number}: {small:?} and {deep:?}");
        assert_eq!((small[0], small[2]), (deep[0], deep[2]), "{of}");
        // A leaf may end anywhere.
        assert!(deep[1] <= small[1] + 2, "{of}");
    }
    // XRANGE: a leaf, or two.
    assert!((1..=2).contains(&costs[1][8][1]), "{:?}", costs[1][8]);
    // XADD: the entry and the head.
    assert_eq!(costs[1][0][2], 2);
    // XREADGROUP of one entry: twice pending, consumer, group, head.
    assert_eq!(costs[1][2][2], 5);
    // XACK likewise.
    assert_eq!(costs[1][4][2], 5);
}

#[test]
fn rotten_rows_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    fill_and_deliver(&path);
    for (kind, bytes) in [
        (b'P', &b"short"[..]),
        (b'X', b"\x05\x00\xff\xff\x7f"),
        (b'C', b""),
        (b'N', b"x"),
        (b'G', b"G"),
    ] {
        let db = Db::builder().max_memory(32 << 20).open(&path).unwrap();
        let table = db.existing_table("db/0/members").unwrap();
        let keys: Vec<Vec<u8>> = (table.range((Bound::<&[u8]>::Unbounded, Bound::Unbounded)))
            .map(|entry| entry.unwrap().0)
            .filter(|key| key[8] == kind)
            .collect();
        assert!(!keys.is_empty());
        keys.iter().for_each(|key| table.put(key, bytes).unwrap());
        drop(table);
        db.close().unwrap();
        let mut server = on_disk(&path);
        server.is_damaged();
        let mut client = server.client();
        let commands: &[&str] = match kind {
            b'P' => &["XACK s g 1-0", "XPENDING s g - + 9", "XAUTOCLAIM s g d 0 0"],
            b'X' => &["XRANGE s - +", "XREAD STREAMS s 0", "XINFO STREAM s"],
            b'C' => &["XREADGROUP GROUP g c STREAMS s >", "XINFO CONSUMERS s g"],
            b'N' => &[
                "XREADGROUP GROUP g c STREAMS s >",
                "XGROUP DELCONSUMER s g c",
            ],
            _ => &[
                "XINFO GROUPS s",
                "XPENDING s g",
                "XREADGROUP GROUP g c STREAMS s >",
            ],
        };
        for command in commands {
            let reply = client.run(command);
            assert!(reply.starts_with("-ERR"), "{command}: {reply}");
        }
        client.check(&[("PING", "+PONG")]);
    }
    // A row that is missing contradicts the head.
    let server = on_disk(&path);
    server
        .client()
        .check(&[("DEL s", ":1"), ("XADD s 1 a b", "\"1-0\"")]);
}

#[test]
fn streams_are_larger_than_memory() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let value = "v".repeat(700);
    let count = 3000;
    for number in 1..=count {
        begin(&mut client, &format!("XADD s {number}-0 field {value}"));
    }
    (0..count).for_each(|_| drop(end(&mut client)));
    client.check(&[("XGROUP CREATE s g 0", "+OK"), ("XLEN s", ":3000")]);
    let all = client.run("XRANGE s - +");
    assert_eq!(all.matches("\"field\"").count(), count);
    for _ in 0..10 {
        let reply = client.run("XREADGROUP GROUP g c COUNT 300 STREAMS s >");
        assert_eq!(reply.matches("\"field\"").count(), 300);
    }
    let claimed = client.run("XAUTOCLAIM s g d 0 - COUNT 500 JUSTID");
    assert_eq!(claimed.matches("-0\"").count(), 501);
    client.check(&[
        (
            "XPENDING s g",
            "[:3000 \"1-0\" \"3000-0\" [[\"c\" \"2500\"] [\"d\" \"500\"]]]",
        ),
        ("XTRIM s MAXLEN 10", ":2990"),
        ("XLEN s", ":10"),
    ]);
}
