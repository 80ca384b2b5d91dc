//! Starts as redis-server is started: with a redis.conf, and with its flags.

use std::fs::{self, File};

use pando_resp::Answer;

use crate::running::{Running, pando};

/// Returns the value of a parameter.
fn value_of(server: &Running, name: &str) -> String {
    match server.client().call(&["CONFIG", "GET", name]).unwrap() {
        Answer::Array(pair) => match pair.get(1) {
            Some(Answer::Bulk(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{name}: {other:?}"),
        },
        other => panic!("{name}: {other:?}"),
    }
}

/// Runs a command whose reply is OK.
fn run(server: &Running, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let reply = server.client().call(&words).unwrap();
    assert_eq!(reply, Answer::Simple("OK".to_owned()), "{command}");
}

#[test]
fn a_redis_conf_is_read_and_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let conf = "# mine\nbind 127.0.0.1 -203.0.113.7\ndir \"the data\"\nappendonly no\n\
                appendfsync everysec\nsave 900 1\nsave 300 10\nmaxmemory-policy allkeys-lru\n\
                daemonize yes\ntcp-backlog 511\nlogfile the.log\nrequirepass ''\nhz 20\n\
                client-output-buffer-limit replica 256mb 64mb 60\ninclude more.conf\n";
    fs::write(here.join("redis.conf"), conf).unwrap();
    fs::write(here.join("more.conf"), "timeout 7\n").unwrap();
    let arguments = [
        "redis.conf",
        "--maxclients",
        "77",
        "--slowlog-log-slower-than",
        "-1",
    ];
    let server = Running::start_as_redis(here, &arguments);
    for (name, value) in [
        ("timeout", "7"),
        ("hz", "20"),
        ("save", "900 1 300 10"),
        ("maxclients", "77"),
        ("slowlog-log-slower-than", "-1"),
        // What a stock file says behind `appendonly no` lowers nothing.
        ("appendfsync", "always"),
        ("appendonly", "yes"),
    ] {
        assert_eq!(value_of(&server, name), value, "{name}");
    }
    run(&server, "CONFIG SET hz 30 appendfsync no");
    run(&server, "CONFIG REWRITE");
    drop(server);
    let new = fs::read_to_string(here.join("redis.conf")).unwrap();
    let expected = conf
        .replace("save 900 1\nsave 300 10", "save 900 1 300 10")
        .replace("hz 20", "hz 30")
        .replace("appendonly no", "appendonly yes")
        .replace("everysec", "no");
    assert!(new.starts_with(&expected), "{new}");
    let log = fs::read_to_string(here.join("the.log")).unwrap();
    for part in [
        "appendonly no has no effect",
        "save has no effect",
        "maxmemory-policy allkeys-lru has no effect",
        "daemonize yes has no effect",
        "directives without an effect: tcp-backlog",
        "CONFIG REWRITE has written",
    ] {
        assert_eq!(log.matches(part).count(), 1, "{part} in {log}");
    }
    assert!(here.join("the data").is_dir());
    let again = Running::start_as_redis(here, &["redis.conf"]);
    assert_eq!(value_of(&again, "appendfsync"), "no");
}

/// Programs that start a redis-server for their tests hand it its configuration in this way.
#[test]
fn a_redis_conf_comes_through_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("input.conf"), "dir data\ntimeout 7\nhz 20\n").unwrap();
    fs::write(here.join("redis.conf"), "timeout 5\nmaxclients 77\n").unwrap();
    let start = |arguments: &[&str]| {
        let input = File::open(here.join("input.conf")).unwrap();
        Running::start_as_redis_with(here, arguments, input.into())
    };
    let server = start(&["-", "--hz", "30"]);
    assert_eq!(value_of(&server, "timeout"), "7");
    assert_eq!(value_of(&server, "hz"), "30");
    server.expect(
        "CONFIG REWRITE",
        "-ERR The server is running without a config file",
    );
    drop(server);
    assert!(here.join("data").is_dir());
    let server = start(&["redis.conf", "-"]);
    assert_eq!(value_of(&server, "timeout"), "7");
    assert_eq!(value_of(&server, "maxclients"), "77");
}

