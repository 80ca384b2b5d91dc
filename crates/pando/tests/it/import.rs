//! Tests of `pando import`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use pando_resp::Client;
use pando_sync::thread;

use crate::running::{Running, pando};

/// What SAVE of redis-server 7.0.15 has written, in hexadecimal: keys of all types in database 0,
/// one of them with a deadline, one key in database 3, and a library of functions.
const FILE: &str = "\
    524544495330303130fa0972656469732d76657206372e302e3135fa0a72656469732d62697473c040fa05637469\
    6d65c215b00d6bfa08757365642d6d656dc2c0f51100fa08616f662d62617365c000f5404823216c7561206e616d\
    653d6c69620a72656469732e72656769737465725f66756e6374696f6e2827736576656e272c2066756e6374696f\
    6e28292072657475726e203720656e6429fe00fb0a010b04696e7473140400000003000000010000000200000070\
    11010011017a17170000000400816d0283312e3504816e0283696e6604ff02037365740201620161130178011000\
    0000000000000100000000000000011d1d0000000a0001010001010181660200010201000100018176020401ff01\
    010101010000010101670101010100000000000000010000000000000001fed4772da201000001010163fed4772d\
    a201000001000000000000000100000000000000011001680d0d0000000200816602817602fffcff9f724e180900\
    0000c13930016e0004676f6e65017800c3093c016161e02f00016161086c6f6e67206b657912046c6973740102c3\
    1740570f57000000040081610201018001e04678e03c000148ff0004746578740568656c6c6ffe03fb0100000574\
    68726565c003ff0232cb6f9522c7e1";

fn file() -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&FILE[at..at + 2], 16).unwrap();
    (0..FILE.len()).step_by(2).map(byte).collect()
}

/// Imports `file` into the server; returns the exit code, and what was said.
fn import(here: &Path, server: &Running, file: &[u8], flags: &[&str]) -> (i32, String, String) {
    fs::write(here.join("dump.rdb"), file).unwrap();
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let output = pando(here)
        .args(["import", "dump.rdb", "--port", port])
        .args(flags)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn check(client: &mut Client, command: &str, expected: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(
        format!("{:?}", client.call(&words).unwrap()),
        expected,
        "{command}"
    );
}

#[test]
fn all_that_a_file_has_comes_over() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let (code, out, err) = import(here.path(), &server, &file(), &[]);
    let said =
        "11 keys and 1 libraries of functions, 241 bytes; 0 keys had expired, 0 were refused\n";
    assert_eq!((code, &out[..], &err[..]), (0, said, ""));
    let mut client = server.client();
    for (command, expected) in [
        ("DBSIZE", "Integer(10)"),
        ("GET text", "Bulk([104, 101, 108, 108, 111])"),
        ("PEXPIRETIME 12345", "Integer(9999999999999)"),
        ("PEXPIRETIME text", "Integer(-1)"),
        (
            "STRLEN aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "Integer(8)",
        ),
        ("LINDEX list 1", "Bulk([49])"),
        ("SISMEMBER ints 70000", "Integer(1)"),
        ("ZSCORE z n", "Bulk([105, 110, 102])"),
        ("HGET h f", "Bulk([118])"),
        ("XACK x g 1-1", "Integer(1)"),
        ("FCALL seven 0", "Integer(7)"),
        ("SELECT 3", "Simple(\"OK\")"),
        ("GET three", "Bulk([51])"),
        ("DBSIZE", "Integer(1)"),
    ] {
        check(&mut client, command, expected);
    }
    // All is there already.
    let (code, out, err) = import(here.path(), &server, &file(), &["--json"]);
    let figures = r#"{"bytes":0,"expired":0,"keys":0,"libraries":0,"refused":12}"#;
    assert_eq!((code, out.trim()), (4, figures));
    assert!(
        err.contains("'ints': BUSYKEY Target key name already exists."),
        "{err}"
    );
    assert!(
        err.contains("'#!lua name=lib': ERR Library 'lib' already exists"),
        "{err}"
    );
    assert!(
        err.contains("12 keys or libraries were refused; all others are there"),
        "{err}"
    );
    check(&mut client, "SET three changed", "Simple(\"OK\")");
    let (code, ..) = import(here.path(), &server, &file(), &["--replace"]);
    assert_eq!(code, 0);
    check(&mut client, "GET three", "Bulk([51])");
}

