//! Commands of hashes, and what all collections have in common: types, deadlines, transactions,
//! restarts.

use crate::client::show;
use crate::fixture::{Fixture, open_on_disk, options};

#[test]
fn fields_are_written_and_read() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("HSET h a 1 b 2", ":2"),
        ("HSET h b 3 c 4 c 5", ":1"),
        ("HGETALL h", "[\"a\" \"1\" \"b\" \"3\" \"c\" \"5\"]"),
        ("HGET h b", "\"3\""),
        ("HGET h x", "nil"),
        ("HGET none x", "nil"),
        ("HMGET h a x c", "[\"1\" nil \"5\"]"),
        ("HMGET none a b", "[nil nil]"),
        ("HKEYS h", "[\"a\" \"b\" \"c\"]"),
        ("HVALS h", "[\"1\" \"3\" \"5\"]"),
        ("HVALS none", "[]"),
        ("HLEN h", ":3"),
        ("HLEN none", ":0"),
        ("HSTRLEN h a", ":1"),
        ("HSTRLEN h x", ":0"),
        ("HEXISTS h a", ":1"),
        ("HEXISTS h x", ":0"),
        ("HSETNX h a 9", ":0"),
        ("HSETNX h d ''", ":1"),
        ("HGET h d", "\"\""),
        ("HMSET h e 1", "+OK"),
        (
            "HSET h a",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HSET h a 1 b",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HMSET h a 1 b",
            "-ERR wrong number of arguments for 'hmset' command",
        ),
        ("HDEL h a a x", ":1"),
        ("HDEL h b c d e", ":4"),
        ("EXISTS h", ":0"),
        ("HDEL h a", ":0"),
        ("HSET g a 1 b 2 c 3", ":3"),
        ("HGETDEL g FIELDS 2 a x", "[\"1\" nil]"),
        (
            "HGETDEL g FIELDS 0 a",
            "-ERR Number of fields must be a positive integer",
        ),
        (
            "HGETDEL g FIELDS 2 a",
            "-ERR The `numfields` parameter must match the number of arguments",
        ),
        (
            "HGETDEL g WHAT 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
        ),
        ("HGETDEL g FIELDS 2 b c", "[\"2\" \"3\"]"),
        ("TYPE g", "+none"),
    ]);
}

#[test]
fn numbers_are_added_to_fields() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("HINCRBY h n 5", ":5"),
        ("HINCRBY h n -7", ":-2"),
        ("HSET h max 9223372036854775807 t text", ":2"),
        (
            "HINCRBY h max 1",
            "-ERR increment or decrement would overflow",
        ),
        ("HINCRBY h t 1", "-ERR hash value is not an integer"),
        (
            "HINCRBY h n 1.5",
            "-ERR value is not an integer or out of range",
        ),
        ("HINCRBYFLOAT h f 10.5", "\"10.5\""),
        ("HINCRBYFLOAT h f -5e-1", "\"10\""),
        ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
        ("HGET h max", "\"9223372036854775807\""),
    ]);
}

