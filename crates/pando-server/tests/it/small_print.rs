//! Tests of what clients see besides data: arguments that hardly anybody sends, and the moments of
//! start and end.

use std::io::Write as _;
use std::time::Duration;

use pando_sync::thread;

use crate::client::show;
use crate::fixture::{Fixture, open, options};

#[test]
fn odd_arguments_are_answered_as_redis_does() {
    let server = Fixture::new();
    let mut client = server.client();
    let count = "-ERR count should be greater than or equal to -1";
    client.check(&[
        ("SLOWLOG GET x", count),
        ("SLOWLOG GET -2", count),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        (
            "MEMORY USAGE k SAMPLES x",
            "-ERR value is not an integer or out of range",
        ),
        ("MEMORY USAGE k SAMPLES 0", "nil"),
        ("SCAN -1", "[\"0\" []]"),
        ("SCAN +0", "[\"0\" []]"),
        ("SCAN -", "-ERR invalid cursor"),
        ("SCAN --1", "-ERR invalid cursor"),
        ("SCAN 99999999999999999999999", "-ERR invalid cursor"),
        ("SHUTDOWN NOSAVE SAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT NOW", "-ERR syntax error"),
        ("SHUTDOWN WHAT", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("SET k abc", "+OK"),
        ("INCRBYFLOAT k inf", "-ERR value is not a valid float"),
        (
            "INCRBYFLOAT nokey inf",
            "-ERR increment would produce NaN or Infinity",
        ),
    ]);
    assert_eq!(show(&client.call(&["SCAN", " 1"])), "-ERR invalid cursor");
    assert_eq!(show(&client.call(&["SCAN", ""])), "[\"0\" [\"k\"]]");
}

/// Text ends at a NUL for Redis.
#[test]
fn errors_show_no_nul() {
    let server = Fixture::new();
    let mut client = server.client();
    assert_eq!(
        show(&client.call(&["what\0ever", "ar\0g", "b"])),
        "-ERR unknown command 'what', with args beginning with: 'ar' 'b' "
    );
    assert_eq!(
        show(&client.call(&["CONFIG", "s\0t"])),
        "-ERR unknown subcommand 's'. Try CONFIG HELP."
    );
}

/// From the answer on the client runs nothing, and nobody sees it.
#[test]
fn a_killed_client_is_gone_when_that_is_answered() {
    let server = Fixture::new();
    let mut client = server.client();
    for round in 0..50 {
        let mut other = server.client();
        let id = other.integer("CLIENT ID");
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), ":1");
        assert_eq!(client.text("CLIENT LIST").lines().count(), 1);
        // The write may fail: it may be closed already.
        let _ = other
            .stream
            .write_all(format!("SET late {round}\r\n").as_bytes());
        assert!(other.is_closed());
        assert_eq!(client.run("EXISTS late"), ":0");
        assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), ":0");
    }
}

/// What was sent is not owed any more.
#[test]
fn client_list_does_not_count_replies_that_were_sent() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("PING");
    for _ in 0..2 {
        let info = client.text("CLIENT INFO");
        assert!(
            info.contains(" obl=0 ") && info.contains(" omem=0 "),
            "{info}"
        );
    }
}

/// Who comes while the store opens waits a moment, and is served.
#[test]
fn clients_wait_for_a_store_that_opens_quickly() {
    let server = Fixture::opened_by(options(), |path| {
        thread::sleep(Duration::from_millis(200));
        open(path)
    });
    let mut client = server.raw_client();
    client.check(&[("SET a 1", "+OK"), ("GET a", "\"1\"")]);
}
