//! Clients of a socket in the file system.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use pando_server::ServerOptions;

use crate::client::encode;
use crate::fixture::{Fixture, options};

/// Sends commands of one word each and returns what comes until the server closes.
fn ask(stream: &mut UnixStream, commands: &[&[&str]]) -> String {
    for command in commands {
        stream.write_all(&encode(command)).expect("it takes them");
    }
    stream.write_all(&encode(&["QUIT"])).expect("it takes it");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it replies");
    text
}

#[test]
fn clients_of_a_socket_are_served_and_shown_as_those_of_addresses_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pando.sock");
    let mut server = Fixture::with(ServerOptions {
        unix_socket: Some(path.clone()),
        unix_socket_mode: Some(0o700),
        requirepass: Some("secret".to_owned()),
        ..options()
    });
    let mut tcp = server.client();
    tcp.check(&[("AUTH secret", "+OK"), ("SET k of-tcp", "+OK")]);
    let mut stream = UnixStream::connect(&path).unwrap();
    let text = ask(&mut stream, &[&["GET", "k"]]);
    assert_eq!(text, "-NOAUTH Authentication required.\r\n+OK\r\n");
    let mut stream = UnixStream::connect(&path).unwrap();
    // More than the socket takes at once, both ways.
    let long = "x".repeat(3_000_000);
    let text = ask(
        &mut stream,
        &[
            &["AUTH", "secret"],
            &["GET", "k"],
            &["SET", "long", &long],
            &["GET", "long"],
            &["CLIENT", "INFO"],
            &["CONFIG", "GET", "unixsocket*"],
        ],
    );
    assert!(text.starts_with("+OK\r\n$6\r\nof-tcp\r\n+OK\r\n$3000000\r\nxxx"));
    let shown = path.display();
    assert!(text.contains(&format!(" addr={shown}:0 laddr={shown}:0 ")));
    assert!(text.contains(" flags=U "));
    assert!(text.contains(&format!(
        "unixsocket\r\n${}\r\n{shown}\r\n",
        shown.to_string().len()
    )));
    assert!(text.contains("unixsocketperm\r\n$3\r\n700\r\n"));
    // It can be killed by its address.
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&encode(&["AUTH", "secret"])).unwrap();
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    let killed = tcp.run(&format!("CLIENT KILL ADDR {shown}:0"));
    assert_eq!(killed, ":1");
    assert_eq!(stream.read(&mut reply).unwrap(), 0, "it was closed");
    server.handle.shutdown();
    server.join().unwrap();
    assert!(!path.exists(), "the socket goes with the server");
}

#[test]
fn a_server_may_have_no_address() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pando.sock");
    let server = pando_server::Server::bind(ServerOptions {
        listen: Vec::new(),
        unix_socket: Some(path.clone()),
        ..options()
    });
    let server = server.unwrap();
    let handle = server.handle();
    let store = directory.path().join("store");
    let thread = pando_sync::thread::spawn(move || {
        server.serve(move || pandodb::Db::builder().open(&store))
    });
    let mut stream = UnixStream::connect(&path).unwrap();
    let text = ask(&mut stream, &[&["PING"], &["CONFIG", "GET", "port"]]);
    assert_eq!(text, "+PONG\r\n*2\r\n$4\r\nport\r\n$1\r\n0\r\n+OK\r\n");
    handle.shutdown();
    thread.join().unwrap().unwrap();
}
