//! Commands of sorted sets.

use std::path::Path;

use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::Client;
use crate::fixture::{Fixture, open_on_disk, options};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_are_added_as_the_options_say() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 a 2 b 3 c", ":3"),
        ("ZADD z 1 a 5 b", ":0"),
        ("ZADD z CH 1 a 6 b 7 d", ":2"),
        ("ZADD z NX CH 9 a 9 e", ":1"),
        ("ZADD z XX CH 8 a 9 f", ":1"),
        ("ZADD z GT CH 1 a 9 b 1 g", ":2"),
        ("ZADD z LT CH 1 a 99 b", ":1"),
        ("ZADD z INCR 2.5 a", "\"3.5\""),
        ("ZADD z NX INCR 2.5 a", "nil"),
        ("ZADD z XX INCR 2.5 none", "nil"),
        ("ZADD z GT INCR -1 a", "nil"),
        ("ZADD z LT INCR -1 a", "\"2.5\""),
        ("ZINCRBY z 0.5 a", "\"3\""),
        ("ZINCRBY z inf a", "\"inf\""),
        (
            "ZINCRBY z -inf a",
            "-ERR resulting score is not a number (NaN)",
        ),
        ("ZSCORE z a", "\"inf\""),
        ("ZADD none XX 1 a", ":0"),
        ("EXISTS none", ":0"),
        ("ZCARD z", ":6"),
        ("TYPE z", "+zset"),
    ]);
    client.check(&[
        (
            "ZADD z 1",
            "-ERR wrong number of arguments for 'zadd' command",
        ),
        ("ZADD z NX CH", "-ERR syntax error"),
        ("ZADD z 1 a 2", "-ERR syntax error"),
        (
            "ZADD z NX XX 1 a",
            "-ERR XX and NX options at the same time are not compatible",
        ),
        (
            "ZADD z NX GT 1 a",
            "-ERR GT, LT, and/or NX options at the same time are not compatible",
        ),
        (
            "ZADD z GT LT 1 a",
            "-ERR GT, LT, and/or NX options at the same time are not compatible",
        ),
        (
            "ZADD z INCR 1 a 2 b",
            "-ERR INCR option supports a single increment-element pair",
        ),
        ("ZADD z 1 a nan b", "-ERR value is not a valid float"),
        ("ZADD z x a", "-ERR value is not a valid float"),
        ("ZINCRBY z nx a", "-ERR syntax error"),
        ("SET s 1", "+OK"),
        ("ZADD s 1 a", WRONG_TYPE),
        ("ZADD z 1 new x old", "-ERR value is not a valid float"),
        ("ZSCORE z new", "nil"),
    ]);
}

#[test]
fn members_are_ordered_by_score_and_then_by_bytes() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 b 1 a 0 zz 1 ab -inf low inf high -0 z0", ":7"),
        (
            "ZRANGE z 0 -1",
            "[\"low\" \"z0\" \"zz\" \"a\" \"ab\" \"b\" \"high\"]",
        ),
        ("ZRANK z a", ":3"),
        ("ZREVRANK z a", ":3"),
        ("ZRANK z high", ":6"),
        ("ZRANK z none", "nil"),
        ("ZRANK z a WITHSCORE", "[:3 \"1\"]"),
        ("ZREVRANK z low WITHSCORE", "[:6 \"-inf\"]"),
        ("ZRANK z none WITHSCORE", "nil"),
        ("ZRANK z a WITHSCORES", "-ERR syntax error"),
        (
            "ZRANK z a WITHSCORE x",
            "-ERR wrong number of arguments for 'zrank' command",
        ),
        ("ZMSCORE z a none high", "[\"1\" nil \"inf\"]"),
        ("ZMSCORE none a b", "[nil nil]"),
        ("ZSCORE z none", "nil"),
        ("ZSCORE z z0", "\"0\""),
        ("ZCOUNT z 0 1", ":5"),
        ("ZCOUNT z (0 (1", ":0"),
        ("ZCOUNT z (0 +inf", ":4"),
        ("ZCOUNT z x 1", "-ERR min or max is not a float"),
        ("ZCOUNT z nan 1", "-ERR min or max is not a float"),
    ]);
}

