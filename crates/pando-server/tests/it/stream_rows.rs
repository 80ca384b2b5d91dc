//! Streams: the rows that a store has of them, between two runs of the server.

use std::ops::Bound;
use std::path::Path;

use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, show};
use crate::fixture::{Fixture, options};
use crate::streams::{fill, fill_and_deliver, on_disk, rows};

/// Bytes of the row of a stream before its head: the type and the flags.
const BEFORE_HEAD: usize = 2;
/// Longest row of a store that has only short ones.
const ROW_BYTES: usize = 20_000;

fn open(path: &Path) -> Db {
    let builder = Db::builder().max_memory(32 << 20);
    builder.open(path).expect("no server has it open")
}

/// Returns the head of the stream at `key`, which has no deadline.
fn head(path: &Path, key: &str) -> Vec<u8> {
    let db = open(path);
    let table = db
        .existing_table("db/0/keys")
        .expect("the server has made it");
    let stored = [&[0], key.as_bytes()].concat();
    let row = table.get(&stored).expect("the store can be read");
    let row = row.expect("the key is there");
    assert_eq!((row[0], row[1]), (6, 0), "a stream without deadline");
    row[BEFORE_HEAD..].to_vec()
}

/// Returns the id of the stream at `key`: the keys of all its rows begin with it.
fn id(path: &Path, key: &str) -> u64 {
    let id = head(path, key)[2..10].try_into();
    u64::from_le_bytes(id.expect("8 bytes"))
}

/// Returns true if the cleaner has not removed yet all that was given up.
fn is_given_up(path: &Path) -> bool {
    let db = open(path);
    let table = db.existing_table("db/0/members");
    let table = table.expect("the server has made it");
    let first = table
        .range((Bound::<&[u8]>::Unbounded, Bound::Unbounded))
        .next();
    let first = first.transpose().expect("the store can be read");
    first.is_some_and(|(key, _)| key.starts_with(&[0; 8]))
}

fn run_all(path: &Path, commands: &[&str]) {
    let server = on_disk(path);
    let mut client = server.client();
    for command in commands {
        let reply = client.run(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
}

/// The ways in which nothing but the head may be left of the stream at `s`.
const EMPTIED: [&[&str]; 9] = [
    &["XADD s 1 a b", "XDEL s 1"],
    &["XGROUP CREATE s g $ MKSTREAM", "XGROUP DESTROY s g"],
    &["XADD s MAXLEN 0 1 a b"],
    &["MULTI", "XADD s 1 a b", "XTRIM s MAXLEN 0", "EXEC"],
    &["XADD r 1 a b", "XDEL r 1", "RENAME r s"],
    &["XADD r 1 a b", "XDEL r 1", "COPY r s", "DEL r"],
    &[
        "SELECT 1",
        "XADD s 1 a b",
        "XDEL s 1",
        "MOVE s 0",
        "SELECT 0",
    ],
    &["XADD s 1 a b", "XDEL s 1", "EXPIRE s 100000", "PERSIST s"],
    &["XADD s 1 a b", "FLUSHDB", "XADD s 1 a b", "XDEL s 1"],
];

#[test]
fn no_stream_gets_the_id_of_an_empty_one() {
    for commands in EMPTIED {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        run_all(&path, commands);
        // The ids that are used are known by the rows that are there.
        run_all(&path, &["XLEN s", "XADD t 1 a b"]);
        let (empty, new) = (id(&path, "s"), id(&path, "t"));
        assert_ne!(empty, new, "{commands:?}");
    }
}

#[test]
fn what_is_deleted_takes_no_rows_of_other_streams_along() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    run_all(&path, &["XADD s 1 a b", "XDEL s 1"]);
    run_all(&path, &["XADD t 1 c d", "DEL s"]);
    let began = now();
    while is_given_up(&path) {
        assert!(began.elapsed() < Duration::from_secs(20));
        let server = on_disk(&path);
        let _ready = server.client();
        thread::sleep(Duration::from_millis(1200));
    }
    // Of t: that it has its id, and the entry.
    assert_eq!(rows(&path), 2);
    let server = on_disk(&path);
    let entries = "[[\"1-0\" [\"c\" \"d\"]]]";
    server.client().check(&[("XRANGE t - +", entries)]);
}

/// Changes of rows that leave what else the head tells as it was: it is another one all the same,
/// as a commit may compare it with what it has read (decision 059).
#[test]
fn each_change_of_a_row_gives_another_head() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    {
        let server = on_disk(&path);
        let mut client = server.client();
        fill(&mut client, "s", 5);
        client.check(&[("XGROUP CREATE s g 0", "+OK")]);
        client.run("XREADGROUP GROUP g c COUNT 4 STREAMS s >");
        client.run("XGROUP CREATECONSUMER s g d");
    }
    let mut before = head(&path, "s");
    let (start, end) = (2 + 8, 2 + 16);
    for command in [
        "XCLAIM s g d 0 1-0",
        "XCLAIM s g d 0 1-0",
        "XACK s g 1-0",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "XAUTOCLAIM s g d 0 0 COUNT 1",
        "XGROUP SETID s g 0",
        "XGROUP SETID s g 0",
        "XGROUP DELCONSUMER s g d",
    ] {
        run_all(&path, &[command]);
        let after = head(&path, "s");
        assert_ne!(before[start..end], after[start..end], "{command}");
        let rest = |head: &[u8]| [&head[..start], &head[end..]].concat();
        assert_eq!(rest(&before), rest(&after), "{command}");
        before = after;
    }
}

