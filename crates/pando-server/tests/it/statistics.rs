//! For each figure of the server there is a command that moves it, by exactly what was done.

use std::collections::BTreeMap;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_stats::{Layer, Ticker};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open_small, options};

/// The names under which INFO shows the tickers of the server.
const SHOWN: &[(Ticker, &str)] = &[
    (Ticker::ConnectionsReceived, "total_connections_received"),
    (Ticker::ConnectionsRejected, "rejected_connections"),
    (Ticker::Commands, "total_commands_processed"),
    (Ticker::CommandsTogether, "commands_together"),
    (Ticker::CommandsSuspended, "suspended_commands"),
    (Ticker::ScriptsMoved, "scripts_moved"),
    (Ticker::CommandErrors, "total_error_replies"),
    (Ticker::InputBytes, "total_net_input_bytes"),
    (Ticker::OutputBytes, "total_net_output_bytes"),
    (Ticker::KeyspaceHits, "keyspace_hits"),
    (Ticker::KeyspaceMisses, "keyspace_misses"),
    (Ticker::ExpiredKeys, "expired_keys"),
    (Ticker::ObjectsFreed, "objects_freed"),
    (Ticker::TransactionConflicts, "transaction_conflicts"),
];
/// A command, its reply, and the tickers it moves.
type Case = (&'static str, &'static str, &'static [(Ticker, u64)]);
/// The request that reads all of them.
const ASK: &str = "INFO stats";

/// Returns the fields of `sections` of INFO.
pub(crate) fn fields(client: &mut Client, sections: &str) -> BTreeMap<String, String> {
    let text = client.text(&format!("INFO {sections}"));
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the number of transactions that were run again.
pub(crate) fn conflicts(client: &mut Client) -> u64 {
    let conflicts = &fields(client, "stats")["transaction_conflicts"];
    conflicts.parse().unwrap()
}

/// Returns all tickers in the order of `SHOWN`, and the length of the reply that contains them.
fn counts(client: &mut Client) -> (Vec<u64>, u64) {
    let text = client.text(ASK);
    let value = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("{name} in {text}")).parse()
    };
    let counts = SHOWN.iter().map(|(_, name)| value(name).unwrap());
    let digits = text.len().to_string().len();
    (counts.collect(), (text.len() + digits + 5) as u64)
}

