//! Tests of SLOWLOG, LATENCY and MEMORY.

use pando_resp::Answer;
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::client::show;
use crate::fixture::Fixture;
use crate::statistics::fields;

#[test]
fn slow_commands_are_logged_with_arguments_time_and_client() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("SLOWLOG LEN", ":0"),
        ("CLIENT SETNAME me", "+OK"),
        (
            "CONFIG GET slowlog-*",
            "[\"slowlog-log-slower-than\" \"10000\" \"slowlog-max-len\" \"128\"]",
        ),
        ("CONFIG SET slowlog-log-slower-than 0", "+OK"),
        ("SET a 1", "+OK"),
        ("AUTH default secret", "+OK"),
        ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
        ("SET a 2", "+OK"),
        ("SLOWLOG LEN", ":3"),
    ]);
    let Answer::Array(entries) = client.call(&["SLOWLOG", "GET"]) else {
        panic!("SLOWLOG GET replies an array");
    };
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Answer::Array(parts) => parts.iter().map(show).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        })
        .collect();
    let address = client.stream.local_addr().unwrap();
    let commands: Vec<_> = shown.iter().map(|entry| entry[3].as_str()).collect();
    assert_eq!(
        commands,
        [
            // A CONFIG SET is judged by the threshold that it has just set: the one that turns the
            // log on is logged, and the one that turns it off is not.
            "[\"AUTH\" \"(redacted)\" \"(redacted)\"]",
            "[\"SET\" \"a\" \"1\"]",
            "[\"CONFIG\" \"SET\" \"slowlog-log-slower-than\" \"0\"]",
        ]
    );
    assert_eq!(shown[1][0], ":1");
    assert_eq!(shown[1][4], format!("\"{address}\""));
    assert_eq!(shown[1][5], "\"me\"");
    client.check(&[
        ("SLOWLOG GET 0", "[]"),
        (
            "SLOWLOG GET -2",
            "-ERR count should be greater than or equal to -1",
        ),
        (
            "SLOWLOG GET x",
            "-ERR count should be greater than or equal to -1",
        ),
        ("SLOWLOG RESET", "+OK"),
        ("SLOWLOG GET -1", "[]"),
        (
            "CONFIG SET slowlog-max-len 2 slowlog-log-slower-than 0",
            "+OK",
        ),
        ("SET a 3", "+OK"),
        ("SET a 4", "+OK"),
        ("SLOWLOG LEN", ":2"),
    ]);
    assert!(client.run("SLOWLOG GET 1").starts_with("[[:6 :"));
    assert!(client.run("SLOWLOG HELP").contains("+GET [<count>]"));
}

#[test]
fn spikes_are_remembered_by_event_once_a_threshold_is_set() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (
            "CONFIG GET latency-monitor-threshold",
            "[\"latency-monitor-threshold\" \"0\"]",
        ),
        ("LATENCY LATEST", "[]"),
        // However busy the machine is, nothing takes as long.
        ("CONFIG SET latency-monitor-threshold 1000000", "+OK"),
        ("LATENCY HISTORY command", "[]"),
    ]);
    assert!(
        client
            .text("LATENCY DOCTOR")
            .starts_with("Nothing has taken 1000000 ms")
    );
    client.check(&[("CONFIG SET latency-monitor-threshold 1", "+OK")]);
    for number in 0..20_000 {
        client.send(format!("SET key:{number} x\r\n").as_bytes());
    }
    (0..20_000).for_each(|_| drop(client.answer()));
    let until = now() + Duration::from_secs(20);
    while !client.run("LATENCY LATEST").contains("[\"command\" :") {
        assert!(now() < until, "listing 20,000 keys takes a millisecond");
        client.call(&["KEYS", "*"]);
    }
    assert!(client.run("LATENCY HISTORY command").starts_with("[[:"));
    assert!(client.text("LATENCY DOCTOR").contains("- command: in "));
    client.check(&[
        ("CONFIG SET latency-monitor-threshold 1000000", "+OK"),
        ("LATENCY RESET none", ":0"),
        ("LATENCY RESET command", ":1"),
        ("LATENCY HISTORY command", "[]"),
    ]);
}

