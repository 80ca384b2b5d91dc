//! Scripts in pipelines: they share a commit, and mean what they mean one by one (decision 103).

use fastrand::Rng;
use pando_server::{Durability, ServerOptions};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, open_small, options};
use crate::pipeline_runs::{figures, together_count};
use crate::statistics::fields;
use crate::until_end::End;

/// A limit of requests.
const LIMITER: &str = "local n = redis.call('INCR', KEYS[1]) \
                       if n == 1 then redis.call('EXPIRE', KEYS[1], 60) end return n";

/// A command, word by word.
type Words = Vec<String>;

/// Returns the words of a command without spaces in them.
fn plain(text: &str) -> Words {
    text.split(' ').map(str::to_owned).collect()
}

/// Returns an EVAL of a script with one key.
fn of_key(script: &str, key: &str) -> Words {
    ["EVAL", script, "1", key].map(str::to_owned).to_vec()
}

/// Returns an EVAL of a script without keys.
fn script(text: &str) -> Words {
    ["EVAL", text, "0"].map(str::to_owned).to_vec()
}

fn send(client: &mut Client, commands: &[Words]) {
    let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
    client.send(&bytes);
}

/// Sends commands at once. Returns their replies as text.
fn together(client: &mut Client, commands: &[Words]) -> Vec<String> {
    send(client, commands);
    commands.iter().map(|_| show(&client.answer())).collect()
}

fn number(client: &mut Client, section: &str, name: &str) -> u64 {
    fields(client, section)[name].parse().expect("a number")
}

#[test]
fn scripts_and_writes_of_a_pipeline_share_commits() {
    let server = Fixture::new();
    let mut client = server.client();
    let before = number(&mut client, "pando", "commits_total");
    let mut commands = Vec::new();
    for at in 0..20 {
        commands.push(of_key(LIMITER, "n"));
        commands.push(plain("INCR n"));
        commands.push(of_key("return redis.call('GET', KEYS[1])", "n"));
        commands.push(plain(&format!("SET k{at} v")));
    }
    let replies = together(&mut client, &commands);
    for (at, replies) in replies.chunks(4).enumerate() {
        let first = 2 * at + 1;
        let expected = [
            format!(":{first}"),
            format!(":{}", first + 1),
            format!("\"{}\"", first + 1),
            "+OK".to_owned(),
        ];
        assert_eq!(replies, expected);
    }
    let commits = number(&mut client, "pando", "commits_total") - before;
    // The first commands of a connection may come in small pieces.
    assert!(commits <= 20, "{commits} commits of 80 commands");
    assert!(together_count(&mut client) > 60);
    let ttl = client.integer("TTL n");
    assert!((1..=60).contains(&ttl), "{ttl}");
    let calls = fields(&mut client, "commandstats");
    for (name, count) in [("incr", 40), ("expire", 1), ("get", 20), ("eval", 40)] {
        let figures = &calls[&format!("cmdstat_{name}")];
        assert!(
            figures.starts_with(&format!("calls={count},")),
            "{name}: {figures}"
        );
    }
}

#[test]
fn scripts_that_look_beyond_their_keys_see_and_do_all_of_it_once() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    other.check(&[("SUBSCRIBE c", "[\"subscribe\" \"c\" :1]")]);
    client.check(&[
        ("SELECT 1", "+OK"),
        ("SET there 1", "+OK"),
        ("SELECT 0", "+OK"),
    ]);
    for round in 0..3 {
        let replies = together(
            &mut client,
            &[
                plain("SET a 1"),
                script("return redis.call('DBSIZE')"),
                plain("SET b 2"),
                script("redis.call('INCR', 'x') return redis.call('KEYS', 'b')"),
                script("redis.call('INCR', 'x') redis.call('PUBLISH', 'c', 'hello') return 1"),
                plain("SET c 3"),
                script(
                    "redis.call('INCR', 'x') redis.call('SELECT', 1) \
                        return redis.call('GET', 'there')",
                ),
                script("return redis.call('GET', 'x')"),
                script("redis.call('FLUSHDB') redis.call('SET', 'd', 1) return 'flushed'"),
                script("return redis.call('DBSIZE')"),
                plain("INCR d"),
            ],
        );
        let size = if round == 0 { ":1" } else { ":2" };
        let expected = [
            "+OK",
            size,
            "+OK",
            "[\"b\"]",
            ":1",
            "+OK",
            "\"1\"",
            "\"3\"",
            "\"flushed\"",
            ":1",
            ":2",
        ];
        assert_eq!(replies, expected, "round {round}");
        assert_eq!(show(&other.answer()), "[\"message\" \"c\" \"hello\"]");
    }
    assert_eq!(other.run("PING"), "[\"pong\" \"\"]");
    // One that calls them no more shares commits again.
    let may_publish = of_key(
        "if redis.call('EXISTS', KEYS[1]) == 1 then \
                              redis.call('PUBLISH', 'c', 'x') end return 1",
        "said",
    );
    let before = |client: &mut Client| number(client, "pando", "commits_total");
    client.check(&[("SET said 1", "+OK")]);
    together(&mut client, &vec![may_publish.clone(); 4]);
    client.check(&[("DEL said", ":1")]);
    together(&mut client, &vec![may_publish.clone(); 4]);
    let (count, commits) = (together_count(&mut client), before(&mut client));
    together(&mut client, &vec![may_publish; 32]);
    assert!(together_count(&mut client) - count > 16);
    assert!(before(&mut client) - commits <= 16);
}

