//! Reads of large collections that others keep changing: after some conflicts, at a snapshot.

use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::show;
use crate::fixture::{Fixture, options};
use crate::statistics::conflicts;
use crate::trees::{client_of, fill, many};
use crate::until_end::End;

/// An EXEC that reads all of a large collection comes to its end beside a writer that never pauses,
/// and shows one moment: the writer keeps two fields equal, and a string behind them.
#[test]
fn a_reading_exec_ends_beside_a_steady_writer() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    let mut client = client_of(&server);
    fill(&mut client, 20_000);
    let stop = End::default();
    let most = thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            // The next commands are there before the replies to the last ones are read.
            let mut ahead = 0;
            for n in 0.. {
                if stop.is_there() {
                    break;
                }
                let pair = format!("HSET h f{} {n}\r\nMSET a {n} b {n}\r\n", n % 20_000);
                writer.send(pair.as_bytes());
                ahead += 1;
                if ahead > 100 {
                    ahead -= 1;
                    assert_eq!(show(&writer.answer()), ":0");
                    assert_eq!(show(&writer.answer()), "+OK");
                }
            }
        });
        let (begin, mut most) = (now(), 0);
        // The ninth run is at a snapshot, which nobody changes.
        while most < 9 && begin.elapsed() < Duration::from_secs(20) {
            let before = conflicts(&mut client);
            client.send(b"MULTI\r\nGET a\r\nHGETALL h\r\nGET b\r\nGET nothing\r\nEXEC\r\n");
            (0..5).for_each(|_| assert!(!show(&client.answer()).starts_with('-')));
            let reply = show(&client.answer());
            let parts: Vec<&str> = reply.split(['[', ']']).collect();
            assert_eq!(parts[1].trim(), parts[3].trim().trim_end_matches(" nil"));
            assert_eq!(parts[2].split(' ').count(), 40_000);
            most = most.max(conflicts(&mut client) - before);
        }
        drop(bring);
        most
    });
    assert!(most <= 9, "{most} conflicts");
}

/// What is read at a snapshot after conflicts is of one moment as a whole: a field comes and goes,
/// and the others are always there.
#[test]
fn what_goes_to_a_snapshot_reads_nothing_older() {
    const FIELDS: usize = 300;
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    let mut client = client_of(&server);
    let pairs = (0..FIELDS).flat_map(|n| [format!("f{n}"), "v".to_owned()]);
    many(&mut client, &["HSET", "h"], pairs);
    let stop = End::default();
    let wrong = thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            let toggle = b"HSET h x 1\r\nPING\r\nHDEL h x\r\nPING\r\n".repeat(200);
            writer.send(&toggle);
            while !stop.is_there() {
                writer.send(&toggle);
                (0..800).for_each(|_| drop(writer.answer()));
            }
        });
        let (begin, mut at_snapshots, mut wrong) = (now(), 0, None);
        while wrong.is_none() && at_snapshots < 20 && begin.elapsed() < Duration::from_secs(15) {
            let before = conflicts(&mut client);
            client.send(b"MULTI\r\n");
            client.send(&b"HKEYS h\r\n".repeat(6));
            client.send(b"EXEC\r\n");
            (0..7).for_each(|_| drop(client.answer()));
            let reply = show(&client.answer());
            let of_all = reply.matches("\"f").count();
            let with = reply.matches("\"x\"").count();
            if of_all != 6 * FIELDS || !with.is_multiple_of(6) {
                wrong = Some(reply);
            }
            at_snapshots += u32::from(conflicts(&mut client) - before >= 9);
        }
        drop(bring);
        wrong
    });
    assert_eq!(wrong, None);
}

/// An EXEC whose script writes is none that only reads, however often it is repeated.
#[cfg(feature = "scripts")]
#[test]
fn an_exec_whose_script_writes_loses_nothing() {
    let server = Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    });
    let mut client = client_of(&server);
    fill(&mut client, 20_000);
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut writer = server.client();
            // For some time only, so that each EXEC comes to its end.
            let (begin, mut ahead) = (now(), 0);
            for n in 0.. {
                if stop.is_there() || begin.elapsed() > Duration::from_secs(6) {
                    break;
                }
                writer.send(format!("HSET h f{} {n}\r\n", n % 20_000).as_bytes());
                ahead += 1;
                if ahead > 100 {
                    ahead -= 1;
                    assert_eq!(show(&writer.answer()), ":0");
                }
            }
        });
        let (begin, mut most, mut rounds) = (now(), 0, 0);
        while most < 12 && begin.elapsed() < Duration::from_secs(6) {
            let before = conflicts(&mut client);
            client.send(b"MULTI\r\nHGETALL h\r\n");
            client.send(&crate::client::encode(&[
                "EVAL",
                "return redis.call('INCR', 'sum')",
                "0",
            ]));
            client.send(b"EXEC\r\n");
            (0..3).for_each(|_| assert!(!show(&client.answer()).starts_with('-')));
            let reply = show(&client.answer());
            rounds += 1;
            assert!(
                reply.ends_with(&format!(" :{rounds}]")),
                "the script's reply"
            );
            most = most.max(conflicts(&mut client) - before);
        }
        drop(bring);
        assert_eq!(client.run("GET sum"), format!("\"{rounds}\""));
    });
}