#[test]
fn keys_that_have_expired_stay_behind() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let mut bytes = file();
    let place = bytes
        .windows(9)
        .position(|nine| nine == b"\xfc\xff\x9f\x72\x4e\x18\x09\0\0");
    bytes[place.unwrap() + 6] = 0;
    // A sum of 0 is none.
    let end = bytes.len() - 8;
    bytes[end..].fill(0);
    let (code, out, _) = import(here.path(), &server, &bytes, &["--json"]);
    let figures = r#"{"bytes":238,"expired":1,"keys":10,"libraries":1,"refused":0}"#;
    assert_eq!((code, out.trim()), (0, figures));
    check(&mut server.client(), "EXISTS 12345", "Integer(0)");
}

#[test]
fn a_file_that_is_damaged_is_named_with_its_place() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let whole = file();
    let mut changed = whole.clone();
    let place = changed
        .windows(5)
        .position(|five| five == b"hello")
        .unwrap();
    changed[place] = b'H';
    for (bytes, said) in [
        (&changed[..], "and that of its bytes"),
        (&whole[..whole.len() - 1], "it ends in the middle"),
        (&whole[..100], "it ends in the middle"),
        (&whole[..5], "it does not begin with REDIS and a version"),
        (
            b"text".as_slice(),
            "it does not begin with REDIS and a version",
        ),
        (b"".as_slice(), "it does not begin with REDIS and a version"),
        (
            b"REDIS0080\xff",
            "it is of version 80 of the format, and 12 is the newest one",
        ),
        (
            b"REDIS0010\x1b\x01k\0",
            "byte 12: a value of the unknown kind 27",
        ),
        (b"REDIS0010\0\xbf", "byte 11: a length of no known form"),
        (
            b"REDIS0010\x01\x01k\xc3",
            "byte 13: a string where a length is",
        ),
        (
            b"REDIS0010\0\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            "it ends in the middle",
        ),
    ] {
        let (code, _, err) = import(here.path(), &server, bytes, &["--replace"]);
        assert_eq!(code, 3, "{said}: {err}");
        assert!(
            err.contains("dump.rdb: ") && err.contains(said),
            "{said}: {err}"
        );
    }
    // Each byte, in turn: it may be another value, but no end of the program.
    for place in 9..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x55;
        let (code, ..) = import(here.path(), &server, &damaged, &["--replace"]);
        assert!([3, 4].contains(&code), "byte {place}: {code}");
    }
    check(&mut server.client(), "PING", "Simple(\"PONG\")");
}

#[test]
fn what_belongs_to_modules_is_refused_by_name() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let mut bytes = b"REDIS0010\xf7\x81\0\0\0\0\0\0\0\x05\x02\x02\x05\x03abc\0".to_vec();
    bytes.extend(b"\x07\x06filter\x81\0\0\0\0\0\0\0\x05\x01\x07\x04");
    bytes.extend(b"12345678\x03abcd\x02\x40\x50\0\0\x01k\x01v\xff");
    bytes.extend([0; 8]);
    let (code, out, err) = import(here.path(), &server, &bytes, &["--json"]);
    let figures = r#"{"bytes":3,"expired":0,"keys":1,"libraries":0,"refused":1}"#;
    assert_eq!((code, out.trim()), (4, figures), "{err}");
    let said = "'filter': it belongs to a module, and PandoDB has no modules";
    assert!(err.contains(said), "{err}");
}