/// Runs `drive`. Returns the tickers that moved and by how much, without the cost of reading them.
fn moved(client: &mut Client, drive: impl FnOnce(&mut Client)) -> Vec<(Ticker, u64)> {
    let (before, reply_bytes) = counts(client);
    drive(client);
    let (after, _) = counts(client);
    let request_bytes = encode(&ASK.split(' ').collect::<Vec<_>>()).len() as u64;
    let pairs = SHOWN.iter().zip(before.iter().zip(&after));
    let differences = pairs.map(|((ticker, _), (before, after))| {
        let own = match ticker {
            Ticker::Commands => 1,
            Ticker::InputBytes => request_bytes,
            Ticker::OutputBytes => reply_bytes,
            _ => 0,
        };
        (*ticker, after - before - own)
    });
    differences.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn every_ticker_of_the_server_is_shown() {
    let ours = Ticker::ALL.iter().filter(|of| of.layer() == Layer::Server);
    let shown: Vec<_> = SHOWN.iter().map(|(ticker, _)| ticker).collect();
    assert_eq!(ours.collect::<Vec<_>>(), shown);
}

#[test]
fn commands_lookups_errors_and_bytes_count_once() {
    use Ticker::{CommandErrors, Commands, InputBytes, KeyspaceHits, KeyspaceMisses, OutputBytes};
    let server = Fixture::new();
    let mut client = server.client();
    let cases: &[Case] = &[
        ("SET a 1", "+OK", &[]),
        ("GET a", "\"1\"", &[(KeyspaceHits, 1)]),
        ("GET b", "nil", &[(KeyspaceMisses, 1)]),
        (
            "MGET a b a",
            "[\"1\" nil \"1\"]",
            &[(KeyspaceHits, 2), (KeyspaceMisses, 1)],
        ),
        (
            "EXISTS a a b",
            ":2",
            &[(KeyspaceHits, 2), (KeyspaceMisses, 1)],
        ),
        // Commands that write and reply with an old value count as lookups, too.
        ("GETSET a 2", "\"1\"", &[(KeyspaceHits, 1)]),
        ("SET a 3 GET", "\"2\"", &[(KeyspaceHits, 1)]),
        ("GETEX a EX 1000", "\"3\"", &[(KeyspaceHits, 1)]),
        ("GETEX b", "nil", &[(KeyspaceMisses, 1)]),
        ("GETDEL a", "\"3\"", &[(KeyspaceHits, 1)]),
        ("SET a 1 GET", "nil", &[(KeyspaceMisses, 1)]),
        (
            "INCRBY a x",
            "-ERR value is not an integer or out of range",
            &[(CommandErrors, 1)],
        ),
    ];
    for (command, reply, others) in cases {
        let mut reply_bytes = 0;
        let found = moved(&mut client, |client| {
            let before = client.received();
            assert_eq!(client.run(command), *reply, "{command}");
            reply_bytes = client.received() - before;
        });
        let input = encode(&command.split(' ').collect::<Vec<_>>()).len() as u64;
        let mut expected = vec![
            (Commands, 1),
            (InputBytes, input),
            (OutputBytes, reply_bytes),
        ];
        expected.extend_from_slice(others);
        expected.sort_unstable_by_key(|(ticker, _)| SHOWN.iter().position(|of| of.0 == *ticker));
        assert_eq!(found, expected, "{command}");
    }
    // A refused command has not run.
    let found = moved(&mut client, |client| drop(client.run("NOSUCH")));
    assert!(found.contains(&(CommandErrors, 1)) && found.iter().all(|of| of.0 != Commands));
}

#[test]
fn counts_are_told_and_reset_in_the_order_of_a_pipeline() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a x");
    client.run("CONFIG RESETSTAT");
    let mut ask = |requests: &str| {
        let all = requests.lines().map(|request| encode(&words(request)));
        client.send(&all.collect::<Vec<_>>().concat());
        let answers = requests.lines().map(|_| client.answer());
        let Some(Answer::Bulk(text)) = answers.last() else {
            panic!("INFO is last");
        };
        let text = String::from_utf8(text).unwrap();
        [
            "total_commands_processed",
            "keyspace_hits",
            "keyspace_misses",
        ]
        .map(|name| {
            let value = |line: &str| -> Option<u64> {
                line.strip_prefix(name)?.strip_prefix(':')?.parse().ok()
            };
            text.lines().find_map(value).unwrap()
        })
    };
    // RESETSTAT and INFO are counted after they have run.
    assert_eq!(ask("GET a\nGET b\nGET b\nINFO stats"), [4, 1, 2]);
    assert_eq!(
        ask("GET a\nCONFIG RESETSTAT\nGET a\nGET b\nINFO stats"),
        [3, 1, 1]
    );
    assert_eq!(
        ask("GET a\nMULTI\nCONFIG RESETSTAT\nINFO stats\nEXEC\nINFO stats"),
        [3, 0, 0]
    );
}

#[test]
fn commands_of_a_transaction_count_when_it_is_over() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a x");
    client.run("CONFIG RESETSTAT");
    let found = moved(&mut client, |client| {
        client.check(&[
            ("MULTI", "+OK"),
            ("GET a", "+QUEUED"),
            ("GET b", "+QUEUED"),
            ("INCR a", "+QUEUED"),
        ]);
        client.run("EXEC");
    });
    for expected in [
        (Ticker::Commands, 5),
        (Ticker::KeyspaceHits, 1),
        (Ticker::KeyspaceMisses, 1),
        (Ticker::CommandErrors, 1),
    ] {
        assert!(found.contains(&expected), "{expected:?} in {found:?}");
    }
    let commands = fields(&mut client, "commandstats errorstats");
    assert!(commands["cmdstat_get"].starts_with("calls=2,usec="));
    assert!(commands["cmdstat_incr"].ends_with("rejected_calls=0,failed_calls=1"));
    assert!(commands["cmdstat_exec"].ends_with("rejected_calls=0,failed_calls=0"));
    assert_eq!(commands["errorstat_ERR"], "count=1");
}

