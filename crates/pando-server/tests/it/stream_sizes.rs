//! Streams with long entries, and long lists of pending ones.

use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::Client;
use crate::fixture::{Fixture, open_on_disk, open_small, options};
use crate::statistics::fields;
use crate::streams::{begin, end};

/// Number of entries that are too long together for one reply.
const LONG: usize = 5000;
/// Number of entries whose rows in the list of a group are too long for one load.
const MANY: usize = 160_000;

fn fill_with(client: &mut Client, (from, to): (usize, usize), value: &str) {
    for number in from..to {
        begin(client, &format!("XADD s {number}-0 f {value}"));
        if number % 100 == 99 {
            (0..100).for_each(|_| drop(end(client)));
        }
    }
}

#[test]
fn what_is_trimmed_is_not_read() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    let value = "v".repeat(4096);
    fill_with(&mut client, (100, 100 + LONG), &value);
    client.check(&[
        ("XLEN s", ":5000"),
        (
            "XRANGE s - +",
            "-ERR the command reads a collection as a whole that does not fit into the memory for a \
             reply",
        ),
        ("XADD s MAXLEN ~ 4900 LIMIT 100 6000-0 a b", "\"6000-0\""),
        ("XTRIM s MAXLEN 10", ":4891"),
        ("XLEN s", ":10"),
    ]);
}

/// Returns the number of pages of long values that were read from the device.
fn pages_read(client: &mut Client) -> u64 {
    let text = &fields(client, "pando")["page_reads_overflow_total"];
    text.parse().expect("a number")
}

#[test]
fn long_entries_are_read_only_for_replies() {
    let server = Fixture::opened_by(options(), open_small);
    let mut client = server.client();
    let value = "v".repeat(6000);
    fill_with(&mut client, (100, 600), &value);
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    for _ in 0..5 {
        let reply = client.run("XREADGROUP GROUP g c COUNT 100 STREAMS s >");
        assert_eq!(reply.matches("\"f\"").count(), 100);
    }
    let before = pages_read(&mut client);
    let claimed = client.run("XAUTOCLAIM s g d 0 0 COUNT 200 JUSTID");
    assert_eq!(claimed.matches("-0\"").count(), 201);
    let claimed = client.run("XCLAIM s g d 0 500-0 501-0 502-0 501-0 JUSTID");
    assert_eq!(claimed.matches("-0\"").count(), 4);
    client.check(&[
        ("XDEL s 400-0 401-0 400-0 402-0", ":3"),
        ("XTRIM s MINID 200", ":100"),
        ("XACK s g 100-0 101-0 100-0", ":2"),
    ]);
    assert_eq!(pages_read(&mut client), before);
    let claimed = client.run("XCLAIM s g e 0 500-0 501-0 502-0");
    assert_eq!(claimed.matches("\"f\"").count(), 3);
    assert!(pages_read(&mut client) > before);
    // Those that were trimmed or deleted are pending no longer.
    let claimed = client.run("XAUTOCLAIM s g d 0 0 COUNT 400");
    assert_eq!(claimed.matches("\"f\"").count(), 400 - 98 - 3);
}

#[test]
fn long_lists_are_searched_in_turns() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    fill_with(&mut client, (100, 100 + MANY), "v");
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    for _ in 0..MANY / 4000 {
        let reply = client.run("XREADGROUP GROUP g c COUNT 4000 STREAMS s >");
        assert_eq!(reply.matches("\"f\"").count(), 4000);
    }
    client.check(&[
        (
            "XCLAIM s g c 0 100000-0 IDLE 200000000 JUSTID",
            "[\"100000-0\"]",
        ),
        (
            "XCLAIM s g d 0 150000-0 IDLE 200000000 JUSTID",
            "[\"150000-0\"]",
        ),
    ]);
    let mut ids = |command: &str| {
        let reply = client.run(command);
        let ids = reply.split('"').filter(|part| part.ends_with("-0"));
        ids.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    for (command, expected) in [
        ("XPENDING s g IDLE 100000000 - + 10", "100000-0 150000-0"),
        ("XPENDING s g IDLE 100000000 - + 1", "100000-0"),
        ("XPENDING s g IDLE 100000000 - + 10 c", "100000-0"),
        ("XPENDING s g IDLE 100000000 - + 10 d", "150000-0"),
        ("XPENDING s g IDLE 100000000 150000 150000 10 c", ""),
        ("XPENDING s g - + 2 c", "100-0 101-0"),
        ("XPENDING s g - + 2 d", "150000-0"),
        ("XPENDING s g - + 2", "100-0 101-0"),
        ("XPENDING s g 150000 + 20000 d", "150000-0"),
        // It looks at 100,000 entries, and says where the next call goes on.
        (
            "XAUTOCLAIM s g d 100000000 0 COUNT 100000 JUSTID",
            "100100-0 100000-0",
        ),
    ] {
        assert_eq!(ids(command), expected, "{command}");
    }
    let mut other = server.client();
    let waits = thread::spawn(move || client.run("XPENDING s g IDLE 100000000 - + 10"));
    let mut longest = Duration::ZERO;
    while !waits.is_finished() {
        let began = now();
        other.check(&[("PING", "+PONG")]);
        longest = longest.max(began.elapsed());
    }
    assert!(waits.join().unwrap().contains("150000-0"));
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}
