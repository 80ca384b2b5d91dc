//! Hostile clients.

use std::io::{ErrorKind, Read as _, Write as _};

use pando_server::ServerOptions;
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};

#[test]
fn breaches_of_the_protocol_are_told_and_closed() {
    let server = Fixture::new();
    let cases: &[(&[u8], &str)] = &[
        (b"*2147483647\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"set 'a\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, text) in cases {
        let mut client = server.client();
        client.send(b"PING\r\n");
        client.send(bytes);
        assert_eq!(show(&client.answer()), "+PONG");
        assert_eq!(
            show(&client.answer()),
            format!("-ERR Protocol error: {text}")
        );
        assert!(client.is_closed());
    }
    let mut client = server.client();
    client.send(&vec![b'a'; 70_000]);
    assert_eq!(
        show(&client.answer()),
        "-ERR Protocol error: too big inline request"
    );
    // A negative count is an empty command.
    let mut client = server.client();
    client.send(b"*-1\r\n*0\r\n*-2147483648\r\nPING\r\n");
    assert_eq!(show(&client.answer()), "+PONG");
    for greeting in [&b"POST / HTTP/1.1\r\n"[..], b"Host: example\r\n"] {
        let mut client = server.client();
        client.send(greeting);
        assert!(client.is_closed());
    }
}

/// Returns all that the server sends as an answer to `bytes`, which are all of the input.
fn bytes_behind(server: &Fixture, bytes: &[u8]) -> Vec<u8> {
    let mut client = server.client();
    client.send(bytes);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    client.stream.read_to_end(&mut replies).unwrap();
    replies
}

#[test]
fn errors_show_the_bytes_that_were_sent() {
    let server = Fixture::new();
    let long = [&b"x"[..], &[b'a'; 125], b"\xFF\xFE\xFD"].concat();
    let cases: [(&[&[u8]], &[u8]); 9] = [
        (
            &[b"\xC3\x28\xFF", b"\xFE", b"\xC3\xA4"],
            b"unknown command '\xC3\x28\xFF', with args beginning with: '\xFE' '\xC3\xA4' ",
        ),
        // What the server has for such bytes itself.
        (
            &[b"a", b"\xF4\x8F\xBF\xBF"],
            b"unknown command 'a', with args beginning with: '\xF4\x8F\xBF\xBF' ",
        ),
        (
            &[&long],
            &[
                b"unknown command '",
                &long[..128],
                b"', with args beginning with: ",
            ]
            .concat(),
        ),
        (
            &[b"x", &[b'a'; 120], b"bcdefghi", b"i"],
            &[
                b"unknown command 'x', with args beginning with: '",
                &[b'a'; 120][..],
                b"' 'bcdef' ",
            ]
            .concat(),
        ),
        (
            &[b"CONFIG", b"\xFF", b"x"],
            b"unknown subcommand '\xFF'. Try CONFIG HELP.",
        ),
        (
            &[b"HELLO", b"3", b"\xFF\0"],
            b"Syntax error in HELLO option '\xFF'",
        ),
        (&[b"FUNCTION", b"LIST", b"\xFF"], b"Unknown argument \xFF"),
        (
            &[b"EVAL", b"error('\\255', 0)", b"0"],
            b"\xFF script: fe80ab40140d696224ea3fe05b542e3e1d42af7c, on @user_script:1.",
        ),
        (
            &[b"EVAL", b"#!lua flags=\xFF\nreturn 1", b"0"],
            b"Unexpected flag in script shebang: \xFF",
        ),
    ];
    for (command, text) in cases {
        let expected = [b"-ERR ", text, b"\r\n"].concat();
        let got = bytes_behind(&server, &encode(command));
        assert_eq!(
            got.escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }
    let got = bytes_behind(&server, b"*1\r\n\xFF");
    assert_eq!(got, b"-ERR Protocol error: expected '$', got '\xFF'\r\n");
}

#[test]
fn who_wants_no_replies_gets_no_errors_of_the_protocol() {
    let server = Fixture::new();
    for (mode, shown) in [
        ("OFF", ""),
        ("SKIP", ""),
        ("ON", "+OK\r\n-ERR Protocol error: "),
    ] {
        let bytes = format!("CLIENT REPLY {mode}\r\n*x\r\n");
        let got = bytes_behind(&server, bytes.as_bytes());
        let got = String::from_utf8_lossy(&got).into_owned();
        assert_eq!(
            got.trim_end_matches("invalid multibulk length\r\n"),
            shown,
            "{mode}"
        );
    }
    // An empty line is a command, too.
    let got = bytes_behind(&server, b"CLIENT REPLY SKIP\r\n\r\nPING\r\n");
    assert_eq!(got, b"+PONG\r\n");
}

#[test]
fn an_unknown_peer_can_send_little() {
    let server = Fixture::with(ServerOptions {
        requirepass: Some("secret".into()),
        ..options()
    });
    let mut client = server.client();
    client.send(b"*11\r\n");
    let text = "-ERR Protocol error: unauthenticated multibulk length";
    assert_eq!(show(&client.answer()), text);
    assert!(client.is_closed());
    let mut client = server.client();
    client.send(b"*2\r\n$4\r\nAUTH\r\n$20000\r\n");
    let text = "-ERR Protocol error: unauthenticated bulk length";
    assert_eq!(show(&client.answer()), text);
    assert!(client.is_closed());
    // All replies arrive, however late they are read.
    let mut slow = server.client();
    slow.send(&b"PING\r\n".repeat(8000));
    thread::sleep(Duration::from_millis(100));
    for _ in 0..8000 {
        assert_eq!(show(&slow.answer()), "-NOAUTH Authentication required.");
    }
    // A flood whose replies are not read is stopped, and other clients are served.
    let mut flood = server.client();
    let sent = write_until_stuck(&mut flood, &b"PING\r\n".repeat(1000));
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    assert_eq!(server.client().run("AUTH secret"), "+OK");
}

/// Writes `bytes` repeatedly until the server takes no more for a while. Returns the number of
/// bytes it took.
fn write_until_stuck(client: &mut Client, bytes: &[u8]) -> usize {
    client.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut since) = (0, now());
    let mut at = 0;
    while since.elapsed() < Duration::from_millis(300) && sent < 256 << 20 {
        match client.stream.write(&bytes[at..]) {
            Ok(count) => {
                sent += count;
                at = (at + count) % bytes.len();
                since = now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
        }
    }
    client.stream.set_nonblocking(false).unwrap();
    sent
}

#[test]
fn replies_that_are_never_read_stop_their_connection_only() {
    let server = Fixture::new();
    let mut other = server.client();
    let value = "x".repeat(100_000);
    other.run(&format!("SET big {value}"));
    let mut flood = server.client();
    let get = encode(&["GET", "big"]);
    let sent = write_until_stuck(&mut flood, &get.repeat(100));
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    let list = other.text("CLIENT LIST");
    for line in list.lines() {
        let field = line
            .split(' ')
            .find(|field| field.starts_with("obl="))
            .unwrap();
        let unsent: usize = field[4..].parse().unwrap();
        assert!(unsent < 3 << 20, "{unsent} bytes of replies are held");
    }
    assert_eq!(other.run("PING"), "+PONG");
    // The flood continues where it stopped, and every reply is whole.
    let whole = sent / get.len();
    for _ in 0..whole.min(200) {
        assert_eq!(show(&flood.answer()).len(), value.len() + 2);
    }
}

#[test]
fn declared_lengths_cost_nothing() {
    let server = Fixture::new();
    let mut clients: Vec<_> = (0..100).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(b"*1048576\r\n$1048576\r\nabc");
    }
    let mut other = server.client();
    let list = other.text("CLIENT LIST");
    for line in list.lines() {
        let field = line
            .split(' ')
            .find(|field| field.starts_with("qbuf="))
            .unwrap();
        assert!(field[5..].parse::<usize>().unwrap() < 1000, "{line}");
    }
    assert_eq!(other.run("PING"), "+PONG");
}

#[test]
fn random_bytes_do_no_harm() {
    let server = Fixture::new();
    let mut random = fastrand::Rng::with_seed(1);
    let pieces: [&[u8]; 12] = [
        b"*1\r\n",
        b"*3\r\n",
        b"$3\r\n",
        b"SET\r\n",
        b"GET a\r\n",
        b"\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"\"",
        b"INCR n\r\n",
    ];
    for _ in 0..60 {
        let mut client = server.client();
        let mut bytes = Vec::new();
        for _ in 0..random.u32(..40) {
            bytes.extend_from_slice(random.choice(pieces).unwrap());
            if random.u32(..8) == 0 {
                bytes.extend_from_slice(&random.u64(..).to_le_bytes());
            }
        }
        client.send(&bytes);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut replies = Vec::new();
        let _ = client.stream.read_to_end(&mut replies);
    }
    assert_eq!(server.client().run("PING"), "+PONG");
}

/// A pattern that takes exponential time in a naive matcher is answered before the client's
/// timeout.
#[test]
fn a_hostile_pattern_does_not_stop_others() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let (mut client, mut other) = (server.client(), server.client());
    for first in (0..4000).step_by(100) {
        let keys = (first..first + 100).map(|n| format!("{}{n} v", "a".repeat(200)));
        let keys: Vec<_> = keys.collect();
        client.run(&format!("MSET {}", keys.join(" ")));
    }
    let pattern = "*a".repeat(100) + "b";
    // While other programs keep the cores busy, a client may come to no PING in between.
    let (mut answered, begun) = (0, now());
    while answered <= 3 && begun.elapsed() < Duration::from_secs(20) {
        client.send(format!("KEYS {pattern}\r\n").as_bytes());
        client.stream.set_nonblocking(true).unwrap();
        answered = 0;
        // A server that looks at all keys at once answers one PING before, and none meanwhile.
        while client.stream.peek(&mut [0]).is_err() {
            assert_eq!(other.run("PING"), "+PONG");
            answered += 1;
        }
        client.stream.set_nonblocking(false).unwrap();
        assert_eq!(show(&client.answer()), "[]");
    }
    assert!(answered > 3, "others wait for the pattern");
}