#[test]
fn ranges_are_of_ranks_scores_or_members() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("ZRANGE z 1 2", "[\"b\" \"c\"]"),
        ("ZRANGE z -2 100", "[\"c\" \"d\"]"),
        ("ZRANGE z 0 0 REV", "[\"d\"]"),
        ("ZREVRANGE z 0 1 WITHSCORES", "[\"d\" \"4\" \"c\" \"3\"]"),
        ("ZRANGE z 9223372036854775807 -9223372036854775808", "[]"),
        ("ZRANGE z (1 3 BYSCORE", "[\"b\" \"c\"]"),
        ("ZRANGE z 3 (1 BYSCORE REV", "[\"c\" \"b\"]"),
        ("ZRANGE z 1 3 BYSCORE REV", "[]"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT 1 2", "[\"b\" \"c\"]"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT -1 2", "[]"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT 2 -1", "[\"c\" \"d\"]"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT 9 1", "[]"),
        (
            "ZREVRANGEBYSCORE z 4 1 LIMIT 1 1 WITHSCORES",
            "[\"c\" \"3\"]",
        ),
        ("ZADD l 0 a 0 b 0 c 0 d", ":4"),
        ("ZRANGEBYLEX l - +", "[\"a\" \"b\" \"c\" \"d\"]"),
        ("ZRANGEBYLEX l [b (d", "[\"b\" \"c\"]"),
        ("ZREVRANGEBYLEX l (d [b LIMIT 0 1", "[\"c\"]"),
        ("ZRANGE l + - BYLEX REV LIMIT 1 2", "[\"c\" \"b\"]"),
        ("ZRANGEBYLEX l + -", "[]"),
        ("ZLEXCOUNT l (a [c", ":2"),
        (
            "ZLEXCOUNT l a c",
            "-ERR min or max not valid string range item",
        ),
        (
            "ZRANGE l - + BYLEX WITHSCORES",
            "-ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        (
            "ZRANGE z 0 1 LIMIT 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
             BYLEX",
        ),
        ("ZRANGE z 0 1 LIMIT 0", "-ERR syntax error"),
        ("ZRANGE z 0 1 BYLEX BYSCORE", "-ERR syntax error"),
        (
            "ZRANGE z a 1",
            "-ERR value is not an integer or out of range",
        ),
        ("ZRANGE z a 1 BYSCORE", "-ERR min or max is not a float"),
        ("ZRANGE none 0 1", "[]"),
    ]);
}

