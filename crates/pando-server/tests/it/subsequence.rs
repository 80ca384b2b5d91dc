//! LCS.

use pando_resp::Answer;

use crate::client::show;
use crate::fixture::Fixture;

#[test]
fn the_longest_common_subsequence_is_found() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("MSET a ohmytext b mynewtext", "+OK"),
        ("LCS a b", "\"mytext\""),
        ("LCS a b LEN", ":6"),
        (
            "LCS a b IDX",
            "[\"matches\" [[[:4 :7] [:5 :8]] [[:2 :3] [:0 :1]]] \"len\" :6]",
        ),
        (
            "LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN",
            "[\"matches\" [[[:4 :7] [:5 :8] :4]] \"len\" :6]",
        ),
        ("LCS a none", "\"\""),
        ("LCS a none LEN", ":0"),
        ("LCS a none IDX", "[\"matches\" [] \"len\" :0]"),
        (
            "LCS a b LEN IDX",
            "-ERR If you want both the length and indexes, please just use IDX.",
        ),
        ("LCS a b MINMATCHLEN", "-ERR syntax error"),
        ("LCS a b WHAT", "-ERR syntax error"),
        ("RPUSH list a", ":1"),
        (
            "LCS list a WHAT",
            "-ERR The specified keys must contain string values",
        ),
        (
            "LCS a list",
            "-ERR The specified keys must contain string values",
        ),
        ("COMMAND GETKEYS LCS a b LEN", "[\"a\" \"b\"]"),
        ("MULTI", "+OK"),
        ("SET b text", "+QUEUED"),
        ("LCS a b", "+QUEUED"),
        ("SET b my", "+QUEUED"),
        ("LCS a b", "+QUEUED"),
        ("EXEC", "[+OK \"text\" +OK \"my\"]"),
    ]);
}

#[test]
fn long_strings_take_several_turns_and_too_long_ones_are_refused() {
    let server = Fixture::new();
    let mut client = server.client();
    let of = |seed, count| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.alphabetic()).collect::<String>()
    };
    let (common, own) = (of(1, 3000), "0".repeat(3000));
    client.call(&["SET", "a", &format!("{own}{common}")]);
    client.call(&["SET", "b", &format!("{common}1{common}")]);
    let found = client.call(&["LCS", "a", "b"]);
    assert!(found == Answer::Bulk(common.into_bytes()));
    client.check(&[("LCS a b LEN", ":3000"), ("MULTI", "+OK")]);
    client.check(&[("LCS a b LEN", "+QUEUED"), ("LCS b a LEN", "+QUEUED")]);
    client.check(&[("EXEC", "[:3000 :3000]")]);
    client.call(&["SET", "c", &"c".repeat(40_000)]);
    assert_eq!(
        show(&client.call(&["LCS", "c", "c"])),
        "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
    );
}
