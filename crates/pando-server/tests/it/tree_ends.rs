//! Ends of large collections, and random members, in pipelines: what a command finds there when
//! those before it in the same batch have taken something.

use std::collections::HashMap;

use fastrand::Rng;
use pando_sync::thread;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_counted, options};
use crate::pipeline_runs::together_count;
use crate::until_end::End;

/// Returns a client of a server whose collections become large, and lists quicklists, at once.
fn client_of(server: &Fixture) -> Client {
    let mut client = crate::trees::client_of(server);
    client.check(&[
        ("CONFIG SET list-max-listpack-size 4", "+OK"),
        ("CONFIG SET set-max-listpack-entries 1", "+OK"),
    ]);
    client
}

/// Sends commands together. Returns their replies.
fn run_all(client: &mut Client, commands: &[String]) -> Vec<String> {
    let bytes = commands.iter().map(|text| encode(&words(text)));
    client.send(&bytes.collect::<Vec<_>>().concat());
    commands.iter().map(|_| show(&client.answer())).collect()
}

/// Returns a command for a list, a sorted set and a set whose names end with `{}`; no reply of it
/// is random.
fn command(random: &mut Rng) -> String {
    let (n, few) = (random.u32(..400), random.u32(1..5));
    match random.u32(..46) {
        0..4 => "ZPOPMIN z{}".into(),
        4..8 => "ZPOPMAX z{}".into(),
        8 => format!("ZPOPMIN z{{}} {few}"),
        9 => format!("ZPOPMAX z{{}} {few}"),
        10 => format!("ZMPOP 1 z{{}} MIN COUNT {few}"),
        11..15 => format!("ZADD z{{}} {} m{n}", random.u32(..90)),
        15 => format!("ZREM z{{}} m{n}"),
        16 => format!("ZREMRANGEBYRANK z{{}} 0 {}", few - 1),
        17 => format!("ZINCRBY z{{}} -40 m{n}"),
        18..21 => format!("LPUSH l{{}} a{n} {}", "b".repeat(n as usize % 90)),
        21..24 => format!("RPUSH l{{}} c{n}"),
        24..28 => "LPOP l{}".into(),
        28..32 => "RPOP l{}".into(),
        32 => format!("LPOP l{{}} {few}"),
        33 => format!("RPOP l{{}} {few}"),
        34 => "LMOVE l{} l{} LEFT RIGHT".into(),
        35 => format!("LINSERT l{{}} BEFORE c{n} d{n}"),
        36 => format!("LSET l{{}} {} e{n}", few % 2),
        37..40 => "ZRANGESTORE d{} z{} 0 1".into(),
        40 => format!("LINSERT l{{}} AFTER c{n} d{n}"),
        41 => format!("LREM l{{}} 1 c{n}"),
        42 => format!("LSET l{{}} -{few} e{n}"),
        43 => format!("SADD s{{}} m{n}"),
        44 => format!("SREM s{{}} m{n}"),
        _ => format!("ZADD z{{}} {} m{n} {few} x{n}", n % 7),
    }
}

#[test]
fn ends_are_those_that_commands_before_have_left() {
    check_ends(&Fixture::new());
}

/// Of lists that are not in blocks.
#[test]
fn ends_are_those_that_commands_before_have_left_in_an_old_store() {
    check_ends(&Fixture::opened_by(options(), open_counted));
}

