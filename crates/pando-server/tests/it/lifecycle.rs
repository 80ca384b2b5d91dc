//! Start, stop, and admission of clients.

use std::net::{SocketAddr, TcpStream};

use pando_server::{Error, Server, ServerOptions};
use pando_sync::thread;
use pando_sync::time::Duration;
use pando_sync::{Arc, Condvar, Mutex, Rank};

use crate::client::{encode, show};
use crate::fixture::{Fixture, open, options};

#[test]
fn commands_are_answered_with_loading_until_the_store_is_open() {
    let gate = Arc::new((Mutex::new(Rank::Caller, false), Condvar::new()));
    let opener_gate = gate.clone();
    let server = Fixture::opened_by(options(), move |path| {
        let mut opened = opener_gate.0.lock();
        while !*opened {
            opened = opener_gate.1.wait(opened);
        }
        open(path)
    });
    let mut client = server.raw_client();
    let loading = "-LOADING Redis is loading the dataset in memory";
    client.check(&[
        ("GET a", loading),
        ("PING", loading),
        ("SET a 1", loading),
        ("WATCH a", loading),
        ("ECHO x", "\"x\""),
        ("SELECT 1", "+OK"),
        ("MULTI", "+OK"),
        ("GET a", loading),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("MULTI", "+OK"),
        ("ECHO x", "+QUEUED"),
        ("EXEC", "[\"x\"]"),
    ]);
    // A request that is longer than what is kept of one is read away, whatever it consists of.
    let long = "x".repeat(700_000);
    let mut many = vec!["MSET"];
    many.extend(["key", long.as_str()].repeat(20));
    let short = ["SADD"].iter().chain(&["element"; 900_000]).copied();
    for words in [many, short.collect(), vec!["SET", "a", &long.repeat(10)]] {
        client.send(&encode(&words));
        assert_eq!(show(&client.answer()), loading);
        client.check(&[("ECHO x", "\"x\"")]);
    }
    assert!(client.text("INFO").contains("loading:1"));
    *gate.0.lock() = true;
    gate.1.notify_all();
    while client.run("PING") != "+PONG" {
        thread::yield_now();
    }
    client.check(&[("SET a 1", "+OK"), ("GET a", "\"1\"")]);
    assert!(client.text("INFO").contains("loading:0"));
}

#[test]
fn shutdown_ends_the_server_without_a_reply() {
    let mut server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SHUTDOWN what", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SET a 1", "+OK"),
    ]);
    client.send(&encode(&["SHUTDOWN", "NOSAVE"]));
    assert!(client.is_closed());
    server.join().unwrap();
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_stop_answers_what_was_executed() {
    let mut server = Fixture::new();
    let mut client = server.client();
    client.send(&encode(&["INCR", "n"]).repeat(100));
    assert_eq!(show(&client.answer()), ":1");
    server.handle.shutdown();
    let mut last = 1;
    while let Some(answer) = client.try_answer() {
        last += 1;
        assert_eq!(show(&answer), format!(":{last}"));
    }
    server.join().unwrap();
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Fixture::new();
    let taken = ServerOptions {
        listen: vec![server.address],
        ..options()
    };
    match Server::bind(taken) {
        Err(Error::Listen { address, .. }) => assert_eq!(address, server.address),
        _ => panic!("the port is taken"),
    }
}