#[test]
fn random_fields_are_fields() {
    let server = Fixture::new();
    let mut client = server.client();
    let range = "-ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807";
    client.check(&[
        ("HRANDFIELD h", "nil"),
        ("HRANDFIELD h 3", "[]"),
        ("HSET h a 1", ":1"),
        ("HRANDFIELD h", "\"a\""),
        ("HRANDFIELD h 2", "[\"a\"]"),
        ("HRANDFIELD h -2", "[\"a\" \"a\"]"),
        ("HRANDFIELD h -2 WITHVALUES", "[\"a\" \"1\" \"a\" \"1\"]"),
        ("HRANDFIELD h 0", "[]"),
        ("HRANDFIELD h 1 x", "-ERR syntax error"),
        ("HRANDFIELD h -9223372036854775808", range),
        (
            "HRANDFIELD h -9223372036854775807 WITHVALUES",
            "-ERR value is out of range",
        ),
        (
            "HRANDFIELD h x",
            "-ERR value is not an integer or out of range",
        ),
        // What a client asks for is not what is allocated.
        (
            "HRANDFIELD h -9223372036854775807",
            "-ERR reply exceeds the maximum allowed size",
        ),
        ("HSCAN h 0 MATCH a* COUNT 1", "[\"0\" [\"a\" \"1\"]]"),
        ("HSCAN h 0 MATCH b*", "[\"0\" []]"),
        ("HSCAN h 0 NOVALUES", "[\"0\" [\"a\"]]"),
        ("HSCAN h x", "-ERR invalid cursor"),
        ("HSCAN h 0 COUNT 0", "-ERR syntax error"),
        ("HSCAN none 0 COUNT 0", "[\"0\" []]"),
    ]);
    client.run("HELLO 3");
    client.check(&[
        ("HRANDFIELD h 1 WITHVALUES", "[[\"a\" \"1\"]]"),
        ("HGETALL h", "{\"a\"=\"1\"}"),
        ("HGETALL none", "{}"),
    ]);
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn commands_of_another_type_are_refused_and_change_nothing() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("HSET h a 1", ":1"), ("SET s x", "+OK"), ("SADD t m", ":1")]);
    for command in [
        "GET h",
        "GETSET h x",
        "GETDEL h",
        "GETEX h",
        "SET h x GET",
        "STRLEN h",
        "APPEND h x",
        "SETRANGE h 1 x",
        "GETRANGE h 0 1",
        "INCR h",
        "INCRBYFLOAT h 1",
        "HGET s a",
        "HSET s a 1",
        "HGETALL t",
        "HINCRBY s a 1",
        "SADD h a",
        "SCARD s",
        "SMEMBERS h",
        "SPOP h",
        "SMOVE t h m",
        "SMOVE h t m",
        "SINTER t h",
        "SUNIONSTORE d t s",
        "SINTERCARD 2 t h",
    ] {
        client.check(&[(command, WRONG)]);
    }
    client.check(&[
        ("HGETALL h", "[\"a\" \"1\"]"),
        ("SMEMBERS t", "[\"m\"]"),
        ("GET s", "\"x\""),
        ("MGET h s t", "[nil \"x\" nil]"),
        ("SETNX h x", ":0"),
        ("TYPE h", "+hash"),
        ("TYPE t", "+set"),
        ("SCAN 0 TYPE hash", "[\"0\" [\"h\"]]"),
        ("SCAN 0 TYPE SET", "[\"0\" [\"t\"]]"),
        ("SCAN 0 TYPE what", "[\"0\" []]"),
        ("SET h x", "+OK"),
        ("GET h", "\"x\""),
    ]);
    // GETs of a pipeline are answered in groups.
    client.send(b"GET s\r\nGET t\r\nGET s\r\n");
    assert_eq!(show(&client.answer()), "\"x\"");
    assert_eq!(show(&client.answer()), WRONG);
    assert_eq!(show(&client.answer()), "\"x\"");
}

#[test]
fn a_refused_command_is_one_error_of_its_transaction() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET s x", "+OK"),
        ("MULTI", "+OK"),
        ("HSET h a 1", "+QUEUED"),
        ("HSET s a 1", "+QUEUED"),
        ("HINCRBY h a x", "+QUEUED"),
        ("HINCRBY h a 2", "+QUEUED"),
    ]);
    let replies = format!("[:1 {WRONG} -ERR value is not an integer or out of range :3]");
    client.check(&[("EXEC", replies.as_str()), ("HGET h a", "\"3\"")]);
    let mut other = server.client();
    client.check(&[("WATCH h", "+OK"), ("MULTI", "+OK"), ("HLEN h", "+QUEUED")]);
    other.check(&[("HSET h b 1", ":1")]);
    client.check(&[("EXEC", "nil")]);
}

#[test]
fn deadlines_are_those_of_the_whole_hash() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("HSET h a 1", ":1"),
        ("EXPIRE h 100", ":1"),
        ("HSET h b 2", ":1"),
        ("TTL h", ":100"),
        ("HGETALL h", "[\"a\" \"1\" \"b\" \"2\"]"),
        ("PERSIST h", ":1"),
        ("TTL h", ":-1"),
        ("HGET h b", "\"2\""),
        ("PEXPIREAT h 1", ":1"),
        ("EXISTS h", ":0"),
        ("HSET h c 3", ":1"),
        ("TTL h", ":-1"),
        ("HGETALL h", "[\"c\" \"3\"]"),
    ]);
}

