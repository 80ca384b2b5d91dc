//! Commands of streams in pipelines: they share a commit, and mean what they mean one by one
//! (decisions 076 and 099).

use crate::client::{Client, encode, words};
use crate::fixture::Fixture;
use crate::statistics::fields;
use crate::streams::{end, fill, wait_for_waiters};

/// Sends commands at once, and returns their replies.
fn together(client: &mut Client, commands: &[&str]) -> Vec<String> {
    begin_together(client, commands);
    commands.iter().map(|_| end(client)).collect()
}

/// Sends commands at once, whose replies come later.
fn begin_together(client: &mut Client, commands: &[&str]) {
    let bytes: Vec<u8> = commands
        .iter()
        .flat_map(|command| encode(&words(command)))
        .collect();
    client.send(&bytes);
}

fn number(client: &mut Client, name: &str) -> u64 {
    fields(client, "pando")[name].parse().expect("a number")
}

#[test]
fn a_pipeline_reads_and_acknowledges_in_few_commits() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "s", 64);
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    let before = number(&mut client, "commits_total");
    let reads = ["XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >"; 32];
    for (at, reply) in together(&mut client, &reads).iter().enumerate() {
        let at = at + 1;
        let expected = format!("[[\"s\" [[\"{at}-0\" [\"field\" \"value-{at}\"]]]]]");
        assert_eq!(*reply, expected);
    }
    let acks: Vec<String> = (1..=32).map(|at| format!("XACK s g {at}-0")).collect();
    let acks: Vec<&str> = acks.iter().map(String::as_str).collect();
    assert_eq!(together(&mut client, &acks), [":1"; 32]);
    let commits = number(&mut client, "commits_total") - before;
    // The first commands of a connection may come in small pieces.
    assert!(commits <= 24, "{commits} commits of 64 commands");
    client.check(&[(
        "XINFO GROUPS s",
        "[[\"name\" \"g\" \"consumers\" :1 \"pending\" :0 \"last-delivered-id\" \"32-0\" \
         \"entries-read\" :32 \"lag\" :32]]",
    )]);
}

#[test]
fn who_finds_nothing_in_a_pipeline_waits_and_those_before_it_are_done() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    let read = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    let one = "[[\"s\" [[\"1-0\" [\"a\" \"b\"]]]]]";
    let two = "[[\"s\" [[\"2-0\" [\"c\" \"d\"]]]]]";
    // In one piece: else they may not be one run of commands.
    let commands = ["XADD s 1-0 a b", read, read, "XLEN s", "XACK s g 1-0 2-0"];
    begin_together(&mut client, &commands);
    wait_for_waiters(&mut other, 1);
    // What was before it in the pipeline is seen while it waits.
    other.check(&[
        ("XLEN s", ":1"),
        ("XPENDING s g", "[:1 \"1-0\" \"1-0\" [[\"c\" \"1\"]]]"),
        ("XADD s 2-0 c d", "\"2-0\""),
    ]);
    let replies: Vec<String> = (0..5).map(|_| end(&mut client)).collect();
    assert_eq!(replies, ["\"1-0\"", one, two, ":2", ":2"]);
    // Its time may be over, too, and in MULTI it does not wait.
    let short = "XREADGROUP GROUP g c BLOCK 1 STREAMS s >";
    let replies = together(
        &mut client,
        &[
            "XADD s 3-0 a b",
            short,
            short,
            short,
            "XACK s g 3-0",
            "PING",
        ],
    );
    let three = "[[\"s\" [[\"3-0\" [\"a\" \"b\"]]]]]";
    assert_eq!(replies, ["\"3-0\"", three, "nil", "nil", ":1", "+PONG"]);
    let replies = together(
        &mut client,
        &["MULTI", read, "XADD s 4-0 a b", read, "EXEC"],
    );
    let four = "[nil \"4-0\" [[\"s\" [[\"4-0\" [\"a\" \"b\"]]]]]]";
    assert_eq!(replies[4], four);
}