#[test]
fn scripts_that_fail_or_are_ended_leave_what_they_leave_alone() {
    let server = Fixture::new();
    let mut client = server.client();
    let commands = [
        plain("SET a 1"),
        script("redis.call('INCR', 'a') error('one')"),
        script("redis.call('INCR', 'a') return redis.call('INCR', 'a', 'b')"),
        script("redis.call('INCR', 'a') return redis.pcall('LPUSH', 'a', 'b')"),
        script(
            "redis.call('INCR', 'a') local t = {} \
                for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end",
        ),
        plain("INCR a"),
        script("return {"),
        plain("EVALSHA ffffffffffffffffffffffffffffffffffffffff 0"),
        script("return redis.call('INCR', 'a')"),
    ];
    let replies = together(&mut client, &commands);
    let starts = [
        "+OK",
        "-ERR user_script:1: one",
        "-ERR Wrong number",
        "-WRONGTYPE",
        "-ERR not enough memory",
        ":5",
        "-ERR Error compiling",
        "-NOSCRIPT",
        ":6",
    ];
    for (reply, start) in replies.iter().zip(starts) {
        assert!(reply.starts_with(start), "{reply}, not {start}");
    }
    let errors = fields(&mut client, "errorstats");
    assert_eq!(errors["errorstat_NOSCRIPT"], "count=1");
}

#[test]
fn a_long_script_leaves_the_pipeline_and_has_its_effect_once() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let mut client = server.client();
    let long = "redis.call('INCR', KEYS[1]) local n = 0 \
                for i = 1, 20000000 do n = n + i % 7 end return redis.call('GET', KEYS[1])";
    let commands = [
        plain("INCR a"),
        of_key(LIMITER, "a"),
        of_key(long, "a"),
        of_key(LIMITER, "a"),
        plain("INCR a"),
    ];
    assert_eq!(
        together(&mut client, &commands),
        [":1", ":2", "\"3\"", ":4", ":5"]
    );
    assert!(number(&mut client, "stats", "scripts_moved") >= 1);
}

