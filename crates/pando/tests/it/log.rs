//! The log of a running server: its messages, its levels, and the bound on its rate.

use std::fs::OpenOptions;
use std::io::{ErrorKind, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::running::Running;

const JSON: [&str; 2] = ["--log-format", "json"];

/// Returns all lines of the log, each parsed as an object.
fn events(server: &Running) -> Vec<Value> {
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    server.log().iter().map(parse).collect()
}

fn with_message<'a>(events: &'a [Value], message: &str) -> Vec<&'a Value> {
    let says = |event: &&Value| event["message"] == message;
    events.iter().filter(says).collect()
}

/// Sends `request`, which ends the connection, and waits for that end. Returns the replies.
fn break_with(server: &Running, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let long = Some(Duration::from_secs(30));
    stream.set_read_timeout(long).unwrap();
    stream.write_all(request).unwrap();
    let mut rest = Vec::new();
    // The connection may also end with a reset.
    let _ = stream.read_to_end(&mut rest);
    String::from_utf8(rest).unwrap()
}

#[test]
fn a_life_of_a_server_is_in_its_log_as_json_and_no_secret_is() {
    let directory = tempfile::tempdir().unwrap();
    let flags = [
        &JSON[..],
        &["--log-level", "debug", "--requirepass", "right"],
    ]
    .concat();
    let mut server = Running::start(directory.path(), &flags);
    break_with(&server, b"AUTH right\r\nSAVE\r\nQUIT\r\n");
    break_with(&server, b"AUTH wrongsecret\r\nQUIT\r\n");
    break_with(&server, b"*1\r\n$-5\r\n");
    let slow = b"AUTH right\r\nCONFIG SET slowlog-log-slower-than 0\r\n\
        SET mykey myvalue\r\nSAVE\r\nQUIT\r\n";
    break_with(&server, slow);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let events = events(&server);
    for (message, level, field) in [
        ("the server starts", "INFO", "version"),
        ("listening", "INFO", "addresses"),
        ("store opened", "INFO", "recovery_ms"),
        ("Ready to accept connections", "INFO", "loops"),
        ("connection opened", "DEBUG", "client"),
        ("wrong password", "WARN", "client"),
        ("protocol error", "WARN", "error"),
        ("slow command", "INFO", "us"),
        ("checkpoint", "DEBUG", "pages"),
        ("told to stop", "INFO", "signal"),
        ("store closed", "INFO", "timestamp"),
        ("the server has stopped", "INFO", "timestamp"),
    ] {
        let found = with_message(&events, message);
        assert!(!found.is_empty(), "{message} is not in {events:#?}");
        assert_eq!(found[0]["level"], level, "{message}");
        assert!(!found[0][field].is_null(), "{message} has no {field}");
    }
    let all = format!("{events:?}");
    for secret in ["wrongsecret", "right", "mykey", "myvalue"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}

#[test]
fn an_orderly_life_says_nothing_from_warnings_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Running::start(directory.path(), &["--log-level", "warn"]);
    server.expect("SET key value", "+OK\r\n");
    server.signal("TERM");
    assert!(server.wait().success());
    assert_eq!(server.log(), Vec::<String>::new());
}

#[test]
fn the_level_is_changed_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &JSON);
    let level = |name: &str| {
        let length = name.len();
        let reply = format!("*2\r\n$8\r\nloglevel\r\n${length}\r\n{name}\r\n");
        server.expect("CONFIG GET loglevel", &reply);
    };
    level("notice");
    server.expect("SAVE", "+OK\r\n");
    assert!(with_message(&events(&server), "checkpoint").is_empty());
    server.expect("CONFIG SET loglevel verbose", "+OK\r\n");
    level("debug");
    server.expect("SAVE", "+OK\r\n");
    let checkpoints = with_message(&events(&server), "checkpoint").len();
    assert_eq!(checkpoints, 1);
    server.expect("CONFIG SET loglevel nothing", "+OK\r\n");
    // Lines of before may come late, but not later than the end of another checkpoint.
    server.expect("SAVE", "+OK\r\n");
    let before = server.log().len();
    server.expect("SAVE", "+OK\r\n");
    break_with(&server, b"*1\r\n$-5\r\n");
    assert_eq!(server.log().len(), before);
    server.expect("CONFIG SET loglevel loud", "-ERR CONFIG SET failed");
    level("nothing");
}

#[test]
fn a_flood_of_bad_requests_is_a_few_lines_that_say_how_many_there_were() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &JSON);
    (0..200).for_each(|_| drop(break_with(&server, b"*1\r\n$-5\r\n")));
    // The next line of a later second says how many were left out.
    let told = || {
        let all = events(&server);
        let lines = with_message(&all, "protocol error");
        let left_out = lines.iter().map(|line| line["left_out"].as_u64().unwrap());
        (lines.len() as u64, left_out.sum::<u64>())
    };
    let mut sent = 200;
    while told().0 + told().1 < sent {
        break_with(&server, b"*1\r\n$-5\r\n");
        sent += 1;
        assert!(sent < 1_000_000, "{:?}", told());
    }
    let (lines, _) = told();
    assert!(lines < sent / 2, "{lines} lines of {sent}");
}