#[test]
fn a_password_is_asked_for_and_compared() {
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".into()),
        ..options()
    });
    let mut client = server.client();
    client.check(&[
        ("GET a", "-NOAUTH Authentication required."),
        ("PING", "-NOAUTH Authentication required."),
        (
            "HELLO 3 AUTH default wrong",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "AUTH wrong",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "AUTH other secret",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH secret", "+OK"),
        ("SET a 1", "+OK"),
        ("CONFIG GET requirepass", "[\"requirepass\" \"********\"]"),
        ("RESET", "+RESET"),
        ("GET a", "-NOAUTH Authentication required."),
        ("AUTH default secret", "+OK"),
        ("CONFIG SET requirepass new", "+OK"),
        ("GET a", "\"1\""),
    ]);
    assert!(
        server
            .client()
            .run("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with")
    );
    assert!(
        server
            .client()
            .run("HELLO 3 AUTH default new")
            .starts_with("{\"server\"")
    );
    assert_eq!(server.client().run("QUIT"), "+OK");
    client.run("CONFIG SET requirepass ''");
    let mut open = server.client();
    assert!(
        open.run("AUTH x")
            .starts_with("-ERR AUTH <password> called without any password")
    );
    assert_eq!(open.run("PING"), "+PONG");
}

#[test]
fn too_many_clients_are_refused() {
    let server = Fixture::with(ServerOptions {
        maxclients: 3,
        ..options()
    });
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.run("PING"), "+PONG");
    }
    let mut refused = server.client();
    assert_eq!(
        show(&refused.answer()),
        "-ERR max number of clients reached"
    );
    assert!(refused.is_closed());
    clients[0].check(&[
        ("CONFIG SET maxclients 1", "+OK"),
        ("CONFIG SET maxclients 4", "+OK"),
    ]);
    // More than it has started with.
    clients.push(server.client());
    assert_eq!(clients[3].run("PING"), "+PONG");
    // More than any system has files.
    let refused = clients[0].run("CONFIG SET maxclients 4294967295");
    let reason = "The operating system is not able to handle the specified number of clients, try";
    assert!(refused.contains(reason), "{refused}");
    drop(clients);
    let limit = pando_sync::time::now() + Duration::from_secs(5);
    while server.client().try_answer_to_ping() != Some("+PONG".to_owned()) {
        assert!(pando_sync::time::now() < limit);
    }
}

#[test]
fn clients_that_do_not_authenticate_are_closed() {
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".into()),
        handshake_timeout: Duration::from_millis(300),
        ..options()
    });
    let mut known = server.client();
    assert_eq!(known.run("AUTH secret"), "+OK");
    assert!(server.client().is_closed());
    assert_eq!(known.run("PING"), "+PONG");
}

/// The time in which a password is asked for begins with RESET, and not with the connection.
#[test]
fn a_client_has_time_for_its_password_behind_reset() {
    // Longer than the server takes to look at its connections.
    let handshake_timeout = Duration::from_millis(1500);
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".into()),
        handshake_timeout,
        ..options()
    });
    let mut client = server.client();
    client.check(&[("AUTH secret", "+OK")]);
    thread::sleep(handshake_timeout);
    client.check(&[("PING", "+PONG")]);
    let began = pando_sync::time::now();
    client.check(&[("RESET", "+RESET")]);
    assert!(client.is_closed());
    let lasted = began.elapsed();
    assert!(lasted >= handshake_timeout, "{lasted:?}");
}

/// RESET gives no more time to a client that has not given the password.
#[test]
fn resets_do_not_lengthen_the_time_for_a_password() {
    let handshake_timeout = Duration::from_millis(300);
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".into()),
        handshake_timeout,
        ..options()
    });
    let mut client = server.client();
    let began = pando_sync::time::now();
    while client.try_answer_to("RESET").is_some() {
        let lasted = began.elapsed();
        assert!(lasted < 100 * handshake_timeout, "{lasted:?}");
        thread::sleep(handshake_timeout / 10);
    }
}

#[test]
fn several_addresses_are_listened_on() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(ServerOptions {
        listen: vec![any, any],
        ..options()
    })
    .unwrap();
    let addresses = server.addresses().to_vec();
    assert_ne!(addresses[0], addresses[1]);
    let handle = server.handle();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let thread = thread::spawn(move || server.serve(move || open(&path)));
    for address in addresses {
        let mut client = crate::client::Client::connect(address);
        while client.run("PING") != "+PONG" {
            thread::yield_now();
        }
    }
    handle.shutdown();
    thread.join().unwrap().unwrap();
}
