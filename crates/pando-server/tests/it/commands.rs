//! The replies of each command.

use crate::fixture::Fixture;

#[test]
fn strings_are_set_and_read() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("PING", "+PONG"),
        ("PING hello", "\"hello\""),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command",
        ),
        ("ECHO x", "\"x\""),
        ("GET a", "nil"),
        ("SET a 1", "+OK"),
        ("GET a", "\"1\""),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("SET a 2 NX", "nil"),
        ("SET a 2 XX", "+OK"),
        ("SET b 2 XX", "nil"),
        ("SET b 2 NX", "+OK"),
        ("SET a 3 GET", "\"2\""),
        ("SET c 3 GET", "nil"),
        ("SET c 4 NX GET", "\"3\""),
        ("GET c", "\"3\""),
        ("SET a 1 NX XX", "-ERR syntax error"),
        ("SET a 1 EX", "-ERR syntax error"),
        ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command"),
        (
            "SET a 1 EX x",
            "-ERR value is not an integer or out of range",
        ),
        (
            "SET a 1 EX 9223372036854775807",
            "-ERR invalid expire time in 'set' command",
        ),
        ("SET a 1 EX 10 PX 10", "-ERR syntax error"),
        ("SET a 1 EX 10 KEEPTTL", "-ERR syntax error"),
        ("SET a 1 what", "-ERR syntax error"),
        ("SET a ''", "+OK"),
        ("GET a", "\"\""),
        ("SETNX a 1", ":0"),
        ("SETNX n 1", ":1"),
        ("SETEX e 100 v", "+OK"),
        ("SETEX e 0 v", "-ERR invalid expire time in 'setex' command"),
        (
            "PSETEX e -1 v",
            "-ERR invalid expire time in 'psetex' command",
        ),
        ("PSETEX e 100000 v", "+OK"),
        ("TTL e", ":100"),
        ("GETSET e w", "\"v\""),
        ("TTL e", ":-1"),
        ("GETDEL e", "\"w\""),
        ("GETDEL e", "nil"),
        ("STRLEN n", ":1"),
        ("STRLEN none", ":0"),
    ]);
}

#[test]
fn counters_count_and_overflow_is_an_error() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("INCR n", ":1"),
        ("INCRBY n 10", ":11"),
        ("DECR n", ":10"),
        ("DECRBY n 20", ":-10"),
        ("INCRBY n x", "-ERR value is not an integer or out of range"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("GET n", "\"9223372036854775807\""),
        (
            "DECRBY n -9223372036854775808",
            "-ERR decrement would overflow",
        ),
        ("SET n 12abc", "+OK"),
        ("INCR n", "-ERR value is not an integer or out of range"),
        ("INCRBYFLOAT f 10.5", "\"10.5\""),
        ("INCRBYFLOAT f 0.1", "\"10.6\""),
        ("INCRBYFLOAT f -5e-1", "\"10.1\""),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT n 1", "-ERR value is not a valid float"),
        ("SET t 5 EX 100", "+OK"),
        ("INCR t", ":6"),
        ("TTL t", ":100"),
    ]);
}

#[test]
fn floats_are_counted_that_have_hundreds_of_digits() {
    let server = Fixture::new();
    let mut client = server.client();
    let zeros = |count| "0".repeat(count);
    let sum = format!("\"1{}\"", zeros(300));
    let next = format!("\"1{}1\"", zeros(299));
    client.check(&[
        (&format!("INCRBYFLOAT large 1{}", zeros(300)), &sum),
        // The text that the server has written is a number to it.
        ("INCRBYFLOAT large 1", &next),
        (&format!("HINCRBYFLOAT h large 1{}", zeros(300)), &sum),
        ("HINCRBYFLOAT h large 1", &next),
    ]);

    let longest = format!("INCRBYFLOAT f {}1", zeros(5118));
    client.check(&[
        (&longest, "\"1\""),
        (&format!("HINCRBYFLOAT h f 1.{}", zeros(5117)), "\"1\""),
        (&format!("SET t 0.5{}", zeros(300)), "+OK"),
        ("INCRBYFLOAT t 1", "\"1.5\""),
        (
            &format!("INCRBYFLOAT f {}1", zeros(5119)),
            "-ERR value is not a valid float",
        ),
        (
            &format!("INCRBYFLOAT inf 1{}", zeros(308)),
            &format!("\"1{}\"", zeros(308)),
        ),
        (
            &format!("INCRBYFLOAT inf 1{}", zeros(308)),
            "-ERR increment would produce NaN or Infinity",
        ),
    ]);
}

#[test]
fn floats_are_added_digit_by_digit() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET f 0.3", "+OK"),
        ("INCRBYFLOAT f 1e-18", "\"0.3\""),
        ("SET f 0.10000000000000000000000000000000", "+OK"),
        ("INCRBYFLOAT f 0.2", "\"0.3\""),
        ("SET f 100000000000000000000000000", "+OK"),
        ("INCRBYFLOAT f 0", "\"100000000000000000000000000\""),
        ("INCRBYFLOAT none -1e-20", "\"0\""),
        ("SET f 17179869184.1234567890123456789", "+OK"),
        ("INCRBYFLOAT f 0", "\"17179869184.12345678901234568\""),
        ("HSET h f 0.3", ":1"),
        ("HINCRBYFLOAT h f -1e-18", "\"0.3\""),
    ]);
}

