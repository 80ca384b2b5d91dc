//! The replies to clients when the store fails, to pipeline runs as well as to single commands.

use pando_resp::Answer;
use pando_server::{DebugCommands, Durability, ServerOptions};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::{Builder, Db};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};
use crate::statistics::fields;

const MEMORY: u64 = 16 << 20;
/// Number of frames of a store whose data do not fit.
pub(crate) const FRAMES: usize = 160;

/// Starts a server over a device that fails on command.
pub(crate) fn serve(durability: Durability, frames: Option<usize>) -> (Fixture, FaultyDevice) {
    serve_with(durability, move |builder| match frames {
        Some(frames) => builder.frames(frames),
        None => builder,
    })
}

/// Starts a server over a device in memory, with a store that has these options besides.
pub(crate) fn serve_with(
    durability: Durability,
    options_of: impl FnOnce(Builder) -> Builder + Send + 'static,
) -> (Fixture, FaultyDevice) {
    let device = FaultyDevice::new(1);
    let options = ServerOptions {
        durability,
        debug_commands: DebugCommands::Local,
        ..options()
    };
    let own = device.clone();
    let server = Fixture::opened_by(options, move |_| {
        let builder = options_of(Db::builder().max_memory(MEMORY));
        Db::open_device(builder, own.into())
    });
    (server, device)
}

pub(crate) fn key(number: usize) -> String {
    format!("key:{number}")
}

pub(crate) fn value(number: usize) -> String {
    number.to_string().repeat(600)
}

pub(crate) fn send(client: &mut Client, commands: impl Iterator<Item = Vec<u8>>) -> usize {
    let all: Vec<_> = commands.collect();
    client.send(&all.concat());
    all.len()
}

pub(crate) fn send_sets(client: &mut Client, numbers: impl Iterator<Item = usize>) -> usize {
    let sets = numbers.map(|number| encode(&["SET", &key(number), &value(number)]));
    send(client, sets)
}

fn send_gets(client: &mut Client, numbers: impl Iterator<Item = usize>) -> usize {
    send(client, numbers.map(|number| encode(&["GET", &key(number)])))
}

/// Returns the calls and the failed calls of `command` since the last reset.
pub(crate) fn calls(client: &mut Client, command: &str) -> (u64, u64) {
    let all = fields(client, "commandstats");
    let Some(parts) = all.get(&format!("cmdstat_{command}")) else {
        return (0, 0);
    };
    let part = |name: &str| {
        let value = parts.split(',').find_map(|part| part.strip_prefix(name));
        value.unwrap().parse().unwrap()
    };
    (part("calls="), part("failed_calls="))
}