#[test]
fn connections_are_counted_and_those_refused_too() {
    let server = Fixture::with(ServerOptions {
        maxclients: 1,
        ..options()
    });
    let mut client = server.client();
    let found = moved(&mut client, |_| {
        let mut refused = server.raw_client();
        assert_eq!(
            refused
                .try_answer_to_ping()
                .as_deref()
                .unwrap_or("-ERR max"),
            "-ERR max number of clients reached"
        );
    });
    let expected = [
        (Ticker::ConnectionsReceived, 1),
        (Ticker::ConnectionsRejected, 1),
    ];
    assert_eq!(found, expected);
}

#[test]
fn expired_keys_are_counted_when_they_go() {
    let server = Fixture::new();
    let mut client = server.client();
    for number in 0..20 {
        client.run(&format!("SET key:{number} x PX 1"));
    }
    client.run("SET stays x EX 1000");
    let until = now() + Duration::from_secs(20);
    while client.integer("DBSIZE") > 1 {
        assert!(now() < until, "expired keys go by themselves");
        thread::yield_now();
    }
    assert_eq!(fields(&mut client, "stats")["expired_keys"], "20");
}

#[test]
fn large_collections_are_counted_when_they_are_gone() {
    let server = Fixture::new();
    let mut client = server.client();
    for number in 0..40 {
        let field = format!("field{number}");
        client.call(&["HSET", "h", &field, &"x".repeat(10_000)]);
    }
    let before = fields(&mut client, "memory");
    assert_eq!(before["lazyfreed_objects"], "0");
    assert_eq!(before["lazyfree_pending_objects"], "0");
    // Both in one turn of the loop, which has none for the cleaner in between.
    client.send(b"DEL h\r\nINFO memory\r\n");
    assert_eq!(show(&client.answer()), ":1");
    let given_up = show(&client.answer());
    assert!(
        given_up.contains("lazyfree_pending_objects:1\r"),
        "{given_up}"
    );
    let until = now() + Duration::from_secs(20);
    while fields(&mut client, "memory")["lazyfreed_objects"] == "0" {
        assert!(now() < until, "its rows are removed behind it");
        thread::yield_now();
    }
    let after = fields(&mut client, "memory");
    assert_eq!(after["lazyfreed_objects"], "1");
    assert_eq!(after["lazyfree_pending_objects"], "0");
}

#[test]
fn large_collections_are_removed_as_fast_as_they_are_made() {
    let server = Fixture::with(ServerOptions {
        threads: 1,
        durability: Durability::None,
        ..options()
    });
    let mut client = server.client();
    let members: String = (0..300)
        .map(|number| format!(" member-{number}-of-the-set"))
        .collect();
    let round = format!("SADD s{members}\r\nDEL s\r\n").repeat(16);
    let (mut made, until) = (0, now() + Duration::from_secs(3));
    while now() < until {
        made += 16;
        client.send(round.as_bytes());
        for _ in 0..16 {
            assert_eq!(show(&client.answer()), ":300");
            assert_eq!(show(&client.answer()), ":1");
        }
    }
    let left = fields(&mut client, "memory")["lazyfree_pending_objects"].parse::<u64>();
    let left = left.unwrap();
    // The cleaner looks for work after half a second at the latest.
    assert!(left < made / 2, "{left} of {made} are left");
}

#[test]
fn waits_for_the_engine_are_counted_and_are_part_of_the_latency() {
    const KEYS: usize = 3000;
    let no_durability = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    let server = Fixture::opened_by(no_durability, open_small);
    let mut client = server.client();
    for number in 0..KEYS {
        client.run(&format!("SET key:{number} {}", "v".repeat(900)));
    }
    client.run("CONFIG RESETSTAT");
    for number in 0..KEYS {
        client.run(&format!("GET key:{number}"));
    }
    let all = fields(&mut client, "everything");
    let count = |name: &str| all[name].parse::<u64>().unwrap();
    let (waits, missed) = (count("suspended_commands"), count("gets_missed_total"));
    assert!(missed > 0, "the data are larger than the pool");
    assert!(
        missed <= waits && waits <= 2 * KEYS as u64,
        "{waits}, {missed}"
    );
    assert_eq!(
        count("keyspace_hits"),
        KEYS as u64,
        "a wait counts no second hit"
    );
    assert!(all["cmdstat_get"].starts_with(&format!("calls={KEYS},")));
}

