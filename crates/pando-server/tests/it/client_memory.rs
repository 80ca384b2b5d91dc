//! What all clients make the server hold, and `maxmemory-clients`.

use std::io::Write as _;

use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::client::{Client, encode};
use crate::failures::calls;
use crate::fixture::Fixture;

const MIB: usize = 1 << 20;

/// Returns a field of INFO.
#[track_caller]
fn figure(client: &mut Client, name: &str) -> usize {
    let text = client.text("INFO everything");
    let start = format!("{name}:");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(&start));
    value.and_then(|value| value.parse().ok()).expect(name)
}

/// Begins a MULTI and queues `count` writes of 100 KB.
fn queue(client: &mut Client, count: usize) {
    client.check(&[("MULTI", "+OK")]);
    for index in 0..count {
        let value = vec![b'x'; 100_000];
        client.send(&encode(&[b"SET", format!("k{index}").as_bytes(), &value]));
        assert_eq!(crate::client::show(&client.answer()), "+QUEUED");
    }
}

#[test]
fn those_are_closed_that_hold_most() {
    let server = Fixture::new();
    let mut other = server.client();
    other.check(&[("CONFIG SET maxmemory-clients 8mb", "+OK")]);
    let (mut kept, mut small) = (server.client(), server.client());
    kept.check(&[("CLIENT NO-EVICT on", "+OK")]);
    queue(&mut kept, 20);
    queue(&mut small, 2);
    let mut large: Vec<_> = (0..10).map(|_| server.client()).collect();
    for (place, client) in large.iter_mut().enumerate() {
        // Each holds more than those before.
        client.check(&[("MULTI", "+OK")]);
        let value = vec![b'x'; 20_000 * (place + 25)];
        let one = encode(&[&b"SET"[..], b"key", &value]);
        for _ in 0..3 {
            if client.stream.write_all(&one).is_err() || client.try_answer().is_none() {
                break;
            }
        }
    }
    let evicted = figure(&mut other, "evicted_clients");
    let mut closed = 0;
    for client in &mut large {
        closed += usize::from(client.try_answer_to_ping().is_none());
    }
    assert!(closed > 0 && closed == evicted, "{closed} of {evicted}");
    let held = figure(&mut other, "mem_clients_normal");
    assert!((4 * MIB..8 * MIB + MIB).contains(&held), "{held} bytes");
    for client in [&mut kept, &mut small] {
        assert!(client.run("EXEC").starts_with("[+OK +OK"));
    }
    let left = figure(&mut other, "connected_clients");
    assert_eq!(left, 3 + large.len() - evicted);
    // With their memory back, the others go on.
    drop(large);
    queue(&mut small, 20);
    assert!(small.run("EXEC").starts_with("[+OK"));
    assert_eq!(figure(&mut other, "evicted_clients"), evicted);
}

/// Replies that nobody reads are not held by gigabytes, and who reads is served.
#[test]
fn replies_that_are_not_read_stay_within_the_bound() {
    let server = Fixture::new();
    let mut other = server.client();
    other.check(&[
        ("CONFIG SET maxmemory-clients 48mb", "+OK"),
        ("SET key ''", "+OK"),
    ]);
    other.call(&[&b"SETRANGE"[..], b"key", b"999999", b"x"]);
    let mut wanted = vec![&b"MGET"[..]];
    wanted.extend([&b"key"[..]; 12]);
    let wanted = encode(&wanted);
    let deaf: Vec<_> = (0..24)
        .map(|_| {
            let mut client = server.client();
            client.send(&wanted);
            client
        })
        .collect();
    let until = now() + Duration::from_secs(20);
    while figure(&mut other, "evicted_clients") == 0 {
        assert!(now() < until, "nobody was closed");
    }
    for _ in 0..10 {
        let mut reader = server.client();
        reader.send(&wanted);
        // It may be one of those that hold most at this moment: then it asks again.
        let _answer = reader.try_answer();
        let held = figure(&mut other, "mem_clients_normal");
        assert!(held < 80 * MIB, "{held} bytes");
    }
    // Those that were told to go are gone a moment later, and so are those that went.
    let mut wait_until_held = |most: usize| {
        let until = now() + Duration::from_secs(20);
        while figure(&mut other, "mem_clients_normal") >= most {
            assert!(now() < until, "more than {most} bytes are held");
        }
    };
    wait_until_held(49 * MIB);
    drop(deaf);
    wait_until_held(16 * MIB);
    let mut reader = server.client();
    reader.send(&wanted);
    assert!(reader.try_answer().is_some());
}