/// Pipelines give the replies of the same commands one by one, and leave the same behind.
fn check_ends(server: &Fixture) {
    let mut client = client_of(server);
    let mut random = Rng::with_seed(27);
    let before = together_count(&mut client);
    for round in 0..400 {
        if round % 20 == 0 {
            for of in ["0", "1"] {
                let scored = (0..120).flat_map(|n| [(n * 7 % 90).to_string(), format!("m{n}")]);
                crate::trees::many(&mut client, &["ZADD", &format!("z{of}")], scored);
                let elements = (0..60).map(|n| format!("c{n}"));
                crate::trees::many(&mut client, &["RPUSH", &format!("l{of}")], elements);
            }
        }
        let mut commands: Vec<String> = (0..random.usize(2..24))
            .map(|_| command(&mut random))
            .collect();
        if round % 4 == 0 {
            // One is removed elsewhere, behind a command that reads the first ones and leaves them.
            let at = random.usize(..commands.len());
            let more = [
                "ZADD z{} 50 other",
                "ZRANGESTORE d{} z{} 0 1",
                "ZREM z{} other",
                "ZPOPMIN z{}",
            ];
            commands.splice(at..at, more.map(str::to_owned));
        }
        let of = |name: &str| {
            let named = commands.iter().map(|text| text.replace("{}", name));
            named.collect::<Vec<_>>()
        };
        let together = run_all(&mut client, &of("0"));
        let alone: Vec<String> = of("1").iter().map(|text| client.run(text)).collect();
        let alone: Vec<String> = alone
            .iter()
            .map(|of| of.replace("\"z1\"", "\"z0\""))
            .collect();
        let is_damaged = |reply: &String| reply.contains("contradict");
        assert!(
            !together.iter().any(is_damaged),
            "{together:?} {commands:?}"
        );
        assert_eq!(together, alone, "{commands:?}");
        for read in [
            "ZRANGE z{} 0 -1 WITHSCORES",
            "LRANGE l{} 0 -1",
            "ZCARD z{}",
            "LLEN l{}",
        ] {
            let [one, other] = ["0", "1"].map(|name| client.run(&read.replace("{}", name)));
            assert_eq!(one, other, "{read} after {commands:?}");
        }
        // A transaction reads them in another way.
        let part = random.usize(..50);
        for read in [
            format!("LRANGE l0 {part} {}", part + 20),
            "LRANGE l0 -9 -2".into(),
        ] {
            client.check(&[("MULTI", "+OK"), (&read, "+QUEUED")]);
            let inside = client.run("EXEC");
            assert_eq!(inside, format!("[{}]", client.run(&read)), "{read}");
        }
    }
    let together = together_count(&mut client) - before;
    assert!(together > 3000, "{together} commands ran together");
}

/// Members that a pipeline pops: the first is as likely as the others, and so is the last, when
/// most have gone. The bound is passed by chance once in a million runs: 11 degrees of freedom.
#[test]
fn members_that_a_pipeline_pops_are_as_likely_as_others() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let names: Vec<String> = (0..12).map(|n| format!("member{n:02}")).collect();
    let before = together_count(&mut client);
    // Of 12 members 9 are popped, so nearly all draws of the last one are in vain at first.
    let pops: Vec<String> = (0..9).map(|_| "SPOP s".to_owned()).collect();
    let mut seen = vec![HashMap::<String, u32>::new(); pops.len()];
    for _ in 0..3000 {
        crate::trees::many(&mut client, &["SADD", "s"], names.iter().cloned());
        for (place, member) in run_all(&mut client, &pops).into_iter().enumerate() {
            *seen[place].entry(member).or_default() += 1;
        }
    }
    let together = together_count(&mut client) - before;
    assert!(together > 9000, "{together} commands ran together");
    for (place, seen) in seen.iter().enumerate() {
        assert_eq!(seen.len(), names.len(), "{place}");
        let square = |count: &u32| (f64::from(*count) - 250.0).powi(2) / 250.0;
        let chi: f64 = seen.values().map(square).sum();
        assert!(chi < 48.0, "pop {place}: {chi} {seen:?}");
    }
}