#[test]
fn errors_in_a_pipeline_are_those_of_their_commands_alone() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK"), ("SET k v", "+OK")]);
    let replies = together(
        &mut client,
        &[
            "XADD s 1-0 a b",
            "XREADGROUP GROUP none c BLOCK 0 STREAMS s >",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS k >",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s $",
            "XREADGROUP GROUP g c NOACK STREAMS s >",
            "XADD s 1-0 a b",
            "XACK s g 1-0",
        ],
    );
    let is_error: Vec<bool> = replies.iter().map(|reply| reply.starts_with('-')).collect();
    assert_eq!(is_error, [false, true, true, true, false, true, false]);
    assert!(replies[1].starts_with("-NOGROUP"), "{}", replies[1]);
    assert!(replies[2].starts_with("-WRONGTYPE"), "{}", replies[2]);
    assert_eq!(replies[6], ":0", "it was acknowledged at once");
}

#[test]
fn a_stream_that_is_named_twice_gives_an_entry_once() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "s", 3);
    client.check(&[
        ("XGROUP CREATE s g 0", "+OK"),
        (
            "XREADGROUP GROUP g c COUNT 2 STREAMS s s s > > >",
            "[[\"s\" [[\"1-0\" [\"field\" \"value-1\"]] [\"2-0\" [\"field\" \"value-2\"]]]] \
             [\"s\" [[\"3-0\" [\"field\" \"value-3\"]]]]]",
        ),
        ("XPENDING s g", "[:3 \"1-0\" \"3-0\" [[\"c\" \"3\"]]]"),
    ]);
}

#[test]
fn an_id_that_is_set_back_finds_what_is_pending() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "s", 3);
    client.check(&[("XGROUP CREATE s g 0", "+OK")]);
    client.run("XREADGROUP GROUP g one STREAMS s >");
    client.check(&[("XGROUP SETID s g 0", "+OK")]);
    client.run("XREADGROUP GROUP g two COUNT 2 STREAMS s >");
    client.check(&[
        (
            "XPENDING s g",
            "[:3 \"1-0\" \"3-0\" [[\"one\" \"1\"] [\"two\" \"2\"]]]",
        ),
        ("XACK s g 1-0 2-0 3-0", ":3"),
        ("XPENDING s g", "[:0 nil nil nil]"),
    ]);
}

/// Beside what is told of a list of the entries: the first one, their number, and what trimming
/// says.
#[test]
fn trimmed_streams_know_their_first_entry() {
    let server = Fixture::new();
    let mut client = server.client();
    let (mut kept, mut random) = (Vec::<u64>::new(), fastrand::Rng::with_seed(1));
    for number in 1..600_u64 {
        let commands: Vec<String> = match random.u32(..8) {
            0 => {
                let most = random.usize(..40);
                let gone = kept.len().saturating_sub(most);
                kept.drain(..gone);
                vec![format!("XTRIM s MAXLEN {most}")]
            }
            1 => {
                let from = number.saturating_sub(random.u64(..40));
                kept.retain(|id| *id >= from);
                vec![format!("XTRIM s MINID {from}")]
            }
            2 => {
                let limit = random.usize(1..5);
                let (most, together) = (random.usize(..20), random.usize(1..4));
                let excess = kept.len().saturating_sub(most);
                let gone = match excess.min(limit) {
                    all if most == 0 && all == excess => all,
                    some => some - some % together,
                };
                kept.drain(..gone);
                vec![
                    format!("CONFIG SET stream-node-max-entries {together}"),
                    format!("XTRIM s MAXLEN ~ {most} LIMIT {limit}"),
                ]
            }
            3 => {
                let gone = number.saturating_sub(random.u64(1..30));
                kept.retain(|id| *id != gone);
                vec![format!("XDEL s {gone}-0")]
            }
            _ => {
                let most = random.usize(..30);
                kept.push(number);
                let gone = kept.len().saturating_sub(most);
                kept.drain(..gone);
                vec![
                    format!("XADD s MAXLEN {most} {number}-0 a b"),
                    "XACK s g 1-0".to_owned(),
                ]
            }
        };
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        for reply in together(&mut client, &commands) {
            assert!(!reply.starts_with('-'), "{commands:?}: {reply}");
        }
        let ids: Vec<String> = kept
            .iter()
            .map(|id| format!("[\"{id}-0\" [\"a\" \"b\"]]"))
            .collect();
        let expected = format!("[{}]", ids.join(" "));
        assert_eq!(client.run("XRANGE s - +"), expected, "{commands:?}");
        if client.run("EXISTS s") == ":1" {
            let first = ids.first().map_or("nil", |id| &id[..]);
            let text = client.run("XINFO STREAM s");
            let shown = format!("\"first-entry\" {first} ");
            assert!(text.contains(&shown), "{commands:?}: {text}");
        }
    }
}
