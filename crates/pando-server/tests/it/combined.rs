//! Commands that combine several collections, some of which are large.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use pando_sync::thread;

use crate::client::{Client, encode, show};
use crate::fixture::Fixture;
use crate::trees::{client_of, many};
use crate::until_end::End;

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
    let refused = format!("[{too_many}]");
    client.check(&[
        ("MULTI", "+OK"),
        ("SUNION large few", "+QUEUED"),
        ("EXEC", &refused),
    ]);
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
    let some = format!(":{}", MANY - MANY.div_ceil(997));
    let part = (0..MANY).step_by(29).map(member).chain(["x".to_owned()]);
    many(&mut client, &["SADD", "part"], part);
    let part = format!(":{}", MANY.div_ceil(29));
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
        ("MULTI", "+OK"),
        ("SDIFF large few", "+QUEUED"),
        ("EXEC", &refused),
        ("SDIFFSTORE some large few", &some),
        ("SINTERCARD 2 large part", &part),
        ("SINTERSTORE p large part", &part),
        ("SDIFFSTORE p part large", ":1"),
        ("ZINTERSTORE p 2 large part", &part),
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

/// Makes a set `s` and a sorted set `z` of members whose numbers `has` says.
fn fill_both(client: &mut Client, name: &str, has: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let numbers: Vec<usize> = (0..60_000).filter(|n| has(*n)).collect();
    for part in numbers.chunks(5_000) {
        let members = part.iter().map(|n| member(*n));
        many(client, &["SADD", &format!("s{name}")], members);
        let scored = part.iter().flat_map(|n| [n.to_string(), member(*n)]);
        many(client, &["ZADD", &format!("z{name}")], scored);
    }
    numbers.into_iter().collect()
}

/// Returns the score of a member.
type Score<'s> = &'s dyn Fn(usize) -> usize;

/// Checks that `key` has these members; `score` is that of each in a sorted set.
fn check_stored(
    client: &mut Client,
    key: &str,
    wanted: &BTreeSet<usize>,
    score: Option<Score<'_>>,
) {
    let command = match score {
        Some(_) => format!("ZRANGE {key} 0 -1"),
        None => format!("SMEMBERS {key}"),
    };
    let shown = sorted(&client.run(&command));
    let all: Vec<String> = wanted
        .iter()
        .map(|n| format!("\"{}\"", member(*n)))
        .collect();
    assert_eq!(shown, all, "{key}");
    let (Some(score), Some(last)) = (score, wanted.last()) else {
        return;
    };
    for n in wanted.iter().step_by(97).chain([last]) {
        let command = format!("ZSCORE {key} {}", member(*n));
        assert_eq!(client.run(&command), format!("\"{}\"", score(*n)), "{key}");
    }
    let by_score = client.run(&format!("ZCOUNT {key} -inf +inf"));
    assert_eq!(by_score, format!(":{}", wanted.len()));
    let greatest = wanted.iter().max_by_key(|n| (score(**n), **n)).unwrap();
    let reply = client.run(&format!("ZRANGE {key} -1 -1"));
    assert_eq!(reply, format!("[\"{}\"]", member(*greatest)));
}

