//! What `check_rows` finds: each kind of row that is lost, or that nobody has.

use std::path::Path;

use pando_server::check_rows;
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::Db;

use crate::fixture::{Fixture, open_on_disk, options};

const MEMBERS: &str = "db/0/members";

/// Fills a store with one large collection of each type, and closes it.
fn fill(path: &Path) {
    let path = path.to_owned();
    let server = Fixture::opened_by(options(), move |_| open_on_disk(&path));
    let mut client = server.client();
    let numbers = |each: fn(usize) -> String| (0..1500).map(each).collect::<Vec<_>>().join(" ");
    client.run(&format!("HSET hash {}", numbers(|n| format!("f{n} v"))));
    client.run("HEXPIRE hash 1000 FIELDS 2 f1 f2");
    client.run(&format!("SADD set {}", numbers(|n| format!("m{n}"))));
    client.run(&format!("ZADD zset {}", numbers(|n| format!("{n} m{n}"))));
    client.run(&format!(
        "RPUSH list {}",
        numbers(|n| format!("element-{n}-of-the-list"))
    ));
    client.check(&[
        ("XADD stream 1-1 a b", "\"1-1\""),
        ("XADD stream 2-1 a b", "\"2-1\""),
        ("XGROUP CREATE stream g 0", "+OK"),
    ]);
    client.run("XREADGROUP GROUP g c STREAMS stream >");
    client.check(&[("DEL list", ":1"), ("SET other 1", "+OK")]);
    client.run(&format!(
        "RPUSH list {}",
        numbers(|n| format!("element-{n}-of-the-list"))
    ));
}

/// Returns the key of the last row of this kind: earlier ones may be of what was given up.
fn last(db: &Db, kind: u8) -> Vec<u8> {
    let members = db.table(MEMBERS).unwrap();
    let mut keys = members.iter().rev().map(|row| row.unwrap().0);
    let is_of_kind = |key: &Vec<u8>| key[..8] != [0; 8] && key[8] == kind;
    keys.find(is_of_kind).expect("there is one")
}

#[test]
fn what_is_lost_or_left_over_is_found() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let db = open_on_disk(directory.path()).unwrap();
    let whole = check_rows(&db).unwrap();
    assert_eq!(whole.descriptions, [""; 0]);
    assert_eq!((whole.keys, whole.large, whole.problems), (6, 5, 0));
    let members = db.table(MEMBERS).unwrap();
    for (kind, what) in [
        (b'E', "elements: 1499 rows, and 1500 by its head"),
        (b'T', "deadlines of fields: 1 rows, and 2 by its head"),
        // The last block has four.
        (b'L', "list: elements: 1496 rows"),
        (b'S', "zset: members by score: 1499 rows"),
        (b'I', "stream: rows that name it: 0 rows"),
        (b'X', "stream: entries: 1 rows, and 2"),
        (b'G', "stream: groups: 0 rows, and 1"),
        (b'C', "stream: consumers of its groups: 0 rows, and 1"),
        (b'N', "stream: names of consumers: 0 rows, and 1"),
        (b'P', "stream: pending entries by consumer: 2 rows, and 1"),
        (b'Q', "stream: pending entries by consumer: 1 rows, and 2"),
    ] {
        let key = last(&db, kind);
        let value = members.get(&key).unwrap().unwrap();
        assert!(members.delete(&key).unwrap());
        let report = check_rows(&db).unwrap();
        let all = report.descriptions.join("; ");
        assert!(report.problems > 0 && all.contains(what), "{what}: {all}");
        // A value that is something else.
        if b"ELGCP".contains(&kind) {
            members.put(&key, b"\xff").unwrap();
            let all = check_rows(&db).unwrap().descriptions.join("; ");
            assert!(all.contains("damaged rows: 1 rows, and 0"), "{what}: {all}");
        }
        members.put(&key, &value).unwrap();
    }
    assert_eq!(check_rows(&db).unwrap().problems, 0);
    // A score that the member does not have.
    let key = last(&db, b'S');
    let mut other = key.clone();
    other[16] ^= 1;
    let value = members.get(&key).unwrap().unwrap();
    members.delete(&key).unwrap();
    members.put(&other, &value).unwrap();
    let all = check_rows(&db).unwrap().descriptions.join("; ");
    assert!(all.contains("zset: the difference of members and"), "{all}");
    members.delete(&other).unwrap();
    members.put(&key, &value).unwrap();
    // A head that is gone, and one that has no rows.
    let keys = db.table("db/0/keys").unwrap();
    let head = keys.get(b"\0set").unwrap().expect("the set is there");
    keys.delete(b"\0set").unwrap();
    let report = check_rows(&db).unwrap();
    assert_eq!(report.problems, 1, "{report:?}");
    assert!(
        report.descriptions[0].contains("1500 rows of"),
        "{report:?}"
    );
    assert!(report.descriptions[0].ends_with(", which no key has"));
    keys.put(b"\0set", &head).unwrap();
    keys.put(b"\0twin", &head).unwrap();
    let report = check_rows(&db).unwrap();
    assert!(
        report.descriptions[0].contains("has the rows of"),
        "{report:?}"
    );
    keys.delete(b"\0twin").unwrap();
    keys.put(b"\0broken", b"\xff").unwrap();
    let report = check_rows(&db).unwrap();
    assert_eq!(report.descriptions, ["db/0, key broken: Damaged"]);
    keys.delete(b"\0broken").unwrap();
    assert_eq!(check_rows(&db).unwrap().problems, 0);
}

/// Nothing can be read of such keys, and what they are is not known: they can be deleted all the
/// same, also together with others.
#[test]
fn damaged_keys_can_be_deleted() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let db = open_on_disk(directory.path()).unwrap();
    let keys = db.table("db/0/keys").unwrap();
    let head = keys.get(b"\0set").unwrap().expect("the set is there");
    keys.put(b"\0broken", b"\xff").unwrap();
    keys.put(b"\0cut", &head[..head.len() - 3]).unwrap();
    assert_eq!(check_rows(&db).unwrap().problems, 2);
    db.close().unwrap();
    drop(keys);
    let path = directory.path().to_owned();
    let server = Fixture::opened_by(options(), move |_| open_on_disk(&path));
    let mut client = server.client();
    for command in ["GET broken", "SET broken 1", "SMEMBERS cut", "SADD cut 1"] {
        let reply = client.run(command);
        assert!(
            reply.contains("cannot be used: Damaged"),
            "{command}: {reply}"
        );
    }
    client.check(&[
        ("DEL broken other broken", ":2"),
        ("UNLINK cut nobody", ":1"),
        ("EXISTS broken cut other", ":0"),
        ("SADD cut 1", ":1"),
        ("SCARD set", ":1500"),
    ]);
}

/// Rows of what was given up go without a trace, and not all at one moment: who looks meanwhile
/// waits for their end before they are rows that no key has.
#[test]
fn rows_that_go_during_a_check_are_no_problem() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let db = open_on_disk(directory.path()).unwrap();
    let members = db.table(MEMBERS).unwrap();
    let row = [&u64::MAX.to_be_bytes()[..], b"E an element"].concat();
    members.put(&row, b"its value").unwrap();
    let orphans = check_rows(&db).unwrap().descriptions;
    assert!(orphans[0].ends_with("1 rows of 18446744073709551615, which no key has"));
    let remover = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        members.delete(&row).unwrap();
    });
    assert_eq!(check_rows(&db).unwrap().descriptions, [""; 0]);
    remover.join().unwrap();
}