#[test]
fn transactions_that_others_disturb_are_counted() {
    let server = Fixture::new();
    let mut client = server.client();
    let until = now() + Duration::from_secs(15);
    let mut sum = 0;
    while fields(&mut client, "stats")["transaction_conflicts"] == "0" {
        assert!(now() < until, "loops disturb each other");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.raw_client();
                thread::spawn(move || {
                    let request = encode(&["INCR", "n"]).repeat(500);
                    client.send(&request);
                    (0..500).for_each(|_| drop(client.answer()));
                })
            })
            .collect();
        threads.into_iter().for_each(|one| one.join().unwrap());
        sum += 2000;
    }
    assert_eq!(client.run("GET n"), format!("\"{sum}\""));
    let calls = fields(&mut client, "commandstats");
    assert!(calls["cmdstat_incr"].starts_with(&format!("calls={sum},")));
}

#[test]
fn commands_have_calls_times_and_percentiles_by_name() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a x");
    client.run("CONFIG RESETSTAT");
    for _ in 0..9 {
        client.run("GET a");
    }
    client.run("GET");
    client.run("INCR a");
    client.run("CLIENT SETNAME me");
    // These are refused: a subcommand, its container, and an unknown subcommand, which has no
    // figures.
    client.run("CLIENT SETNAME");
    client.run("CLIENT");
    client.run("CLIENT NOSUCH");
    let all = fields(&mut client, "commandstats latencystats errorstats");
    let parts = |name: &str| {
        let pairs = all[name]
            .split(',')
            .map(|part| part.split_once('=').unwrap());
        pairs
            .map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let get = parts("cmdstat_get");
    assert_eq!(
        (get["calls"], get["rejected_calls"], get["failed_calls"]),
        (9.0, 1.0, 0.0)
    );
    assert!((get["usec_per_call"] - get["usec"] / 9.0).abs() < 0.01);
    assert_eq!(parts("cmdstat_incr")["failed_calls"], 1.0);
    let of_name = parts("cmdstat_client|setname");
    assert_eq!((of_name["calls"], of_name["rejected_calls"]), (1.0, 1.0));
    assert_eq!(parts("cmdstat_client")["rejected_calls"], 1.0);
    let latency = parts("latency_percentiles_usec_get");
    assert!(latency["p50"] > 0.0);
    assert!(latency["p50"] <= latency["p99"] && latency["p99"] <= latency["p99.9"]);
    assert_eq!(all["errorstat_ERR"], "count=5");
    assert!(!all.contains_key("cmdstat_set"), "reset");
    assert!(
        !all.contains_key("latency_percentiles_usec_client"),
        "never ran"
    );
}