/// The rules of logrotate for Redis move the file, and tell nobody of it.
#[test]
fn a_log_that_is_moved_away_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let mut server = Running::start_as_redis(here, &["--logfile", "the.log"]);
    fs::rename(here.join("the.log"), here.join("the.log.1")).unwrap();
    server.signal("TERM");
    assert!(server.wait().success());
    for (name, part) in [
        ("the.log.1", "the server starts"),
        ("the.log", "the server has stopped"),
    ] {
        let log = fs::read_to_string(here.join(name)).unwrap();
        assert_eq!(log.matches(part).count(), 1, "{part} in {log}");
    }
}

#[test]
fn a_toml_file_is_rewritten_too() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let toml = "# mine\nperiodic_ms = 500 # often\n\n[config]\nhz = 20\n";
    fs::write(here.join("pando.toml"), toml).unwrap();
    let server = Running::start(here, &[]);
    assert_eq!(value_of(&server, "hz"), "20");
    run(&server, "CONFIG SET hz 30 durability periodic timeout 9");
    run(&server, "CONFIG REWRITE");
    drop(server);
    let expected = "# mine\nperiodic_ms = 500 # often\ndurability = \"periodic\"\n\n[config]\n\
                    hz = \"30\"\ntimeout = \"9\"\n";
    assert_eq!(
        fs::read_to_string(here.join("pando.toml")).unwrap(),
        expected
    );
    let again = Running::start(here, &[]);
    assert_eq!(value_of(&again, "timeout"), "9");
    assert_eq!(value_of(&again, "appendfsync"), "everysec");
}

/// A file that is gone comes back with all that it said, as of the last time it was written.
#[test]
fn a_file_that_is_gone_is_written_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let files = [
        ("redis.conf", "# mine\ndir data\nrequirepass ''\nhz 20\n"),
        (
            "pando.toml",
            "# mine\nperiodic_ms = 500\n\n[config]\nhz = \"20\"\n",
        ),
    ];
    for (name, text) in files {
        let file = here.join(name);
        fs::write(&file, text).unwrap();
        let server = match name {
            "redis.conf" => Running::start_as_redis(here, &[name]),
            _ => Running::start(here, &[]),
        };
        for hz in ["30", "40"] {
            fs::remove_file(&file).unwrap();
            run(&server, &format!("CONFIG SET hz {hz}"));
            run(&server, "CONFIG REWRITE");
            let expected = text.replace("20", hz);
            assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        }
    }
}

#[test]
fn what_cannot_be_ends_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(
        here.join("bad.conf"),
        "port 7\nrename-command FLUSHALL \"\"\n",
    )
    .unwrap();
    fs::write(here.join("odd.conf"), "port \"7\n").unwrap();
    for (arguments, part) in [
        (
            &["bad.conf"][..],
            "bad.conf, line 2: rename-command: is not supported",
        ),
        (&["odd.conf"], "odd.conf, line 1: unbalanced quotes"),
        (&["absent.conf"], "absent.conf: "),
        (&["--port", "0"], "--listen off needs --unix-socket"),
        (&["--port", "x"], "--port: port: a number from 0 to 65535"),
        (
            &["--port", "7", "--hz", "x"],
            "hz: argument couldn't be parsed into an integer",
        ),
        (
            &["--maxclients", "x"],
            "maxclients: argument must be between 1",
        ),
        (&["--min-replicas-to-write", "1"], "there are no replicas"),
        (
            &["--unixsocket", "bad.conf"],
            "cannot listen at bad.conf: there is a file that is no socket",
        ),
        (&["--unixsocketperm", "8"], "'8' is no mode"),
        (&["bad.conf", "--config", "x.toml"], "one is enough"),
    ] {
        let output = pando(here).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    assert!(!here.join("pando-data").exists(), "no store was made");
    let version = pando(here).arg("-v").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout);
    assert!(version.starts_with("Redis server v=7.2."), "{version}");
    assert!(version.contains("PandoDB"), "{version}");
}
