//! The HTTP endpoint: its contents, and its replies to arbitrary requests.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use pando_server::ServerOptions;
use pando_stats::{Measure, Ticker};
use pando_sync::thread;
use pando_sync::{Arc, Condvar, Mutex, Rank};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::{Db, Durability};

use crate::fixture::{Fixture, open, options};

const DASHBOARD: &str = "../../docs/grafana-dashboard.json";

fn with_metrics() -> ServerOptions {
    ServerOptions {
        metrics_listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        ..options()
    }
}

fn connect(server: &Fixture) -> TcpStream {
    let stream = TcpStream::connect(server.metrics.unwrap()).unwrap();
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// Sends `request`. Returns everything up to the end of the connection.
fn exchange(server: &Fixture, request: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(request).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Returns status and body of `path`.
fn get(server: &Fixture, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    let reply = exchange(server, request.as_bytes());
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}");
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Returns the names of all samples of `text`, and checks that each follows the help and the type
/// of its family.
fn names_of(text: &str) -> BTreeSet<&str> {
    let (mut names, mut family, mut kind) = (BTreeSet::new(), "", "");
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(!help.is_empty() && names.insert(name), "{line}");
                family = name;
            }
            ["#", "TYPE", name, of] => {
                assert_eq!(name, family, "{line}");
                kind = of;
            }
            _ => {
                let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
                let suffix = name.strip_prefix(family).unwrap();
                let suffixes: &[&str] = match kind {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(suffixes.contains(&suffix), "{line}");
                assert!(
                    rest.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
                    "{line}"
                );
                names.insert(name);
            }
        }
    }
    names
}

#[test]
fn all_that_is_counted_and_measured_is_there_and_the_dashboard_has_no_other_names() {
    let server = Fixture::with(with_metrics());
    let mut client = server.client();
    for command in ["SET a 1", "GET a", "GET b", "GET", "INCRBY a x"] {
        client.run(command);
    }
    let (status, text) = get(&server, "/metrics");
    assert_eq!(status, 200);
    let names = names_of(&text);
    let seconds = |name: &str| match name.strip_suffix("_ns") {
        Some(base) => format!("{base}_seconds"),
        None => name.to_owned(),
    };
    for ticker in Ticker::ALL {
        let name = format!("pando_{}_total", seconds(ticker.name()));
        assert!(names.contains(name.as_str()), "{name}");
        assert!(text.contains(&format!("# HELP {name} {}\n", ticker.help())));
    }
    for measure in Measure::ALL {
        let name = format!("pando_{}_bucket", seconds(measure.name()));
        assert!(names.contains(name.as_str()), "{name}");
    }
    for line in [
        "pando_keyspace_hits_total 1\n",
        "pando_keyspace_misses_total 1\n",
        "pando_command_seconds_count{command=\"get\"} 2\n",
        "pando_command_seconds_bucket{command=\"get\",le=\"+Inf\"} 2\n",
        "pando_command_rejections_total{command=\"get\"} 1\n",
        "pando_command_failures_total{command=\"incrby\"} 1\n",
        "pando_error_replies_total{code=\"ERR\"} 2\n",
        "pando_keys{db=\"0\"} 1\n",
        "pando_connected_clients 1\n",
        "pando_ready 1\n",
        "pando_poisoned 0\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DASHBOARD);
    let dashboard = std::fs::read_to_string(path).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = dashboard.split(|c| !is_name(c));
    let shown: BTreeSet<_> = words
        .filter(|word| word.starts_with("pando_") || word.starts_with("process_"))
        .collect();
    assert!(shown.len() > 40, "{shown:?}");
    let missing: Vec<_> = shown.difference(&names).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the quoted words in `text` that have at least two parts: names of figures.
fn quoted_names(text: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        let only = |c: char| c.is_ascii_lowercase() || c == '_';
        word.contains('_') && word.len() > 1 && word.chars().all(only)
    };
    text.split('"').filter(is_name).collect()
}

#[test]
fn the_dashboard_finds_all_its_figures_in_stats_json() {
    let server = Fixture::with(with_metrics());
    let mut client = server.client();
    for command in ["SET a 1", "GET a", "GET b", "INCRBY a x"] {
        client.run(command);
    }
    let (status, text) = get(&server, "/stats.json");
    assert_eq!(status, 200);
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    for ticker in Ticker::ALL {
        assert!(all["counters"][ticker.name()].is_u64(), "{}", ticker.name());
    }
    for measure in Measure::ALL {
        let count = &all["histograms"][measure.name()]["count"];
        assert!(count.is_u64(), "{}", measure.name());
    }
    assert_eq!(all["counters"]["keyspace_hits"], 1);
    assert_eq!(all["stage"], "serving");
    assert_eq!(
        (&all["gauges"]["keys"], &all["poisoned"]),
        (&1.into(), &().into())
    );
    assert_eq!(all["commands"]["incrby"]["failed"], 1);
    let gets = &all["commands"]["get"]["latency"];
    assert_eq!(gets["count"], 2);
    let buckets = gets["buckets"].as_array().unwrap();
    let counts: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    let most: u64 = buckets
        .iter()
        .map(|pair| pair[0].as_u64().unwrap() * pair[1].as_u64().unwrap())
        .sum();
    assert!(
        counts == 2 && gets["sum"].as_u64().unwrap() <= most,
        "{gets}"
    );
    let memory = &all["memory"];
    let parts = memory["parts"].as_array().unwrap().iter();
    let used: u64 = parts.map(|part| part["used_bytes"].as_u64().unwrap()).sum();
    assert_eq!(memory["used_bytes"], used);
    assert!(memory["resident_bytes"].as_u64().unwrap() > 0);
    let page = get(&server, "/").1;
    let wanted = quoted_names(&page);
    assert!(wanted.len() > 20, "{wanted:?}");
    let places = [&all["counters"], &all["gauges"], &all["histograms"]];
    for name in wanted {
        let is_there = places.iter().any(|place| !place[name].is_null());
        assert!(is_there, "{name} is not in /stats.json");
    }
}

#[test]
fn the_page_is_told_to_browsers_as_what_it_is() {
    let server = Fixture::with(with_metrics());
    server.client();
    let reply = exchange(&server, b"GET / HTTP/1.1\r\n\r\n");
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    for line in [
        "Content-Type: text/html; charset=utf-8\r\n",
        "Content-Security-Policy: default-src 'none'; ",
        "X-Content-Type-Options: nosniff\r\n",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(body.starts_with("<!doctype html>"));
    let reply = exchange(&server, b"GET /stats.json HTTP/1.1\r\n\r\n");
    assert!(reply.contains("Content-Type: application/json\r\n"));
    assert!(
        !reply.contains("Access-Control"),
        "no other page may read it"
    );
}

#[test]
fn probes_tell_a_server_that_lives_from_one_that_is_ready() {
    let gate = Arc::new((Mutex::new(Rank::Caller, false), Condvar::new()));
    let (opener_gate, device) = (gate.clone(), FaultyDevice::new(1));
    let store = device.clone();
    let server = Fixture::opened_by(with_metrics(), move |_| {
        let mut opened = opener_gate.0.lock();
        while !*opened {
            opened = opener_gate.1.wait(opened);
        }
        let builder = Db::builder()
            .max_memory(32 << 20)
            .durability(Durability::None);
        Db::open_device(builder, pandodb::device::AnyDevice::from(store))
    });
    assert_eq!(get(&server, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&server, "/readyz"), (503, "loading\n".to_owned()));
    let (status, text) = get(&server, "/metrics");
    assert!(status == 200 && text.contains("pando_loading 1\n"));
    let (status, text) = get(&server, "/stats.json");
    assert!(
        status == 200 && text.contains("\"stage\":\"loading\""),
        "{text}"
    );
    *gate.0.lock() = true;
    gate.1.notify_all();
    let mut client = server.client();
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()));
    let written = |status: &str| format!("aof_last_write_status:{status}");
    let told = client.run("INFO persistence");
    assert!(told.contains(&written("ok")), "{told}");
    device.fail(FaultPlan::sticky(Operation::Sync, "", 1, Fault::Io));
    while client.run("SET a 1") == "+OK" {
        client.run("SAVE");
        thread::yield_now();
    }
    let (status, text) = get(&server, "/readyz");
    assert_eq!(status, 503);
    assert!(text.starts_with("writes are refused: "), "{text}");
    let told = server.client().run("INFO persistence");
    assert!(told.contains(&written("err")), "{told}");
    assert!(!get(&server, "/stats.json").1.contains("\"poisoned\":null"));
    assert_eq!(get(&server, "/healthz").0, 200);
}