#[test]
fn who_is_not_let_in_is_told_so() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store", "--requirepass", "secret"]);
    let (code, _, err) = import(here.path(), &server, &file(), &[]);
    assert_eq!(code, 1);
    assert!(err.contains("NOAUTH Authentication required."), "{err}");
    let (code, _, err) = import(here.path(), &server, &file(), &["--password", "wrong"]);
    assert_eq!(code, 1);
    assert!(err.contains("WRONGPASS"), "{err}");
    let (code, ..) = import(here.path(), &server, &file(), &["--password", "secret"]);
    assert_eq!(code, 0);
    drop(server);
    let closed = pando(here.path())
        .args(["import", "dump.rdb", "--port", "1"])
        .output()
        .unwrap();
    assert_eq!(closed.status.code(), Some(4));
    let absent = pando(here.path())
        .args(["import", "no.rdb"])
        .output()
        .unwrap();
    assert_eq!(absent.status.code(), Some(1));
}

/// Returns a file of these records, without a sum.
fn file_of(records: &[&[u8]]) -> Vec<u8> {
    [b"REDIS0010", &records.concat()[..], b"\xff", &[0; 8]].concat()
}

/// The reader of a file is ahead of what was sent of it.
#[test]
fn what_is_before_a_fault_comes_over() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let whole = file();
    let end = whole.len() - 1;
    let text = whole.windows(5).position(|five| five == b"hello").unwrap();
    let mut changed = whole.clone();
    changed[end] ^= 1;
    for (bytes, fault, keys) in [
        (&whole[..end], "it ends in the middle", 10),
        (&whole[..end - 17], "it ends in the middle", 10),
        (&changed, "it is damaged", 10),
        (&whole[..text + 3], "it ends in the middle", 9),
    ] {
        check(&mut server.client(), "FLUSHALL", "Simple(\"OK\")");
        let (code, out, err) = import(here.path(), &server, bytes, &["--replace"]);
        assert_eq!(code, 3, "{fault}");
        let said = format!("{fault}; what is before that was sent");
        assert!(err.contains(&said), "{err}");
        let expected = format!("Integer({keys})");
        check(&mut server.client(), "DBSIZE", &expected);
        assert!(out.contains(" keys and 1 libraries"), "{out}");
    }
}

#[test]
fn a_server_that_goes_leaves_what_it_has_answered() {
    let here = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(b"+PONG\r\n+OK\r\n-ERR no\r\n").unwrap();
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while all.windows(7).filter(|seven| *seven == b"RESTORE").count() < 4 {
            let read = client.read(&mut piece).unwrap();
            all.extend_from_slice(&piece[..read]);
        }
    });
    let keys = [
        b"\0\x01a\x01v",
        b"\0\x01b\x01v",
        b"\0\x01c\x01v",
        b"\0\x01d\x01v",
    ];
    fs::write(
        here.path().join("dump.rdb"),
        file_of(&keys.map(|key| &key[..])),
    )
    .unwrap();
    let output = pando(here.path())
        .args(["import", "dump.rdb", "--port", &port, "--json"])
        .output()
        .unwrap();
    server.join().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let figures = r#"{"bytes":3,"expired":0,"keys":1,"libraries":0,"refused":1}"#;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), figures);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("2 keys or libraries may be there or not"),
        "{err}"
    );
}

#[test]
fn keys_that_cannot_come_over_are_named_and_leave_the_others() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let name = [b"\0\x80\0\x30\0\0".as_slice(), &[b'n'; 0x30_0000], b"\x01v"].concat();
    let file = file_of(&[
        b"\0\x01a\x01v",
        &name,
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\0\x03old\x01v",
        b"\xfe\x10\0\x05there\x01v",
        b"\xfe\0\0\x01c\x01v",
    ]);
    let (code, out, err) = import(here.path(), &server, &file, &[]);
    let said = "2 keys and 0 libraries of functions, 6 bytes; 1 keys had expired, 2 were refused\n";
    assert_eq!((code, &out[..]), (4, said), "{err:.300}");
    let shown = format!("'{}' and 3145528 bytes: ERR ", "n".repeat(200));
    assert!(err.starts_with(&shown), "{err:.300}");
    assert!(
        err.contains("'there': database 16: ERR DB index"),
        "{err:.999}"
    );
    check(
        &mut server.client(),
        "MGET a c",
        "Array([Bulk([118]), Bulk([118])])",
    );
}
