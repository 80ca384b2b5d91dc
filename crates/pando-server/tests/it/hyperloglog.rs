//! HyperLogLogs: their commands, and their bytes.

use pando_resp::Answer;

use crate::client::show;
use crate::fixture::Fixture;

/// What redis-server 7.0.15 has after PFADD of five elements.
const OF_REDIS: &[u8] = b"\x48\x59\x4c\x4c\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x4a\x62\x80\x52\x17\x80\x44\x76\x80\x50\xb1\x84\x4b\xfb\x80\x42\x5a";

const WRONG: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";

#[test]
fn elements_are_counted_and_merged() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("PFCOUNT none", ":0"),
        ("PFADD a x y z", ":1"),
        ("PFADD a x y z", ":0"),
        ("PFADD empty", ":1"),
        ("PFADD empty", ":0"),
        ("PFCOUNT a", ":3"),
        ("PFADD b z 1 2", ":1"),
        ("PFCOUNT a b none", ":5"),
        ("PFCOUNT none a b a b b none", ":5"),
        ("PFMERGE to b a b a none to to", "+OK"),
        ("PFCOUNT to", ":5"),
        ("EXPIREAT a 4102444100", ":1"),
        ("PFMERGE a b none", "+OK"),
        ("PFCOUNT a", ":5"),
        ("EXPIRETIME a", ":4102444100"),
        ("PFDEBUG ENCODING a", "+sparse"),
        ("PFDEBUG TODENSE b", ":1"),
        ("PFDEBUG TODENSE b", ":0"),
        ("PFDEBUG DECODE b", "-ERR HLL encoding is not sparse"),
        ("STRLEN b", ":12304"),
        ("PFMERGE a b", "+OK"),
        ("PFDEBUG ENCODING a", "+dense"),
        ("PFCOUNT a", ":5"),
        (
            "PFDEBUG ENCODING none",
            "-ERR The specified key does not exist",
        ),
        ("PFDEBUG WHAT a", "-ERR Unknown PFDEBUG subcommand 'WHAT'"),
        ("PFSELFTEST", "+OK"),
        ("SET s text", "+OK"),
        ("PFADD s a", WRONG),
        ("PFCOUNT a s", WRONG),
        ("PFMERGE a s", WRONG),
        ("MULTI", "+OK"),
        ("PFADD c x", "+QUEUED"),
        ("PFADD c y", "+QUEUED"),
        ("PFCOUNT c a", "+QUEUED"),
        ("EXEC", "[:1 :1 :5]"),
    ]);
}

#[test]
fn the_bytes_are_those_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let long = "elements of more than eight bytes";
    assert_eq!(
        show(&client.call(&["PFADD", "a", "a", "b", "c", "d", long])),
        ":1"
    );
    assert!(client.call(&["GET", "a"]) == Answer::Bulk(OF_REDIS.to_vec()));
    client.call(&[&b"SET"[..], b"b", OF_REDIS]);
    client.check(&[("PFCOUNT b", ":5"), ("PFADD b a", ":0")]);
}

#[test]
fn hostile_bytes_are_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    let corrupt = "-INVALIDOBJ Corrupted HLL object detected";
    for registers in [&b""[..], b"\x7f", b"\x7f\xff\x00", b"\xff\xff"] {
        let mut bytes = OF_REDIS[..16].to_vec();
        bytes.extend(registers);
        client.call(&[&b"SET"[..], b"a", &bytes]);
        client.check(&[
            ("PFCOUNT a", corrupt),
            ("PFCOUNT a b", corrupt),
            ("PFMERGE b a", corrupt),
            ("EXISTS b", ":0"),
        ]);
        client.run("PFADD a x y z 1 2 3 4 5 6 7 8 9");
        client.run("PFDEBUG DECODE a");
        client.run("PFDEBUG TODENSE a");
    }
    let mut dense = b"HYLL\0".to_vec();
    dense.resize(16, 0x80);
    dense.resize(12_304, 0xff);
    client.call(&[&b"SET"[..], b"a", &dense]);
    client.check(&[("PFCOUNT a", ":9223372036854775807"), ("PFADD a x", ":0")]);
    dense.pop();
    client.call(&[&b"SET"[..], b"a", &dense]);
    client.check(&[("PFCOUNT a", WRONG)]);
}
