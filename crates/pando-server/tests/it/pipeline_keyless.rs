//! PUBLISH, PING and ECHO of a pipeline run together, and do what they do one by one.

use fastrand::Rng;

use crate::client::{Client, encode, show, words};
use crate::fixture::Fixture;
use crate::pipeline_runs::together_count;
use crate::statistics::fields;

fn send_all(client: &mut Client, commands: &[String]) {
    let bytes = commands.iter().map(|text| encode(&words(text)));
    client.send(&bytes.collect::<Vec<_>>().concat());
}

/// A command, its reply, and what the subscriber to `a`, `c*` and the shard channel `s` receives.
struct Case {
    command: String,
    reply: String,
    message: Option<String>,
}

fn case(random: &mut Rng, n: usize) -> Case {
    let message = |text: &str| Some(format!("[{text} \"{n}\"]"));
    let (command, reply, message) = match random.usize(..10) {
        0..3 => ("PUBLISH a", ":1", message("\"message\" \"a\"")),
        3 => ("PUBLISH cd", ":1", message("\"pmessage\" \"c*\" \"cd\"")),
        4 => ("SPUBLISH s", ":1", message("\"smessage\" \"s\"")),
        5 => ("SPUBLISH a", ":0", None),
        6 => ("PUBLISH nobody", ":0", None),
        7 => ("ECHO", "", None),
        8 => ("PING", "", None),
        _ => (
            "PUBLISH a b c",
            "-ERR wrong number of arguments for 'publish' command",
            None,
        ),
    };
    let reply = match reply {
        "" => format!("\"{n}\""),
        text => text.to_owned(),
    };
    Case {
        command: format!("{command} {n}"),
        reply,
        message,
    }
}

#[test]
fn messages_of_pipelines_arrive_once_and_in_order() {
    let server = Fixture::new();
    let (mut publisher, mut subscriber) = (server.client(), server.client());
    let mut monitor = server.client();
    for (command, reply) in [
        ("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]"),
        ("PSUBSCRIBE c*", "[\"psubscribe\" \"c*\" :2]"),
        ("SSUBSCRIBE s", "[\"ssubscribe\" \"s\" :1]"),
    ] {
        assert_eq!(subscriber.run(command), reply);
    }
    let mut random = Rng::with_seed(21);
    let before = together_count(&mut publisher);
    let (mut sent, mut publishes) = (0, 0);
    let mut monitored = Vec::new();
    for round in 0..200 {
        if round == 150 {
            monitor.check(&[("MONITOR", "+OK")]);
        }
        let cases = (0..random.usize(2..40)).map(|_| {
            sent += 1;
            case(&mut random, sent)
        });
        let cases: Vec<Case> = cases.collect();
        let commands: Vec<String> = cases.iter().map(|case| case.command.clone()).collect();
        send_all(&mut publisher, &commands);
        for case in &cases {
            assert_eq!(show(&publisher.answer()), case.reply, "{}", case.command);
            if let Some(message) = &case.message {
                assert_eq!(&show(&subscriber.answer()), message, "{}", case.command);
            }
            let is_refused = case.reply.starts_with('-');
            publishes += usize::from(case.command.starts_with("PUBLISH") && !is_refused);
            if round >= 150 && !is_refused {
                monitored.push(case.command.clone());
            }
        }
    }
    assert!(!subscriber.has_answer());
    for command in monitored {
        let line = show(&monitor.answer());
        let quoted = words(&command)
            .into_iter()
            .map(|word| format!("\"{word}\""));
        let quoted = quoted.collect::<Vec<_>>().join(" ");
        assert!(line.ends_with(&quoted), "{line} for {command}");
    }
    let together = together_count(&mut publisher) - before;
    assert!(together > sent as u64 / 2, "{together} of {sent}");
    let calls = &fields(&mut publisher, "commandstats")["cmdstat_publish"];
    assert!(calls.starts_with(&format!("calls={publishes},")), "{calls}");
}
