//! Commands of sets.

use crate::client::{encode, show};
use crate::fixture::Fixture;

#[test]
fn members_are_added_removed_and_moved() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SADD s b a b", ":2"),
        ("SADD s a c", ":1"),
        ("SMEMBERS s", "[\"b\" \"a\" \"c\"]"),
        ("SMEMBERS none", "[]"),
        ("SCARD s", ":3"),
        ("SCARD none", ":0"),
        ("SISMEMBER s a", ":1"),
        ("SISMEMBER s x", ":0"),
        ("SMISMEMBER s a x c", "[:1 :0 :1]"),
        ("SMISMEMBER none a", "[:0]"),
        ("SREM s a a x", ":1"),
        ("SMOVE s t b", ":1"),
        ("SMOVE s t b", ":0"),
        ("SMOVE none t b", ":0"),
        ("SMOVE t t b", ":1"),
        ("SMOVE t t x", ":0"),
        ("SMEMBERS t", "[\"b\"]"),
        ("SREM s c", ":1"),
        ("EXISTS s", ":0"),
        ("SADD i 10 -3 7 7 007", ":4"),
        ("SMEMBERS i", "[\"-3\" \"7\" \"10\" \"007\"]"),
        (
            "SADD j 10 9 -9223372036854775808 9223372036854775807 0",
            ":5",
        ),
        (
            "SMEMBERS j",
            "[\"-9223372036854775808\" \"0\" \"9\" \"10\" \"9223372036854775807\"]",
        ),
        ("SREM j 9 8", ":1"),
        ("SISMEMBER j 10", ":1"),
        ("SMISMEMBER j 9 0 x", "[:0 :1 :0]"),
        ("SSCAN j 0 MATCH 1*", "[\"0\" [\"10\"]]"),
        ("SSCAN j 0 NOVALUES", "-ERR syntax error"),
        ("EXPIRE j 100", ":1"),
        ("SADD j 4", ":1"),
        ("TTL j", ":100"),
    ]);
}

#[test]
fn random_members_are_members() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SRANDMEMBER s", "nil"),
        ("SRANDMEMBER s 2", "[]"),
        ("SPOP s", "nil"),
        ("SPOP s 2", "[]"),
        ("SADD s a", ":1"),
        ("SRANDMEMBER s", "\"a\""),
        ("SRANDMEMBER s -3", "[\"a\" \"a\" \"a\"]"),
        ("SRANDMEMBER s 1 2", "-ERR syntax error"),
        ("SPOP s -1", "-ERR value is out of range, must be positive"),
        ("SPOP s x", "-ERR value is out of range, must be positive"),
        ("SPOP s 0", "[]"),
        ("SPOP s", "\"a\""),
        ("EXISTS s", ":0"),
        ("SADD s a b", ":2"),
        ("SPOP s 5", "[\"a\" \"b\"]"),
        ("EXISTS s", ":0"),
    ]);
    client.integer("SADD n 1 2 3 4 5 6 7 8 9");
    let mut left = 9;
    while left > 0 {
        let popped: i64 = client.text("SPOP n").parse().unwrap();
        left -= 1;
        client.check(&[
            (format!("SISMEMBER n {popped}").as_str(), ":0"),
            ("SCARD n", format!(":{left}").as_str()),
        ]);
    }
}

#[test]
fn sets_are_combined() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SADD a 1 2 3 x", ":4"),
        ("SADD b 2 3 4", ":3"),
        ("SADD c x 3", ":2"),
        ("SINTER a b", "[\"2\" \"3\"]"),
        ("SINTER a b c", "[\"3\"]"),
        ("SINTER a none", "[]"),
        ("SDIFF a b", "[\"1\" \"x\"]"),
        ("SDIFF a none", "[\"1\" \"2\" \"3\" \"x\"]"),
        ("SDIFF none a", "[]"),
        ("SUNION b none c", "[\"2\" \"3\" \"4\" \"x\"]"),
        ("SINTERSTORE d a b", ":2"),
        ("SMEMBERS d", "[\"2\" \"3\"]"),
        ("SET d string EX 100", "+OK"),
        ("SUNIONSTORE d a b", ":5"),
        ("SMEMBERS d", "[\"1\" \"2\" \"3\" \"x\" \"4\"]"),
        ("TTL d", ":-1"),
        ("SDIFFSTORE d d a b", ":0"),
        ("EXISTS d", ":0"),
        ("SINTERSTORE b none a", ":0"),
        ("EXISTS b", ":0"),
        ("SINTERCARD 2 a c", ":2"),
        ("SINTERCARD 2 a c LIMIT 1", ":1"),
        ("SINTERCARD 2 a c LIMIT 0", ":2"),
        ("SINTERCARD 2 a c LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SINTERCARD 2 a c LIMIT", "-ERR syntax error"),
        ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
        (
            "SINTERCARD 3 a c",
            "-ERR Number of keys can't be greater than number of args",
        ),
        ("COMMAND GETKEYS SINTERCARD 2 a b LIMIT 1", "[\"a\" \"b\"]"),
        ("COMMAND GETKEYS SMOVE a b m", "[\"a\" \"b\"]"),
    ]);
}

