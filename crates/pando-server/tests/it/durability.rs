//! Replies and the log.

use pando_server::{Durability, ServerOptions};

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