/// The replies before it go with the connection to the script thread: they may all come at its end.
#[test]
fn a_script_in_a_pipeline_is_killed_for_good() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.run("CONFIG SET lua-time-limit 0");
    let endless = script("redis.call('INCR', 'a') while true do end");
    let is_over = End::default();
    thread::scope(|scope| {
        let bring = is_over.brought();
        scope.spawn(|| {
            while !is_over.is_there() {
                other.run("SCRIPT KILL");
                thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            let commands = [plain("SET a 1"), plain("INCR a"), endless.clone()];
            let expected = ["+OK", ":2", "-ERR Script killed by user with SCRIPT KILL."];
            assert_eq!(together(&mut client, &commands), expected);
            client.check(&[("GET a", "\"2\"")]);
        }
        drop(bring);
    });
}

/// Commands that a seed determines.
struct Random(Rng);

impl Random {
    fn key(&mut self) -> String {
        format!("k{}", self.0.u64(..8))
    }

    fn command(&mut self) -> Words {
        let (key, other) = (self.key(), self.key());
        let long = "folded".repeat(1000);
        match self.0.u64(..20) {
            0..4 => of_key(LIMITER, &key),
            4 => of_key("return redis.call('APPEND', KEYS[1], 'x')", &key),
            5 => of_key(
                "redis.call('DEL', KEYS[1]) return redis.call('EXISTS', KEYS[1])",
                &key,
            ),
            6 => of_key(
                "redis.call('RPUSH', KEYS[1], 1, 2) return redis.call('LPOP', KEYS[1])",
                &key,
            ),
            7 => of_key("for i = 1, 20 do redis.call('INCR', KEYS[1]) end", &key),
            8 => of_key("return redis.call('SET', KEYS[1], ('y'):rep(70000))", &key),
            9 => of_key("return #redis.call('GET', KEYS[1])", &key),
            10 => of_key(
                "redis.call('INCR', KEYS[1]) return redis.call('DBSIZE')",
                &key,
            ),
            11 => of_key("return redis.call('GET', KEYS[1])", &long),
            12 => plain(&format!("SET {key} 5")),
            13 => plain(&format!("INCR {key}")),
            14 => plain(&format!("DEL {key} {other}")),
            15 => plain(&format!("SET {key} 1 EXAT 99999999999")),
            16 => plain(&format!("GET {key}")),
            17 => plain(&format!("XADD {key} MAXLEN 4 * a b")),
            18 => ["EVAL_RO", "return redis.call('TYPE', KEYS[1])", "1", &key]
                .map(str::to_owned)
                .to_vec(),
            _ => of_key("return redis.pcall('HINCRBY', KEYS[1], 'f', 1)", &key),
        }
    }
}

/// Replies of XADD are times.
fn is_timed(words: &Words) -> bool {
    words[0] == "XADD"
}

#[test]
fn scripts_of_a_pipeline_mean_what_they_mean_one_by_one() {
    for (seed, durability) in [(1, Durability::None), (2, Durability::Durable)] {
        let with = || ServerOptions {
            durability,
            ..options()
        };
        let (server, alone) = (Fixture::with(with()), Fixture::with(with()));
        let (mut client, mut twin) = (server.client(), alone.client());
        let mut random = Random(Rng::with_seed(seed));
        for _ in 0..60 {
            let count = random.0.usize(..80);
            let pipeline: Vec<Words> = (0..count).map(|_| random.command()).collect();
            let replies = together(&mut client, &pipeline);
            for (words, ours) in pipeline.iter().zip(replies) {
                let expected = show(&twin.call(words));
                assert!(
                    ours == expected || is_timed(words) && expected.starts_with('"'),
                    "{words:?}: {ours:.80}, not {expected:.80}"
                );
            }
            assert_eq!(figures(&mut client), figures(&mut twin));
        }
        assert!(together_count(&mut client) > 600);
        assert_eq!(together_count(&mut twin), 0);
    }
}

#[test]
fn scripts_of_two_loops_count_each_of_their_keys() {
    const ROUNDS: usize = 60;
    const DEPTH: usize = 16;
    let server = Fixture::opened_by(options(), open_small);
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                let one = of_key(LIMITER, "n");
                let two = of_key(
                    "redis.call('INCR', 'm') return redis.call('INCR', KEYS[1])",
                    "n",
                );
                for _ in 0..ROUNDS {
                    let commands: Vec<Words> = (0..DEPTH)
                        .map(|at| if at % 2 == 0 { &one } else { &two }.clone())
                        .collect();
                    let replies = together(&mut client, &commands);
                    assert!(
                        replies.iter().all(|reply| reply.starts_with(':')),
                        "{replies:?}"
                    );
                }
            });
        }
    });
    let all = i64::try_from(4 * ROUNDS * DEPTH).expect("a small number");
    let mut client = server.client();
    assert_eq!(client.text("GET n"), all.to_string());
    assert_eq!(client.text("GET m"), (all / 2).to_string());
}

#[test]
fn those_who_track_and_watch_hear_of_what_scripts_of_a_pipeline_do() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.run_raw("HELLO 3");
    client.check(&[("CLIENT TRACKING ON", "+OK")]);
    let read = of_key("return redis.call('GET', KEYS[1])", "a");
    together(&mut client, &[plain("SET b 1"), read.clone(), read]);
    other.run("SET a 1");
    assert_eq!(show(&client.answer()), ">(\"invalidate\" [\"a\"])");
    let mut monitor = server.client();
    monitor.check(&[("MONITOR", "+OK")]);
    together(
        &mut other,
        &[plain("SET b 1"), of_key(LIMITER, "n"), plain("SET b 2")],
    );
    let lines: Vec<String> = (0..5).map(|_| show(&monitor.answer())).collect();
    let expected = ["SET", "EVAL", "incr", "expire", "SET"];
    for (line, name) in lines.iter().zip(expected) {
        assert!(
            line.to_lowercase().contains(&name.to_lowercase()),
            "{lines:?}"
        );
    }
}