/// Long patterns and long texts that resemble them take their product in steps, minutes of them.
#[test]
fn long_patterns_are_refused_beside_long_texts() {
    let server = Fixture::new();
    let mut client = server.client();
    let text = vec![b'a'; 20_000];
    let like_text = [b"*", &text[..10_000], b"b*"].concat();
    let class = [b"*[", &vec![b'_'; 1 << 20][..], b"]*"].concat();
    client.call(&[&b"HSET"[..], b"h", &text, b"v"]);
    client.call(&[&b"SADD"[..], b"s", &text]);
    client.call(&[&b"ZADD"[..], b"z", b"1", &text]);
    client.call(&[&b"SET"[..], &text[..200], b"v"]);
    let mut subscriber = server.client();
    subscriber.call(&[&b"SUBSCRIBE"[..], &text]);
    let commands = [
        ("HSCAN h 0 MATCH", &like_text),
        ("SSCAN s 0 MATCH", &like_text),
        ("ZSCAN z 0 MATCH", &like_text),
        ("PUBSUB CHANNELS", &like_text),
        ("KEYS", &class),
        ("SCAN 0 MATCH", &class),
        ("CONFIG GET", &class),
        ("COMMAND LIST FILTERBY PATTERN", &class),
    ];
    let error = "-ERR the pattern takes too many steps to be compared with what is there";
    for (command, pattern) in commands {
        let mut words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        words.push(pattern);
        assert_eq!(show(&client.call(&words)), error, "{command}");
    }
    client.check(&[("SSCAN s 0 MATCH b*a", "[\"0\" []]"), ("KEYS *b*", "[]")]);
}

/// What is told of a command is a thousand times as long as a name.
#[test]
fn descriptions_of_commands_are_no_longer_than_other_replies() {
    let server = Fixture::new();
    let mut client = server.client();
    for part in ["DOCS", "INFO"] {
        let mut words = vec!["COMMAND", part];
        words.resize(20_000, "client");
        let reply = show(&client.call(&words));
        assert_eq!(&reply[..42], "-ERR reply exceeds the maximum allowed siz");
        assert!(client.run(&format!("COMMAND {part} client")).len() > 1000);
    }
}

#[test]
fn a_queue_that_grows_forever_is_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    assert_eq!(client.run("MULTI"), "+OK");
    let value = vec![b'x'; 1 << 20];
    let command = encode(&[b"SET", &b"k"[..], &value]);
    let mut refused = false;
    for _ in 0..2000 {
        client.send(&command);
        if show(&client.answer()).starts_with("-ERR transaction exceeds") {
            refused = true;
            break;
        }
    }
    assert!(refused);
    assert!(client.run("EXEC").starts_with("-EXECABORT"));
}
