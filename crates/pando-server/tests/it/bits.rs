//! Commands of bits and of fields of bits.

use crate::fixture::Fixture;

#[test]
fn bits_are_set_and_read() {
    let server = Fixture::new();
    let mut client = server.client();
    let offset = "-ERR bit offset is not an integer or out of range";
    client.check(&[
        ("SETBIT a 7 1", ":0"),
        ("SETBIT a 7 0", ":1"),
        ("GET a", "\"\0\""),
        ("SETBIT a 1 1", ":0"),
        ("SETBIT a 15 1", ":0"),
        ("GET a", "\"@\u{1}\""),
        ("GETBIT a 1", ":1"),
        ("GETBIT a 2", ":0"),
        ("GETBIT a 4294967295", ":0"),
        ("GETBIT none 0", ":0"),
        ("EXISTS none", ":0"),
        ("SETBIT zeros 20 0", ":0"),
        ("STRLEN zeros", ":3"),
        ("SETBIT a -1 1", offset),
        ("SETBIT a 4294967296 1", offset),
        ("GETBIT a x", offset),
        ("SETBIT a 0 2", "-ERR bit is not an integer or out of range"),
        ("SETBIT a 0 x", "-ERR bit is not an integer or out of range"),
        ("EXPIREAT a 4102444100", ":1"),
        ("SETBIT a 0 1", ":0"),
        ("EXPIRETIME a", ":4102444100"),
    ]);
}

#[test]
fn bits_are_counted_and_found() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET a foobar", "+OK"),
        ("BITCOUNT a", ":26"),
        ("BITCOUNT a 0 0", ":4"),
        ("BITCOUNT a 1 1 BYTE", ":6"),
        ("BITCOUNT a 5 30 bit", ":17"),
        ("BITCOUNT a -2 -1", ":7"),
        ("BITCOUNT a -1 -2", ":0"),
        ("BITCOUNT a -100 -200", ":0"),
        ("BITCOUNT none", ":0"),
        ("BITCOUNT a 0", "-ERR syntax error"),
        ("BITCOUNT a 0 1 WHAT", "-ERR syntax error"),
        ("BITCOUNT a 0 1 BIT x", "-ERR syntax error"),
        (
            "BITCOUNT none x 1",
            "-ERR value is not an integer or out of range",
        ),
        ("BITPOS a 1", ":1"),
        ("BITPOS a 0", ":0"),
        ("BITPOS a 1 2", ":17"),
        ("BITPOS a 0 1 1 BYTE", ":8"),
        ("BITPOS a 1 8 12 BIT", ":9"),
        ("BITPOS none 1", ":-1"),
        ("BITPOS none 0", ":0"),
        ("BITPOS a 2", "-ERR The bit argument must be 1 or 0."),
        ("BITPOS a 1 0 1 WHAT", "-ERR syntax error"),
        ("SET empty ''", "+OK"),
        ("BITPOS empty 0", ":-1"),
        ("BITFIELD ones SET i16 0 -1", "[:0]"),
        ("BITPOS ones 0", ":16"),
        ("BITPOS ones 0 1", ":16"),
        ("BITPOS ones 0 0 -1", ":-1"),
        ("BITPOS ones 0 5", ":-1"),
    ]);
}

#[test]
fn strings_are_combined_bit_by_bit() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET a abc", "+OK"),
        ("SET b AB", "+OK"),
        ("SET to x EXAT 4102444100", "+OK"),
        ("BITOP AND to a b", ":3"),
        ("GET to", "\"AB\0\""),
        ("EXPIRETIME to", ":-1"),
        ("BITOP OR to a b none", ":3"),
        ("GET to", "\"abc\""),
        ("BITOP XOR a a b", ":3"),
        ("GET a", "\"  c\""),
        ("BITOP XOR to a b a a b", ":3"),
        ("GET to", "\"  c\""),
        ("BITOP XOR to b a none b a none", ":3"),
        ("GET to", "\"\0\0\0\""),
        ("BITOP AND to b b a b", ":3"),
        ("GET to", "\"\0\0\0\""),
        ("BITOP NOT to none", ":0"),
        ("EXISTS to", ":0"),
        ("BITOP NOT to b", ":2"),
        ("BITCOUNT to", ":12"),
        (
            "BITOP NOT to a b",
            "-ERR BITOP NOT must be called with a single source key.",
        ),
        ("BITOP WHAT to a", "-ERR syntax error"),
        ("COMMAND GETKEYS BITOP AND to a b", "[\"to\" \"a\" \"b\"]"),
    ]);
}

#[test]
fn fields_are_numbers_of_any_width() {
    let server = Fixture::new();
    let mut client = server.client();
    let kind = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
                supported but i64 is.";
    client.check(&[
        ("BITFIELD a", "[]"),
        ("BITFIELD a GET u8 0", "[:0]"),
        ("EXISTS a", ":0"),
        ("BITFIELD a INCRBY i5 100 1 GET u4 0", "[:1 :0]"),
        ("STRLEN a", ":14"),
        ("BITFIELD b SET u8 #0 255 SET u8 #1 1", "[:0 :0]"),
        (
            "BITFIELD b GET i8 0 GET u16 0 GET i64 0",
            "[:-1 :65281 :-71776119061217280]",
        ),
        ("BITFIELD b INCRBY u8 0 1", "[:0]"),
        (
            "BITFIELD b OVERFLOW SAT SET u8 0 300 INCRBY u8 0 -999",
            "[:0 :0]",
        ),
        (
            "BITFIELD b OVERFLOW FAIL INCRBY i3 5 7 INCRBY i3 5 3",
            "[nil :3]",
        ),
        ("BITFIELD c OVERFLOW FAIL INCRBY u2 100 4", "[nil]"),
        ("STRLEN c", ":13"),
        (
            "BITFIELD c SET i64 3 -9223372036854775808 GET i64 3",
            "[:0 :-9223372036854775808]",
        ),
        ("BITFIELD b GET u64 0", kind),
        ("BITFIELD b GET i65 0", kind),
        (
            "BITFIELD b GET u8 -1",
            "-ERR bit offset is not an integer or out of range",
        ),
        (
            "BITFIELD b OVERFLOW WHAT",
            "-ERR Invalid OVERFLOW type specified",
        ),
        ("BITFIELD b WHAT", "-ERR syntax error"),
        ("BITFIELD_RO b GET u8 0 GET u8 0", "[:3 :3]"),
        (
            "BITFIELD_RO b SET u8 0 1",
            "-ERR BITFIELD_RO only supports the GET subcommand",
        ),
    ]);
}

#[test]
fn bits_change_inside_exec() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut other = server.client();
    client.check(&[
        ("MULTI", "+OK"),
        ("SETBIT a 3 1", "+QUEUED"),
        ("BITFIELD a INCRBY u8 8 5", "+QUEUED"),
        ("BITOP OR b a a", "+QUEUED"),
        ("BITCOUNT b", "+QUEUED"),
        ("BITPOS b 1", "+QUEUED"),
        ("EXEC", "[:0 [:5] :2 :3 :3]"),
        ("WATCH a", "+OK"),
        ("MULTI", "+OK"),
        ("GETBIT a 3", "+QUEUED"),
    ]);
    other.check(&[("SETBIT a 3 0", ":1")]);
    client.check(&[("EXEC", "nil"), ("GETBIT a 3", ":0")]);
}
