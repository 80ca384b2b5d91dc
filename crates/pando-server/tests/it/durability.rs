//! Replies that wait for the log.

use pando_server::{Durability, ServerOptions};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Db;
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};

use crate::client::{encode, show};
use crate::fixture::{Fixture, open_on_disk, options};

fn flushes(client: &mut crate::client::Client) -> u64 {
    let info = client.text("INFO pando");
    let at = info.find("log_flushes_total:").unwrap() + 18;
    info[at..].lines().next().unwrap().parse().unwrap()
}

#[test]
fn a_pipeline_of_writes_is_one_flush() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    client.run("SET warm 1");
    let before = flushes(&mut client);
    client.send(&encode(&["SET", "k", "v"]).repeat(16));
    for _ in 0..16 {
        assert_eq!(show(&client.answer()), "+OK");
    }
    let count = flushes(&mut client) - before;
    assert!(count >= 1, "a reply was sent before its flush");
    assert!(count <= 4, "{count} flushes for one pipeline");
}

#[test]
fn waitaof_reports_the_own_log_and_no_replica() {
    for durability in [Durability::Durable, Durability::Periodic, Durability::None] {
        let server = Fixture::with(ServerOptions {
            durability,
            ..options()
        });
        let mut client = server.client();
        client.check(&[
            ("WAITAOF 1 0 0", "[:1 :0]"),
            ("SET a 1", "+OK"),
            ("WAITAOF 1 0 0", "[:1 :0]"),
            ("WAITAOF 0 1 20", "[:1 :0]"),
            ("WAIT 0 0", ":0"),
            ("WAIT 1 20", ":0"),
            (
                "WAITAOF 2 0 0",
                "-ERR value is out of range, must be positive",
            ),
            ("WAITAOF 1 0 -1", "-ERR timeout is negative"),
            (
                "WAITAOF 1 0 x",
                "-ERR timeout is not an integer or out of range",
            ),
            ("MULTI", "+OK"),
            ("WAIT 1 0", "+QUEUED"),
            ("EXEC", "[:0]"),
        ]);
    }
}

#[test]
fn saves_are_taken_and_dated() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    client.check(&[
        ("SET a 1", "+OK"),
        ("SAVE", "+OK"),
        ("BGSAVE", "+Background saving started"),
        ("BGSAVE SCHEDULE", "+Background saving started"),
        ("BGSAVE what", "-ERR syntax error"),
    ]);
    let now = i64::try_from(pando_sync::time::unix_ms() / 1000).unwrap();
    let saved = client.integer("LASTSAVE");
    assert!((now - 100..=now + 1).contains(&saved), "{saved}");
}

/// Returns a server, and its store.
pub(crate) fn shared() -> (Fixture, Arc<Mutex<Option<Db>>>) {
    let store = Arc::new(Mutex::new(Rank::Caller, None));
    let slot = store.clone();
    let server = Fixture::opened_by(options(), move |directory| {
        let db = open_on_disk(directory)?;
        *slot.lock() = Some(db.clone());
        Ok(db)
    });
    (server, store)
}