#[test]
fn pieces_of_strings_are_read_and_written() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("APPEND a Hello", ":5"),
        ("APPEND a ,World", ":11"),
        ("GET a", "\"Hello,World\""),
        ("GETRANGE a 0 4", "\"Hello\""),
        ("GETRANGE a -5 -1", "\"World\""),
        ("SUBSTR a 0 0", "\"H\""),
        ("GETRANGE none 0 -1", "\"\""),
        (
            "GETRANGE a x 1",
            "-ERR value is not an integer or out of range",
        ),
        ("SETRANGE a 6 Redis", ":11"),
        ("GET a", "\"Hello,Redis\""),
        ("SETRANGE b 3 x", ":4"),
        ("GET b", "\"\0\0\0x\""),
        ("SETRANGE none 5 ''", ":0"),
        ("EXISTS none", ":0"),
        ("SETRANGE a -1 x", "-ERR offset is out of range"),
        (
            "SETRANGE a 536870912 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        (
            "SETRANGE a 9223372036854775807 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
    ]);
}

#[test]
fn many_keys_are_handled_at_once() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("MSET a 1 b 2 a 3", "+OK"),
        ("MGET a b c", "[\"3\" \"2\" nil]"),
        (
            "MSET a 1 b",
            "-ERR wrong number of arguments for 'mset' command",
        ),
        ("MSETNX c 1 a 2", ":0"),
        ("EXISTS c", ":0"),
        ("MSETNX c 1 d 2", ":1"),
        ("EXISTS a a b none", ":3"),
        ("TOUCH a none", ":1"),
        ("DBSIZE", ":4"),
        ("DEL a a none", ":1"),
        ("UNLINK b c", ":2"),
        ("DBSIZE", ":1"),
        ("TYPE d", "+string"),
        ("TYPE none", "+none"),
    ]);
}

#[test]
fn databases_are_apart_and_are_flushed_apart() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET a zero", "+OK"),
        ("SELECT 9", "+OK"),
        ("GET a", "nil"),
        ("SET a nine", "+OK"),
        ("SET b nine EX 1000", "+OK"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT -1", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("GET a", "\"zero\""),
        ("FLUSHALL what", "-ERR syntax error"),
        ("FLUSHALL ASYNC", "+OK"),
        ("GET a", "nil"),
        ("FLUSHDB SYNC", "+OK"),
    ]);
}

#[test]
fn unknown_commands_are_named() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (
            "NOSUCH",
            "-ERR unknown command 'NOSUCH', with args beginning with: ",
        ),
        (
            "nosuch a bc",
            "-ERR unknown command 'nosuch', with args beginning with: 'a' 'bc' ",
        ),
        (
            "XNOSUCH l 1",
            "-ERR unknown command 'XNOSUCH', with args beginning with: 'l' '1' ",
        ),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
        ),
        (
            "CONFIG",
            "-ERR wrong number of arguments for 'config' command",
        ),
        (
            "CLIENT SETNAME",
            "-ERR wrong number of arguments for 'client|setname' command",
        ),
    ]);
}

#[test]
fn resp3_has_its_own_null_and_map() {
    let server = Fixture::new();
    let mut client = server.client();
    assert!(
        client
            .run("HELLO")
            .starts_with("[\"server\" \"redis\" \"version\" \"7.2.5\"")
    );
    let hello = client.run("HELLO 3 SETNAME me");
    assert!(hello.starts_with("{\"server\"=\"redis\" \"version\"=\"7.2.5\" \"proto\"=:3 "));
    assert!(hello.ends_with("\"mode\"=\"standalone\" \"role\"=\"master\" \"modules\"=[]}"));
    client.check(&[
        ("CLIENT GETNAME", "\"me\""),
        ("GET none", "nil"),
        ("MGET none", "[nil]"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "HELLO x",
            "-ERR Protocol version is not an integer or out of range",
        ),
        ("HELLO 3 what", "-ERR Syntax error in HELLO option 'what'"),
        ("CONFIG GET databases", "{\"databases\"=\"16\"}"),
    ]);
    client.send(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n");
    let mut bytes = [0; 3];
    std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
    assert_eq!(&bytes, b"_\r\n");
    client.check(&[("RESET", "+RESET")]);
    client.send(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n");
    let mut bytes = [0; 5];
    std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
    assert_eq!(&bytes, b"$-1\r\n");
}

#[test]
fn long_keys_and_values_are_whole() {
    let server = Fixture::new();
    let mut client = server.client();
    for length in [1000, 1004, 1005, 1006, 1007, 1016, 5000, 100_000] {
        let (a, b) = ("k".repeat(length), "k".repeat(length - 1) + "x");
        let value = "v".repeat(length * 3);
        assert_eq!(client.run(&format!("SET {a} {value}")), "+OK");
        assert_eq!(client.run(&format!("GET {b}")), "nil");
        assert_eq!(client.run(&format!("SET {b} other EX 100")), "+OK");
        assert_eq!(client.run(&format!("GET {a}")), format!("\"{value}\""));
        assert_eq!(client.run(&format!("GETEX {b} PERSIST")), "\"other\"");
        assert_eq!(client.run(&format!("TTL {b}")), ":-1");
        assert_eq!(client.run(&format!("APPEND {b} s")), ":6");
        assert_eq!(client.run("DBSIZE"), ":2");
        assert_eq!(client.run("KEYS *x"), format!("[\"{b}\"]"));
        assert_eq!(client.run(&format!("DEL {a} {b}")), ":2");
    }
}

#[test]
fn a_value_beyond_the_limit_is_refused_by_name() {
    let server = Fixture::new();
    let mut client = server.client();
    let limit: usize = {
        let reply = client.run("CONFIG GET proto-max-bulk-len");
        let digits: String = reply.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    if limit > 64 << 20 {
        return;
    }
    let value = vec![b'x'; limit];
    let reply = crate::client::show(&client.call(&[b"SET", &b"k"[..], &value]));
    assert_eq!(
        reply,
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    );
    assert_eq!(client.run("PING"), "+PONG");
}
