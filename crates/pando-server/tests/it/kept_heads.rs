//! Stretches of one command with one key in a pipeline: their collection's head is written once
//! (decision 108), and nobody sees a difference.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use fastrand::Rng;
use pando_server::check_rows;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, thread};

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_counted, open_on_disk, options};
use crate::pipeline_runs::together_count;

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

/// Returns a client of a server whose collections become large, and have their last encodings, at
/// once.
fn client_of(server: &Fixture) -> Client {
    let mut client = crate::trees::client_of(server);
    client.check(&[("CONFIG SET list-max-listpack-size 4", "+OK")]);
    for of in ["hash", "set", "zset"] {
        client.check(&[(&format!("CONFIG SET {of}-max-listpack-entries 1"), "+OK")]);
    }
    client
}

/// Sends commands together. Returns their replies.
fn run_all(client: &mut Client, commands: &[String]) -> Vec<String> {
    let bytes = commands.iter().map(|text| encode(&words(text)));
    client.send(&bytes.collect::<Vec<_>>().concat());
    commands.iter().map(|_| show(&client.answer())).collect()
}

/// Returns a command that is repeated with its key, for names that end with `{}`.
fn repeated(random: &mut Rng, kind: u32, key: &str) -> String {
    let (n, long) = (random.u32(..90), "w".repeat(random.usize(..300)));
    match kind {
        0 => format!("LPUSH l{key} a{n}"),
        1 => format!("RPUSH l{key} b{n} {long}x"),
        2 => format!("LPOP l{key}"),
        3 => format!("RPOP l{key}"),
        4 => format!("RPUSHX l{key} c{n}"),
        5 => format!("SADD s{key} m{n}"),
        6 => format!("HSET h{key} f{n} v{}", n % 3),
        7 => format!("HMSET h{key} f{n} {long}y"),
        8 => format!("ZADD z{key} {} m{n}", random.i32(-9..9)),
        9 => format!("ZADD z{key} XX CH {} m{n}", random.i32(-9..9)),
        // Infinity and its opposite have no sum.
        10 => format!("ZINCRBY z{key} {} inf", ["inf", "-inf"][random.usize(..2)]),
        11 => format!("GEOADD z{key} 13.4 5{}.5 m{n}", n % 9),
        // More than one, or with a count, among those that are done alone.
        12 => format!(
            "LPOP l{key}{}",
            ["", "", " 2", " -1", " x"][random.usize(..5)]
        ),
        13 => format!("SADD s{key} m{n}{}", ["", "", " m1"][random.usize(..3)]),
        14 => format!("ZPOPMIN z{key}{}", ["", "", "", " 2"][random.usize(..4)]),
        15 => format!("ZPOPMAX z{key}"),
        _ => format!("LPUSH {}{key} e{n}", ["l", "l", "s"][random.usize(..3)]),
    }
}

/// Returns a command that comes between, for names that end with `{}`.
fn between(random: &mut Rng, key: &str) -> String {
    let n = random.u32(..90);
    match random.u32(..24) {
        0 => format!("LINSERT l{key} BEFORE b{n} i{n}"),
        1 => format!("LREM l{key} 1 a{n}"),
        2 => format!("LSET l{key} 1 z{n}"),
        3 => format!("LRANGE l{key} -3 -1"),
        4 => format!("LLEN l{key}"),
        5 => format!("EXPIREAT l{key} 99999{n:05}"),
        6 => format!("PERSIST l{key}"),
        7 => format!("EXPIREAT s{key} 99999{n:05}"),
        8 => format!("SREM s{key} m{n} m3"),
        9 => format!("SCARD s{key}"),
        10 => format!("HDEL h{key} f{n}"),
        11 => format!("HEXPIREAT h{key} 99999{n:05} FIELDS 1 f{n}"),
        12 => format!("HPERSIST h{key} FIELDS 1 f{n}"),
        13 => format!("ZREM z{key} m{n} m4"),
        14 => format!("ZPOPMIN z{key}"),
        15 => format!(
            "RENAME l{key} l{}",
            if key == "a{}" { "b{}" } else { "a{}" }
        ),
        16 => format!("EVAL return(redis.call('LPUSH',KEYS[1],'s')) 1 l{key}"),
        17 => format!("COPY l{key} l{key}c REPLACE"),
        18 => format!("SET t{key} {n}"),
        19 => format!("LMOVE l{key} l{key} LEFT RIGHT"),
        20 if n < 20 => format!("DEL l{key}"),
        21 if n < 20 => format!("LTRIM l{key} 0 {n}"),
        22 if n < 20 => format!("DEL s{key}"),
        _ => format!("HGET h{key} f{n}"),
    }
}