/// Replies that script threads have made count as those do that loops have made.
#[test]
fn replies_of_long_scripts_stay_within_the_bound() {
    const CLIENTS: usize = 200;
    let server = Fixture::new();
    let mut other = server.client();
    other.check(&[("CONFIG SET maxmemory-clients 48mb", "+OK")]);
    // Some milliseconds, and then 8 MB: more than the system takes of it.
    let script = "local s = string.rep('x', 100000) local t = {} \
                  for i = 1, 200000 do t[1 + i % 80] = s end return t";
    let deaf: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.client();
            client.send(&encode(&["EVAL", script, "0"]));
            client
        })
        .collect();
    let until = now() + Duration::from_secs(60);
    while calls(&mut other, "eval").0 < CLIENTS as u64 {
        assert!(now() < until, "the scripts do not end");
        let held = figure(&mut other, "mem_clients_normal");
        assert!(held < 72 * MIB, "{held} bytes");
    }
    assert!(figure(&mut other, "scripts_moved") > 0);
    assert!(figure(&mut other, "evicted_clients") > 0);
    let held = figure(&mut other, "mem_clients_normal");
    assert!(held < 64 * MIB, "{held} bytes");
    drop(deaf);
}

/// Pipelines whose replies are not read are stopped earlier while much memory is taken, and nobody
/// is closed for them.
#[test]
fn pipelines_are_stopped_before_anybody_is_closed() {
    const SOCKET_BYTES: usize = 64 * 1024;
    let server = Fixture::new();
    let mut other = server.client();
    other.check(&[("CONFIG SET maxmemory-clients 48mb", "+OK")]);
    let text = vec![b'x'; 10_000];
    let pipeline = encode(&[&b"ECHO"[..], &text]).repeat(1500);
    let is_over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let (mut client, is_over) = (server.client(), is_over.clone());
            // Else sockets that are full both ways take all memory that the system has for TCP
            // (`tcp_mem`): it drops segments then, and may send them again only minutes later.
            set_socket_recv_buffer_size(&client.stream, SOCKET_BYTES).unwrap();
            set_socket_send_buffer_size(&client.stream, SOCKET_BYTES).unwrap();
            let pipeline = pipeline.clone();
            thread::spawn(move || {
                let mut writer = client.stream.try_clone().unwrap();
                let sender = thread::spawn(move || writer.write_all(&pipeline).unwrap());
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(20));
                }
                for _ in 0..1500 {
                    assert!(client.try_answer().is_some(), "it was closed");
                }
                sender.join().unwrap();
            })
        })
        .collect();
    // Until all of them have stopped.
    let (mut held, mut same) = (0, 0);
    while same < 20 {
        thread::sleep(Duration::from_millis(20));
        let now = figure(&mut other, "mem_clients_normal");
        same = if now == held { same + 1 } else { 0 };
        held = now;
    }
    assert!((20 * MIB..48 * MIB).contains(&held), "{held} bytes");
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(figure(&mut other, "evicted_clients"), 0);
    assert!(figure(&mut other, "mem_clients_normal") < 2 * MIB);
}

#[test]
fn the_bound_is_bytes_or_a_share() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"100%\"]"),
        ("CONFIG SET maxmemory-clients 5%", "+OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"5%\"]"),
        ("CONFIG SET maxmemory-clients 2kb", "+OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"2048\"]"),
        (
            "CONFIG SET maxmemory-clients 101%",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage \
             argument must be less or equal to 100",
        ),
        (
            "CONFIG SET maxmemory-clients -5",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - argument \
             must be a memory or percent value",
        ),
        ("CONFIG SET maxmemory-clients 0", "+OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"0\"]"),
    ]);
    queue(&mut client, 20);
    assert!(client.run("EXEC").starts_with("[+OK"));
}

/// Who has asked for the end, and does not read what comes before it, is not waited for.
#[test]
fn a_client_that_is_about_to_go_can_be_closed() {
    let server = Fixture::new();
    let (mut other, mut deaf) = (server.client(), server.client());
    let line = format!("id={} ", deaf.integer("CLIENT ID"));
    let is_waiting = |other: &mut Client| {
        let list = other.text("CLIENT LIST");
        let of_it = list.lines().find(|of| of.starts_with(&line));
        of_it.is_some_and(|of| !of.contains(" obl=0 "))
    };
    let one = encode(&[&b"ECHO"[..], &[b'x'; 50_000]]);
    let mut asked = 0_u64;
    // One after the other: from the first megabyte of output on, nothing more is read, nor QUIT.
    while !is_waiting(&mut other) {
        deaf.send(&one);
        asked += 1;
        while calls(&mut other, "echo").0 < asked {}
    }
    deaf.send(&encode(&["QUIT"]));
    let until = now() + Duration::from_secs(20);
    while !other.text("CLIENT LIST").contains("cmd=quit") {
        assert!(now() < until, "{}", other.text("CLIENT LIST"));
    }
    let kill = format!("CLIENT KILL ID {}", &line.trim_end()[3..]);
    assert_eq!(other.integer(&kill), 1);
    let answered = std::iter::from_fn(|| deaf.try_answer()).count() as u64;
    assert!(answered < asked, "{answered} of {asked}");
}