#[test]
fn a_connection_that_is_refused_is_told_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &JSON);
    server.expect("GET key", "$-1\r\n");
    let mut kept = TcpStream::connect(&server.address).unwrap();
    kept.write_all(b"CONFIG SET maxclients 1\r\n").unwrap();
    let mut reply = [0; 5];
    kept.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let mut refused = TcpStream::connect(&server.address).unwrap();
    let client = refused.local_addr().unwrap().to_string();
    let mut reply = String::new();
    refused.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("-ERR max number of clients"), "{reply}");
    let events = events(&server);
    let lines = with_message(&events, "connection refused");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["level"], "WARN");
    assert_eq!(lines[0]["client"], client);
    let why = lines[0]["why"].as_str().unwrap();
    assert_eq!(reply, format!("-{why}\r\n"));
    drop(kept);
}

/// Changes a byte in each block of the file at `path` that contains `part`.
fn damage(path: &Path, part: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    for block in bytes.chunks_mut(4096) {
        if block.windows(part.len()).any(|bytes| bytes == part) {
            block[2048] ^= 0xff;
        }
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_command_that_the_store_fails_is_told_and_one_that_its_client_got_wrong_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Running::start(directory.path(), &JSON);
    server.expect("INCR key", ":1\r\n");
    let value = "x".repeat(900);
    let sets: String = (0..400)
        .map(|key| format!("SET key{key} {value}\r\n"))
        .collect();
    let requests = format!("{sets}INCR key1\r\nNOSUCH\r\nQUIT\r\n");
    let replies = break_with(&server, requests.as_bytes());
    assert_eq!(replies.matches("+OK\r\n").count(), 401, "{replies}");
    assert_eq!(replies.matches("-ERR").count(), 2, "{replies}");
    server.signal("TERM");
    assert!(server.wait().success());
    let failed = |server: &Running| {
        let told = events(server);
        let failed = ["damage was found", "the store failed a command"];
        let lines = failed.map(|message| with_message(&told, message).len());
        (lines, told)
    };
    assert_eq!(
        failed(&server).0,
        [0, 0],
        "a client's error is not logged as a failure of the store"
    );
    damage(&directory.path().join("pando-data/data"), value.as_bytes());
    let server = Running::start(directory.path(), &JSON);
    server.expect("GET key7", "-ERR");
    let ([damaged, _], told) = failed(&server);
    assert!(damaged >= 1, "{told:#?}");
    let line = with_message(&told, "damage was found")[0];
    assert_eq!(
        (&line["level"], &line["command"]),
        (&"ERROR".into(), &"get".into())
    );
    assert!(!line["error"].as_str().unwrap().contains("key7"), "{line}");
}

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let stderr = Stdio::from(writer);
    let mut server = Running::start_with(directory.path(), &[], stderr);
    drop(reader);
    break_with(&server, b"*1\r\n$-5\r\n");
    server.expect("PING", "+PONG\r\n");
    server.signal("TERM");
    assert!(server.wait().success());
}

/// Fills a pipe of which `writer` is an end, whose other users go on to wait for room.
fn fill(writer: &PipeWriter) {
    const NONBLOCK: i32 = 0o4000;
    // Opened again: the flag of a descriptor that is only copied would be that of all copies.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut options = OpenOptions::new();
    let mut end = options
        .write(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .unwrap();
    loop {
        match end.write(b"\n") {
            Ok(count) => assert_eq!(count, 1),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

/// A pipe whose reader hangs, and then reads on: nobody waits for it, and it is told what it
/// missed.
#[test]
fn a_log_whose_reader_hangs_holds_nobody() {
    const MISSING: &str = "lines of the log are missing: what they were written to had no room";
    let directory = tempfile::tempdir().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let stderr = Stdio::from(writer.try_clone().unwrap());
    let mut server = Running::start_with(directory.path(), &JSON, stderr);
    fill(&writer);
    // More than there are loops, each of which would be held by its first line.
    for at in 0..9 {
        let reply = break_with(&server, b"*1\r\n$-5\r\n");
        assert!(reply.contains("Protocol error"), "connection {at}: {reply}");
    }
    let mut bytes = vec![0; 1 << 20];
    let count = reader.read(&mut bytes).unwrap();
    bytes.truncate(count);
    server.signal("TERM");
    assert!(server.wait().success());
    drop(writer);
    reader.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    let events: Vec<Value> = lines.map(parse).collect();
    let told = with_message(&events, MISSING);
    assert_eq!(told.len(), 1, "{events:#?}");
    assert_eq!(
        (&told[0]["level"], &told[0]["left_out"]),
        (&"WARN".into(), &9.into())
    );
    assert!(with_message(&events, "protocol error").is_empty());
    assert_eq!(with_message(&events, "told to stop").len(), 1);
}

#[test]
fn values_that_are_none_are_named() {
    for (flag, value, part) in [
        ("--log-level", "loud", "off, error, warn, info and debug"),
        ("--log-format", "xml", "text and json"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = crate::running::pando(directory.path())
            .args([flag, value])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(flag) && text.contains(part), "{text}");
    }
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let limited = "[config]\nmaxclients = 4000000000\n";
    std::fs::write(directory.path().join("pando.toml"), limited).unwrap();
    let arguments = [&JSON[..], &["--config", "pando.toml"]].concat();
    let server = Running::start(directory.path(), &arguments);
    let events = events(&server);
    let told = with_message(
        &events,
        "fewer clients than asked for: raise the limit of open files (ulimit -n)",
    );
    assert_eq!(told.len(), 1, "{events:?}");
    assert_eq!(told[0]["level"], "WARN");
    assert_eq!(told[0]["wanted"], 4_000_000_000_u64);
    let (allowed, files) = (told[0]["maxclients"].as_u64(), told[0]["files"].as_u64());
    assert!(allowed.unwrap() < files.unwrap(), "{told:?}");
    assert_eq!(server.stop("TERM").code(), Some(0));
}