/// The test has committed a value with another handle, and the log has not been flushed yet.
#[test]
fn a_reply_that_shows_what_is_not_durable_waits_for_the_log() {
    let (server, slot) = shared();
    let mut client = server.client();
    let db = slot.lock().take().expect("the store is open");
    client.check(&[("SET a 1", "+OK"), ("SET b x", "+OK"), ("SET a 2", "+OK")]);
    let keys = db.existing_table("db/0/keys").expect("the table exists");
    let row = keys.get(b"\0a").unwrap().expect("the key is set");
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let reads = [
        ("GET a", "\"2\""),
        ("EXISTS a b", ":2"),
        ("MGET b a", "[\"x\" \"2\"]"),
        ("STRLEN a", ":1"),
        ("KEYS a", "[\"a\"]"),
        ("SCAN 0 MATCH a", "[\"0\" [\"a\"]]"),
        ("SETNX a 9", ":0"),
        ("MULTI", "+OK"),
        ("GET a", "+QUEUED"),
        ("EXEC", "[\"2\"]"),
        ("PANDO BEGIN", "+OK"),
        ("GET a", "\"2\""),
        ("PANDO ROLLBACK", "+OK"),
        ("PANDO BEGIN", "+OK"),
        ("SCAN 0 MATCH a", "[\"0\" [\"a\"]]"),
        ("PANDO ROLLBACK", "+OK"),
    ];
    let (mut waited, mut lsn) = (0, None);
    for (read, reply) in reads {
        if !matches!((read, reply), ("EXEC", _) | (_, "+QUEUED")) {
            let mut batch = ValidatedBatch::new(&db);
            batch.put(&keys, b"\0a", &row).unwrap();
            let outcome = batch.try_commit(&mut reactor).unwrap();
            let Polled::Ready(Outcome::Committed(committed)) = outcome else {
                panic!("{read}: no conflict is possible");
            };
            lsn = committed;
        }
        client.check(&[(read, reply)]);
        if !matches!(reply, "+OK" | "+QUEUED") {
            assert!(Some(db.durable_lsn()) >= lsn, "{read} was not waited for");
            waited += 1;
        }
    }
    assert_eq!(waited, 10);
    // These GETs run together in one pipeline run.
    let mut batch = ValidatedBatch::new(&db);
    batch.put(&keys, b"\0a", &row).unwrap();
    let outcome = batch.try_commit(&mut reactor).unwrap();
    let Polled::Ready(Outcome::Committed(lsn)) = outcome else {
        panic!("no conflict is possible");
    };
    client.send(&encode(&["GET", "a"]).repeat(8));
    (0..8).for_each(|_| assert_eq!(show(&client.answer()), "\"2\""));
    assert!(Some(db.durable_lsn()) >= lsn);
    // Without durability no reply waits.
    client.check(&[("CONFIG SET durability none", "+OK")]);
    let mut batch = ValidatedBatch::new(&db);
    batch.put(&keys, b"\0a", &row).unwrap();
    let outcome = batch.try_commit(&mut reactor).unwrap();
    let Polled::Ready(Outcome::Committed(lsn)) = outcome else {
        panic!("no conflict is possible");
    };
    client.check(&[("GET a", "\"2\"")]);
    assert!(Some(db.durable_lsn()) < lsn);
}

/// As above, of commands that read and run together: of a large hash and of a string.
#[test]
fn replies_of_a_pipeline_that_show_what_is_not_durable_wait_for_the_log() {
    let (server, slot) = shared();
    let mut client = server.client();
    let db = slot.lock().take().expect("the store is open");
    client.check(&[("SET a 2", "+OK")]);
    let keys = db.existing_table("db/0/keys").expect("the table exists");
    let row = keys.get(b"\0a").unwrap().expect("the key is set");
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    for field in 0..400 {
        client.run(&format!(
            "HSET h f{field} {field} g{field} some_more_bytes_{field}"
        ));
    }
    let head = keys.get(b"\0h").unwrap().expect("the key is set");
    for commands in [
        [encode(&["HGET", "h", "f7"]), encode(&["HGET", "h", "f7"])],
        [encode(&["HGET", "none", "f"]), encode(&["HGET", "h", "f7"])],
        [encode(&["HGET", "h", "f7"]), encode(&["HGET", "none", "f"])],
        [encode(&["HGET", "none", "f"]), encode(&["GET", "a"])],
    ] {
        let mut batch = ValidatedBatch::new(&db);
        batch.put(&keys, b"\0h", &head).unwrap();
        batch.put(&keys, b"\0a", &row).unwrap();
        let outcome = batch.try_commit(&mut reactor).unwrap();
        let Polled::Ready(Outcome::Committed(lsn)) = outcome else {
            panic!("no conflict is possible");
        };
        client.send(&commands.concat());
        let replies = [show(&client.answer()), show(&client.answer())];
        let is_shown = |of: &String| of == "\"7\"" || of == "\"2\"";
        assert!(replies.iter().any(is_shown), "{replies:?}");
        assert!(Some(db.durable_lsn()) >= lsn, "{replies:?}");
    }
}
