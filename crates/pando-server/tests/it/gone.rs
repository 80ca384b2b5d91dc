//! Clients that disappear while a command of theirs waits, and clients that are silent.

use std::net::SocketAddr;

use pando_server::ServerOptions;
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_on_disk, open_small, options};

/// Returns a field of INFO.
fn field(client: &mut Client, section: &str, name: &str) -> String {
    let text = client.text(&format!("INFO {section}"));
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|rest| rest.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// Waits until the field `name` of INFO clients is `expected`.
#[track_caller]
fn wait_for(client: &mut Client, name: &str, expected: &str) {
    let limit = now() + Duration::from_secs(20);
    while field(client, "clients", name) != expected {
        assert!(now() < limit, "{}", client.text("CLIENT LIST"));
        thread::yield_now();
    }
}

#[test]
fn peers_that_close_while_a_command_of_theirs_waits_are_closed() {
    let server = Fixture::new();
    let mut other = server.client();
    // This is more than the server reads ahead, and less than the socket buffers take in addition.
    // So the end of the connection comes after it.
    let flood = encode(&["SET", "k", &"x".repeat(1000)]).repeat(140);
    let mut waiting = Vec::new();
    for round in 0..20 {
        let command = [
            "WAIT 1 0",
            "WAIT 1 100000000",
            "WAITAOF 0 1 0",
            "WAITAOF 1 1 90000000",
        ][round % 4];
        let mut client = server.client();
        client.send(format!("{command}\r\n").as_bytes());
        if round % 8 >= 4 {
            client.send(&flood);
        }
        waiting.push(client);
    }
    wait_for(&mut other, "blocked_clients", "20");
    assert_eq!(
        field(&mut other, "clients", "clients_in_timeout_table"),
        "10"
    );
    drop(waiting);
    wait_for(&mut other, "connected_clients", "1");
    wait_for(&mut other, "clients_in_timeout_table", "0");
    assert_eq!(other.run("EXISTS k"), ":0", "later commands have not run");
}

#[test]
fn a_peer_that_is_cut_off_while_its_command_waits_is_closed() {
    let server = Fixture::new();
    let mut other = server.client();
    let mut client = server.client();
    client.send(b"PING\r\nWAIT 1 100000000\r\n");
    // This is more than the server reads ahead.
    client.send(&encode(&["SET", "k", &"x".repeat(1000)]).repeat(140));
    // With an unread reply, the end of the connection is a reset.
    client.stream.peek(&mut [0]).unwrap();
    wait_for(&mut other, "blocked_clients", "1");
    drop(client);
    wait_for(&mut other, "connected_clients", "1");
    wait_for(&mut other, "clients_in_timeout_table", "0");
}

/// A peer that has shut down its sending side gets the replies of commands that end by themselves.
#[test]
fn a_peer_that_sends_nothing_more_has_its_replies() {
    let server = Fixture::opened_by(options(), open_on_disk);
    let mut client = server.client();
    client.send(&encode(&["SET", "k", "v"]).repeat(500));
    client.send(&encode(&["GET", "k"]));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    for _ in 0..500 {
        assert_eq!(show(&client.answer()), "+OK");
    }
    assert_eq!(show(&client.answer()), "\"v\"");
    assert!(client.is_closed());
}

#[test]
fn peers_that_close_behind_cold_reads_and_durable_writes_are_closed() {
    let server = Fixture::opened_by(options(), open_small);
    let mut other = server.client();
    for number in 0..3000 {
        let value = format!("{number:0>1000}");
        other.send(&encode(&["SET", &format!("key:{number}"), &value]));
    }
    for _ in 0..3000 {
        assert_eq!(show(&other.answer()), "+OK");
    }
    for round in 0..200 {
        let mut client = server.client();
        let key = format!("key:{}", round * 13);
        client.send(&encode(&["GET", &key]).repeat(20));
        client.send(&encode(&["SET", &key, "v"]));
        if round % 2 == 0 {
            client.stream.peek(&mut [0]).unwrap();
        }
    }
    wait_for(&mut other, "connected_clients", "1");
}

/// Returns the system's line about the server's end of the connection of `client`.
fn socket(server: SocketAddr, client: &Client) -> Vec<String> {
    let client = client.stream.local_addr().unwrap();
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [server.port(), client.port()];
    let port =
        |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).unwrap();
    let lines = text.lines().skip(1);
    let mut lines = lines.map(|line| line.split_whitespace().map(str::to_owned).collect());
    let found = lines.find(|words: &Vec<_>| [port(&words[1]), port(&words[2])] == ends);
    found.expect("the connection is open")
}