#[test]
fn ranges_are_stored_and_the_old_value_goes() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 a 2 b 3 c", ":3"),
        ("SET dst v EX 100", "+OK"),
        ("ZRANGESTORE dst z 1 -1", ":2"),
        ("TTL dst", ":-1"),
        ("ZRANGE dst 0 -1 WITHSCORES", "[\"b\" \"2\" \"c\" \"3\"]"),
        ("ZRANGESTORE z z 2 2 REV", ":1"),
        ("ZRANGE z 0 -1", "[\"a\"]"),
        ("ZRANGESTORE dst none 0 -1", ":0"),
        ("EXISTS dst", ":0"),
        ("SET dst v", "+OK"),
        ("ZRANGESTORE dst z 5 9 BYSCORE", ":0"),
        ("EXISTS dst", ":0"),
        ("ZRANGESTORE dst z 0 1 WITHSCORES", "-ERR syntax error"),
        ("SET s v", "+OK"),
        ("ZRANGESTORE dst s 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn members_are_removed_and_an_empty_set_is_no_key() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g", ":7"),
        ("ZREM z a a none", ":1"),
        ("ZREMRANGEBYRANK z 0 0", ":1"),
        ("ZREMRANGEBYSCORE z (3 4", ":1"),
        ("ZRANGE z 0 -1", "[\"c\" \"e\" \"f\" \"g\"]"),
        ("ZPOPMIN z", "[\"c\" \"3\"]"),
        ("ZPOPMAX z 2", "[\"g\" \"7\" \"f\" \"6\"]"),
        ("ZPOPMIN z 0", "[]"),
        (
            "ZPOPMIN z -1",
            "-ERR value is out of range, must be positive",
        ),
        (
            "ZPOPMIN z x",
            "-ERR value is out of range, must be positive",
        ),
        ("ZPOPMIN z 1 1", "-ERR syntax error"),
        ("ZPOPMIN z 9223372036854775807", "[\"e\" \"5\"]"),
        ("EXISTS z", ":0"),
        ("ZPOPMAX z", "[]"),
        ("ZREM z a", ":0"),
        ("ZADD l 0 a 0 b", ":2"),
        ("ZREMRANGEBYLEX l - +", ":2"),
        ("EXISTS l", ":0"),
        ("ZADD y 1 a 2 b", ":2"),
        ("ZMPOP 2 none y MAX", "[\"y\" [[\"b\" \"2\"]]]"),
        ("ZMPOP 1 y MIN COUNT 5", "[\"y\" [[\"a\" \"1\"]]]"),
        ("ZMPOP 1 y MIN", "nil"),
        ("ZMPOP 0 y MIN", "-ERR numkeys should be greater than 0"),
        (
            "ZMPOP 1 y MIN COUNT 0",
            "-ERR count should be greater than 0",
        ),
        ("ZMPOP 2 y MIN", "-ERR syntax error"),
        ("ZMPOP 9223372036854775807 y MIN", "-ERR syntax error"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn random_members_are_members() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZRANDMEMBER z", "nil"),
        ("ZRANDMEMBER z 5", "[]"),
        ("ZADD z 1 a", ":1"),
        ("ZRANDMEMBER z", "\"a\""),
        ("ZRANDMEMBER z 5 WITHSCORES", "[\"a\" \"1\"]"),
        ("ZRANDMEMBER z -2 WITHSCORES", "[\"a\" \"1\" \"a\" \"1\"]"),
        ("ZRANDMEMBER z 0", "[]"),
        (
            "ZRANDMEMBER z -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ),
        (
            "ZRANDMEMBER z -9223372036854775807 WITHSCORES",
            "-ERR value is out of range",
        ),
        (
            "ZRANDMEMBER z -9223372036854775807",
            "-ERR reply exceeds the maximum allowed size",
        ),
        ("ZADD z 2 b 3 c", ":2"),
    ]);
    for _ in 0..20 {
        let two = client.run("ZRANDMEMBER z 2");
        let pairs = ["a b", "a c", "b a", "b c", "c a", "c b"];
        let shown = two.replace(['"', '[', ']'], "");
        assert!(pairs.contains(&shown.as_str()), "{two}");
    }
}

#[test]
fn a_scan_shows_all_members() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZSCAN z 0 what", "[\"0\" []]"),
        ("ZADD z 0.1 a 2 b", ":2"),
        ("ZSCAN z 0", "[\"0\" [\"a\" \"0.1\" \"b\" \"2\"]]"),
        ("ZSCAN z 0 MATCH b* COUNT 1", "[\"0\" [\"b\" \"2\"]]"),
        ("ZSCAN z 0 COUNT 0", "-ERR syntax error"),
        ("ZSCAN z 0 what", "-ERR syntax error"),
        ("ZSCAN z x", "-ERR invalid cursor"),
    ]);
}

