//! Commands of lists.

use pandodb::Db;

use pando_sync::thread;
use pando_sync::time::Duration;

use crate::fixture::{Fixture, open_on_disk, options};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";
const NOT_BALANCED: &str =
    "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
const SYNTAX: &str = "-ERR syntax error";

#[test]
fn elements_are_pushed_and_popped_at_both_ends() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("LPUSHX l a", ":0"),
        ("RPUSHX l a b", ":0"),
        ("EXISTS l", ":0"),
        ("RPUSH l a b", ":2"),
        ("LPUSH l c d ''", ":5"),
        ("TYPE l", "+list"),
        ("LRANGE l 0 -1", "[\"\" \"d\" \"c\" \"a\" \"b\"]"),
        ("LPUSHX l x y", ":7"),
        ("RPUSHX l z", ":8"),
        ("LLEN l", ":8"),
        ("LPOP l", "\"y\""),
        ("RPOP l", "\"z\""),
        ("LPOP l 2", "[\"x\" \"\"]"),
        ("RPOP l 2", "[\"b\" \"a\"]"),
        ("LPOP l 0", "[]"),
        ("LPOP l -1", NOT_POSITIVE),
        ("LPOP l x", NOT_POSITIVE),
        ("LPOP l -9223372036854775808", NOT_POSITIVE),
        (
            "LPOP l 1 2",
            "-ERR wrong number of arguments for 'lpop' command",
        ),
        ("LPOP l 9223372036854775807", "[\"d\" \"c\"]"),
        ("EXISTS l", ":0"),
        ("LPOP l", "nil"),
        ("LPOP l 1", "nil"),
        ("LPOP l 0", "nil"),
        ("LLEN l", ":0"),
        (
            "LPUSH l",
            "-ERR wrong number of arguments for 'lpush' command",
        ),
    ]);
    client.send(b"*3\r\n$4\r\nLPOP\r\n$1\r\nl\r\n$1\r\n1\r\n");
    let mut bytes = [0; 5];
    std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
    assert_eq!(&bytes, b"*-1\r\n");
}

#[test]
fn elements_are_read_by_their_places() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a b c d", ":4"),
        ("LRANGE l 1 2", "[\"b\" \"c\"]"),
        ("LRANGE l -2 -1", "[\"c\" \"d\"]"),
        ("LRANGE l -100 100", "[\"a\" \"b\" \"c\" \"d\"]"),
        ("LRANGE l 3 1", "[]"),
        ("LRANGE l 4 9", "[]"),
        (
            "LRANGE l -9223372036854775808 9223372036854775807",
            "[\"a\" \"b\" \"c\" \"d\"]",
        ),
        ("LRANGE l x 0", NOT_AN_INTEGER),
        ("LRANGE none 0 -1", "[]"),
        ("LINDEX l 0", "\"a\""),
        ("LINDEX l -1", "\"d\""),
        ("LINDEX l 4", "nil"),
        ("LINDEX l -5", "nil"),
        ("LINDEX l -9223372036854775808", "nil"),
        ("LINDEX l x", NOT_AN_INTEGER),
        ("LINDEX none x", "nil"),
    ]);
}

