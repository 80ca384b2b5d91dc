//! Publishing, and subscribing to channels and patterns.

use std::collections::HashMap;

use pando_resp::Answer;
use pando_server::ServerOptions;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show, words};
use crate::fixture::{Fixture, open, open_on_disk, open_small, options};

#[test]
fn subscribers_with_resp2_receive_and_may_call_little() {
    let server = Fixture::new();
    let mut publisher = server.client();
    for mut client in [server.client(), server.client()] {
        client.check(&[
            ("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]"),
            ("PSUBSCRIBE a*", "[\"psubscribe\" \"a*\" :2]"),
            ("PING", "[\"pong\" \"\"]"),
            (
                "GET x",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
            ),
        ]);
        publisher.check(&[
            ("PUBLISH a x", ":2"),
            ("PUBLISH ab y", ":1"),
            ("PUBLISH b z", ":0"),
            ("PUBSUB NUMSUB a b", "[\"a\" :1 \"b\" :0]"),
            ("PUBSUB NUMPAT", ":1"),
        ]);
        client.check(&[("UNSUBSCRIBE", "[\"message\" \"a\" \"x\"]")]);
        let rest = [(); 3].map(|()| show(&client.answer()));
        assert_eq!(
            rest,
            [
                "[\"pmessage\" \"a*\" \"a\" \"x\"]",
                "[\"pmessage\" \"a*\" \"ab\" \"y\"]",
                "[\"unsubscribe\" \"a\" :1]"
            ]
        );
        client.check(&[("RESET", "+RESET"), ("GET x", "nil")]);
        publisher.check(&[
            ("PUBSUB CHANNELS", "[]"),
            ("PUBSUB NUMPAT", ":0"),
            ("PUBLISH a x", ":0"),
        ]);
    }
}

/// It has left its channels before it gets the reply to QUIT, behind all messages that were counted
/// for it.
#[test]
fn who_has_quit_is_no_subscriber() {
    let server = Fixture::new();
    let mut other = server.client();
    for _ in 0..100 {
        let mut client = server.client();
        client.check(&[
            ("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]"),
            ("PSUBSCRIBE a*", "[\"psubscribe\" \"a*\" :2]"),
            ("SSUBSCRIBE s", "[\"ssubscribe\" \"s\" :1]"),
        ]);
        other.check(&[("SPUBLISH s x", ":1")]);
        client.check(&[("QUIT", "[\"smessage\" \"s\" \"x\"]")]);
        assert_eq!(show(&client.answer()), "+OK");
        other.check(&[
            ("PUBSUB CHANNELS", "[]"),
            ("PUBSUB NUMPAT", ":0"),
            ("PUBSUB SHARDCHANNELS", "[]"),
            ("PUBLISH a x", ":0"),
        ]);
    }
}

#[test]
fn an_exec_publishes_at_its_commit() {
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    other.check(&[("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]")]);
    client.check(&[
        ("WATCH k", "+OK"),
        ("SET k 1", "+OK"),
        ("MULTI", "+OK"),
        ("PUBLISH a lost", "+QUEUED"),
        ("SUBSCRIBE a", "+QUEUED"),
        ("EXEC", "nil"),
        ("PUBSUB NUMSUB a", "[\"a\" :1]"),
        ("MULTI", "+OK"),
        ("SET k 2", "+QUEUED"),
        ("PUBLISH a sent", "+QUEUED"),
        ("EXEC", "[+OK :1]"),
    ]);
    assert_eq!(show(&other.answer()), "[\"message\" \"a\" \"sent\"]");
    // What it receives itself is no part of the reply of EXEC.
    client.run("HELLO 3");
    let (subscribed, message) = (">(\"subscribe\" \"b\" :1)", ">(\"message\" \"b\" \"own\")");
    client.check(&[
        ("MULTI", "+OK"),
        ("SUBSCRIBE b", "+QUEUED"),
        ("PUBLISH b own", "+QUEUED"),
        ("EXEC", &format!("[{subscribed} :1]")),
    ]);
    assert_eq!(show(&client.answer()), message);
    client.check(&[
        ("MULTI", "+OK"),
        ("PUBLISH b own", "+QUEUED"),
        ("UNSUBSCRIBE b", "+QUEUED"),
        ("EXEC", message),
    ]);
    let left = "[:1 >(\"unsubscribe\" \"b\" :0)]";
    assert_eq!(show(&client.answer()), left);
}

