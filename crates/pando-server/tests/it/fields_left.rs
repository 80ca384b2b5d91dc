//! Hashes of which fields have expired that nobody has removed yet.

use pando_resp::Answer;
use pando_server::{DebugCommands, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, unix_ms};

use crate::client::Client;
use crate::fixture::{Fixture, open_on_disk, options};

/// A server whose cleaner removes nothing, and a client of it.
fn without_cleaner(packed_bytes: u32) -> (Fixture, Client, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    let options = ServerOptions {
        debug_commands: DebugCommands::Local,
        ..options()
    };
    let server = Fixture::opened_by(options, move |_| open_on_disk(&path));
    let mut client = server.client();
    client.check(&[
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        (
            &format!("CONFIG SET packed-bytes-max {packed_bytes}"),
            "+OK",
        ),
        ("CONFIG SET hash-max-listpack-entries 1", "+OK"),
    ]);
    (server, client, directory)
}

/// Sleeps until the clock shows a time after `time`.
fn sleep_until(time: u64) {
    while unix_ms() <= time + 2 {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the texts of an array.
fn texts(answer: Answer) -> Vec<String> {
    let Answer::Array(items) = answer else {
        panic!("no array: {answer:?}");
    };
    let text = |item| match item {
        Answer::Bulk(bytes) => String::from_utf8(bytes).expect("names are text"),
        other => panic!("no text: {other:?}"),
    };
    items.into_iter().map(text).collect()
}

/// EXEC of a watched hash fails when a field expires after the WATCH, also if others have expired
/// before it.
#[test]
fn a_deadline_behind_one_that_has_passed_is_watched() {
    for packed_bytes in [1800, 12] {
        let (_server, mut client, _directory) = without_cleaner(packed_bytes);
        let (soon, later) = (unix_ms() + 500, unix_ms() + 2000);
        client.check(&[
            ("HSET h a 1 b 2 c 3 d 4", ":4"),
            (&format!("HPEXPIREAT h {soon} FIELDS 1 a"), "[:1]"),
            (&format!("HPEXPIREAT h {later} FIELDS 1 b"), "[:1]"),
            ("HPEXPIREAT h 40000000000000 FIELDS 1 d", "[:1]"),
        ]);
        sleep_until(soon);
        client.check(&[
            ("WATCH h", "+OK"),
            ("MULTI", "+OK"),
            ("HLEN h", "+QUEUED"),
            ("EXEC", "[:3]"),
            ("WATCH h", "+OK"),
            ("HLEN h", ":3"),
        ]);
        assert!(unix_ms() < later, "the machine is too slow for this test");
        sleep_until(later);
        client.check(&[
            ("MULTI", "+OK"),
            ("HLEN h", "+QUEUED"),
            ("EXEC", "nil"),
            // No deadline is left that this test lives to see.
            ("WATCH h", "+OK"),
            ("MULTI", "+OK"),
            ("HLEN h", "+QUEUED"),
            ("EXEC", "[:2]"),
            ("HPERSIST h FIELDS 1 d", "[:1]"),
            ("WATCH h", "+OK"),
            ("MULTI", "+OK"),
            ("HLEN h", "+QUEUED"),
            ("EXEC", "[:2]"),
        ]);
    }
}

/// Random fields and the number of fields take no memory for those that have expired, of which
/// there are more than fit into a reply.
#[test]
fn random_fields_and_lengths_do_not_load_what_has_expired() {
    let (server, mut client, _directory) = without_cleaner(12);
    let value = "v".repeat(900);
    let mut write = |key: &str, first: usize, deadline: u64| {
        let fields: Vec<String> = (first..first + 500)
            .map(|number| format!("gone{number} {value}"))
            .collect();
        let fields = fields.join(" ");
        let command = format!("HSETEX {key} PXAT {deadline} FIELDS 500 {fields}");
        assert_eq!(client.run(&command), ":1");
    };
    let began = unix_ms();
    write("other", 0, began + 1_000_000);
    let deadline = unix_ms() + 3000 + (unix_ms() - began) * 40;
    // 18 MB: the limit is 16 MiB, and the names of fields with deadlines count twice.
    for first in (0..10_000).step_by(500) {
        write("h", first, deadline);
    }
    client.check(&[("HSET h a 1 b 2 c 3", ":3"), ("HLEN h", ":10003")]);
    let too_long = "-ERR the command reads a collection as a whole that does not fit into the \
                    memory for a reply";
    client.check(&[("MULTI", "+OK"), ("HGETALL h", "+QUEUED")]);
    assert_eq!(client.run("EXEC"), format!("[{too_long}]"));
    assert!(
        unix_ms() < deadline,
        "the machine is too slow for this test"
    );
    sleep_until(deadline);
    let mut other = server.client();
    for round in 0..3 {
        match round {
            0 => {}
            // Commands see what was written before them.
            1 => client.check(&[("MULTI", "+OK"), ("HSET h a 5", "+QUEUED")]),
            _ => client.check(&[("PANDO BEGIN", "+OK"), ("HSET h a 6", ":0")]),
        }
        let commands = [
            "HLEN h",
            "HRANDFIELD h",
            "HRANDFIELD h 9",
            "HRANDFIELD h -4",
        ];
        let mut replies: Vec<Answer> = commands
            .iter()
            .map(|command| client.run_raw(command))
            .collect();
        match round {
            0 => {}
            1 => {
                let Answer::Array(items) = client.run_raw("EXEC") else {
                    panic!("EXEC has failed");
                };
                replies = items.into_iter().skip(1).collect();
            }
            _ => assert_eq!(client.run("PANDO COMMIT"), "+OK"),
        }
        let lives = |field: &String| ["a", "b", "c"].contains(&&field[..]);
        let mut replies = replies.into_iter();
        assert_eq!(replies.next(), Some(Answer::Integer(3)));
        let one = vec![replies.next().unwrap()];
        assert!(lives(&texts(Answer::Array(one))[0]));
        let mut all = texts(replies.next().unwrap());
        all.sort();
        assert_eq!(all, ["a", "b", "c"]);
        let four = texts(replies.next().unwrap());
        assert!(four.len() == 4 && four.iter().all(lives), "{four:?}");
    }
    assert_eq!(other.run("HGET h a"), "\"6\"");
}

/// HLEN in a transaction that has changed the hash, and so has no count of the table.
#[test]
fn lengths_in_transactions_are_those_of_what_lives() {
    let (_server, mut client, _directory) = without_cleaner(12);
    let deadline = unix_ms() + 1500;
    let names = |prefix: &str| -> String {
        let names = (0..400).map(|number| format!(" {prefix}{number} v"));
        names.collect()
    };
    client.check(&[
        (
            &format!("HSETEX h PXAT {deadline} FIELDS 400{}", names("gone")),
            ":1",
        ),
        (
            &format!("HSETEX h PXAT 40000000000000 FIELDS 400{}", names("later")),
            ":1",
        ),
        (&format!("HSET h{}", names("never")), ":400"),
        ("HLEN h", ":1200"),
    ]);
    sleep_until(deadline);
    client.check(&[
        ("MULTI", "+OK"),
        ("HDEL h gone1 never1", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        ("HSET h gone2 v", "+QUEUED"),
        ("HLEN h", "+QUEUED"),
        ("EXEC", "[:1 :799 :1 :800]"),
        ("HLEN h", ":800"),
        ("PANDO BEGIN", "+OK"),
        ("HLEN h", ":800"),
        ("HPERSIST h FIELDS 2 later1 gone3", "[:1 :-2]"),
        ("HSET h new v", ":1"),
        ("HLEN h", ":801"),
        ("PANDO COMMIT", "+OK"),
        ("HLEN h", ":801"),
    ]);
}

/// The bound is passed by chance once in a million runs: 9 degrees of freedom, chi-squared 44.
#[test]
fn each_field_that_lives_is_drawn_as_often_as_the_others() {
    let (_server, mut client, _directory) = without_cleaner(12);
    let deadline = unix_ms() + 300;
    let names = |prefix: &str, count| -> Vec<String> {
        (0..count)
            .map(|number| format!("{prefix}{number} v"))
            .collect()
    };
    let (gone, lives) = (names("gone", 30), names("field", 10));
    client.check(&[
        (
            &format!("HSETEX h PXAT {deadline} FIELDS 30 {}", gone.join(" ")),
            ":1",
        ),
        (&format!("HSET h {}", lives.join(" ")), ":10"),
    ]);
    sleep_until(deadline);
    for (command, draws) in [
        ("HRANDFIELD h 1", 2000),
        ("HRANDFIELD h 3", 700),
        ("HRANDFIELD h -3", 700),
    ] {
        let mut seen = [0_u32; 10];
        for _ in 0..draws {
            for field in texts(client.run_raw(command)) {
                let number: usize = field.strip_prefix("field").unwrap().parse().unwrap();
                seen[number] += 1;
            }
        }
        let all = f64::from(seen.iter().sum::<u32>());
        assert!(all >= f64::from(draws));
        let expected = all / 10.0;
        let square = |seen: &u32| (f64::from(*seen) - expected).powi(2) / expected;
        let chi: f64 = seen.iter().map(square).sum();
        assert!(chi < 44.0, "{command}: {seen:?}");
    }
}