/// All sets of such a command are in memory at once.
#[test]
fn sets_that_do_not_fit_into_memory_together_are_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    for start in (0..100_000).step_by(20_000) {
        let mut sadd = vec!["SADD".to_owned(), "s".to_owned()];
        sadd.extend((start..start + 20_000).map(|number| format!("m{number}")));
        client.call(&sadd);
    }
    let refused = "-ERR the command reads sets that do not fit into memory together";
    client.check(&[
        ("SCARD s", ":100000"),
        ("SINTERCARD 2 s s", ":100000"),
        // Of these, no more than two are in memory at a time.
        ("SINTERCARD 6 s s s s s s", ":100000"),
        ("SDIFF s s s s s s", "[]"),
        ("SADD t x", ":1"),
        ("MULTI", "+OK"),
        ("SUNION t s s s s s s", "+QUEUED"),
        ("SADD t y", "+QUEUED"),
        ("SUNIONSTORE u s s s s s s", "+QUEUED"),
        ("SADD s z", "+QUEUED"),
        // What the transaction has changed itself is read into memory.
        ("SUNIONSTORE t s s s s s s", "+QUEUED"),
        ("EXEC", &format!("[{refused} :1 :100000 :1 {refused}]")),
        ("SMEMBERS t", "[\"x\" \"y\"]"),
        ("SREM s z", ":1"),
    ]);
    // The result is more than a batch takes.
    client.check(&[
        ("SUNIONSTORE t s s", ":100000"),
        ("SMISMEMBER t x m99999", "[:0 :1]"),
    ]);
}

/// Each command of a pipeline chooses by itself, although the commands share a commit: of two
/// members that are popped together, each pair is as likely as any other.
#[test]
fn commands_of_a_pipeline_choose_independently() {
    let server = Fixture::new();
    let mut client = server.client();
    let mut pairs = std::collections::HashSet::new();
    for _ in 0..300 {
        let commands = [
            encode(&["SADD", "s", "0", "1", "2", "3", "4", "5", "6", "7"]),
            encode(&["SPOP", "s"]),
            encode(&["SPOP", "s"]),
        ];
        client.send(&commands.concat());
        client.answer();
        pairs.insert((show(&client.answer()), show(&client.answer())));
    }
    // Of 56, as many are missing as would be by chance once in millions of runs. The same choice of
    // both would show 14.
    assert!(pairs.len() > 45, "{} pairs", pairs.len());
}

/// A set that is named again and again is in memory as often.
#[test]
fn sets_that_take_too_much_memory_together_are_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    let members = (0..25).map(|number| format!("{number:060}"));
    let words: Vec<String> = ["SADD", "s"]
        .map(str::to_owned)
        .into_iter()
        .chain(members)
        .collect();
    assert_eq!(show(&client.call(&words)), ":25");
    let refused = "-ERR the command reads sets that do not fit into memory together";
    for (command, count) in [
        ("SINTER", ""),
        ("SINTERCARD", "200000"),
        ("ZINTERCARD", "200000"),
    ] {
        let words = [command, count].into_iter().filter(|word| !word.is_empty());
        let words: Vec<&str> = words.chain(std::iter::repeat_n("s", 200_000)).collect();
        assert_eq!(show(&client.call(&words)), refused, "{command}");
    }
    client.check(&[("SINTERCARD 3 s s s", ":25"), ("ZINTERCARD 3 s s s", ":25")]);
}
