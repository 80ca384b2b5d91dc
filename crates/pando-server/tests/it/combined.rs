//! Commands that combine several collections, some of which are large.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::client::{Client, show};
use crate::fixture::Fixture;
use crate::trees::{client_of, many};

/// Members of a set that as a whole does not fit into the memory for a reply.
const MANY: usize = 300_000;

fn member(number: usize) -> String {
    format!("member:{number:06}")
}

fn fill(client: &mut Client, key: &str, count: usize) {
    for from in (0..count).step_by(10_000) {
        let members = (from..from + 10_000).map(member);
        assert_eq!(many(client, &["SADD", key], members), ":10000");
    }
}

/// Returns the elements of a reply, in order.
fn sorted(reply: &str) -> Vec<String> {
    let mut elements: Vec<String> = reply
        .trim_matches(['[', ']'])
        .split(' ')
        .filter(|element| !element.is_empty())
        .map(str::to_owned)
        .collect();
    elements.sort();
    elements
}

#[test]
fn of_a_large_input_no_more_is_read_than_the_small_one_needs() {
    let server = Fixture::new();
    let mut client = server.client();
    fill(&mut client, "large", MANY);
    let too_many = "-ERR the command reads sets that do not fit into memory together";
    client.check(&[("SUNION large few", too_many)]);
    let few = (0..MANY + 2_000).step_by(997).map(member);
    let count = (MANY + 2_000).div_ceil(997);
    let outside = (0..MANY + 2_000).step_by(997).filter(|n| *n >= MANY);
    let outside = outside.count();
    assert_eq!(
        many(&mut client, &["SADD", "few"], few),
        format!(":{count}")
    );
    let inside = format!(":{}", count - outside);
    let outside = format!(":{outside}");
    client.check(&[
        ("SADD one member:000007", ":1"),
        ("SADD numbers 1 2 3", ":3"),
        ("SINTER large one", "[\"member:000007\"]"),
        ("SINTER one large", "[\"member:000007\"]"),
        ("SINTER large numbers", "[]"),
        ("SDIFF one large", "[]"),
        ("SDIFF numbers large", "[\"1\" \"2\" \"3\"]"),
        ("SINTERCARD 2 large few", &inside),
        ("SINTERCARD 3 large few large", &inside),
        ("SINTERCARD 2 few large LIMIT 5", ":5"),
        ("SINTERSTORE d few large", &inside),
        ("SDIFFSTORE e few large", &outside),
        ("ZINTERCARD 2 large few", &inside),
        ("ZINTERSTORE zd 2 large few WEIGHTS 2 5", &inside),
        ("ZDIFFSTORE ze 2 few large", &outside),
        ("ZSCORE zd member:000000", "\"7\""),
        ("ZADD z 1.5 member:000007 4 x", ":2"),
        ("ZINTER 2 large z WITHSCORES", "[\"member:000007\" \"2.5\"]"),
        ("ZDIFF 2 z large", "[\"x\"]"),
        ("SDIFF large few", too_many),
        // What is removed in the same transaction is not there.
        ("MULTI", "+OK"),
        ("SREM large member:000007", "+QUEUED"),
        ("SINTER large one", "+QUEUED"),
        ("SADD large y", "+QUEUED"),
        ("SADD one y", "+QUEUED"),
        ("SINTER one large", "+QUEUED"),
        ("EXEC", "[:1 [] :1 :1 [\"y\"]]"),
    ]);
    let members = show(&client.call(&["SMEMBERS", "d"]));
    let wanted = (0..MANY).step_by(997).map(|n| format!("\"{}\"", member(n)));
    assert_eq!(sorted(&members), wanted.collect::<Vec<_>>());
    let script = "return redis.call('SINTER', KEYS[1], KEYS[2])";
    let reply = client.call(&["EVAL", script, "2", "large", "z"]);
    assert!(show(&reply).starts_with("-WRONGTYPE"), "{reply:?}");
    let reply = client.call(&["EVAL", script, "2", "large", "one"]);
    assert_eq!(show(&reply), "[\"y\"]");
}

/// Whatever the sizes are, and whichever inputs are large.
#[test]
fn inputs_of_any_sizes_are_combined_as_sets_are() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let mut random = Rng::with_seed(7);
    for round in 0..60 {
        client.check(&[("FLUSHDB", "+OK")]);
        let mut sets: Vec<BTreeMap<String, i32>> = Vec::new();
        for number in 0..3 {
            let size = [3, 40, 700][random.usize(..3)];
            let mut set = BTreeMap::new();
            for _ in 0..size {
                set.insert(format!("\"{}\"", random.u32(..900)), random.i32(0..9));
            }
            let key = format!("z{number}");
            let pairs = set.iter();
            let pairs = pairs.flat_map(|(m, score)| [score.to_string(), m.replace('"', "")]);
            many(&mut client, &["ZADD", &key], pairs);
            let key = format!("s{number}");
            many(
                &mut client,
                &["SADD", &key],
                set.keys().map(|m| m.replace('"', "")),
            );
            sets.push(set);
        }
        let names: Vec<BTreeSet<&String>> = sets.iter().map(|set| set.keys().collect()).collect();
        let all_have = |name: &&String| names.iter().all(|set| set.contains(*name));
        let both: Vec<String> = names[0].iter().copied().filter(all_have).cloned().collect();
        let others = |name: &&String| names[1].contains(*name) || names[2].contains(*name);
        let left: Vec<String> = names[0]
            .iter()
            .copied()
            .filter(|name| !others(name))
            .cloned()
            .collect();
        for (command, wanted) in [
            ("SINTER s0 s1 s2", &both),
            ("SINTER s2 s0 s1", &both),
            ("SDIFF s0 s1 s2", &left),
            ("ZINTER 3 z0 s1 z2", &both),
            ("ZDIFF 3 z0 z1 s2", &left),
        ] {
            assert_eq!(&sorted(&client.run(command)), wanted, "{round}: {command}");
        }
        let count = format!(":{}", both.len());
        client.check(&[
            ("SINTERCARD 3 s0 s1 s2", &count),
            ("ZINTERSTORE d 3 z0 z1 z2", &count),
        ]);
        for name in &both {
            let sum: i32 = sets.iter().map(|set| set[name]).sum();
            let command = format!("ZSCORE d {}", name.replace('"', ""));
            assert_eq!(
                client.run(&command),
                format!("\"{sum}\""),
                "{round}: {name}"
            );
        }
    }
}