#[test]
fn the_system_asks_silent_peers_whether_they_are_there() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("CONFIG GET tcp-keepalive", "[\"tcp-keepalive\" \"300\"]")]);
    // Returns the kind of the running timer (2: keep-alive), and its remaining hundredths of a
    // second.
    let timer = |client: &Client| {
        let words = socket(server.address, client);
        let (kind, left) = words[5].split_once(':').unwrap();
        (kind.to_owned(), u64::from_str_radix(left, 16).unwrap())
    };
    // Another timer may run until all bytes are acknowledged.
    let limit = now() + Duration::from_secs(20);
    let mut asked = timer(&client);
    while asked.0 != "02" && now() < limit {
        asked = timer(&client);
    }
    assert_eq!(asked.0, "02");
    assert!((20_000..=30_000).contains(&asked.1), "{}", asked.1);
    client.check(&[("CONFIG SET tcp-keepalive 0", "+OK")]);
    let mut never = server.client();
    never.check(&[("PING", "+PONG")]);
    let mut left = timer(&never);
    while left.0 != "00" && now() < limit {
        left = timer(&never);
    }
    assert_eq!(left.0, "00");
}

#[test]
fn only_the_idle_time_out_and_such_that_do_not_read() {
    let server = Fixture::new();
    let mut other = server.client();
    other.run(&format!("SET big {}", "x".repeat(100_000)));
    let (mut idle, mut blocked, mut deaf) = (server.client(), server.client(), server.client());
    idle.check(&[("PING", "+PONG")]);
    blocked.send(b"CLIENT SETNAME blocked\r\nWAIT 1 0\r\n");
    assert_eq!(show(&blocked.answer()), "+OK");
    // It never reads, so the server stops reading from it.
    deaf.send(&encode(&["GET", "big"]).repeat(500));
    other.check(&[("CONFIG SET timeout 1", "+OK")]);
    wait_for(&mut other, "connected_clients", "2");
    assert!(idle.is_closed());
    assert!(other.text("CLIENT LIST").contains("name=blocked"));
}

/// With one event loop, what comes behind the end of a connection finds it gone, as in Redis: also
/// the first command of one that was opened behind it. On a busy machine the system may tell of the
/// two in the other order, if it is about to send what the first one has got: so a few may differ.
#[test]
fn a_connection_that_was_closed_is_not_counted_by_the_next_command() {
    const ROUNDS: usize = 300;
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut other = server.client();
    let mut counted = 0;
    for round in 0..ROUNDS {
        let mut gone = server.client();
        gone.run("SUBSCRIBE news");
        // With a reply that was not read, the end comes as a reset.
        if round % 2 == 1 {
            gone.send(b"PING\r\n");
            let limit = now() + Duration::from_secs(20);
            while !gone.has_answer() {
                assert!(now() < limit, "no answer");
                thread::yield_now();
            }
        }
        drop(gone);
        let is_counted = match round % 3 {
            0 => field(&mut server.client(), "clients", "connected_clients") != "2",
            1 => field(&mut other, "clients", "connected_clients") != "1",
            _ => other.run("PUBLISH news x") != ":0",
        };
        counted += usize::from(is_counted);
    }
    assert!(
        counted <= ROUNDS / 20,
        "{counted} of {ROUNDS} were counted behind their end"
    );
}