fn pipeline(random: &mut Rng) -> Vec<String> {
    let mut commands = Vec::new();
    for _ in 0..random.usize(1..7) {
        let key = ["a{}", "a{}", "b{}"][random.usize(..3)];
        if random.u32(..3) == 0 {
            commands.push(between(random, key));
        }
        let kind = random.u32(..18);
        for _ in 0..random.usize(1..12) {
            commands.push(repeated(random, kind, key));
        }
    }
    commands
}

/// Returns what the listener was told until the client has said so.
fn told(client: &mut Client, listener: &mut Client) -> Vec<String> {
    client.run("PUBLISH end x");
    let mut told = Vec::new();
    loop {
        let message = show(&listener.answer());
        if message.contains("\"end\"") {
            return told;
        }
        told.push(message);
    }
}

#[test]
fn stretches_do_what_single_commands_do() {
    let directory = tempfile::tempdir().unwrap();
    check_stretches(&on_disk(directory.path()));
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

/// With lists that are not in blocks.
#[test]
fn stretches_do_what_single_commands_do_in_an_old_store() {
    check_stretches(&Fixture::opened_by(options(), open_counted));
}

/// Pipelines give the replies and events of the same commands one by one, and leave the same
/// behind.
fn check_stretches(server: &Fixture) {
    let (mut client, mut listener) = (client_of(server), server.client());
    client.check(&[("CONFIG SET notify-keyspace-events KA", "+OK")]);
    listener.run("SUBSCRIBE end");
    listener.run("PSUBSCRIBE __keyspace@0__:*");
    let mut random = Rng::with_seed(108);
    let before = together_count(&mut client);
    for round in 0..300 {
        if round % 10 == 0 {
            for of in ["a0", "a1", "b0", "b1"] {
                let elements = (0..40).map(|n| format!("b{n}"));
                crate::trees::many(&mut client, &["RPUSH", &format!("l{of}")], elements);
                let members = (0..40).map(|n| format!("m{n}"));
                crate::trees::many(&mut client, &["SADD", &format!("s{of}")], members);
                let scored = (0..40).flat_map(|n| [(n % 7).to_string(), format!("m{n}")]);
                crate::trees::many(&mut client, &["ZADD", &format!("z{of}")], scored);
            }
            told(&mut client, &mut listener);
        }
        let commands = pipeline(&mut random);
        let of = |name: &str| {
            let named = commands.iter().map(|text| text.replace("{}", name));
            named.collect::<Vec<_>>()
        };
        let together = run_all(&mut client, &of("0"));
        let heard = told(&mut client, &mut listener);
        let alone: Vec<String> = of("1").iter().map(|text| client.run(text)).collect();
        assert_eq!(together, alone, "{commands:?}");
        let heard_alone = told(&mut client, &mut listener);
        let renamed: Vec<_> = ["a", "b"].iter().fold(heard_alone, |all, name| {
            let of_one = |text: String| text.replace(&format!("{name}1"), &format!("{name}0"));
            all.into_iter().map(of_one).collect()
        });
        let of_keys = |all: Vec<String>| {
            let keys = all.into_iter().filter(|text| text.contains("0__:"));
            keys.collect::<Vec<_>>()
        };
        assert_eq!(of_keys(heard), of_keys(renamed), "{commands:?}");
        for read in [
            "LRANGE l{} 0 -1",
            "LLEN l{}",
            "EXPIRETIME l{}",
            "SCARD s{}",
            "EXPIRETIME s{}",
            "HLEN h{}",
            "ZRANGE z{} 0 -1 WITHSCORES",
            "ZCARD z{}",
        ] {
            for key in ["a", "b"] {
                let of = |name: &str| read.replace("{}", &format!("{key}{name}"));
                let [one, other] = ["0", "1"].map(|name| client.run(&of(name)));
                assert_eq!(one, other, "{read} of {key} after {commands:?}");
            }
        }
    }
    let together = together_count(&mut client) - before;
    assert!(together > 3000, "{together} commands ran together");
}

/// Clients push and pop in stretches at both ends of one list and one set, and run into each other:
/// each element is popped once, and none is lost.
#[test]
fn stretches_of_several_clients_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    client_of(&server);
    let all = Mutex::new(Rank::Caller, (BTreeSet::new(), Vec::new()));
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let (server, all) = (&server, &all);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = Rng::with_seed(number);
                let (mut pushed, mut popped) = (BTreeSet::new(), Vec::new());
                for round in 0..150 {
                    let mut commands = Vec::new();
                    for _ in 0..random.usize(1..4) {
                        let kind = random.usize(..6);
                        for of in 0..random.usize(1..9) {
                            let element = format!("{number}.{round}.{}.{of}", commands.len());
                            let push = ["LPUSH l", "RPUSH l", "SADD s"].get(kind);
                            let pop = ["LPOP l", "RPOP l", "SPOP s"][kind % 3];
                            commands.push(match push {
                                Some(push) => format!("{push} {element}"),
                                None => pop.to_owned(),
                            });
                            if push.is_some() {
                                pushed.insert(element);
                            }
                        }
                    }
                    let replies = run_all(&mut client, &commands);
                    let elements = replies.iter().filter(|reply| reply.starts_with('"'));
                    popped.extend(elements.map(|text| text.trim_matches('"').to_owned()));
                    assert!(!replies.iter().any(|of| of.starts_with('-')), "{replies:?}");
                }
                let mut all = all.lock();
                all.0.append(&mut pushed);
                all.1.append(&mut popped);
            });
        }
    });
    let mut client = server.client();
    let (pushed, mut popped) = std::mem::take(&mut *all.lock());
    let mut left = 0;
    for (read, length) in [("LRANGE l 0 -1", "LLEN l"), ("SMEMBERS s", "SCARD s")] {
        let found = client.run(read);
        let found = found.trim_matches(['[', ']']).split_whitespace();
        let found: Vec<_> = found.map(|of| of.trim_matches('"').to_owned()).collect();
        assert_eq!(client.run(length), format!(":{}", found.len()));
        left += found.len();
        popped.extend(found);
    }
    assert!(popped.len() - left > 1000, "{} popped", popped.len() - left);
    popped.sort();
    assert_eq!(popped, pushed.into_iter().collect::<Vec<_>>());
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

