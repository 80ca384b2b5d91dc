//! Memory of a server behind a crowd of connections, and its files beside one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pando_resp::{Answer, Client};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::running::Running;

const MIB: u64 = 1 << 20;
const CLIENTS: usize = 200;
const COMMANDS: usize = 8;

/// Number of clients that stay when the others have left: what the allocator has behind the others
/// is in use.
const STAY: usize = 8;

/// Opens transactions that are queued, of 800 KB each, and leaves most of them. Returns what the
/// server had in memory, and those who stay.
fn crowd(server: &Running) -> (u64, Vec<Client>) {
    let value = "q".repeat(100_000);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        assert!(matches!(client.call(&["MULTI"]), Ok(Answer::Simple(_))));
        for _ in 0..COMMANDS {
            let queued = client.call(&["SET", "key", &value]);
            assert!(matches!(queued, Ok(Answer::Simple(_))), "{queued:?}");
        }
    }
    (server.resident_bytes(), clients.split_off(CLIENTS - STAY))
}

/// Waits until the server has less than `bytes` in memory, for a minute at most.
fn wait_until_below(server: &Running, bytes: u64) {
    let begun = now();
    while server.resident_bytes() >= bytes {
        let waits = now().duration_since(begun);
        let resident = server.resident_bytes() / MIB;
        assert!(waits < Duration::from_secs(60), "{resident} MiB stay");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_memory_of_a_crowd_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--durability", "none"]);
    let before = server.resident_bytes();
    let (crowded, _stay) = crowd(&server);
    assert!(crowded > before + 150 * MIB, "{}", crowded / MIB);
    wait_until_below(&server, before + 64 * MIB);
}

#[test]
fn memory_is_purged_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--durability", "none"]);
    let before = server.resident_bytes();
    let mut client = server.client();
    // Its own look comes every five seconds: most rounds have none.
    let is_small = |_| {
        let (_, _stay) = crowd(&server);
        let begun = now();
        while !clients_are_gone(&mut client) {
            assert!(now().duration_since(begun) < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
        let purged = client.call(&["MEMORY", "PURGE"]);
        assert!(matches!(purged, Ok(Answer::Simple(_))), "{purged:?}");
        server.resident_bytes() < before + 64 * MIB
    };
    let small = (0..3).map(is_small).filter(|is_small| *is_small).count();
    assert_eq!(small, 3);
}

/// Sends a PING; returns its client, or the error in its place.
fn ping(server: &Running) -> Result<TcpStream, String> {
    const PONG: &[u8] = b"+PONG\r\n";
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; PONG.len()];
    stream.read_exact(&mut reply).expect("it is accepted");
    if reply == PONG {
        return Ok(stream);
    }
    let mut text = String::from_utf8_lossy(&reply).into_owned();
    // The end may be a reset: the server has not read the PING.
    let _ = stream.read_to_string(&mut text);
    Err(text)
}

/// Each loop has files of its own, and so has a script thread, of which there may be as many.
#[test]
fn as_many_clients_are_let_in_as_files_are_left_by_the_loops() {
    const FILES: usize = 700;
    const LOOPS: usize = 64;
    let directory = tempfile::tempdir().unwrap();
    let limit = format!("-n {FILES}");
    let loops = LOOPS.to_string();
    let server = Running::start_limited(directory.path(), &limit, &["--threads", &loops]);
    let mut clients = Vec::new();
    let refusal = loop {
        match ping(&server) {
            Ok(client) => clients.push(client),
            Err(refusal) => break refusal,
        }
    };
    assert!(refusal.contains("max number of clients"), "{refusal}");
    assert!(clients.len() > 20, "{}", clients.len());
    let (open, of_scripts) = (server.open_files(), 4 * LOOPS);
    assert!(open + of_scripts + 32 < FILES, "{open} of {FILES} are open");
}

fn clients_are_gone(client: &mut Client) -> bool {
    let Ok(Answer::Bulk(text)) = client.call(&["INFO", "clients"]) else {
        panic!("INFO replies with a text");
    };
    String::from_utf8_lossy(&text).contains(&format!("connected_clients:{}\r\n", STAY + 1))
}