#[test]
fn sorted_sets_are_combined() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD x 1 a 2 b inf i", ":3"),
        ("ZADD y 10 b 20 c -inf i", ":3"),
        (
            "ZUNION 2 x y WITHSCORES",
            "[\"i\" \"0\" \"a\" \"1\" \"b\" \"12\" \"c\" \"20\"]",
        ),
        (
            "ZUNION 2 x y WEIGHTS 2 1 AGGREGATE MAX WITHSCORES",
            "[\"a\" \"2\" \"b\" \"10\" \"c\" \"20\" \"i\" \"inf\"]",
        ),
        ("ZINTER 2 x y WITHSCORES", "[\"i\" \"0\" \"b\" \"12\"]"),
        (
            "ZINTER 2 x y AGGREGATE MIN WITHSCORES",
            "[\"i\" \"-inf\" \"b\" \"2\"]",
        ),
        ("ZINTER 2 x none", "[]"),
        ("ZDIFF 2 x y WITHSCORES", "[\"a\" \"1\"]"),
        ("ZINTERCARD 2 x y", ":2"),
        ("ZINTERCARD 2 x y LIMIT 1", ":1"),
        ("ZINTERCARD 2 x y LIMIT 0", ":2"),
        ("ZINTERCARD 2 x y LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SET dst 1 EX 100", "+OK"),
        ("ZUNIONSTORE dst 2 x y", ":4"),
        ("TTL dst", ":-1"),
        ("ZINTERSTORE x 2 x y WEIGHTS 0 1", ":2"),
        ("ZRANGE x 0 -1 WITHSCORES", "[\"i\" \"-inf\" \"b\" \"10\"]"),
        ("ZDIFFSTORE dst 2 x y", ":0"),
        ("EXISTS dst", ":0"),
        (
            "ZUNION 0 x",
            "-ERR at least 1 input key is needed for 'zunion' command",
        ),
        ("ZUNION 3 x y", "-ERR syntax error"),
        ("ZUNION 2 x y WEIGHTS 1", "-ERR syntax error"),
        (
            "ZUNION 2 x y WEIGHTS 1 x",
            "-ERR weight value is not a float",
        ),
        ("ZDIFF 2 x y WEIGHTS 1 1", "-ERR syntax error"),
        ("ZUNIONSTORE dst 1 x WITHSCORES", "-ERR syntax error"),
        ("SET s v", "+OK"),
        ("ZUNION 2 x s what", WRONG_TYPE),
        ("ZUNIONSTORE dst 2 x s", WRONG_TYPE),
        (
            "COMMAND GETKEYS ZUNIONSTORE dst 2 x s",
            "[\"dst\" \"x\" \"s\"]",
        ),
        ("SADD p b q", ":2"),
        (
            "ZUNION 2 p y WITHSCORES",
            "[\"i\" \"-inf\" \"q\" \"1\" \"b\" \"11\" \"c\" \"20\"]",
        ),
        ("ZINTER 2 y p WEIGHTS 1 5 WITHSCORES", "[\"b\" \"15\"]"),
        ("ZDIFFSTORE p 2 p y", ":1"),
        ("TYPE p", "+zset"),
        ("COMMAND GETKEYS ZMPOP 2 x s MIN", "[\"x\" \"s\"]"),
    ]);
}

#[test]
fn resp3_has_doubles_and_pairs() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("HELLO 3");
    client.check(&[
        ("ZADD z 1.5 a inf b", ":2"),
        ("ZSCORE z a", ",1.5"),
        ("ZADD z INCR 1 a", ",2.5"),
        ("ZMSCORE z b none", "[,inf nil]"),
        ("ZRANGE z 0 -1 WITHSCORES", "[[\"a\" ,2.5] [\"b\" ,inf]]"),
        ("ZRANGE z 0 -1", "[\"a\" \"b\"]"),
    ]);
    client.check(&[
        ("ZREM z b", ":1"),
        ("ZRANDMEMBER z -1 WITHSCORES", "[[\"a\" ,2.5]]"),
        ("ZUNION 1 z WITHSCORES", "[[\"a\" ,2.5]]"),
        ("ZRANK z a WITHSCORE", "[:0 ,2.5]"),
        ("ZSCAN z 0", "[\"0\" [\"a\" \"2.5\"]]"),
        ("ZPOPMIN z", "[\"a\" ,2.5]"),
        ("ZADD z 1 b", ":1"),
        ("ZPOPMIN z 1", "[[\"b\" ,1]]"),
        ("ZMPOP 1 z MIN", "nil"),
    ]);
}