#[test]
fn a_log_that_fails_acknowledges_nothing() {
    let (server, device) = serve(Durability::Durable, None);
    let (mut client, mut other) = (server.client(), server.client());
    send_sets(&mut client, 0..20);
    (0..20).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    device.fail(FaultPlan::sticky(Operation::Sync, "log", 1, Fault::Io));
    // Commands before the first write are answered, and those after it are not.
    send_gets(&mut client, 0..20);
    // One: a read of a key that shares its stripe with a write that failed is not answered either.
    send_sets(&mut client, 20..21);
    send_gets(&mut client, 0..20);
    for number in 0..20 {
        assert_eq!(show(&client.answer()), format!("\"{}\"", value(number)));
    }
    let error = show(&client.answer());
    assert!(error.starts_with("-MISCONF"), "{error}");
    assert!(client.is_closed());
    // Other clients can read, and no longer write.
    send_gets(&mut other, 0..20);
    for number in 0..20 {
        assert_eq!(show(&other.answer()), format!("\"{}\"", value(number)));
    }
    let all = fields(&mut other, "errorstats stats");
    assert_eq!(all["errorstat_MISCONF"], "count=1");
    assert_eq!(all["total_error_replies"], "1");
    other.run("CONFIG RESETSTAT");
    let sets = send_sets(&mut other, 0..100);
    for _ in 0..sets {
        let error = show(&other.answer());
        assert!(error.starts_with("-ERR"), "{error}");
    }
    assert_eq!(calls(&mut other, "set"), (100, 100));
    let all = fields(&mut other, "errorstats stats");
    assert_eq!(all["errorstat_ERR"], "count=100");
    assert_eq!(all["total_error_replies"], "100");
    other.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    assert!(other.run("EXEC").starts_with("-ERR"));
    other.check(&[("EXEC", "-ERR EXEC without MULTI"), ("PING", "+PONG")]);
    let mut third = server.client();
    assert!(third.run("SET a 1").starts_with("-ERR"));
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    for durability in [Durability::None, Durability::Durable] {
        let (server, device) = serve(durability, None);
        let mut client = server.client();
        client.run("SET warm 1");
        #[cfg(feature = "scripts")]
        let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
        #[cfg(feature = "scripts")]
        client.call(&["FUNCTION", "LOAD", library]);
        device.set_capacity(48 << 20);
        let (mut kept, mut refused) = (vec![false; 40_000], 0_u64);
        for first in (0..kept.len()).step_by(200) {
            let numbers = first..first + 200;
            send_sets(&mut client, numbers.clone());
            for number in numbers {
                match client.answer() {
                    Answer::Error(text) => {
                        assert!(text.starts_with("ERR"), "{text}");
                        refused += 1;
                    }
                    answer => {
                        assert_eq!(show(&answer), "+OK");
                        kept[number] = true;
                    }
                }
            }
            if refused > 1000 {
                break;
            }
        }
        assert!(refused > 1000, "the disk was not full");
        let written = kept.iter().filter(|kept| **kept).count();
        assert!(written > 1000, "{written} were written");
        let (calls, failed) = calls(&mut client, "set");
        assert_eq!((calls, failed), (1 + refused + written as u64, refused));
        // Refused writes have no effect, and accepted ones do.
        let check = |client: &mut Client| {
            for first in (0..kept.len()).step_by(500) {
                let numbers = first..(first + 500).min(kept.len());
                send_gets(client, numbers.clone());
                for number in numbers {
                    let expected = match kept[number] {
                        true => format!("\"{}\"", value(number)),
                        false => "nil".to_owned(),
                    };
                    assert_eq!(show(&client.answer()), expected, "{number}");
                }
            }
        };
        check(&mut client);
        #[cfg(feature = "scripts")]
        client.check(&[
            ("FUNCTION FLUSH", "+OK"),
            ("FCALL f 0", "-ERR Function not found"),
        ]);
        device.set_capacity(1 << 40);
        // Nothing reports that there is room again, so writes are retried.
        while show(&client.call(&["SET", "room", "1"])) != "+OK" {}
        check(&mut client);
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_of_its_gets_and_no_others() {
    let (server, device) = serve(Durability::None, Some(FRAMES));
    let mut client = server.client();
    for first in (0..2000).step_by(100) {
        send_sets(&mut client, first..first + 100);
        (0..100).for_each(|_| assert_eq!(show(&client.answer()), "+OK"));
    }
    client.check(&[
        ("SET deadline 1 EX 1000", "+OK"),
        ("SAVE", "+OK"),
        ("CONFIG RESETSTAT", "+OK"),
    ]);
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    let mut failed = 0;
    for round in 0..20 {
        send_gets(&mut client, (0..100).map(|n| (n * 37 + round * 100) % 2000));
        for n in 0..100 {
            match client.answer() {
                Answer::Error(text) => {
                    assert!(text.starts_with("ERR"), "{text}");
                    failed += 1;
                }
                answer => {
                    let expected = value((n * 37 + round * 100) % 2000);
                    assert_eq!(show(&answer), format!("\"{expected}\""));
                }
            }
        }
    }
    assert!(failed > 100, "{failed} failed");
    assert_eq!(calls(&mut client, "get"), (2000, failed));
    let all = fields(&mut client, "errorstats stats");
    assert_eq!(all["errorstat_ERR"], format!("count={failed}"));
    let found: u64 = all["keyspace_hits"].parse().unwrap();
    assert_eq!(
        (found, all["keyspace_misses"].as_str()),
        (2000 - failed, "0")
    );
    // The same holds for writes: some keys have deadlines, so a SET reads first.
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    let (mut rows, mut failed) = ((0..2000).collect::<Vec<_>>(), 0);
    for round in 0..20 {
        let numbers: Vec<_> = (0..100).map(|n| (n * 37 + round * 100) % 2000).collect();
        let set = |number: &usize| encode(&["SET", &key(*number), &value(*number + 1)]);
        send(&mut client, numbers.iter().map(set));
        for number in numbers {
            match client.answer() {
                Answer::Error(text) => {
                    assert!(text.starts_with("ERR"), "{text}");
                    failed += 1;
                }
                answer => {
                    assert_eq!(show(&answer), "+OK");
                    rows[number] = number + 1;
                }
            }
        }
    }
    assert!((100..2000).contains(&failed), "{failed} failed");
    assert_eq!(calls(&mut client, "set"), (2000, failed));
    device.clear_faults();
    send_gets(&mut client, 0..2000);
    for row in rows {
        assert_eq!(show(&client.answer()), format!("\"{}\"", value(row)));
    }
}

#[test]
fn who_waits_for_a_log_that_fails_is_told() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK")]);
    device.fail(FaultPlan::sticky(Operation::Sync, "log", 1, Fault::Io));
    let error = client.run("WAITAOF 1 0 0");
    assert!(error.starts_with('-'), "{error}");
    client.check(&[("GET a", "\"1\"")]);
    assert!(client.run("SET a 2").starts_with("-ERR"));
    assert!(client.run("SAVE").starts_with("-ERR"));
    client.check(&[("GET a", "\"1\"")]);
}