#[test]
fn anything_may_be_sent_to_the_endpoint() {
    let server = Fixture::with(with_metrics());
    server.client();
    let long = vec![b'x'; 20_000];
    let cases: &[(&[u8], &str)] = &[
        (b"GET /nosuch HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"\0\xff\r\n\r\n", "HTTP/1.1 400 "),
        (b"*1\r\n$4\r\nPING\r\n\r\n", "HTTP/1.1 400 "),
        (&long, "HTTP/1.1 431 "),
    ];
    for (request, expected) in cases {
        let reply = exchange(&server, request);
        assert!(reply.starts_with(expected), "{reply}");
    }
    let reply = exchange(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("\r\n\r\n"));
    // The request arrives in pieces.
    let mut stream = connect(&server);
    for piece in [&b"GET /hea"[..], b"lthz HTTP/1.1\r\n", b"\r", b"\n"] {
        stream.write_all(piece).unwrap();
        thread::yield_now();
    }
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("\r\n\r\nok\n"), "{reply}");
    // Silent connections keep no other client out, however many there are.
    let silent: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    assert_eq!(get(&server, "/healthz").0, 200);
    drop(silent);
    assert_eq!(get(&server, "/healthz").0, 200);
}

#[test]
fn the_endpoint_is_off_unless_asked_for_and_ends_with_the_server() {
    assert!(Fixture::new().metrics.is_none());
    let mut server = Fixture::opened_by(with_metrics(), open);
    let _silent = connect(&server);
    server.client();
    server.handle.shutdown();
    server.join().unwrap();
    assert!(TcpStream::connect(server.metrics.unwrap()).is_err());
}
