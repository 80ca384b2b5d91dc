//! Clients that stop in the middle of a reply that they read, or of a command that they send.

use std::io::{ErrorKind, Read as _, Write as _};

use pando_server::ServerOptions;
use pando_sync::thread;
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};

const MIB: usize = 1 << 20;
/// In these tests, a peer that makes no progress for this long is disconnected.
const STALL: Duration = Duration::from_millis(700);

/// Starts a server with small chunks. Returns it and its store.
fn server(stall_timeout: Duration) -> (Fixture, Arc<Mutex<Option<Db>>>) {
    let db = Arc::new(Mutex::new(Rank::Caller, None));
    let place = db.clone();
    let options = ServerOptions {
        stall_timeout,
        ..options()
    };
    let server = Fixture::opened_by(options, move |path| {
        let builder = Db::builder().max_memory(32 << 20).chunk_size(64 << 10);
        let opened = builder.chunk_values_over(100_000).open(path)?;
        *place.lock() = Some(opened.clone());
        Ok(opened)
    });
    (server, db)
}

fn limit() -> Instant {
    now() + Duration::from_secs(20)
}

/// Waits until `other` is the only client.
#[track_caller]
fn wait_until_alone(other: &mut Client) {
    let limit = limit();
    while !other.text("INFO clients").contains("connected_clients:1\r") {
        assert!(now() < limit, "{}", other.text("CLIENT LIST"));
        thread::yield_now();
    }
}

/// Waits until at most `most` bytes of the data file are in use.
#[track_caller]
fn wait_for_use(db: &Db, most: usize) {
    let limit = limit();
    loop {
        db.checkpoint().unwrap();
        let report = db.report();
        let used = report.data_bytes - report.data_free_bytes;
        if used <= most as u64 {
            return;
        }
        assert!(now() < limit, "{used} bytes are used, {most} at most");
        thread::yield_now();
    }
}

#[test]
fn a_reader_that_stops_keeps_what_it_reads_and_goes_in_the_end() {
    let (server, db) = server(Duration::ZERO);
    let mut other = server.client();
    let db = db.lock().clone().unwrap();
    let value = vec![b'x'; 16 * MIB];
    let put = |other: &mut Client, key: &str| {
        assert_eq!(show(&other.call(&[b"SET", key.as_bytes(), &value])), "+OK");
    };
    put(&mut other, "read");
    let mut deaf = server.client();
    deaf.send(&encode(&["GET", "read"]).repeat(3));
    deaf.stream.peek(&mut [0]).unwrap();
    for _ in 0..6 {
        put(&mut other, "read");
        put(&mut other, "another");
    }
    // These are the two current values and the one that is being read.
    wait_for_use(&db, 3 * value.len() + 2 * MIB);
    assert!(db.garbage_left());
    other.check(&[("CONFIG SET stall-timeout 1", "+OK")]);
    wait_until_alone(&mut other);
    wait_for_use(&db, 2 * value.len() + 2 * MIB);
    drop(deaf);
}

#[test]
fn a_reader_that_is_slow_and_goes_on_has_its_value() {
    let (server, _db) = server(STALL);
    let mut other = server.client();
    let value = vec![b'y'; 24 * MIB];
    assert_eq!(show(&other.call(&[b"SET", &b"k"[..], &value])), "+OK");
    let mut slow = server.client();
    slow.send(&encode(&["GET", "k"]));
    let (begun, mut got) = (now(), 0);
    let mut piece = vec![0; 64 << 10];
    // The client is slow for longer than a peer may stand still.
    while begun.elapsed() < 4 * STALL {
        got += slow.stream.read(&mut piece).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    while got < value.len() + 13 {
        let count = slow.stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {got} bytes");
        got += count;
    }
    assert_eq!(slow.run("PING"), "+PONG");
}

/// All replies are in memory, so that the server waits only for the socket.
#[test]
fn a_reader_of_many_replies_that_is_slow_and_goes_on_has_them() {
    let server = Fixture::with(ServerOptions {
        stall_timeout: STALL,
        output_bytes_max: 64 * MIB,
        ..options()
    });
    let mut slow = server.client();
    slow.run(&format!("SET k {}", "x".repeat(90_000)));
    slow.send(&encode(&["GET", "k"]).repeat(400));
    let (begun, mut got) = (now(), 0);
    let mut piece = vec![0; 64 << 10];
    while begun.elapsed() < 4 * STALL {
        got += slow.stream.read(&mut piece).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    while got < 400 * 90_010 {
        let count = slow.stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed after {got} bytes");
        got += count;
    }
    assert_eq!(slow.run("PING"), "+PONG");
}

#[test]
fn an_upload_that_stalls_is_ended() {
    let (server, db) = server(STALL);
    let mut other = server.client();
    other.check(&[("SET k 1", "+OK")]);
    let mut parts = vec![
        b"SET k".to_vec(),
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20\r\nabc".to_vec(),
        b"PING\r\n*1\r\n".to_vec(),
    ];
    // All but the end of a value that goes to chunks.
    let mut large = encode(&[b"SET", &b"k"[..], &vec![b'z'; 4 * MIB]]);
    large.truncate(large.len() - 3);
    parts.push(large);
    let mut stalled: Vec<Client> = parts
        .iter()
        .map(|part| {
            let mut client = server.client();
            client.send(part);
            client
        })
        .collect();
    let mut blocked = server.client();
    blocked.send(b"WAIT 1 0\r\nSET k");
    let mut patient = server.client();
    assert_eq!(patient.run("PING"), "+PONG");
    for client in &mut stalled {
        while client.try_answer().is_some() {}
    }
    // No command has run, and nothing is kept. Clients that wait for the server or send nothing
    // stay.
    assert_eq!(other.run("GET k"), "\"1\"");
    let db = db.lock().clone().unwrap();
    wait_for_use(&db, 2 * MIB);
    assert_eq!(patient.run("PING"), "+PONG");
    let text = other.text("INFO clients");
    assert!(text.contains("connected_clients:3\r"), "{text}");
}

#[test]
fn an_upload_that_is_slow_and_goes_on_arrives() {
    let (server, _db) = server(STALL);
    let mut slow = server.client();
    let command = encode(&["SET", "k", &"v".repeat(60)]);
    // Each byte arrives in time, but all of them together take longer than a peer may stand still.
    for byte in command.chunks(1) {
        slow.send(byte);
        thread::sleep(4 * STALL / u32::try_from(command.len()).unwrap());
    }
    assert_eq!(show(&slow.answer()), "+OK");
}

/// A client that does not read its replies is stopped and then disconnected, also if each reply is
/// small.
#[test]
fn a_flood_whose_replies_nobody_reads_is_ended() {
    let (server, _db) = server(STALL);
    let mut other = server.client();
    other.run(&format!("SET k {}", "x".repeat(50_000)));
    let mut flood = server.client();
    flood.stream.set_nonblocking(true).unwrap();
    let get = encode(&["GET", "k"]).repeat(100);
    let limit = limit();
    loop {
        match flood.stream.write(&get) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(_) => break,
        }
        assert!(now() < limit, "the flood is served");
    }
    wait_until_alone(&mut other);
}
