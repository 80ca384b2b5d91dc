//! SORT and SORT_RO.

use crate::fixture::Fixture;

const SYNTAX: &str = "-ERR syntax error";

#[test]
fn lists_are_sorted_by_numbers_and_by_texts() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l 3 -1 20 1.5 0x10", ":5"),
        ("SORT l", "[\"-1\" \"1.5\" \"3\" \"0x10\" \"20\"]"),
        ("SORT l DESC", "[\"20\" \"0x10\" \"3\" \"1.5\" \"-1\"]"),
        ("SORT l DESC ASC LIMIT 1 2", "[\"1.5\" \"3\"]"),
        ("SORT_RO l ALPHA", "[\"-1\" \"0x10\" \"1.5\" \"20\" \"3\"]"),
        ("SORT l LIMIT -5 1", "[\"-1\"]"),
        ("SORT l LIMIT 5 1", "[]"),
        ("SORT l LIMIT 3 -1", "[\"0x10\" \"20\"]"),
        ("SORT l LIMIT 9223372036854775807 9223372036854775807", "[]"),
        (
            "SORT l LIMIT x 1",
            "-ERR value is not an integer or out of range",
        ),
        ("SORT l LIMIT 1", SYNTAX),
        ("SORT l WHAT", SYNTAX),
        ("SORT l BY", SYNTAX),
        ("SORT_RO l STORE x", SYNTAX),
        ("SORT none", "[]"),
        ("RPUSH l x", ":6"),
        (
            "SORT l",
            "-ERR One or more scores can't be converted into double",
        ),
        ("SORT l ALPHA DESC LIMIT 0 1", "[\"x\"]"),
        ("SET s 1", "+OK"),
        (
            "SORT s",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}

#[test]
fn what_is_sorted_by_and_returned_may_lie_in_other_keys() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a b c d", ":4"),
        ("MSET w_a 3 w_b 1 w_c 2 n_a A n_c C", "+OK"),
        ("SORT l BY w_*", "[\"d\" \"b\" \"c\" \"a\"]"),
        ("SORT l BY w_* DESC LIMIT 0 2", "[\"a\" \"c\"]"),
        ("SORT l BY w_* ALPHA", "[\"d\" \"b\" \"c\" \"a\"]"),
        ("SORT l BY none_* DESC", "[\"d\" \"c\" \"b\" \"a\"]"),
        ("SORT l BY nosort", "[\"a\" \"b\" \"c\" \"d\"]"),
        ("SORT l BY nosort BY w_*", "[\"a\" \"b\" \"c\" \"d\"]"),
        ("SORT l BY nosort DESC LIMIT 1 2", "[\"c\" \"b\"]"),
        (
            "SORT l BY w_* GET # GET n_* GET fixed",
            "[\"d\" nil nil \"b\" nil nil \"c\" \"C\" nil \"a\" \"A\" nil]",
        ),
        ("SORT l BY l->* GET w_*->f LIMIT 0 1", "[nil]"),
        (
            "SORT l BY n_*",
            "-ERR One or more scores can't be converted into double",
        ),
        ("RPUSH n_b x", ":1"),
        ("SORT l ALPHA GET n_* LIMIT 0 2", "[\"A\" nil]"),
    ]);
    let long = "v".repeat(5_000_000);
    assert_eq!(client.run(&format!("SET n_d {long}")), "+OK");
    client.check(&[
        (
            "SORT_RO l ALPHA GET n_* LIMIT 2 2",
            &format!("[\"C\" \"{long}\"]"),
        ),
        (
            "SORT l BY n_* ALPHA",
            "-ERR the command reads long strings that do not fit into memory together",
        ),
    ]);
}

#[test]
fn results_are_stored_as_lists() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l 3 1 2", ":3"),
        ("MSET n_1 one n_3 three", "+OK"),
        ("SET target x EX 1000", "+OK"),
        ("SORT l STORE target", ":3"),
        ("LRANGE target 0 -1", "[\"1\" \"2\" \"3\"]"),
        ("TTL target", ":-1"),
        ("EXPIRE target 1000", ":1"),
        ("SORT l GET n_* GET # STORE target", ":6"),
        (
            "LRANGE target 0 -1",
            "[\"one\" \"1\" \"\" \"2\" \"three\" \"3\"]",
        ),
        ("TTL target", ":-1"),
        ("SORT l DESC STORE l", ":3"),
        ("LRANGE l 0 -1", "[\"3\" \"2\" \"1\"]"),
        ("SORT none STORE target", ":0"),
        ("EXISTS target", ":0"),
        ("SORT none STORE target", ":0"),
        ("RPUSH l x", ":4"),
        ("SET target x", "+OK"),
        (
            "SORT l STORE target",
            "-ERR One or more scores can't be converted into double",
        ),
        ("GET target", "\"x\""),
        ("MULTI", "+OK"),
        ("RPUSH new 2 1", "+QUEUED"),
        ("SORT new STORE new", "+QUEUED"),
        ("SORT target STORE new", "+QUEUED"),
        ("LRANGE new 0 -1", "+QUEUED"),
        (
            "EXEC",
            "[:2 :2 -WRONGTYPE Operation against a key holding the wrong kind of value \
             [\"1\" \"2\"]]",
        ),
    ]);
    let long = "v".repeat(5_000_000);
    assert_eq!(client.run(&format!("SET n_2 {long}")), "+OK");
    let reply = client.run("SORT l ALPHA GET n_* STORE target");
    assert!(reply.starts_with("-ERR the command reads long"), "{reply}");
    // The elements of the result are more than a batch takes.
    let short = "v".repeat(2_000_000);
    assert_eq!(client.run(&format!("SET n_2 {short}")), "+OK");
    client.check(&[
        (
            "SORT l ALPHA GET n_2 GET n_* GET n_* GET n_* STORE target",
            ":16",
        ),
        // The pattern without a star has no key.
        ("LINDEX target 4", "\"\""),
    ]);
    for place in 5..8 {
        let found = client.run(&format!("LINDEX target {place}"));
        assert!(found == format!("\"{short}\""), "{place}");
    }
}