#[test]
fn elements_are_replaced_inserted_and_removed() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("LSET none x a", "-ERR no such key"),
        ("RPUSH l a b a c a", ":5"),
        ("LSET l x a", NOT_AN_INTEGER),
        ("LSET l 5 a", "-ERR index out of range"),
        ("LSET l -6 a", "-ERR index out of range"),
        ("LSET l -2 d", "+OK"),
        ("LINSERT l before a x", ":6"),
        ("LINSERT l AFTER b y", ":7"),
        ("LINSERT l AFTER none y", ":-1"),
        ("LINSERT l BESIDE b y", SYNTAX),
        ("LINSERT none AFTER b y", ":0"),
        (
            "LRANGE l 0 -1",
            "[\"x\" \"a\" \"b\" \"y\" \"a\" \"d\" \"a\"]",
        ),
        ("LREM l -1 a", ":1"),
        ("LREM l 1 a", ":1"),
        ("LRANGE l 0 -1", "[\"x\" \"b\" \"y\" \"a\" \"d\"]"),
        ("LREM l 0 none", ":0"),
        ("LREM l x a", NOT_AN_INTEGER),
        ("LREM none 0 a", ":0"),
        ("LTRIM l 1 -2", "+OK"),
        ("LRANGE l 0 -1", "[\"b\" \"y\" \"a\"]"),
        ("LTRIM l x 0", NOT_AN_INTEGER),
        ("LTRIM none 0 0", "+OK"),
        ("LTRIM l 0 100", "+OK"),
        ("LLEN l", ":3"),
        ("LTRIM l 2 1", "+OK"),
        ("EXISTS l", ":0"),
        ("RPUSH l a a", ":2"),
        ("LREM l -9223372036854775808 a", ":2"),
        ("EXISTS l", ":0"),
    ]);
}

#[test]
fn elements_are_looked_for_from_both_ends() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a b c 1 2 3 c c", ":8"),
        ("LPOS l c", ":2"),
        ("LPOS l none", "nil"),
        ("LPOS l c RANK 2", ":6"),
        ("LPOS l c RANK 4", "nil"),
        ("LPOS l c RANK -1", ":7"),
        ("LPOS l c COUNT 2", "[:2 :6]"),
        ("LPOS l c COUNT 0", "[:2 :6 :7]"),
        ("LPOS l c RANK -1 COUNT 2", "[:7 :6]"),
        ("LPOS l c RANK -2 COUNT 0", "[:6 :2]"),
        ("LPOS l c COUNT 0 MAXLEN 7", "[:2 :6]"),
        ("LPOS l c COUNT 0 MAXLEN 1", "[]"),
        ("LPOS l c RANK -1 MAXLEN 1", ":7"),
        ("LPOS l a RANK -1 MAXLEN 7", "nil"),
        ("LPOS l c MAXLEN 0", ":2"),
        ("LPOS l c RANK 0", "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list"),
        ("LPOS l c RANK -9223372036854775808", NOT_BALANCED),
        ("LPOS l c RANK 9223372036854775807 COUNT 9223372036854775807", "[]"),
        ("LPOS l c RANK x", NOT_AN_INTEGER),
        ("LPOS l c COUNT -1", "-ERR COUNT can't be negative"),
        ("LPOS l c MAXLEN -1", "-ERR MAXLEN can't be negative"),
        ("LPOS l c COUNT", SYNTAX),
        ("LPOS l c WHAT 1", SYNTAX),
        ("LPOS none c", "nil"),
        ("LPOS none c COUNT 1", "[]"),
    ]);
}

#[test]
fn elements_are_moved_between_lists() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH a 1 2 3", ":3"),
        ("LMOVE a b LEFT RIGHT", "\"1\""),
        ("LMOVE a b right left", "\"3\""),
        ("LRANGE b 0 -1", "[\"3\" \"1\"]"),
        ("LMOVE a b LEFT MIDDLE", SYNTAX),
        ("LMOVE a b x LEFT", SYNTAX),
        ("RPOPLPUSH a b", "\"2\""),
        ("EXISTS a", ":0"),
        ("RPOPLPUSH a b", "nil"),
        ("LMOVE a b LEFT LEFT", "nil"),
        ("LRANGE b 0 -1", "[\"2\" \"3\" \"1\"]"),
        ("RPOPLPUSH b b", "\"1\""),
        ("LMOVE b b LEFT RIGHT", "\"1\""),
        ("LMOVE b b LEFT LEFT", "\"2\""),
        ("LRANGE b 0 -1", "[\"2\" \"3\" \"1\"]"),
        ("SET s 1", "+OK"),
        ("LMOVE none s LEFT LEFT", "nil"),
        ("LMOVE b s LEFT LEFT", WRONG_TYPE),
        ("LMOVE s b LEFT LEFT", WRONG_TYPE),
        ("LLEN b", ":3"),
    ]);
}