#[test]
fn deadlines_are_kept_and_expired_sets_are_empty() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("ZADD z 1 a 2 b", ":2"),
        ("EXPIRE z 100", ":1"),
        ("ZADD z 3 c", ":1"),
        ("ZREM z a", ":1"),
        ("ZPOPMIN z", "[\"b\" \"2\"]"),
        ("TTL z", ":100"),
        ("PEXPIRE z 1", ":1"),
    ]);
    thread::sleep(Duration::from_millis(20));
    client.check(&[
        ("ZCARD z", ":0"),
        ("ZADD z 5 n", ":1"),
        ("TTL z", ":-1"),
        ("ZRANGE z 0 -1", "[\"n\"]"),
    ]);
}

#[test]
fn a_refused_command_in_exec_is_one_error() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SET s v", "+OK"),
        ("MULTI", "+OK"),
        ("ZADD z 1 a", "+QUEUED"),
        ("ZADD s 1 a", "+QUEUED"),
        ("ZADD z x a", "+QUEUED"),
        ("ZUNIONSTORE dst 2 z s", "+QUEUED"),
        ("ZINCRBY z 1 a", "+QUEUED"),
        ("ZRANGE z 0 -1 WITHSCORES", "+QUEUED"),
    ]);
    let shown = client.run("EXEC");
    let wanted = format!(
        "[:1 {WRONG_TYPE} -ERR value is not a valid float {WRONG_TYPE} \"2\" [\"a\" \"2\"]]"
    );
    assert_eq!(shown, wanted);
    client.check(&[("ZSCORE z a", "\"2\""), ("GET s", "\"v\"")]);
}

/// Fills `z` with members whose number is the number of their score.
fn fill(client: &mut Client, count: usize) {
    for first in (0..count).step_by(100) {
        let pairs: Vec<String> = (first..count.min(first + 100))
            .map(|number| format!("{} m{number}", number / 2))
            .collect();
        client.run(&format!("ZADD z {}", pairs.join(" ")));
    }
}

#[test]
fn large_sets_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: std::path::PathBuf| move |_: &Path| open_on_disk(&path);
    {
        let mut server = Fixture::opened_by(options(), open(directory.path().to_owned()));
        let mut client = server.client();
        fill(&mut client, 3000);
        client.check(&[
            ("ZADD y 1.5 a -inf b", ":2"),
            ("EXPIREAT y 33177117420", ":1"),
            ("ZCARD z", ":3000"),
        ]);
        server.handle.shutdown();
        server.join().unwrap();
    }
    let server = Fixture::opened_by(options(), open(directory.path().to_owned()));
    let mut client = server.client();
    client.check(&[
        ("ZCARD z", ":3000"),
        ("ZRANK z m2999", ":2999"),
        ("ZCOUNT z 10 (20", ":20"),
        ("ZRANGE z 100 101", "[\"m100\" \"m101\"]"),
        ("ZRANGE y 0 -1 WITHSCORES", "[\"b\" \"-inf\" \"a\" \"1.5\"]"),
        ("EXPIRETIME y", ":33177117420"),
        ("ZREMRANGEBYRANK z 1 -1", ":2999"),
        ("ZRANGE z 0 -1", "[\"m0\"]"),
    ]);
}

/// Longer than what fits into a key of the store.
#[test]
fn members_have_any_length() {
    let server = Fixture::new();
    let mut client = server.client();
    let member = |n: usize| format!("{n:02}{}", "m".repeat(n * 150));
    for n in 0..20 {
        client.check(&[(&format!("ZADD z {} {}", n / 4, member(n)), ":1")]);
    }
    for n in 0..20 {
        client.check(&[
            (&format!("ZRANK z {}", member(n)), &format!(":{n}")),
            (
                &format!("ZSCORE z {}", member(n)),
                &format!("\"{}\"", n / 4),
            ),
            (
                &format!("ZRANGE z {n} {n}"),
                &format!("[\"{}\"]", member(n)),
            ),
        ]);
    }
    client.check(&[
        (&format!("ZADD z 7 {}", member(19)), ":0"),
        ("ZCARD z", ":20"),
        ("ZCOUNT z 4 4", ":3"),
        (&format!("ZREM z {}", member(18)), ":1"),
        ("ZPOPMAX z", &format!("[\"{}\" \"7\"]", member(19))),
        ("ZREMRANGEBYRANK z 0 -1", ":18"),
        ("EXISTS z", ":0"),
    ]);
}