#[test]
fn long_inputs_are_merged_into_a_key() {
    let server = Fixture::new();
    let mut client = server.client();
    let a = fill_both(&mut client, "a", |n| n % 2 == 0);
    let b = fill_both(&mut client, "b", |n| n % 3 == 0);
    let c = fill_both(&mut client, "c", |n| n < 50 && n % 5 == 0);
    let d = fill_both(&mut client, "d", |n| n >= 40_000);
    client.check(&[("SET sx old", "+OK")]);
    let length = |set: &BTreeSet<usize>| format!(":{}", set.len());
    let abc: BTreeSet<usize> = a.iter().chain(&b).chain(&c).copied().collect();
    let common: BTreeSet<usize> = a.intersection(&b).copied().collect();
    let common_d: BTreeSet<usize> = common.intersection(&d).copied().collect();
    let left: BTreeSet<usize> = &(&a - &b) - &c;
    for (command, key, wanted) in [
        ("SUNIONSTORE sx sa sb sc none", "sx", &abc),
        ("SINTERSTORE sx sa sb", "sx", &common),
        ("SINTERSTORE sa2 sd sb sa", "sa2", &common_d),
        ("SDIFFSTORE sx sa sb sc", "sx", &left),
        ("SDIFFSTORE sx sa none", "sx", &a),
        ("SUNIONSTORE sb2 sb sa sb", "sb2", &(&a | &b)),
    ] {
        assert_eq!(client.run(command), length(wanted), "{command}");
        check_stored(&mut client, key, wanted, None);
    }
    let times = |has: &BTreeSet<usize>, n: usize| usize::from(has.contains(&n));
    let of_union = |n: usize| n * (2 * times(&a, n) + times(&b, n) + 3 * times(&c, n));
    let of_sets = |n: usize| n * times(&a, n) + 5 * times(&b, n);
    let scores: [(&str, &BTreeSet<usize>, Score<'_>); 6] = [
        ("ZUNIONSTORE x 3 za zb zc WEIGHTS 2 1 3", &abc, &of_union),
        ("ZINTERSTORE x 2 za zb", &common, &|n| 2 * n),
        ("ZINTERSTORE x 3 za sb zd AGGREGATE MAX", &common_d, &|n| {
            n.max(1)
        }),
        ("ZINTERSTORE x 3 za sb zd AGGREGATE MIN", &common_d, &|_| 1),
        ("ZDIFFSTORE x 3 za sb zc", &left, &|n| n),
        ("ZUNIONSTORE x 2 za sb WEIGHTS 1 5", &(&a | &b), &of_sets),
    ];
    for (command, wanted, score) in scores {
        assert_eq!(client.run(command), length(wanted), "{command}");
        check_stored(&mut client, "x", wanted, Some(score));
    }
}

/// Results that are little, or none, are what they are of short inputs.
#[test]
fn what_is_merged_may_be_little() {
    let server = Fixture::new();
    let mut client = server.client();
    let a = fill_both(&mut client, "a", |n| n % 2 == 0);
    fill_both(&mut client, "b", |n| n % 3 == 0);
    fill_both(&mut client, "d", |n| n >= 40_000);
    let length = format!(":{}", a.len());
    let common = format!(":{}", (40_000..60_000).filter(|n| n % 6 == 0).count());
    client.check(&[
        ("SET sx old", "+OK"),
        ("SET x old", "+OK"),
        ("SADD se member:000001", ":1"),
        ("SDIFFSTORE sx sd sd", ":0"),
        ("EXISTS sx", ":0"),
        ("ZINTERSTORE x 2 za se", ":0"),
        ("EXISTS x", ":0"),
        ("ZINTERSTORE x 3 za zd zb WEIGHTS 0 0 0", &common),
        ("ZSCORE x member:040002", "\"0\""),
        ("SUNIONSTORE names sa", &length),
        ("OBJECT ENCODING names", "\"hashtable\""),
        ("CONFIG SET set-max-intset-entries 100000", "+OK"),
    ]);
    many(
        &mut client,
        &["SADD", "i"],
        (0..20_000).map(|n| n.to_string()),
    );
    many(
        &mut client,
        &["SADD", "j"],
        (0..20_000).map(|n| (n + 100_000).to_string()),
    );
    client.check(&[
        ("SUNIONSTORE k i j", ":40000"),
        ("OBJECT ENCODING k", "\"intset\""),
        ("SINTERSTORE k i j", ":0"),
        ("SADD j 7", ":1"),
        ("SINTERSTORE k j i", ":1"),
        ("OBJECT ENCODING k", "\"intset\""),
        ("SMEMBERS k", "[\"7\"]"),
    ]);
}

/// What is stored has one state of each of its inputs, also where these change meanwhile.
#[test]
fn what_is_merged_has_one_state() {
    let server = Fixture::new();
    let mut client = server.client();
    let a = fill_both(&mut client, "a", |n| n % 2 == 0);
    let b = fill_both(&mut client, "b", |n| n % 2 == 1);
    let total = a.len() + b.len() + 1;
    client.check(&[("SADD sa moving:0", ":1")]);
    let end = End::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            // One member comes and one goes at a time, without a pause.
            let mut last = "moving:0".to_owned();
            for number in 1.. {
                if end.is_there() {
                    break;
                }
                let next = format!("moving:{number}");
                let commands = [
                    encode(&["MULTI"]),
                    encode(&["SADD", "sa", &next]),
                    encode(&["SREM", "sa", &last]),
                    encode(&["EXEC"]),
                ];
                writer.send(&commands.concat());
                let replies = [(); 4].map(|()| show(&writer.answer()));
                assert_eq!(replies[3], "[:1 :1]");
                last = next;
            }
        });
        let bring = end.brought();
        for _ in 0..3 {
            let length = format!(":{total}");
            client.check(&[("SUNIONSTORE d sa sb", &length), ("SCARD d", &length)]);
            let members = sorted(&client.run("SMEMBERS d"));
            assert_eq!(members.len(), total);
            let length = format!(":{}", a.len() + 1);
            client.check(&[("SDIFFSTORE d sa sb", &length), ("SCARD d", &length)]);
        }
        drop(bring);
    });
}