#[test]
fn latencies_are_shown_as_cumulative_buckets_by_command() {
    let server = Fixture::new();
    let mut client = server.client();
    client.run("CONFIG RESETSTAT");
    for _ in 0..50 {
        client.run("GET a");
    }
    client.run("CLIENT ID");
    client.run("CLIENT GETNAME");
    client.run("HELLO 3");
    let Answer::Map(commands) = client.call(&["LATENCY", "HISTOGRAM", "get", "client", "nosuch"])
    else {
        panic!("LATENCY HISTOGRAM replies a map");
    };
    let names: Vec<_> = commands.iter().map(|(name, _)| show(name)).collect();
    assert_eq!(names, ["\"get\"", "\"client|id\"", "\"client|getname\""]);
    let text = show(&commands[0].1);
    assert!(
        text.starts_with("{\"calls\"=:50 \"histogram_usec\"={:"),
        "{text}"
    );
    assert!(text.ends_with("=:50}}"), "{text}");
    client.run("CONFIG RESETSTAT");
    assert_eq!(client.run("LATENCY HISTOGRAM get"), "{}");
}

#[test]
fn the_memory_budget_is_shown_part_by_part() {
    let server = Fixture::new();
    let mut client = server.client();
    let before = fields(&mut client, "memory");
    let value = "v".repeat(1000);
    for number in 0..3000 {
        client.run(&format!("SET key:{number} {value}"));
    }
    let after = fields(&mut client, "memory");
    let bytes = |of: &std::collections::BTreeMap<String, String>, name: &str| {
        of[name].parse::<u64>().unwrap()
    };
    let grown = |name| bytes(&after, name) - bytes(&before, name);
    assert!((3_000_000..9_000_000).contains(&grown("memory_frames")));
    assert_eq!(grown("memory_log_buffers"), 0);
    let parts = [
        "frames",
        "page_table",
        "log_buffers",
        "images",
        "chunk_buffers",
        "tables",
    ];
    let budgets: u64 = parts
        .iter()
        .map(|part| bytes(&after, &format!("memory_{part}_budget")))
        .sum();
    let whole = budgets + bytes(&after, "memory_rest_budget");
    assert_eq!(whole, bytes(&after, "maxmemory"));
    let used: u64 = parts
        .iter()
        .chain(&[
            "old_versions",
            "transactions",
            "watches",
            "cursors",
            "connections",
            "statistics",
        ])
        .map(|part| bytes(&after, &format!("memory_{part}")))
        .sum();
    assert_eq!(used, bytes(&after, "used_memory"));
    let peak = bytes(&after, "used_memory_peak");
    assert!(peak >= used);
    let percent = format!("{:.2}%", used as f64 * 100.0 / peak as f64);
    assert_eq!(after["used_memory_peak_perc"], percent);
    assert!(bytes(&after, "used_memory_rss") > 1 << 20);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let machine = meminfo.split_whitespace().nth(1).unwrap();
    let machine = machine.parse::<u64>().unwrap() * 1024;
    assert_eq!(bytes(&after, "total_system_memory"), machine);
    let more: Vec<_> = (0..10).map(|_| server.client()).collect();
    let until = now() + Duration::from_secs(20);
    while bytes(&fields(&mut client, "memory"), "memory_connections") < 11 * 1024 {
        assert!(now() < until, "each connection counts");
        thread::yield_now();
    }
    drop(more);
    client.run("HELLO 3");
    let Answer::Map(stats) = client.call(&["MEMORY", "STATS"]) else {
        panic!("MEMORY STATS replies a map");
    };
    let stat = |name: &str| {
        let quoted = format!("\"{name}\"");
        let found = stats.iter().find(|(key, _)| show(key) == quoted);
        show(&found.unwrap_or_else(|| panic!("{name}")).1)
    };
    assert_eq!(stat("keys.count"), ":3000");
    assert_eq!(stat("pando.max-memory"), format!(":{}", after["maxmemory"]));
    assert!(client.text("MEMORY DOCTOR").contains("- frames: "));
}

#[test]
fn the_memory_of_a_key_is_that_of_its_entry() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        ("MEMORY USAGE none", "nil"),
        (
            "MEMORY USAGE a SAMPLES x",
            "-ERR value is not an integer or out of range",
        ),
        ("MEMORY USAGE a b", "-ERR syntax error"),
    ]);
    let mut usage = |length: usize| {
        client.run(&format!("SET key {}", "v".repeat(length)));
        assert_eq!(client.run("CONFIG RESETSTAT"), "+OK");
        let bytes = client.integer("MEMORY USAGE key SAMPLES 0");
        assert_eq!(
            fields(&mut client, "stats")["keyspace_hits"],
            "0",
            "no lookup"
        );
        usize::try_from(bytes).unwrap()
    };
    assert_eq!(usage(5000) - usage(1000), 4000);
    assert!((103..140).contains(&usage(100)));
}