#[test]
fn the_first_list_of_many_is_popped() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH b 1 2 3 4", ":4"),
        ("LMPOP 2 a b LEFT", "[\"b\" [\"1\"]]"),
        ("LMPOP 2 a b right count 2", "[\"b\" [\"4\" \"3\"]]"),
        ("LMPOP 2 a c LEFT", "nil"),
        ("LMPOP 0 a LEFT", "-ERR numkeys should be greater than 0"),
        ("LMPOP x a LEFT", "-ERR numkeys should be greater than 0"),
        ("LMPOP 2 a LEFT", SYNTAX),
        ("LMPOP 9223372036854775807 a LEFT", SYNTAX),
        ("LMPOP 1 a MIDDLE", SYNTAX),
        ("LMPOP 1 a LEFT COUNT", SYNTAX),
        ("LMPOP 1 a LEFT COUNT 1 COUNT 1", SYNTAX),
        (
            "LMPOP 1 a LEFT COUNT 0",
            "-ERR count should be greater than 0",
        ),
        ("SET s 1", "+OK"),
        (
            "LMPOP 2 b s LEFT COUNT 9223372036854775807",
            "[\"b\" [\"2\"]]",
        ),
        ("LMPOP 2 b s LEFT", WRONG_TYPE),
        ("EXISTS b", ":0"),
        ("COMMAND GETKEYS LMPOP 2 a b LEFT", "[\"a\" \"b\"]"),
    ]);
}

#[test]
fn other_types_are_refused_and_nothing_else_of_the_transaction() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("SET s 1", "+OK"), ("RPUSH l a", ":1")]);
    let commands = [
        "LPUSH s a",
        "RPUSHX s a",
        "LPOP s",
        "LPOP s 0",
        "LLEN s",
        "LRANGE s 0 -1",
        "LINDEX s x",
        "LSET s x a",
        "LINSERT s BEFORE a b",
        "LREM s 0 a",
        "LTRIM s 0 -1",
        "LPOS s a",
        "RPOPLPUSH s l",
        "LMPOP 1 s LEFT",
        "GETRANGE l 0 1",
        "INCR l",
        "APPEND l x",
    ];
    for command in commands {
        assert_eq!(client.run(command), WRONG_TYPE, "{command}");
    }
    client.check(&[
        ("MULTI", "+OK"),
        ("RPUSH l b", "+QUEUED"),
        ("RPUSH s b", "+QUEUED"),
        ("LMOVE l s LEFT LEFT", "+QUEUED"),
        ("LSET l 9 x", "+QUEUED"),
        ("LRANGE l 0 -1", "+QUEUED"),
        ("LPOP l 2", "+QUEUED"),
        ("EXISTS l", "+QUEUED"),
    ]);
    let expected = format!(
        "[:2 {WRONG_TYPE} {WRONG_TYPE} -ERR index out of range [\"a\" \"b\"] [\"a\" \"b\"] :0]"
    );
    client.check(&[
        ("EXEC", &expected),
        ("RPUSH l a", ":1"),
        ("SET l 1", "+OK"),
        ("GET l", "\"1\""),
        ("MGET l s", "[\"1\" \"1\"]"),
    ]);
}

