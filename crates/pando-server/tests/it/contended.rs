//! Clients of two loops that write one key: their loops take turns, nothing is lost, and nobody
//! waits for ever.

#[cfg(feature = "scripts")]
use std::ops::RangeInclusive;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, show};
use crate::fixture::{Fixture, options};
use crate::statistics::conflicts;
use crate::until_end::End;

const CLIENTS: usize = 16;
/// After this time it is clear that somebody waits without end.
const LIMIT: Duration = Duration::from_secs(60);
/// The end of a script that takes longer than many writes of others. `os.clock` counts the
/// processor time of all threads.
#[cfg(feature = "scripts")]
const WAIT: &str = "local t = os.clock() while os.clock() - t < 0.05 do end return 7";

fn server() -> Fixture {
    Fixture::with(ServerOptions {
        durability: Durability::None,
        ..options()
    })
}

/// Has all clients send `pipelines` times `pipeline`; returns the sum of the integers replied.
fn send_all(clients: &mut [Client], pipelines: usize, pipeline: &str, replies: usize) -> u64 {
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for client in clients {
            let sum = &sum;
            scope.spawn(move || {
                for _ in 0..pipelines {
                    client.send(pipeline.as_bytes());
                    for _ in 0..replies {
                        let reply = show(&client.answer());
                        assert!(!reply.starts_with('-'), "{reply}");
                        let number = reply.strip_prefix(':');
                        let number = number.map_or(0, |text| text.parse().unwrap());
                        sum.fetch_add(number, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner()
}

/// Pipelines of writes of one large hash: without turns, two of three runs of commands conflict.
#[test]
fn loops_take_turns() {
    const PIPELINES: usize = 60;
    let server = server();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let mut asks = server.client();
    for from in (0..2000).step_by(100) {
        let fields: Vec<String> = (from..from + 100).map(|n| format!("f{n} v")).collect();
        asks.run(&format!("HSET hash {}", fields.join(" ")));
    }
    let before = conflicts(&mut asks);
    let pipeline: String = (0..32)
        .map(|n| format!("HINCRBY hash total 1\r\nHSET hash f{} w\r\n", n * 60))
        .collect();
    send_all(&mut clients, PIPELINES, &pipeline, 64);
    let total = CLIENTS * PIPELINES * 32;
    assert_eq!(asks.run("HGET hash total"), format!("\"{total}\""));
    assert_eq!(asks.run("HLEN hash"), ":2001");
    let met = conflicts(&mut asks) - before;
    let runs = (CLIENTS * PIPELINES) as u64;
    assert!(met < runs / 8, "{met} conflicts of {runs} runs of commands");
}

/// The same of one stream, and of what is pending in it.
#[test]
fn loops_take_turns_with_a_stream() {
    const PIPELINES: usize = 60;
    let server = server();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let mut asks = server.client();
    asks.run("XGROUP CREATE s g $ MKSTREAM");
    let before = conflicts(&mut asks);
    let pipeline = "XADD s * f v\r\nXREADGROUP GROUP g c COUNT 1 STREAMS s >\r\n".repeat(16);
    send_all(&mut clients, PIPELINES, &pipeline, 32);
    let total = CLIENTS * PIPELINES * 16;
    assert_eq!(asks.run("XLEN s"), format!(":{total}"));
    let pending = asks.run("XPENDING s g");
    assert!(
        pending.starts_with(&format!("[:{total} ")),
        "{pending}: each client has added an entry before it asks for one"
    );
    let met = conflicts(&mut asks) - before;
    let runs = (CLIENTS * PIPELINES) as u64;
    // Without turns there are more than ten of each run.
    assert!(met < 2 * runs, "{met} conflicts of {runs} runs of commands");
}

/// Commands of all kinds that write one key, inline and not, in EXEC and alone: each happens once.
#[test]
fn each_command_happens_once() {
    const PIPELINES: usize = 50;
    let server = server();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let mut asks = server.client();
    let pipeline = "INCR n\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\nMULTI\r\nINCR n\r\nINCR n\r\nEXEC\r\n\
                    SET \"n\\x31\" 'a b'\r\nGET n\r\nINCRBY n 2\r\nLPUSH list \"a\"\r\nRPOP list\r\n";
    send_all(&mut clients, PIPELINES, pipeline, 11);
    let total = CLIENTS * PIPELINES * 6;
    assert_eq!(asks.run("GET n"), format!("\"{total}\""));
    assert_eq!(asks.run("GET n1"), "\"a b\"");
    assert_eq!(asks.run("EXISTS list"), ":0");
}

/// Clients that go away while they wait, in the middle of their pipelines: those who stay are
/// served, also when they are the last.
#[test]
fn clients_may_leave_while_they_wait() {
    let server = server();
    // Before the others, who may be as many as the server takes.
    let mut stays: Vec<_> = (0..4).map(|_| server.client()).collect();
    let mut last = server.client();
    let stop = End::default();
    thread::scope(|scope| {
        let bring = stop.brought();
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.is_there() {
                    let mut client = server.client();
                    client.send(&b"INCR n\r\nAPPEND text x\r\n".repeat(100));
                }
            });
        }
        let begin = now();
        let mut done = 0;
        while begin.elapsed() < Duration::from_secs(2) {
            send_all(&mut stays, 1, &"INCR own\r\n".repeat(50), 50);
            send_all(&mut stays, 1, &"INCR n\r\n".repeat(50), 50);
            done += 1;
        }
        drop(bring);
        assert_eq!(stays[0].run("GET own"), format!("\"{}\"", done * 200));
    });
    assert!(last.run("INCR n").starts_with(':'));
}

/// A command that takes longer than the time between two writes of others gets through: they wait.
#[test]
fn a_long_command_is_not_repeated_without_end() {
    const ROUNDS: usize = 5;
    let server = server();
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    let (reader, others) = clients.split_first_mut().unwrap();
    reader.run("XGROUP CREATE s g 0 MKSTREAM");
    for _ in 0..ROUNDS {
        reader.send("XADD s * f v\r\n".repeat(2000).as_bytes());
        (0..2000).for_each(|_| drop(reader.answer()));
    }
    // Every other client is of the reader's loop. The rest is of one loop, and does not conflict
    // with its like.
    let producers: Vec<_> = others.iter_mut().step_by(2).collect();
    let before = conflicts(reader);
    let added = beside_writers(producers, "XADD s * f v", LIMIT, || {
        for round in 0..ROUNDS {
            let got = reader.run_raw("XREADGROUP GROUP g c COUNT 2000 STREAMS s >");
            assert_eq!(entries(&got), 2000, "round {round}");
        }
    });
    assert!(added > 0, "there was somebody to wait for");
    let met = conflicts(reader) - before;
    // Eight of each round before the key is reserved, and those of who had begun by then.
    let most = 24 * ROUNDS as u64;
    assert!(met <= most, "{met} conflicts beside {added} entries");
    assert_eq!(
        reader.run("XPENDING s g").split(' ').next(),
        Some("[:10000")
    );
    assert_eq!(
        reader.run("XLEN s"),
        format!(":{}", added + 2000 * ROUNDS as u64)
    );
}

/// Has `writers`, which are of another loop than who works, send `command` over and over until
/// `work` has ended; returns how often they did.
fn beside_writers(
    writers: Vec<&mut Client>,
    command: &str,
    limit: Duration,
    work: impl FnOnce(),
) -> u64 {
    let (done, in_time) = (End::default(), AtomicBool::new(true));
    let (slowest, written) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let bring = done.brought();
        for writer in writers {
            let (done, in_time) = (&done, &in_time);
            let (slowest, written) = (&slowest, &written);
            scope.spawn(move || {
                let begin = now();
                while !done.is_there() {
                    if begin.elapsed() > limit {
                        // Nobody is in the way of the work any more: it ends.
                        in_time.store(false, Ordering::SeqCst);
                        return;
                    }
                    let sent = now();
                    let reply = writer.run(command);
                    assert!(!reply.starts_with('-'), "{reply}");
                    written.fetch_add(1, Ordering::SeqCst);
                    let ms = u64::try_from(sent.elapsed().as_millis()).unwrap();
                    slowest.fetch_max(ms, Ordering::SeqCst);
                }
            });
        }
        work();
        drop(bring);
    });
    let slowest = slowest.into_inner();
    assert!(in_time.into_inner(), "it took longer than {limit:?}");
    assert!(
        slowest < 10_000,
        "a write of another client took {slowest} ms"
    );
    written.into_inner()
}

/// Has a client call a script with `keys`, of which others write `hot` all the time, until it has
/// met as many conflicts as it takes to reserve a key, and few more. Where the machine has other
/// work, others may write nothing while the script runs, or the script take longer than its
/// reservation: then it is called once more.
#[cfg(feature = "scripts")]
fn meets_few_conflicts(script: &str, keys: &[&str]) {
    const CALLS_MAX: usize = 5;
    // Eight and the one of who had begun, twice: the reservation may be over too soon.
    const FEW: RangeInclusive<u64> = 8..=20;
    let server = server();
    // The writers are of one loop, and the client of another.
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    let (client, writers) = clients.split_first_mut().unwrap();
    let writers: Vec<_> = writers.iter_mut().step_by(2).collect();
    // The time of all runs counts.
    client.run("CONFIG SET lua-time-limit 0");
    assert_eq!(client.run("EXISTS hot"), ":0");
    let count = keys.len().to_string();
    let mut seen = Vec::new();
    beside_writers(writers, "INCR hot", LIMIT, || {
        while client.run("EXISTS hot") == ":0" {
            thread::yield_now();
        }
        while seen.len() < CALLS_MAX && !seen.last().is_some_and(|met| FEW.contains(met)) {
            let before = conflicts(client);
            let words = [&["EVAL", script, &count][..], keys].concat();
            assert_eq!(show(&client.call(&words)), ":7");
            seen.push(conflicts(client) - before);
        }
    });
    let last = seen.last().unwrap();
    assert!(FEW.contains(last), "{seen:?} conflicts: {script}");
}

/// A script so long that its conflicts take longer than a reservation lasts.
#[cfg(feature = "scripts")]
#[test]
fn a_long_script_gets_its_key_in_the_end() {
    // `os.clock` counts the processor time of all threads.
    let script = "redis.call('INCR', KEYS[1]) local t = os.clock() \
                  while os.clock() - t < 0.3 do end return 7";
    meets_few_conflicts(script, &["hot"]);
}

/// Others write a key that the command names last, or only reads: that one is reserved, and not the
/// first one that it writes.
#[cfg(feature = "scripts")]
#[test]
fn the_key_that_was_changed_is_reserved() {
    for script in [
        "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[2])",
        "redis.call('SET', KEYS[1], redis.call('GET', KEYS[2]))",
    ] {
        meets_few_conflicts(&format!("{script} {WAIT}"), &["calm", "hot"]);
    }
}

/// An EXEC that closes its own client and meets conflicts: it is carried out, once, before that,
/// and nobody waits until a closed connection is given up.
#[cfg(feature = "scripts")]
#[test]
fn an_exec_that_kills_its_client_ends_first() {
    const CLIENTS_MAX: usize = 10;
    let server = server();
    let (mut writer, mut client) = (server.client(), server.client());
    let mut asks = server.client();
    asks.run("CONFIG SET lua-time-limit 0");
    assert!(client.run("GET hot") == "nil" && writer.run("GET hot") == "nil");
    let mut seen = Vec::new();
    beside_writers(vec![&mut writer], "INCR hot", LIMIT, || {
        while client.run("GET hot") == "nil" {
            thread::yield_now();
        }
        // Where the machine has other work, the writer may write nothing while the script runs.
        while seen.len() < CLIENTS_MAX && seen.last().is_none_or(|met| *met < 8) {
            let before = conflicts(&mut asks);
            runs_an_exec_that_kills(&mut client, seen.len() + 1);
            seen.push(conflicts(&mut asks) - before);
            client = server.client();
        }
    });
    assert!(seen.last().unwrap() >= &8, "{seen:?} conflicts");
    assert_eq!(asks.run("GET own"), format!("\"{}\"", seen.len()));
}

/// Sends an EXEC that takes a while and closes `client`; it is the one with this number.
#[cfg(feature = "scripts")]
fn runs_an_exec_that_kills(client: &mut Client, number: usize) {
    let id = client.run("CLIENT ID");
    let id = id.strip_prefix(':').unwrap();
    client.run("MULTI");
    assert_eq!(client.run("INCR hot"), "+QUEUED");
    assert_eq!(show(&client.call(&["EVAL", WAIT, "0"])), "+QUEUED");
    assert_eq!(client.run("INCR own"), "+QUEUED");
    let kill = format!("CLIENT KILL ID {id} SKIPME no");
    assert_eq!(client.run(&kill), "+QUEUED");
    let reply = client.run("EXEC");
    assert!(reply.ends_with(&format!(" :7 :{number} :1]")), "{reply}");
    assert!(client.is_closed());
}

/// Returns the number of entries of the only stream in a reply of XREADGROUP.
fn entries(reply: &Answer) -> usize {
    let Answer::Array(streams) = reply else {
        panic!("{reply:?}");
    };
    let Answer::Array(stream) = &streams[0] else {
        panic!("{reply:?}");
    };
    let Answer::Array(entries) = &stream[1] else {
        panic!("{reply:?}");
    };
    entries.len()
}