#[test]
fn collections_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    {
        let server = Fixture::opened_by(options(), {
            let path = path.clone();
            move |_| open_on_disk(&path)
        });
        let mut client = server.client();
        client.check(&[
            ("HSET h a 1 b 2", ":2"),
            ("SADD s x y", ":2"),
            ("SADD i 3 1 2", ":3"),
        ]);
    }
    let server = Fixture::opened_by(options(), move |_| open_on_disk(&path));
    let mut client = server.client();
    client.check(&[
        ("HGETALL h", "[\"a\" \"1\" \"b\" \"2\"]"),
        ("SMEMBERS s", "[\"x\" \"y\"]"),
        ("SMEMBERS i", "[\"1\" \"2\" \"3\"]"),
    ]);
}

/// Thousands of arguments beside thousands of elements: each is looked at once.
#[test]
fn many_named_elements_are_found_in_one_pass() {
    let server = Fixture::new();
    let mut client = server.client();
    // Packed in one row, as long as Redis would keep them compact.
    for limit in [
        "hash-max-listpack-entries 100000",
        "set-max-listpack-entries 100000",
        "packed-bytes-max 65536",
    ] {
        client.check(&[(&format!("CONFIG SET {limit}"), "+OK")]);
    }
    let numbers = || (0..60_000).map(|number| number.to_string());
    let mut hset: Vec<String> = vec!["HSET".into(), "h".into()];
    hset.extend(numbers().flat_map(|number| [number, String::new()]));
    assert_eq!(show(&client.call(&hset)), ":60000");
    assert_eq!(show(&client.call(&hset)), ":0");
    let command = |words: &[&str], last: std::ops::Range<u32>| {
        let words = words.iter().map(|word| (*word).to_owned());
        let numbers = last.map(|number| number.to_string());
        words.chain(numbers).collect::<Vec<_>>()
    };
    // With a look through all of them for each argument these take 20 seconds.
    let began = pando_sync::time::now();
    let values = show(&client.call(&command(&["HMGET", "h"], 50_000..70_000)));
    let wanted = ["\"\""; 10_000].into_iter().chain(["nil"; 10_000]);
    assert_eq!(
        values,
        format!("[{}]", wanted.collect::<Vec<_>>().join(" "))
    );
    let hdel = command(&["HDEL", "h", "59999"], 30_000..80_000);
    assert_eq!(show(&client.call(&hdel)), ":30000");
    let gone = show(&client.call(&command(
        &["HGETDEL", "h", "FIELDS", "30001", "1"],
        10_000..40_000,
    )));
    assert_eq!(gone.matches("\"\"").count(), 20_001);
    client.check(&[("HLEN h", ":9999"), ("HGET h 0", "\"\"")]);
    let sadd = command(&["SADD", "s", "x"], 0..60_000);
    assert_eq!(show(&client.call(&sadd)), ":60001");
    let srem = command(&["SREM", "s", "5", "5"], 0..30_000);
    assert_eq!(show(&client.call(&srem)), ":30000");
    client.check(&[("SCARD s", ":30001"), ("SISMEMBER s x", ":1")]);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

#[test]
fn a_name_that_is_given_twice_counts_once() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        // Few names, and many.
        ("HSET h a 1 b 2 a 3", ":2"),
        ("HGETALL h", "[\"a\" \"3\" \"b\" \"2\"]"),
        ("HMGET h a a b", "[\"3\" \"3\" \"2\"]"),
        ("HGETDEL h FIELDS 3 a a b", "[\"3\" nil \"2\"]"),
        ("EXISTS h", ":0"),
        ("HSET h a 1 b 2 a 3 c 4 d 5 e 6 f 7 g 8 a 9 g 0", ":7"),
        (
            "HMGET h a x g a x b x x x",
            "[\"9\" nil \"0\" \"9\" nil \"2\" nil nil nil]",
        ),
        (
            "HGETDEL h FIELDS 9 a a b x x g g x x",
            "[\"9\" nil \"2\" nil nil \"0\" nil nil nil]",
        ),
        ("HDEL h x x x x x x x c c d", ":2"),
        ("HKEYS h", "[\"e\" \"f\"]"),
        ("SADD s 1 2 3", ":3"),
        ("SREM s 1 1 01 2 x x x x x", ":2"),
        ("SMEMBERS s", "[\"3\"]"),
        ("ZADD z 1 a 2 b", ":2"),
        ("ZREM z a a", ":1"),
        ("ZREM z a b b c d e f g h", ":1"),
        ("EXISTS z", ":0"),
    ]);
}