#[test]
fn the_rate_of_commands_is_that_of_the_last_seconds() {
    let server = Fixture::new();
    let mut client = server.client();
    let (begun, mut sent) = (now(), 0_u64);
    loop {
        (0..100).for_each(|_| drop(client.run("PING")));
        sent += 101;
        let rate: f64 = fields(&mut client, "stats")["instantaneous_ops_per_sec"]
            .parse()
            .unwrap();
        if rate > 0.0 {
            // The rate is measured over at least half a second.
            assert!(rate <= sent as f64 / 0.5, "{rate} of {sent}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "a rate");
    }
}

#[test]
fn a_reset_begins_all_figures_anew_those_of_the_engine_too() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("SET a 1");
    client.run("GET a");
    client.run("NOSUCH");
    let before = fields(&mut client, "everything");
    assert_ne!(before["puts_total"], "0");
    assert_eq!(client.run("CONFIG RESETSTAT"), "+OK");
    let after = fields(&mut client, "everything");
    for name in [
        "keyspace_hits",
        "total_error_replies",
        "puts_total",
        "gets_total",
    ] {
        assert_eq!(after[name], "0", "{name}");
    }
    // The reset itself is counted, since it finishes after the counters were set to zero.
    assert_eq!(after["total_commands_processed"], "1");
    assert!(!after.contains_key("errorstat_ERR"));
}

/// A script that ends with the error of its call has no other one; a call that is refused is an
/// error, too, and none that was processed.
#[cfg(feature = "scripts")]
#[test]
fn errors_of_the_calls_of_scripts_are_counted_once() {
    let server = Fixture::new();
    let mut client = server.client();
    let refused = "redis.pcall('NOSUCH') redis.pcall('GET') redis.pcall('INCR', 's') return 1";
    let two = "redis.pcall('INCR', 's') redis.pcall('LPUSH', 's', 'x') return redis.call('GET')";
    // Those of Redis: errors, and commands beside the script that were refused, and that failed.
    for (command, script, counted) in [
        ("EVAL", refused, (3, 1, 1)),
        ("EVAL", "return redis.call('INCR', 's')", (1, 0, 1)),
        (
            "EVAL",
            "local e = redis.pcall('INCR', 's') return e",
            (1, 0, 1),
        ),
        (
            "EVAL",
            "local e = redis.pcall('INCR', 's') error(e)",
            (1, 0, 1),
        ),
        (
            "EVAL",
            "redis.pcall('INCR', 's') return {err = 'MY x'}",
            (2, 0, 1),
        ),
        ("EVAL", "redis.pcall('INCR', 's') error('x')", (2, 0, 1)),
        ("EVAL", two, (3, 1, 2)),
        ("EVAL_RO", "return redis.call('SET', 'a', 'b')", (1, 1, 0)),
        // Those inside of a reply are errors, too.
        (
            "EVAL",
            "return {{err = 'X y'}, {1, {err = 'one'}}}",
            (2, 0, 0),
        ),
        ("EVAL", "return {redis.pcall('INCR', 's')}", (1, 0, 1)),
    ] {
        for how in ["alone", "in EXEC", "in a pipeline"] {
            client.check(&[("SET s x", "+OK"), ("CONFIG RESETSTAT", "+OK")]);
            let run = encode(&[command, script, "0"]);
            let begin = [encode(&["MULTI"]), run.clone(), encode(&["EXEC"])].concat();
            let (sent, replies, times) = match how {
                "alone" => (run, 1, 1),
                "in EXEC" => (begin, 3, 1),
                _ => (run.repeat(10), 10, 10),
            };
            client.send(&sent);
            (0..replies).for_each(|_| drop(client.answer()));
            let all = fields(&mut client, "commandstats stats");
            let errors: u64 = all["total_error_replies"].parse().unwrap();
            let (mut rejected, mut failed) = (0, 0);
            for (name, of) in all.iter().filter(|(name, _)| name.starts_with("cmdstat_")) {
                let figure = |part: &str| {
                    let found = of.split(',').find_map(|of| of.strip_prefix(part));
                    found.unwrap().parse::<u64>().unwrap()
                };
                rejected += figure("rejected_calls=");
                if !name.starts_with("cmdstat_eval") {
                    failed += figure("failed_calls=");
                }
            }
            let (of_errors, of_rejected, of_failed) = counted;
            let expected = [of_errors, of_rejected, of_failed].map(|count| count * times);
            assert_eq!([errors, rejected, failed], expected, "{how}: {script}");
        }
    }
}

/// The first word of an error is kept, unless it is long.
#[cfg(feature = "scripts")]
#[test]
fn codes_of_errors_are_those_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let two = "redis.pcall('INCR', 's') redis.pcall('LPUSH', 's', 'x') \
               return redis.pcall('INCR', 's')";
    client.check(&[("SET s x", "+OK"), ("CONFIG RESETSTAT", "+OK")]);
    for script in [
        two,
        "return {err = 'one'}",
        "return {err = ('x'):rep(1000) .. ' y'}",
    ] {
        drop(client.call(&["EVAL", script, "0"]));
    }
    let all = fields(&mut client, "errorstats");
    let codes: Vec<_> = all
        .iter()
        .filter(|(name, _)| name.starts_with("errorstat_"))
        .collect();
    let shown = format!("{codes:?}");
    assert_eq!(all["errorstat_ERR"], "count=4", "{shown}");
    assert_eq!(all["errorstat_WRONGTYPE"], "count=1", "{shown}");
    assert_eq!(codes.len(), 2, "{shown}");
}