/// What is drawn behind a removal in a transaction or script, of each type, with few left.
#[test]
fn what_is_drawn_behind_removals_is_as_likely_as_others() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let text = "x".repeat(600);
    let names: Vec<String> = (0..4).map(|n| format!("{n}{text}")).collect();
    for name in &names {
        client.run(&format!("SADD s {name}"));
        client.run(&format!("HSET h {name} 1"));
        client.run(&format!("ZADD z -0 {name}"));
    }
    for (remove, draw, add) in [
        ("SREM s NAME", "SRANDMEMBER s 1", "SADD s NAME"),
        ("SREM s NAME", "SRANDMEMBER s 2", "SADD s NAME"),
        ("HDEL h NAME", "HRANDFIELD h 1", "HSET h NAME 1"),
        ("ZREM z NAME", "ZRANDMEMBER z 1", "ZADD z -0 NAME"),
        ("ZREM z NAME", "ZRANDMEMBER z 2", "ZADD z -0 NAME"),
    ] {
        let count = if draw.ends_with('2') { 2 } else { 1 };
        let mut seen = [0_u32; 3];
        for _ in 0..600 {
            let of_last = |command: &str| command.replace("NAME", &names[3]);
            let commands = ["MULTI".into(), of_last(remove), draw.into(), "EXEC".into()];
            let replies = run_all(&mut client, &commands);
            for (seen, name) in seen.iter_mut().zip(&names) {
                *seen += u32::from(replies[3].contains(name.as_str()));
            }
            client.check(&[(&of_last(add), ":1")]);
        }
        let expected = 200.0 * f64::from(count);
        assert_eq!(seen.iter().sum::<u32>(), 600 * count, "{draw}: {seen:?}");
        let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
        let chi: f64 = seen.iter().map(square).sum();
        // 2 degrees of freedom: once in a million runs.
        assert!(chi < 28.0, "{draw}: {chi} {seen:?}");
    }
}

/// Pairs that are popped together, behind others in the same pipeline.
#[test]
fn members_that_are_popped_together_are_as_likely_as_others() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let names: Vec<String> = (0..8).map(|n| format!("member{n:02}")).collect();
    let pops: Vec<String> = ["SPOP s", "SPOP s", "SPOP s 2"].map(str::to_owned).to_vec();
    let mut pairs: HashMap<String, u32> = HashMap::new();
    for _ in 0..5600 {
        crate::trees::many(&mut client, &["SADD", "s"], names.iter().cloned());
        let replies = run_all(&mut client, &pops);
        assert!(
            replies[..2]
                .iter()
                .all(|one| !replies[2].contains(one.as_str()))
        );
        *pairs.entry(replies[2].clone()).or_default() += 1;
    }
    // Each order of each pair: 55 degrees of freedom.
    assert_eq!(pairs.len(), 56, "{pairs:?}");
    let square = |count: &u32| (f64::from(*count) - 100.0).powi(2) / 100.0;
    let chi: f64 = pairs.values().map(square).sum();
    assert!(chi < 120.0, "{chi} {pairs:?}");
}

/// A writer keeps the sum of a list whose elements take several leaves; readers see no other one.
#[test]
fn readers_of_a_part_see_one_state() {
    const COUNT: usize = 400;
    const SUM: i64 = 40_000;
    let server = Fixture::new();
    let mut client = client_of(&server);
    let text = |number: i64| format!("{number:040}");
    let elements = (0..COUNT).map(|_| text(100));
    crate::trees::many(&mut client, &["RPUSH", "l"], elements);
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                while !over.is_there() {
                    let list = reader.run("LRANGE l 0 -1");
                    let elements = list.trim_matches(['[', ']']).split(' ');
                    let numbers = elements.map(|of| of.trim_matches('"').parse::<i64>().unwrap());
                    let numbers: Vec<i64> = numbers.collect();
                    assert_eq!(numbers.len(), COUNT);
                    assert_eq!(numbers.iter().sum::<i64>(), SUM);
                }
            });
        }
        let mut random = Rng::with_seed(3);
        let mut numbers = [100_i64; COUNT];
        for _ in 0..2000 {
            let (one, other) = (
                random.usize(..COUNT / 4),
                random.usize(COUNT / 4 * 3..COUNT),
            );
            numbers[one] += 7;
            numbers[other] -= 7;
            let set = |at: usize| format!("LSET l {at} {}", text(numbers[at]));
            let commands = ["MULTI".into(), set(one), set(other), "EXEC".into()];
            let replies = run_all(&mut client, &commands);
            assert_eq!(replies[3], "[+OK +OK]");
        }
        drop(bring);
    });
}
