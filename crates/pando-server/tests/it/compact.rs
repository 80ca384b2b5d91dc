//! PANDO COMPACT while clients continue.

use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, options};

const KEYS: usize = 40_000;

/// Returns a field of INFO persistence, or `None` if it is missing.
fn field(client: &mut Client, name: &str) -> Option<String> {
    let info = client.text("INFO persistence");
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.strip_prefix(':'))
        .map(|value| value.trim().to_owned())
}

fn wait(client: &mut Client) {
    while field(client, "compact_in_progress").unwrap() == "1" {
        let percent = field(client, "compact_percent");
        assert!(percent.is_none_or(|percent| percent.parse::<u32>().unwrap() <= 100));
        thread::yield_now();
    }
}

/// Runs `command` for each key, in pipelines.
fn each(client: &mut Client, keys: impl Iterator<Item = usize>, command: impl Fn(&str) -> Vec<u8>) {
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(500) {
        let requests: Vec<u8> = some
            .iter()
            .flat_map(|key| command(&format!("key:{key}")))
            .collect();
        client.send(&requests);
        for _ in some {
            let reply = show(&client.answer());
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }
}

#[test]
fn a_server_compacts_its_store_and_serves_meanwhile() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    client.check(&[
        ("PANDO COMPACT ABORT", "-ERR No compaction in progress."),
        ("PANDO COMPACT now", "-ERR syntax error"),
        ("PANDO COMPACT ABORT now", "-ERR syntax error"),
    ]);
    assert_eq!(field(&mut client, "compact_last_status").unwrap(), "none");
    let value = "v".repeat(400);
    each(&mut client, 0..KEYS, |key| encode(&["SET", key, &value]));
    let gone = (0..KEYS).filter(|key| key % 10 != 0);
    each(&mut client, gone, |key| encode(&["DEL", key]));
    let mut other = server.client();
    client.check(&[("PANDO COMPACT", "+Background compaction started")]);
    let mut again = 0;
    let mut turn = 0;
    while field(&mut client, "compact_in_progress").unwrap() == "1" {
        // A request during a compaction is refused.
        again += usize::from(other.run("BGREWRITEAOF").starts_with("-ERR"));
        turn += 10;
        other.run(&format!("SET fresh:{turn} {turn}"));
        let key = turn % KEYS;
        assert_eq!(other.text(&format!("GET key:{key}")), value);
    }
    wait(&mut client);
    assert!(again > 0 || turn < 20);
    assert_eq!(field(&mut client, "compact_last_status").unwrap(), "ok");
    let bytes = |client: &mut Client, name| field(client, name).unwrap().parse::<u64>().unwrap();
    client.check(&[("PANDO COMPACT", "+Background compaction started")]);
    wait(&mut client);
    let after = bytes(&mut client, "compact_last_data_bytes_after");
    assert!(after < 10 << 20, "{after}");
    assert_eq!(client.run("EXISTS key:10 key:11 key:20"), ":2");
    client.check(&[(
        "BGREWRITEAOF",
        "+Background append only file rewriting started",
    )]);
    let aborted = client.run("PANDO COMPACT ABORT");
    assert!(
        ["+OK", "-ERR No compaction in progress."].contains(&&*aborted),
        "{aborted}"
    );
    wait(&mut client);
    let last = field(&mut client, "compact_last_status").unwrap();
    assert!(["ok", "aborted"].contains(&&*last), "{last}");
    let docs = client.run("COMMAND DOCS pando|compact");
    assert!(docs.contains("as small as"), "{docs}");
    // A running compaction does not delay the end of the server.
    client.check(&[("PANDO COMPACT", "+Background compaction started")]);
}
