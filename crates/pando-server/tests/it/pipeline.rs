//! Many commands at once, and bytes in any pieces.

use pando_server::{Durability, ServerOptions};
use pando_sync::thread;

use crate::client::{encode, show};
use crate::fixture::{Fixture, options};

#[test]
fn a_pipeline_means_the_same_however_its_bytes_arrive() {
    let server = Fixture::new();
    let commands = [
        encode(&["SET", "a", "1"]),
        encode(&["INCR", "a"]),
        b"GET a\r\n".to_vec(),
        encode(&["MULTI"]),
        encode(&["APPEND", "a", "x\r\ny"]),
        encode(&["EXEC"]),
        b"\r\n*0\r\nset \"b c\" '\\''\r\n".to_vec(),
        encode(&["MGET", "a", "b c", "none"]),
        encode(&["DEL", "a", "b c"]),
    ];
    let bytes = commands.concat();
    let expected = [
        "+OK",
        ":2",
        "\"2\"",
        "+OK",
        "+QUEUED",
        "[:5]",
        "+OK",
        "[\"2x\r\ny\" \"'\" nil]",
        ":2",
    ];
    let mut client = server.client();
    for cut in 0..bytes.len() {
        client.send(&bytes[..cut]);
        if cut % 16 == 0 {
            thread::sleep(pando_sync::time::Duration::from_millis(1));
        }
        client.send(&bytes[cut..]);
        for expected in expected {
            assert_eq!(show(&client.answer()), expected, "cut at {cut}");
        }
    }
    for byte in &bytes {
        client.send(&[*byte]);
    }
    for expected in expected {
        assert_eq!(show(&client.answer()), expected);
    }
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let server = Fixture::new();
    let mut client = server.client();
    let count = 20_000;
    let mut bytes = Vec::new();
    for n in 0..count {
        let (key, value) = (format!("k{}", n % 100), n.to_string());
        bytes.extend(encode(&["SET", &key, &value]));
        bytes.extend(encode(&["GET", &key]));
    }
    let mut writer = client.stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &bytes).unwrap());
        for n in 0..count {
            assert_eq!(show(&client.answer()), "+OK");
            assert_eq!(show(&client.answer()), format!("\"{n}\""));
        }
    });
}

#[test]
fn what_was_sent_before_the_end_is_answered() {
    for durability in [Durability::Durable, Durability::None] {
        let server = Fixture::with(ServerOptions {
            durability,
            ..options()
        });
        let mut client = server.client();
        let bytes = encode(&["INCR", "n"]).repeat(5000);
        client.send(&[bytes.as_slice(), b"*2\r\n$4\r\nINC"].concat());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        for n in 1..=5000 {
            assert_eq!(show(&client.answer()), format!(":{n}"));
        }
        assert!(client.is_closed());
    }
}

#[test]
fn quit_is_answered_and_ends_the_connection() {
    let server = Fixture::new();
    let mut client = server.client();
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(show(&client.answer()), "+PONG");
    assert_eq!(show(&client.answer()), "+OK");
    assert!(client.is_closed());
}
