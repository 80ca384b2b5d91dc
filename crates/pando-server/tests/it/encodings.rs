//! OBJECT ENCODING of collections, and the limits that CONFIG has for it.

use crate::fixture::Fixture;

#[test]
fn limits_of_encodings_are_set() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (
            "CONFIG GET hash-max-listpack-*",
            "[\"hash-max-listpack-entries\" \"512\" \"hash-max-listpack-value\" \"64\"]",
        ),
        (
            "CONFIG SET hash-max-ziplist-entries 2 hash-max-listpack-value 3",
            "+OK",
        ),
        (
            "CONFIG GET hash-max-listpack-entries",
            "[\"hash-max-listpack-entries\" \"2\"]",
        ),
        ("HSET h a 123 b 1", ":2"),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("HSET h c 1", ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("HSET i a 1234", ":1"),
        ("OBJECT ENCODING i", "\"hashtable\""),
        (
            "CONFIG SET set-max-intset-entries 2 set-max-listpack-entries 3",
            "+OK",
        ),
        ("CONFIG SET set-max-listpack-value 4", "+OK"),
        ("SADD s 1 2", ":2"),
        ("OBJECT ENCODING s", "\"intset\""),
        ("SADD s a", ":1"),
        ("OBJECT ENCODING s", "\"listpack\""),
        ("SADD s b", ":1"),
        ("OBJECT ENCODING s", "\"hashtable\""),
        ("SADD t 1 2 3", ":3"),
        ("OBJECT ENCODING t", "\"hashtable\""),
        ("SADD u abcde", ":1"),
        ("OBJECT ENCODING u", "\"hashtable\""),
        ("SADD v 12345", ":1"),
        ("OBJECT ENCODING v", "\"intset\""),
        ("SADD v a", ":1"),
        ("OBJECT ENCODING v", "\"hashtable\""),
        ("SUNIONSTORE w s t", ":5"),
        ("OBJECT ENCODING w", "\"hashtable\""),
        (
            "CONFIG SET zset-max-listpack-entries 2 zset-max-ziplist-value 4",
            "+OK",
        ),
        ("ZADD z 1 a 2 b", ":2"),
        ("OBJECT ENCODING z", "\"listpack\""),
        ("ZADD z 3 c", ":1"),
        ("OBJECT ENCODING z", "\"skiplist\""),
        ("ZADD y 1 abcde", ":1"),
        ("OBJECT ENCODING y", "\"skiplist\""),
        ("ZUNIONSTORE x 1 z", ":3"),
        ("OBJECT ENCODING x", "\"skiplist\""),
    ]);
}

#[test]
fn the_longest_listpack_of_a_list_has_a_number_or_a_length() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("CONFIG SET list-max-listpack-size 4", "+OK"),
        ("RPUSH l 1 2 3 4", ":4"),
        ("OBJECT ENCODING l", "\"listpack\""),
        ("RPUSH l 5", ":5"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        ("LTRIM l 0 2", "+OK"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        ("LTRIM l 0 1", "+OK"),
        ("OBJECT ENCODING l", "\"listpack\""),
        ("SORT l STORE m", ":2"),
        ("OBJECT ENCODING m", "\"listpack\""),
        ("CONFIG SET list-max-listpack-size 0", "+OK"),
        ("RPUSH n a", ":1"),
        ("OBJECT ENCODING n", "\"listpack\""),
        ("RPUSH n a", ":2"),
        ("OBJECT ENCODING n", "\"quicklist\""),
        ("SORT l STORE m", ":2"),
        ("OBJECT ENCODING m", "\"quicklist\""),
        ("CONFIG SET list-max-listpack-size -1", "+OK"),
    ]);
    let long = |bytes: usize| "x".repeat(bytes);
    for (size, bytes) in [
        (-1, 4096),
        (-2, 8192),
        (-3, 16_384),
        (-4, 32_768),
        (-5, 65_536),
        (-9, 65_536),
    ] {
        client.check(&[
            (&format!("CONFIG SET list-max-listpack-size {size}"), "+OK"),
            ("DEL l", ":1"),
            (&format!("RPUSH l {}", long(bytes - 7)), ":1"),
            ("OBJECT ENCODING l", "\"listpack\""),
            ("DEL l", ":1"),
            (&format!("RPUSH l {}", long(bytes - 6)), ":1"),
            ("OBJECT ENCODING l", "\"quicklist\""),
        ]);
    }
}

#[test]
fn limits_that_are_none_are_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    let refused = |name: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    let of_all = "argument must be between 0 and 9223372036854775807 inclusive";
    let of_lists = "argument must be between -2147483648 and 2147483647 inclusive";
    let no_integer = "argument couldn't be parsed into an integer";
    for (name, value, why) in [
        ("hash-max-listpack-entries", "-1", of_all),
        (
            "zset-max-listpack-value",
            "x",
            "argument must be a memory value",
        ),
        ("list-max-listpack-size", "2147483648", of_lists),
        ("list-max-listpack-size", "", no_integer),
    ] {
        let reply = client.call(&["CONFIG", "SET", "set-max-intset-entries", "3", name, value]);
        assert_eq!(crate::client::show(&reply), refused(name, why));
    }
    client.check(&[(
        "CONFIG GET set-max-intset-entries",
        "[\"set-max-intset-entries\" \"512\"]",
    )]);
}