/// Number of clients that publish in the test with many, and of messages of each to each channel.
const PUBLISHERS: usize = 3;
const MESSAGES: usize = 1500;

fn info(client: &mut Client, name: &str) -> String {
    let text = client.text("INFO");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// Waits until nobody is subscribed to anything, and checks that nothing is left.
#[track_caller]
fn wait_for_no_subscribers(client: &mut Client) {
    let names = [
        "pubsub_clients",
        "pubsub_channels",
        "pubsub_patterns",
        "pubsubshard_channels",
    ];
    let limit = now() + Duration::from_secs(20);
    while names.iter().any(|name| info(client, name) != "0") {
        assert!(now() < limit, "{}", client.text("CLIENT LIST"));
        thread::yield_now();
    }
    client.check(&[
        ("PUBSUB CHANNELS", "[]"),
        ("PUBSUB SHARDCHANNELS", "[]"),
        ("PUBSUB NUMPAT", ":0"),
    ]);
}

fn has(client: &mut Client, name: &str, fields: &str) -> bool {
    let text = client.text("CLIENT LIST");
    let mut lines = text.lines();
    lines.any(|line| line.contains(&format!("name={name} ")) && line.contains(fields))
}

#[test]
fn subscribers_with_resp3_may_call_everything() {
    let server = Fixture::new();
    let mut publisher = server.client();
    for mut client in [server.client(), server.client()] {
        client.run("HELLO 3");
        client.check(&[
            ("SUBSCRIBE a", ">(\"subscribe\" \"a\" :1)"),
            ("PSUBSCRIBE ?", ">(\"psubscribe\" \"?\" :2)"),
            ("SSUBSCRIBE a", ">(\"ssubscribe\" \"a\" :1)"),
            ("PING", "+PONG"),
            ("SET k v", "+OK"),
        ]);
        publisher.check(&[
            ("PUBLISH a x", ":2"),
            ("SPUBLISH a y", ":1"),
            ("PUBSUB SHARDCHANNELS", "[\"a\"]"),
            ("PUBSUB SHARDNUMSUB a b", "[\"a\" :1 \"b\" :0]"),
        ]);
        let pushes = [(); 3].map(|()| show(&client.answer()));
        assert_eq!(
            pushes,
            [
                ">(\"message\" \"a\" \"x\")",
                ">(\"pmessage\" \"?\" \"a\" \"x\")",
                ">(\"smessage\" \"a\" \"y\")"
            ]
        );
        client.check(&[
            ("GET k", "\"v\""),
            ("SUNSUBSCRIBE", ">(\"sunsubscribe\" \"a\" :0)"),
            ("PUNSUBSCRIBE", ">(\"punsubscribe\" \"?\" :1)"),
            ("UNSUBSCRIBE", ">(\"unsubscribe\" \"a\" :0)"),
            ("UNSUBSCRIBE", ">(\"unsubscribe\" nil :0)"),
        ]);
        publisher.check(&[("PUBLISH a x", ":0"), ("SPUBLISH a y", ":0")]);
    }
    wait_for_no_subscribers(&mut publisher);
}

/// The mailbox has the message when the channel is left, within one turn of the connection.
#[test]
fn nothing_comes_after_a_channel_was_left() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("HELLO 3");
    for _ in 0..20 {
        client.run("SUBSCRIBE a");
        client.send(b"PUBLISH a x\r\nUNSUBSCRIBE a\r\nPING\r\n");
        let answers = [(); 4].map(|()| show(&client.answer()));
        assert_eq!(
            answers,
            [
                ":1",
                ">(\"message\" \"a\" \"x\")",
                ">(\"unsubscribe\" \"a\" :0)",
                "+PONG"
            ]
        );
    }
}