/// Stretches find members that are there, and keep a head that they only read, beside clients that
/// take members away, or the whole set: each member that was added was taken away, or is in a set.
#[test]
fn a_head_that_was_only_read_is_that_of_the_set() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    client_of(&server);
    let (added, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    let renamed = Mutex::new(Rank::Caller, vec!["s".to_owned()]);
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let (server, renamed, added, removed) = (&server, &renamed, &added, &removed);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = Rng::with_seed(number);
                for round in 0..300 {
                    let name = match random.u32(..20) {
                        0 => format!("RENAME s t{number}.{round}"),
                        1..4 => "SREM s".to_owned(),
                        _ => "SADD s".to_owned(),
                    };
                    let is_rename = name.starts_with("RENAME");
                    let commands: Vec<_> = (0..if is_rename { 1 } else { 24 })
                        .map(|_| match is_rename {
                            true => name.clone(),
                            false => format!("{name} m{}", random.u32(..60)),
                        })
                        .collect();
                    let replies = run_all(&mut client, &commands);
                    if is_rename && replies[0] == "+OK" {
                        renamed.lock().push(format!("t{number}.{round}"));
                    }
                    let ones = replies.iter().filter(|reply| *reply == ":1").count();
                    let to = if name == "SADD s" { added } else { removed };
                    to.fetch_add(ones as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let mut client = server.client();
    let mut left = 0;
    for set in &*renamed.lock() {
        let found = client.run(&format!("SMEMBERS {set}"));
        let found = found.trim_matches(['[', ']']).split_whitespace().count();
        assert_eq!(client.run(&format!("SCARD {set}")), format!(":{found}"));
        left += found as u64;
    }
    let (added, removed) = (added.into_inner(), removed.into_inner());
    assert!(renamed.lock().len() > 10 && removed > 100, "{removed}");
    assert_eq!(added, removed + left);
    drop(client);
    drop(server);
    let report = check_rows(&open_on_disk(directory.path()).unwrap()).unwrap();
    assert_eq!(report.descriptions, [""; 0]);
}

/// Who waits for elements is woken by a push in a stretch.
#[test]
fn a_stretch_wakes_who_waits() {
    let server = Fixture::new();
    let (mut client, mut other) = (client_of(&server), server.client());
    other.send(&encode(&words("BLPOP later 0")));
    while !client.text("INFO clients").contains("blocked_clients:1") {
        thread::yield_now();
    }
    let pushes: Vec<String> = (0..30).map(|n| format!("RPUSH later {n}")).collect();
    run_all(&mut client, &pushes);
    assert_eq!(show(&other.answer()), "[\"later\" \"0\"]");
    client.check(&[("LLEN later", ":29")]);
    other.send(&encode(&words("BLMOVE none to LEFT RIGHT 0")));
    let more: Vec<String> = (0..30).map(|n| format!("LPUSH later {n}")).collect();
    let moved = ["LPUSH later last", "RENAME later none"].map(str::to_owned);
    run_all(&mut client, &[more, moved.to_vec()].concat());
    assert_eq!(show(&other.answer()), "\"last\"");
}

/// A member that a stretch pops, and one that SRANDMEMBER returns: alone, in a stretch, and behind
/// a removal in a transaction. The bound is passed by chance once in a million runs: 19 degrees of
/// freedom.
#[test]
fn each_member_is_as_likely_as_the_others() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let names: Vec<String> = (0..20).map(|n| format!("member{n:02}")).collect();
    // Others lie before and behind it.
    for of in ["q", "r"] {
        crate::trees::many(&mut client, &["SADD", of], (0..99).map(|n| format!("x{n}")));
    }
    crate::trees::many(&mut client, &["SADD", "s"], names.iter().cloned());
    crate::trees::many(
        &mut client,
        &["SADD", "t"],
        (0..99).map(|n| format!("x{n}")),
    );
    let mut seen = vec![HashMap::<String, u32>::new(); 8];
    // The last ones find a set of which not more than a few are left, and the draws of one in a
    // thousand are all in vain: it leaves the run.
    let stretch = vec!["SPOP s".to_owned(); 6];
    let before = together_count(&mut client);
    for _ in 0..3000 {
        let popped = run_all(&mut client, &stretch);
        for (seen, member) in seen.iter_mut().zip(&popped) {
            *seen.entry(member.clone()).or_default() += 1;
        }
        let again: Vec<String> = popped
            .iter()
            .map(|of| of.trim_matches('"').into())
            .collect();
        client.run(&format!("SADD s {}", again.join(" ")));
        *seen[6].entry(client.run("SRANDMEMBER s")).or_default() += 1;
        let commands = [
            "MULTI",
            "SADD s more",
            "SREM s more",
            "SRANDMEMBER s",
            "EXEC",
        ];
        let replies = run_all(&mut client, &commands.map(str::to_owned));
        let drawn = replies[4].rsplit(' ').next().unwrap().trim_end_matches(']');
        *seen[7].entry(drawn.to_owned()).or_default() += 1;
    }
    let together = together_count(&mut client) - before;
    assert!(together > 9000, "{together} commands ran together");
    for (place, seen) in seen.iter().enumerate() {
        assert_eq!(seen.len(), names.len(), "{place}: {seen:?}");
        let square = |count: &u32| (f64::from(*count) - 150.0).powi(2) / 150.0;
        let chi: f64 = seen.values().map(square).sum();
        assert!(chi < 63.0, "{place}: {chi} {seen:?}");
    }
}

/// The head that was kept is that of a large collection: when few elements are left, it is written,
/// and the collection ends, or is small again, as one that is emptied by single commands.
#[test]
fn what_drains_in_a_stretch_ends_as_it_does_alone() {
    let server = Fixture::with(options());
    let mut client = client_of(&server);
    for pop in ["LPOP", "RPOP", "ZPOPMIN", "ZPOPMAX", "SPOP"] {
        for (size, pops) in [(30, 30), (30, 29), (17, 17), (40, 23), (30, 31)] {
            for key in ["together", "alone"] {
                for n in 0..size {
                    let element = format!("element-{n}-of-{size}");
                    client.run(&match pop {
                        "LPOP" | "RPOP" => format!("RPUSH {key} {element}"),
                        "SPOP" => format!("SADD {key} {element}"),
                        _ => format!("ZADD {key} {n} {element}"),
                    });
                }
            }
            let stretch = vec![format!("{pop} together"); pops];
            let replies = run_all(&mut client, &stretch);
            let alone: Vec<String> = (0..pops)
                .map(|_| client.run(&format!("{pop} alone")))
                .collect();
            if pop == "SPOP" {
                let members = |of: &[String]| of.iter().collect::<BTreeSet<_>>().len();
                assert_eq!(members(&replies), members(&alone), "{pop} {size} {pops}");
            } else {
                assert_eq!(replies, alone, "{pop} {size} {pops}");
            }
            for question in ["EXISTS", "TYPE", "OBJECT ENCODING"] {
                let of = |client: &mut Client, key| client.run(&format!("{question} {key}"));
                let (together, alone) = (of(&mut client, "together"), of(&mut client, "alone"));
                assert_eq!(together, alone, "{pop} {size} {pops}: {question}");
            }
            client.run("DEL together alone");
        }
    }
}