#[test]
fn rows_whose_keys_have_another_length_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    fill_and_deliver(&path);
    for (kind, command) in [
        (b'P', "XPENDING s g - + 9"),
        (b'P', "XPENDING s g IDLE 1 - + 9"),
        (b'P', "XAUTOCLAIM s g d 0 0"),
        (b'Q', "XREADGROUP GROUP g c STREAMS s 0"),
        (b'Q', "XPENDING s g - + 9 c"),
        (b'X', "XRANGE s - +"),
    ] {
        let db = open(&path);
        let table = db.existing_table("db/0/members").unwrap();
        let range = table.range((Bound::<&[u8]>::Unbounded, Bound::Unbounded));
        let rows: Vec<_> = range.map(Result::unwrap).collect();
        let (mut key, value) = (rows.into_iter())
            .find(|(key, _)| key[8] == kind)
            .expect("there is one of this kind");
        // Behind a row as it should be, and it ends with an ID that is before all.
        key.extend([0; 16]);
        table.put(&key, &value).unwrap();
        drop(table);
        db.close().unwrap();
        {
            let mut server = on_disk(&path);
            server.is_damaged();
            let mut client = server.client();
            let reply = client.run(command);
            assert!(reply.contains("cannot be used: Damaged"), "{reply}");
            client.check(&[("XLEN s", ":20")]);
        }
        let db = open(&path);
        let table = db.existing_table("db/0/members").unwrap();
        table.delete(&key).unwrap();
    }
}

/// The longest name of a consumer that is taken, as the error for a longer one tells it.
fn longest_name(client: &mut Client) -> usize {
    let name = "n".repeat(2 * ROW_BYTES);
    let reply = show(&client.call(&["XGROUP", "CREATECONSUMER", "s", "g", &name]));
    let (_, most) = reply.split_once("longer ones than ").expect(&reply);
    let (most, _) = most.split_once(' ').expect(&reply);
    most.parse::<usize>().expect("a number") - 24
}

#[test]
fn names_are_taken_whole_or_refused() {
    let server = Fixture::opened_by(options(), |_| {
        let builder = Db::builder().max_memory(32 << 20);
        builder.chunk_values_over(ROW_BYTES).open_in_memory()
    });
    let mut client = server.client();
    client.check(&[("XGROUP CREATE s g 0 MKSTREAM", "+OK")]);
    client.check(&[("XADD s 1 a b", "\"1-0\"")]);
    client.run("XREADGROUP GROUP g c STREAMS s >");
    let most = longest_name(&mut client);
    for length in most - 24..most + 26 {
        let name = format!("{length:0length$}");
        for command in [
            &["XGROUP", "CREATECONSUMER", "s", "g", &name][..],
            &["XCLAIM", "s", "g", &name, "0", "1-0"],
            &["XAUTOCLAIM", "s", "g", &name, "0", "0", "COUNT", "1"],
            &["XREADGROUP", "GROUP", "g", &name, "STREAMS", "s", "0"],
            &["XGROUP", "DELCONSUMER", "s", "g", &name],
        ] {
            let reply = show(&client.call(command));
            let is_taken = !reply.starts_with('-');
            let is_new = command[1] != "DELCONSUMER";
            assert_eq!(is_taken, length <= most || !is_new, "{length}: {reply}");
            let is_refused = reply.contains("-ERR a consumer has ");
            assert_eq!(is_refused, length > most && is_new, "{length}: {reply}");
        }
    }
}

#[test]
fn groups_with_any_names_are_listed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("XADD s 1 a b", "\"1-0\"")]);
    let names: [&[u8]; 4] = [b"", b"g", &[0xff; 9], &[0xff; 40]];
    for name in names {
        let command: [&[u8]; 5] = [b"XGROUP", b"CREATE", b"s", name, b"0"];
        assert_eq!(show(&client.call(&command)), "+OK");
    }
    let groups = client.run("XINFO GROUPS s");
    assert_eq!(groups.matches("\"pending\"").count(), 4, "{groups}");
    client.check(&[("XLEN s", ":1"), ("COPY s t", ":1")]);
    let groups = client.run("XINFO GROUPS t");
    assert_eq!(groups.matches("\"pending\"").count(), 4, "{groups}");
}