/// Reads of pages that are not in memory make the EXEC run many times.
#[test]
fn an_exec_that_runs_again_publishes_once() {
    const KEYS: usize = 4000;
    let server = Fixture::opened_by(options(), open_small);
    let (mut client, mut other) = (server.client(), server.client());
    let text = "x".repeat(1500);
    for key in 0..KEYS {
        client.send(&encode(&["SET", &format!("k{key}"), &text]));
    }
    for _ in 0..KEYS {
        assert_eq!(show(&client.answer()), "+OK");
    }
    other.check(&[("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]")]);
    client.run("HELLO 3");
    for round in 0..10 {
        client.run("MULTI");
        client.run(&format!("PUBLISH a {round}"));
        client.run("SUBSCRIBE b");
        for key in 0..20 {
            client.run(&format!("GET k{}", (key * 211 + round * 97) % KEYS));
        }
        client.run("UNSUBSCRIBE b");
        client.run(&format!("SET round {round}"));
        client.send(&encode(&["EXEC"]));
        let reply = show(&client.answer());
        assert!(
            reply.starts_with("[:1 >(\"subscribe\" \"b\" :1) \"xxx"),
            "{reply}"
        );
        assert!(
            reply.ends_with(">(\"unsubscribe\" \"b\" :0) +OK]"),
            "{reply}"
        );
        let expected = format!("[\"message\" \"a\" \"{round}\"]");
        assert_eq!(show(&other.answer()), expected);
    }
    client.check(&[("PUBLISH a end", ":1"), ("PUBSUB CHANNELS", "[\"a\"]")]);
    assert_eq!(show(&other.answer()), "[\"message\" \"a\" \"end\"]");
}

#[test]
fn who_receives_a_message_sees_what_was_set_before() {
    for opener in [open, open_on_disk] {
        let server = Fixture::opened_by(options(), opener);
        let mut publisher = server.client();
        let mut subscribers = [server.client(), server.client()];
        for client in &mut subscribers {
            client.run("HELLO 3");
            client.run("SUBSCRIBE a");
        }
        for round in 0..200 {
            publisher.send(format!("SET k {round}\r\nPUBLISH a {round}\r\n").as_bytes());
            for client in &mut subscribers {
                let expected = format!(">(\"message\" \"a\" \"{round}\")");
                assert_eq!(show(&client.answer()), expected);
                assert_eq!(client.run("GET k"), format!("\"{round}\""));
            }
            assert_eq!(show(&publisher.answer()), "+OK");
            assert_eq!(show(&publisher.answer()), ":2");
        }
    }
}

/// What publishers and subscribers of a test tell each other.
#[derive(Default)]
struct Progress {
    /// Number of messages so far.
    published: AtomicU64,
    /// Sum of what PUBLISH returned.
    counted: AtomicU64,
    /// Number of messages that came.
    seen: AtomicU64,
    /// Number of publishers that are done.
    done: AtomicU64,
}

fn publish_numbers(mut client: Client, publisher: usize, progress: &Progress) {
    for number in 0..MESSAGES {
        for channel in ["a", "b"] {
            let count = client.integer(&format!("PUBLISH {channel} {publisher}:{number}"));
            let count = u64::try_from(count).unwrap();
            progress.counted.fetch_add(count, Ordering::Relaxed);
            progress.published.fetch_add(1, Ordering::Relaxed);
        }
    }
    progress.done.fetch_add(1, Ordering::Relaxed);
}

