//! Clients of two loops that write one key: their loops take turns, nothing is lost, and nobody
//! waits for ever.

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::{Client, show};
use crate::fixture::{Fixture, options};
use crate::statistics::conflicts;

const CLIENTS: usize = 16;

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
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
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
        stop.store(true, Ordering::Relaxed);
        assert_eq!(stays[0].run("GET own"), format!("\"{}\"", done * 200));
    });
    assert!(last.run("INCR n").starts_with(':'));
}

/// A command that takes longer than the time between two writes of others gets through: they wait.
#[test]
fn a_long_command_is_not_repeated_without_end() {
    const ROUNDS: usize = 5;
    let server = server();
    let mut reader = server.client();
    let mut producers: Vec<_> = (0..6).map(|_| server.client()).collect();
    reader.run("XGROUP CREATE s g 0 MKSTREAM");
    for _ in 0..ROUNDS {
        reader.send("XADD s * f v\r\n".repeat(2000).as_bytes());
        (0..2000).for_each(|_| drop(reader.answer()));
    }
    let done = AtomicBool::new(false);
    let added = AtomicU64::new(0);
    let before = conflicts(&mut reader);
    thread::scope(|scope| {
        for producer in &mut producers {
            let (done, added) = (&done, &added);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let reply = producer.run("XADD s * f v");
                    assert!(reply.starts_with('"'), "{reply}");
                    added.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..ROUNDS {
            let got = reader.run_raw("XREADGROUP GROUP g c COUNT 2000 STREAMS s >");
            assert_eq!(entries(&got), 2000, "round {round}");
        }
        done.store(true, Ordering::Relaxed);
    });
    let added = added.into_inner();
    assert!(added > 0, "there was somebody to wait for");
    let met = conflicts(&mut reader) - before;
    // Eight of each round before the key is reserved, and those of the producers with each other.
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

/// Has `writer`, which is of another loop than `other`, write a key until `work` has ended.
#[cfg(feature = "scripts")]
fn beside_a_writer(writer: &mut Client, limit: Duration, work: impl FnOnce()) {
    let (done, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let in_time = AtomicBool::new(true);
    thread::scope(|scope| {
        let (done, slowest, in_time) = (&done, &slowest, &in_time);
        scope.spawn(move || {
            let begin = now();
            while !done.load(Ordering::SeqCst) {
                if begin.elapsed() > limit {
                    // Nobody is in the way of the work any more: it ends.
                    in_time.store(false, Ordering::SeqCst);
                    return;
                }
                let sent = now();
                let reply = writer.run("INCR hot");
                assert!(reply.starts_with(':'), "{reply}");
                let ms = u64::try_from(sent.elapsed().as_millis()).unwrap();
                slowest.fetch_max(ms, Ordering::SeqCst);
            }
        });
        work();
        done.store(true, Ordering::SeqCst);
    });
    let slowest = slowest.into_inner();
    assert!(in_time.into_inner(), "it took longer than {limit:?}");
    assert!(
        slowest < 5000,
        "a write of another client took {slowest} ms"
    );
}

/// A script so long that its conflicts take longer than a reservation lasts.
#[cfg(feature = "scripts")]
#[test]
fn a_long_script_gets_its_key_in_the_end() {
    let server = server();
    let (mut writer, mut client) = (server.client(), server.client());
    assert!(client.run("GET hot") == "nil" && writer.run("GET hot") == "nil");
    let before = conflicts(&mut client);
    beside_a_writer(&mut writer, Duration::from_secs(40), || {
        while client.run("GET hot") == "nil" {
            thread::yield_now();
        }
        // `os.clock` counts the processor time of all threads.
        let text = "redis.call('INCR', KEYS[1]) local t = os.clock() \
                    while os.clock() - t < 0.3 do end return 7";
        assert_eq!(show(&client.call(&["EVAL", text, "1", "hot"])), ":7");
    });
    let met = conflicts(&mut client) - before;
    assert!(met >= 8, "{met} conflicts: nothing was reserved");
    assert!(met <= 32, "{met} conflicts");
}

/// Others write a key that the command names last, or only reads: that one is reserved, and not the
/// first one that it writes.
#[cfg(feature = "scripts")]
#[test]
fn the_key_that_was_changed_is_reserved() {
    let wait = "local t = os.clock() while os.clock() - t < 0.05 do end return 7";
    for script in [
        "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[2])",
        "redis.call('SET', KEYS[1], redis.call('GET', KEYS[2]))",
    ] {
        let server = server();
        let (mut writer, mut client) = (server.client(), server.client());
        assert!(client.run("GET hot") == "nil" && writer.run("GET hot") == "nil");
        let before = conflicts(&mut client);
        beside_a_writer(&mut writer, Duration::from_secs(20), || {
            while client.run("GET hot") == "nil" {
                thread::yield_now();
            }
            let text = format!("{script} {wait}");
            let reply = client.call(&["EVAL", &text, "2", "calm", "hot"]);
            assert_eq!(show(&reply), ":7");
        });
        let met = conflicts(&mut client) - before;
        assert!((8..=32).contains(&met), "{met} conflicts: {script}");
    }
}

/// An EXEC that closes its own client and meets conflicts: it is carried out, once, before that,
/// and nobody waits until a closed connection is given up.
#[cfg(feature = "scripts")]
#[test]
fn an_exec_that_kills_its_client_ends_first() {
    let server = server();
    let (mut writer, mut client) = (server.client(), server.client());
    assert!(client.run("GET hot") == "nil" && writer.run("GET hot") == "nil");
    let before = conflicts(&mut writer);
    let id = client.run("CLIENT ID");
    let id = id.strip_prefix(':').unwrap();
    beside_a_writer(&mut writer, Duration::from_secs(40), || {
        while client.run("GET hot") == "nil" {
            thread::yield_now();
        }
        let wait = "local t = os.clock() while os.clock() - t < 0.03 do end return 7";
        client.run("MULTI");
        assert_eq!(client.run("INCR hot"), "+QUEUED");
        assert_eq!(show(&client.call(&["EVAL", wait, "0"])), "+QUEUED");
        assert_eq!(client.run("INCR own"), "+QUEUED");
        assert_eq!(
            client.run(&format!("CLIENT KILL ID {id} SKIPME no")),
            "+QUEUED"
        );
        let reply = client.run("EXEC");
        assert!(reply.ends_with(" :7 :1 :1]"), "{reply}");
        assert!(client.is_closed());
    });
    let met = conflicts(&mut writer) - before;
    assert!(met >= 8, "{met} conflicts: nothing was reserved");
    assert_eq!(writer.run("GET own"), "\"1\"");
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