#[test]
fn deadlines_stay_with_a_list_and_go_with_it() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("RPUSH l a b c", ":3"),
        ("EXPIRE l 100", ":1"),
        ("RPUSH l d", ":4"),
        ("LPOP l", "\"a\""),
        ("LSET l 0 x", "+OK"),
        ("LINSERT l AFTER x y", ":4"),
        ("LREM l 0 y", ":1"),
        ("LTRIM l 0 1", "+OK"),
        ("RPOPLPUSH l l", "\"c\""),
        ("TTL l", ":100"),
        ("RPUSH t a", ":1"),
        ("EXPIRE t 50", ":1"),
        ("LMOVE l t LEFT LEFT", "\"c\""),
        ("TTL t", ":50"),
        ("LMOVE l new LEFT LEFT", "\"x\""),
        ("TTL new", ":-1"),
        ("RPUSH l a", ":1"),
        ("TTL l", ":-1"),
        ("PEXPIRE l 20", ":1"),
    ]);
    thread::sleep(Duration::from_millis(40));
    client.check(&[
        ("LPUSHX l a", ":0"),
        ("LPOP l", "nil"),
        ("LRANGE l 0 -1", "[]"),
        ("LPUSH l b", ":1"),
        ("TTL l", ":-1"),
        ("LRANGE l 0 -1", "[\"b\"]"),
    ]);
}

#[test]
fn lists_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let path = directory.path().to_owned();
        Fixture::opened_by(options(), move |_| open_on_disk(&path))
    };
    let long = "k".repeat(3000);
    let server = start();
    let mut client = server.client();
    assert_eq!(client.run(&format!("RPUSH {long} a b '' 4")), ":4");
    client.check(&[("LPUSH l 1 2", ":2"), ("LPUSH gone a", ":1")]);
    client.check(&[("LPOP gone", "\"a\""), ("EXPIRE l 1000", ":1")]);
    drop((client, server));
    let server = start();
    let mut client = server.client();
    let all = format!("LRANGE {long} 0 -1");
    client.check(&[
        (&all, "[\"a\" \"b\" \"\" \"4\"]"),
        ("LRANGE l 0 -1", "[\"2\" \"1\"]"),
        ("EXISTS gone", ":0"),
    ]);
    assert!((990..=1000).contains(&client.integer("TTL l")));
}

#[test]
fn an_element_that_is_too_long_is_refused_and_nothing_is_lost() {
    let server = Fixture::opened_by(options(), |_| {
        let options = Db::builder().max_memory(32 << 20);
        options.chunk_values_over(100_000).open_in_memory()
    });
    let mut client = server.client();
    let refused = "-ERR an element of a list has ";
    let (element, long) = ("x".repeat(1000), "x".repeat(100_001));
    let many = format!("RPUSH l{}", format!(" {element}").repeat(2000));
    client.check(&[(&many, ":2000"), ("RPUSH m a", ":1")]);
    for command in ["RPUSH l", "LPUSH l", "LSET l 1000", "LINSERT l BEFORE"] {
        let pivot = if command.starts_with("LI") {
            &element
        } else {
            ""
        };
        let reply = client.run(&format!("{command} {pivot} {long}"));
        assert!(reply.starts_with(refused), "{command}: {reply}");
    }
    client.check(&[("MULTI", "+OK"), ("RPUSH m b", "+QUEUED")]);
    client.check(&[
        (&format!("RPUSH l {long}"), "+QUEUED"),
        ("LLEN m", "+QUEUED"),
    ]);
    let reply = client.run("EXEC");
    assert!(reply.starts_with(&format!("[:2 {refused}")), "{reply}");
    assert!(reply.ends_with(" :2]"), "{reply}");
    client.check(&[
        ("LLEN l", ":2000"),
        ("LMOVE l m LEFT LEFT", &format!("\"{element}\"")),
        ("LLEN l", ":1999"),
        ("LLEN m", ":3"),
    ]);
}

#[test]
fn many_elements_are_put_before_others_in_their_order() {
    let server = Fixture::new();
    let mut client = server.client();
    let words: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let push = format!("LPUSH l {}", words.join(" "));
    client.check(&[("RPUSH l end", ":1"), (&push, ":1001")]);
    client.check(&[
        ("LINDEX l 0", "\"999\""),
        ("LINDEX l 999", "\"0\""),
        ("LINDEX l 1000", "\"end\""),
        ("LPOS l 500", ":499"),
    ]);
}