/// Subscribes and leaves until all have published, every other one with a pattern.
fn come_and_go(mut client: Client, index: usize, progress: &Progress) {
    let (join, leave, verb, names) = match index % 2 {
        0 => ("SUBSCRIBE a b", "UNSUBSCRIBE", "unsubscribe", 2),
        _ => ("PSUBSCRIBE [ab]", "PUNSUBSCRIBE", "punsubscribe", 1),
    };
    let is_over = || progress.done.load(Ordering::Relaxed) == PUBLISHERS as u64;
    while !is_over() {
        let goal = progress.published.load(Ordering::Relaxed) + 50;
        client.send(&encode(&words(join)));
        while progress.published.load(Ordering::Relaxed) < goal && !is_over() {
            thread::yield_now();
        }
        client.send(&encode(&words(leave)));
        let (mut runs, mut left) = (HashMap::new(), 0);
        while left < names {
            let Answer::Array(parts) = client.answer() else {
                panic!("it is no message");
            };
            let parts: Vec<String> = parts.iter().map(show).collect();
            let [.., channel, text] = parts.as_slice() else {
                panic!("{parts:?}");
            };
            if parts[0].trim_matches('"') == verb {
                left += 1;
            } else if parts[0].ends_with("message\"") {
                let (publisher, number) = text.trim_matches('"').split_once(':').unwrap();
                let number: usize = number.parse().unwrap();
                let last = runs.insert((channel.clone(), publisher.to_owned()), number);
                assert!(last.is_none_or(|last| last + 1 == number), "{parts:?}");
                progress.seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        // It is an ordinary client again, and nothing came late.
        client.check(&[("PING", "+PONG")]);
    }
}

/// Publishers number their messages. Who is subscribed sees, of each publisher and channel, numbers
/// that go up by one; and all together see as many as PUBLISH counted.
#[test]
fn each_subscriber_sees_one_run_of_each_publisher() {
    let server = Fixture::new();
    let progress = Progress::default();
    thread::scope(|scope| {
        let progress = &progress;
        for publisher in 0..PUBLISHERS {
            let client = server.client();
            scope.spawn(move || publish_numbers(client, publisher, progress));
        }
        for index in 0..4 {
            let client = server.client();
            scope.spawn(move || come_and_go(client, index, progress));
        }
    });
    let (counted, seen) = (progress.counted.into_inner(), progress.seen.into_inner());
    assert_eq!(counted, seen);
    assert!(seen > MESSAGES as u64, "{seen}");
    wait_for_no_subscribers(&mut server.client());
}

#[test]
fn who_does_not_read_is_closed_and_holds_nobody_up() {
    let server = Fixture::new();
    let (mut publisher, mut reader) = (server.client(), server.client());
    let set = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 300kb 0 0",
    ];
    assert_eq!(show(&publisher.call(&set)), "+OK");
    let get = publisher.run("CONFIG GET client-output-buffer-limit");
    assert!(get.contains("pubsub 307200 0 0"), "{get}");
    let mut deaf = [server.client(), server.client()];
    for client in &mut deaf {
        client.run("SUBSCRIBE a");
    }
    reader.run("SUBSCRIBE a");
    let text = "x".repeat(20_000);
    let mut rounds = 0;
    // The sockets take some megabytes.
    while publisher.run("PUBSUB NUMSUB a") != "[\"a\" :1]" {
        rounds += 1;
        assert!(rounds < 2000, "{}", publisher.text("CLIENT LIST"));
        publisher.run(&format!("PUBLISH a {text}"));
        assert!(show(&reader.answer()).starts_with("[\"message\" \"a\" \"xxx"));
    }
    assert_eq!(
        info(&mut publisher, "client_output_buffer_limit_disconnections"),
        "2"
    );
    publisher.check(&[("PUBLISH a end", ":1")]);
    assert_eq!(show(&reader.answer()), "[\"message\" \"a\" \"end\"]");
    drop(reader);
    wait_for_no_subscribers(&mut publisher);
}

/// One who does not read takes all memory for messages: it is closed, and not who has a few more
/// messages to read.
#[test]
fn who_is_a_turn_behind_stays_when_another_takes_the_memory() {
    const TOGETHER: usize = 20;
    let server = Fixture::with(ServerOptions {
        threads: 1,
        ..options()
    });
    let (mut publisher, mut reader) = (server.client(), server.client());
    let mut deaf = server.client();
    deaf.run("SUBSCRIBE a");
    reader.run("SUBSCRIBE a");
    let pipeline = encode(&["PUBLISH", "a", &"x".repeat(1000)]).repeat(TOGETHER);
    let mut rounds = 0;
    while publisher.run("PUBSUB NUMSUB a") != "[\"a\" :1]" {
        rounds += 1;
        assert!(rounds < 5000, "{}", publisher.text("CLIENT LIST"));
        publisher.send(&pipeline);
        for _ in 0..TOGETHER {
            publisher.answer();
            assert!(show(&reader.answer()).starts_with("[\"message\" \"a\" \"xxx"));
        }
    }
    let closed = info(&mut publisher, "client_output_buffer_limit_disconnections");
    assert_eq!(closed, "1");
}

/// The memory for subscriptions is a bound inside EXEC, too, whose commands carry them out behind
/// its commit.
#[test]
fn subscriptions_of_an_exec_are_bounded() {
    const CHANNELS: usize = 3000;
    let server = Fixture::new();
    let (mut client, mut other) = (server.client(), server.client());
    let mut pipeline = encode(&["MULTI"]);
    for prefix in ["a", "b", "c", "d"] {
        let mut command = vec!["SUBSCRIBE".to_owned()];
        command.extend((0..CHANNELS).map(|name| format!("{prefix}{name}")));
        pipeline.extend(encode(&command));
    }
    pipeline.extend(encode(&["EXEC"]));
    client.send(&pipeline);
    let refused = "-ERR too many subscriptions: all memory that connections have for them is taken";
    let mut answers = Vec::new();
    // Each channel has its own reply.
    while answers.iter().filter(|of| *of == refused).count() < 2 {
        answers.push(show(&client.answer()));
        assert!(answers.len() <= 4 * CHANNELS, "nothing is refused");
    }
    assert_eq!(
        info(&mut other, "pubsub_channels"),
        (2 * CHANNELS).to_string()
    );
}

#[test]
fn many_channels_of_a_client_that_dies_are_given_back() {
    const CHANNELS: usize = 10_000;
    let server = Fixture::opened_by(options(), |_| {
        Db::builder().max_memory(64 << 20).open_in_memory()
    });
    let mut other = server.client();
    for round in 0..3 {
        let mut client = server.client();
        let names: Vec<_> = (0..CHANNELS).map(|name| format!("c{name}")).collect();
        for names in names.chunks(1000) {
            let mut command = vec!["SUBSCRIBE".to_owned()];
            command.extend_from_slice(names);
            client.send(&encode(&command));
            for _ in names {
                client.answer();
            }
        }
        client.run("PSUBSCRIBE c*");
        client.run("SSUBSCRIBE s");
        assert_eq!(info(&mut other, "pubsub_channels"), CHANNELS.to_string());
        assert_eq!(info(&mut other, "pubsub_patterns"), "1");
        assert_eq!(info(&mut other, "pubsubshard_channels"), "1");
        other.check(&[("PUBLISH c77 x", ":2"), ("PUBLISH c9999 x", ":2")]);
        // All of them together have less memory than twice as many would take.
        let mut second = server.client();
        let mut command = vec!["SUBSCRIBE".to_owned()];
        command.extend((0..2 * CHANNELS).map(|name| format!("d{name}")));
        assert_eq!(
            show(&second.call(&command)),
            "-ERR too many subscriptions: all memory that connections have for them is taken"
        );
        if round == 1 {
            client.send(&encode(&["UNSUBSCRIBE"]));
        }
        drop((client, second));
        wait_for_no_subscribers(&mut other);
    }
}

#[test]
fn subscribers_are_listed_killed_and_not_idle() {
    let server = Fixture::new();
    let (mut other, mut client, mut idle) = (server.client(), server.client(), server.client());
    for client in [&mut client, &mut idle] {
        client.check(&[("PING", "+PONG")]);
    }
    client.run("HELLO 3 SETNAME named");
    client.run("SUBSCRIBE a b");
    client.answer();
    client.run("PSUBSCRIBE x*");
    client.run("SSUBSCRIBE s");
    assert!(has(&mut other, "named", "sub=2 psub=1 ssub=1"));
    assert!(has(&mut other, "named", "flags=P "));
    assert_eq!(other.text("CLIENT LIST TYPE pubsub").lines().count(), 1);
    assert_eq!(info(&mut other, "pubsub_clients"), "1");
    assert_eq!(info(&mut other, "pubsub_channels"), "2");
    other.check(&[("CONFIG SET timeout 1", "+OK")]);
    let limit = now() + Duration::from_secs(20);
    while info(&mut other, "connected_clients") != "2" {
        assert!(now() < limit, "{}", other.text("CLIENT LIST"));
        thread::yield_now();
    }
    assert!(idle.is_closed());
    other.check(&[("CONFIG SET timeout 0", "+OK"), ("PUBLISH a x", ":1")]);
    assert_eq!(show(&client.answer()), ">(\"message\" \"a\" \"x\")");
    other.check(&[("CLIENT KILL TYPE pubsub", ":1")]);
    assert!(client.is_closed());
    wait_for_no_subscribers(&mut other);
}

/// Scripts on all loops count and publish what they have counted, or what they have read: who
/// listens sees numbers that do not become smaller.
#[test]
#[cfg(feature = "scripts")]
fn messages_of_scripts_come_in_the_order_of_their_commits() {
    const CALLS: usize = 5 * MESSAGES;
    let server = Fixture::new();
    let mut listener = server.client();
    listener.check(&[("SUBSCRIBE c", "[\"subscribe\" \"c\" :1]")]);
    let counts = "return redis.call('PUBLISH', 'c', redis.call('INCR', 'n'))";
    let reads = "return redis.call('PUBLISH', 'c', redis.call('GET', 'n') or 0)";
    let publishing = |script: &'static str| {
        let mut client = server.client();
        thread::spawn(move || {
            for _ in 0..CALLS {
                assert_eq!(show(&client.call(&["EVAL", script, "0"])), ":1");
            }
        })
    };
    let threads = [counts, counts, counts, reads].map(publishing);
    let mut last = 0;
    for _ in 0..CALLS * threads.len() {
        let shown = show(&listener.answer());
        let number = shown.split('"').nth(5).and_then(|text| text.parse().ok());
        let number: u64 = number.unwrap_or_else(|| panic!("{shown}"));
        assert!(last <= number, "{number} behind {last}");
        last = number;
    }
    for thread in threads {
        thread.join().expect("it has published");
    }
    assert_eq!(last, 3 * CALLS as u64);
}

