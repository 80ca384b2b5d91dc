//! `pando top` as text: what it shows, and its messages when there is nothing to show.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use pando_sync::thread;

use crate::running::{Running, pando};

fn top(address: &str, arguments: &[&str]) -> Command {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut command = pando(std::path::Path::new("."));
    command
        .env_remove("REDISCLI_AUTH")
        .args(["top", "--host", host, "--port", port])
        .args(["--interval", "100ms"])
        .args(arguments);
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Returns the value of the only line that begins with `label`.
fn value<'a>(text: &'a str, label: &str) -> &'a str {
    let mut lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(label));
    let value = lines.next().unwrap_or_else(|| panic!("{label} in {text}"));
    value.trim()
}

#[test]
fn one_look_shows_all_panels_and_each_command() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("SET key value", "+OK\r\n");
    let output = top(&server.address, &["--once"]).output().unwrap();
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(
        out.starts_with(&format!("{}: PandoDB ", server.address)),
        "{out}"
    );
    for panel in [
        "Traffic",
        "Cache",
        "Device",
        "Log",
        "Checkpoints",
        "Space",
        "Memory",
        "Commands",
    ] {
        assert!(out.contains(&format!("\n{panel}\n")), "{panel} in {out}");
    }
    // The only commands are the INFO commands of `top` itself.
    assert!(value(&out, "commands").ends_with("/s"), "{out}");
    assert!(value(&out, "info ").contains(" us") || value(&out, "info ").contains(" ms"));
    assert!(!out.contains("\n  set "), "nobody sets in between: {out}");
    assert!(value(&out, "resident").ends_with("of 16.0 MiB"), "{out}");
    assert!(out.contains("1 keys"), "{out}");
}

#[test]
fn many_looks_are_many_reports() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("PING", "+PONG\r\n");
    let output = top(&server.address, &["--count", "3"]).output().unwrap();
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_eq!(out.matches("\nTraffic\n").count(), 3, "{out}");
}

#[test]
fn a_password_is_needed_and_taken_from_flag_or_environment() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--requirepass", "secret"]);
    let run = |command: &mut Command, code: i32, part: &str| {
        let output = command.output().unwrap();
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{out}{error}");
        assert!(out.contains(part) || error.contains(part), "{out}{error}");
    };
    run(&mut top(&server.address, &["--once"]), 1, "--password");
    let wrong = ["--once", "--password", "wrong"];
    run(&mut top(&server.address, &wrong), 1, "WRONGPASS");
    let right = ["--once", "--password", "secret"];
    run(&mut top(&server.address, &right), 0, "Traffic");
    let mut by_variable = top(&server.address, &["--once"]);
    run(by_variable.env("REDISCLI_AUTH", "secret"), 0, "Traffic");
}

#[test]
fn who_is_not_there_or_no_pandodb_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (reply, part) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "no server of ours",
        ),
        (b"$21\r\nredis_version:7.2.0\r\n\r\n", "no PandoDB"),
        (b"-ERR unknown command 'INFO'\r\n", "unknown command"),
        (b":1\r\n", "of no use"),
    ] {
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 512]).unwrap();
                stream.write_all(reply).unwrap();
                // Waits until the other end has closed the connection.
                let _ = stream.read(&mut [0; 1]);
            });
            top(&address, &["--once"]).output().unwrap()
        });
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{out}{error}");
        assert!(error.contains(part), "{part}: {error}");
    }
    drop(listener);
    let output = top(&address, &["--once"]).output().unwrap();
    let (_, error) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(
        error.contains(&address) && error.contains("connecting"),
        "{error}"
    );
    let output = top(&address, &["--interval", "5ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "given twice, or too short");
}