#[test]
fn sets_sorted_sets_and_fields_of_hashes_are_sorted() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SADD s 30 4 100", ":3"),
        ("SORT s", "[\"4\" \"30\" \"100\"]"),
        ("SORT s ALPHA DESC", "[\"4\" \"30\" \"100\"]"),
        // What is stored of a set is sorted, even if it is not to be.
        ("SORT s BY nosort STORE l", ":3"),
        ("LRANGE l 0 -1", "[\"100\" \"30\" \"4\"]"),
        ("SORT s BY nosort DESC LIMIT 1 1 STORE l", ":1"),
        ("LRANGE l 0 -1", "[\"30\"]"),
        (
            "EVAL return(redis.call('sort',KEYS[1],'by','nosort')) 1 s",
            "[\"100\" \"30\" \"4\"]",
        ),
        ("SADD s2 b c a", ":3"),
        ("SORT s2 BY nosort", "[\"b\" \"c\" \"a\"]"),
        (
            "EVAL return(redis.call('sort',KEYS[1],'by','nosort')) 1 s2",
            "[\"a\" \"b\" \"c\"]",
        ),
        ("ZADD z 1 b 2 c 3 a", ":3"),
        ("SORT z ALPHA", "[\"a\" \"b\" \"c\"]"),
        ("SORT z BY nosort", "[\"b\" \"c\" \"a\"]"),
        ("SORT z BY nosort DESC LIMIT 1 2", "[\"c\" \"b\"]"),
        (
            "SORT z",
            "-ERR One or more scores can't be converted into double",
        ),
        ("HSET h_a w 2 name A", ":2"),
        ("HSET h_b w 3", ":1"),
        ("HSET h_c w 1 name C w->x X", ":3"),
        ("SET h_d 7", "+OK"),
        (
            "SORT z BY h_*->w GET # GET h_*->name GET h_* GET h_*->w->x",
            "[\"c\" \"C\" nil \"X\" \"a\" \"A\" nil nil \"b\" nil nil nil]",
        ),
        ("RPUSH d a d", ":2"),
        ("SORT d BY h_*->w GET h_*->w", "[nil \"2\"]"),
        ("SORT z ALPHA GET h_*->name STORE z", ":3"),
        ("LRANGE z 0 -1", "[\"A\" \"\" \"C\"]"),
        (
            "SORT h_a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}

#[test]
fn a_long_result_is_a_quicklist() {
    let server = Fixture::new();
    let mut client = server.client();
    let words: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let push = format!("LPUSH l {}", words.join(" "));
    client.check(&[
        (&push, ":3000"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        ("SORT l STORE sorted", ":3000"),
        ("OBJECT ENCODING sorted", "\"quicklist\""),
        ("LINDEX sorted 1234", "\"1234\""),
        ("SORT l LIMIT 0 1000 STORE sorted", ":1000"),
        ("OBJECT ENCODING sorted", "\"listpack\""),
        ("LTRIM l 0 1999", "+OK"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        // All that is left is in the block that is cut.
        ("LTRIM l 0 9", "+OK"),
        ("OBJECT ENCODING l", "\"listpack\""),
    ]);
}

/// A command that looks through more than 256 MiB of fields would hold its loop for long.
#[test]
fn what_patterns_look_through_is_bounded() {
    let server = Fixture::new();
    let mut client = server.client();
    let long = "x".repeat(500_000);
    client.check(&[
        ("RPUSH l 1", ":1"),
        // One that Redis would keep in a compact encoding is in one row.
        ("CONFIG SET hash-max-listpack-value 1000000", "+OK"),
        ("CONFIG SET packed-bytes-max 65536", "+OK"),
        (&format!("HSET h_1 a {long} b 2"), ":2"),
    ]);
    let sort = |times: usize| format!("SORT l{}", " GET h_*->b".repeat(times));
    let reply = client.run(&sort(500));
    assert_eq!(reply.matches("\"2\"").count(), 500);
    client.check(&[
        (
            &sort(600),
            "-ERR the values that BY and GET name have more than 256 MiB together",
        ),
        ("SORT l BY h_*->b GET h_*->b", "[\"2\"]"),
    ]);
}