/// Long messages are sent from where they lie, between the replies of the client.
#[test]
fn long_messages_come_whole_and_in_their_order() {
    let server = Fixture::new();
    let (mut client, mut slow) = (server.client(), server.client());
    assert!(matches!(client.run_raw("HELLO 3"), Answer::Map(_)));
    client.run_raw("SUBSCRIBE c");
    slow.run_raw("PSUBSCRIBE c*");
    let texts: Vec<String> = (1..=40_usize)
        .map(|number| number.to_string().repeat(number * 1000))
        .collect();
    let mut sent = Vec::new();
    for text in &texts {
        sent.extend(encode(&["SET", "k", &text[..10.min(text.len())]]));
        sent.extend(encode(&["PUBLISH", "c", text]));
        sent.extend(encode(&["GET", "k"]));
    }
    let all = thread::scope(|scope| {
        let mut writer = client.stream.try_clone().unwrap();
        scope.spawn(move || std::io::Write::write_all(&mut writer, &sent).unwrap());
        (0..4 * texts.len())
            .map(|_| client.answer())
            .collect::<Vec<_>>()
    });
    let is_message = |answer: &&Answer| matches!(answer, Answer::Push(_));
    let messages: Vec<String> = all.iter().filter(is_message).map(show).collect();
    let own: Vec<String> = (texts.iter())
        .map(|text| format!(">(\"message\" \"c\" \"{text}\")"))
        .collect();
    assert!(messages == own, "each message is whole");
    let replies: Vec<String> = (all.iter().filter(|answer| !is_message(answer)))
        .map(show)
        .collect();
    for (three, text) in replies.chunks(3).zip(&texts) {
        let value = format!("\"{}\"", &text[..10.min(text.len())]);
        assert_eq!(three, ["+OK", ":2", &value]);
    }
    // This one has read nothing until now.
    for text in &texts {
        let expected = format!("[\"pmessage\" \"c*\" \"c\" \"{text}\"]");
        assert!(show(&slow.answer()) == expected, "{}", text.len());
    }
}
