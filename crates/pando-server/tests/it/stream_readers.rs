//! Clients that wait for entries of streams, beside clients that write and delete them.

use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::Client;
use crate::fixture::Fixture;
use crate::statistics::{conflicts, fields};
use crate::streams::{begin, end, fill, wait_for_waiters};
use crate::until_end::End;

/// Streams that a reader looks at besides: so others often write between its first read and its
/// commit.
const OTHERS: usize = 60;

/// Adds entries and deletes them at once, until `stop`; returns how many.
fn add_and_delete(client: &mut Client, stop: &End) -> u64 {
    let mut number = 0;
    while !stop.is_there() {
        for _ in 0..20 {
            number += 1;
            begin(client, &format!("XADD s {number}-0 a b"));
            begin(client, &format!("XDEL s {number}-0"));
        }
        for _ in 0..40 {
            let reply = end(client);
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }
    number
}

/// What a reader has found is gone when it commits. It reads again, finds nothing, and waits: from
/// then on it must see what comes, whatever moment it has read before.
#[test]
fn what_comes_and_goes_keeps_no_reader_asleep() {
    let server = Fixture::new();
    let mut client = server.client();
    let keys: Vec<String> = (0..OTHERS).map(|number| format!("other{number}")).collect();
    let (keys, ids) = (keys.join(" "), "$ ".repeat(OTHERS));
    let read = format!("XREAD BLOCK 0 STREAMS s {keys} $ {ids}");
    let stop = End::default();
    let before = conflicts(&mut client);
    thread::scope(|scope| {
        let bring = stop.brought();
        let mut writer = server.client();
        let writes = scope.spawn(|| {
            let number = add_and_delete(&mut writer, &stop);
            (writer, number)
        });
        // One of them may be served by the loop that the writer is at: that has no conflicts.
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (mut reader, read) = (server.client(), read.clone());
                scope.spawn(move || while !reader.run(&read).contains("\"last\"") {})
            })
            .collect();
        let began = now();
        // A reader that sleeps for ever meets no conflicts.
        while conflicts(&mut client) < before + 200 && began.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
        drop(bring);
        let (mut writer, number) = writes.join().unwrap();
        for number in number + 1..number + 20 {
            writer.run(&format!("XADD s {number}-0 last b"));
            thread::sleep(Duration::from_millis(50));
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn who_waits_for_later_entries_looks_for_no_rows() {
    const ENTRIES: u64 = 300;
    let server = Fixture::new();
    let (mut client, mut reader) = (server.client(), server.client());
    client.check(&[("XADD s 1 a b", "\"1-0\"")]);
    begin(&mut reader, "XREAD BLOCK 0 STREAMS s 1000000");
    wait_for_waiters(&mut client, 1);
    let leaves = |client: &mut Client| {
        let fields = fields(client, "pando");
        fields["scan_leaves_total"].parse::<u64>().unwrap()
    };
    let before = leaves(&mut client);
    for number in 2..ENTRIES + 2 {
        client.run(&format!("XADD s {number} a b"));
        wait_for_waiters(&mut client, 1);
    }
    // The cleaner looks at rows from time to time.
    let copied = leaves(&mut client) - before;
    assert!(copied < ENTRIES / 3, "{copied} leaves");
    client.run("XADD s 1000001 a b");
    assert!(end(&mut reader).contains("\"1000001-0\""));
}

/// The runs of an EXEC have one clock: what one has loaded behind an XADD serves the next one.
#[test]
fn an_exec_that_adds_to_a_long_stream_and_reads_it_comes_to_its_end() {
    let server = Fixture::new();
    let mut client = server.client();
    // More than is loaded in one turn.
    fill(&mut client, "s", 60_000);
    client.send(b"MULTI\r\nXADD s * field last\r\nXRANGE s - +\r\nEXEC\r\n");
    (0..3).for_each(|_| assert!(!end(&mut client).starts_with('-')));
    let reply = end(&mut client);
    assert!(
        reply.ends_with("[\"field\" \"last\"]]]]"),
        "{}",
        &reply[reply.len() - 80..]
    );
    assert_eq!(reply.matches("\"field\"").count(), 60_001);
}

#[test]
fn the_word_streams_may_be_a_name() {
    let server = Fixture::new();
    server.client().check(&[
        (
            "COMMAND GETKEYS XREADGROUP GROUP streams streams COUNT 1 STREAMS k l > >",
            "[\"k\" \"l\"]",
        ),
        ("COMMAND GETKEYS XREAD BLOCK 0 STREAMS k $", "[\"k\"]"),
        ("XADD k 1-0 a b", "\"1-0\""),
        ("XGROUP CREATE k streams 0", "+OK"),
        (
            "XREADGROUP GROUP streams streams STREAMS k >",
            "[[\"k\" [[\"1-0\" [\"a\" \"b\"]]]]]",
        ),
    ]);
}
