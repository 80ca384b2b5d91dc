//! Tests of `pando export`. That redis-server reads its files is tested in `tests/clients`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use pando_resp::{Answer, Client};
use pando_sync::thread;
use pando_sync::time::{Duration, now};

use crate::running::{Running, call, pando};

/// Runs `pando` with `command` and a file against the server; returns the exit code, and what was
/// said.
fn run(here: &Path, command: &str, server: &Running, flags: &[&str]) -> (i32, String) {
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let output = pando(here)
        .args([command, "dump.rdb", "--port", port])
        .args(flags)
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().unwrap(), said)
}

/// The elements of the reply to `command`, without their order if there is none.
fn elements(client: &mut Client, command: &str) -> Vec<String> {
    let Answer::Array(parts) = call(client, command) else {
        panic!("{command}");
    };
    let parts: Vec<String> = parts.iter().map(|part| format!("{part:?}")).collect();
    let mut parts = match command.starts_with("HGETALL") {
        true => parts.chunks(2).map(<[String]>::concat).collect(),
        false => parts,
    };
    if command.starts_with("HGETALL") || command.starts_with("SMEMBERS") {
        parts.sort();
    }
    parts
}

/// Makes a collection of 20 MB, which is too long for a reply.
fn fill_long(client: &mut Client, command: &str, words: impl Fn(usize) -> Vec<String>) {
    for n in 0..2500 {
        let mut all: Vec<String> = command.split(' ').map(str::to_owned).collect();
        all.extend(words(n));
        client.push(&all);
        if n % 100 == 99 {
            client.send().unwrap();
            (0..100).for_each(|_| assert!(!matches!(client.reply().unwrap(), Answer::Error(_))));
        }
    }
    let (_, key) = command.split_once(' ').unwrap();
    let dump = client.call(&["DUMP", key]).unwrap();
    assert!(matches!(dump, Answer::Error(_)), "{key} is short");
}

/// Collections that DUMP refuses, by what shows them.
const LONG: [&str; 5] = [
    "LRANGE list 0 -1",
    "SMEMBERS set",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "HGETALL hash",
    "HGETALL timed",
];

/// Makes ten keys of all types, and a library.
fn fill(client: &mut Client) {
    let long = "l".repeat(8000);
    fill_long(client, "RPUSH list", |n| vec![format!("{n}{long}")]);
    fill_long(client, "SADD set", |n| vec![format!("{n}{long}")]);
    let score = |n| format!("{}", n as f64 / 7.0);
    fill_long(client, "ZADD sorted", |n| {
        vec![score(n), format!("{n}{long}")]
    });
    for hash in ["HSET hash", "HSET timed"] {
        fill_long(client, hash, |n| vec![format!("f{n}"), long.clone()]);
    }
    for n in [3, 30, 300] {
        let at = 9_000_000_000_000_u64 + n;
        call(client, &format!("HPEXPIREAT timed {at} FIELDS 1 f{n}"));
    }
    for command in [
        "ZADD sorted inf most -inf least -0 zero",
        "PEXPIREAT list 9000000000000",
        "SET string 12345 PXAT 9000000000001",
        "SET empty x",
        "SET gone x PX 1",
        "SETRANGE empty 0 ",
        "SELECT 3",
        "HSET h a 1 b 2",
        "XADD stream 5-1 a 1",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c STREAMS stream >",
        "SELECT 0",
    ] {
        call(client, command);
    }
    let long_string = "s".repeat(9_000_000);
    client.call(&["SET", "long", &long_string]).unwrap();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    client.call(&["FUNCTION", "LOAD", library]).unwrap();
}

#[test]
fn what_is_exported_can_be_imported() {
    let here = tempfile::tempdir().unwrap();
    let from = Running::start(here.path(), &["--dir", "from", "--durability", "none"]);
    let mut client = from.client();
    fill(&mut client);
    let (code, said) = run(here.path(), "export", &from, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.starts_with("10 keys, ") && said.ends_with("; 0 could not be read\n"),
        "{said}"
    );
    let head = fs::read(here.path().join("dump.rdb")).unwrap();
    assert!(head.starts_with(b"REDIS0012"), "fields have deadlines");
    drop(head);

    let to = Running::start(here.path(), &["--dir", "to", "--durability", "none"]);
    let mut copy = to.client();
    let (code, said) = run(here.path(), "import", &to, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("10 keys and 1 libraries"), "{said}");
    for shown in LONG {
        assert!(
            elements(&mut client, shown) == elements(&mut copy, shown),
            "{shown}"
        );
    }
    for command in [
        "HPEXPIRETIME timed FIELDS 4 f3 f30 f300 f4",
        "PEXPIRETIME list",
        "GET string",
        "PEXPIRETIME string",
        "GET long",
        "GET empty",
        "DBSIZE",
        "FCALL f 0",
        "SELECT 3",
        "DBSIZE",
        "HGETALL h",
        "XRANGE stream - +",
        "XPENDING stream g",
    ] {
        let (ours, theirs) = (call(&mut client, command), call(&mut copy, command));
        assert!(ours == theirs, "{command}");
    }
}

/// What is written meanwhile is in the file as it was at its moment.
#[test]
fn an_export_is_of_one_moment() {
    const ACCOUNTS: usize = 3000;
    let here = tempfile::tempdir().unwrap();
    let from = Running::start(here.path(), &["--dir", "from", "--durability", "none"]);
    let mut client = from.client();
    for n in 0..ACCOUNTS {
        client.push(&["SET".to_owned(), format!("account:{n}"), "100".to_owned()]);
    }
    client.send().unwrap();
    (0..ACCOUNTS)
        .for_each(|_| assert_eq!(client.reply().unwrap(), Answer::Simple("OK".to_owned())));
    let (_, port) = from.address.rsplit_once(':').unwrap();
    let mut export = pando(here.path())
        .args(["export", "dump.rdb", "--port", port])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut moved = 0;
    let until = now() + Duration::from_secs(200);
    let status = loop {
        for _ in 0..20 {
            let (one, other) = (moved * 7 % ACCOUNTS, moved * 11 % ACCOUNTS);
            moved += 1;
            client.push(&["MULTI".to_owned()]);
            client.push(&["DECR".to_owned(), format!("account:{one}")]);
            client.push(&["INCR".to_owned(), format!("account:{other}")]);
            client.push(&["EXEC".to_owned()]);
        }
        client.send().unwrap();
        (0..80).for_each(|_| assert!(!matches!(client.reply().unwrap(), Answer::Error(_))));
        if let Some(status) = export.try_wait().unwrap() {
            break status;
        }
        assert!(now() < until, "the export does not end");
        thread::yield_now();
    };
    assert!(status.success() && moved > 20, "{moved}");
    let to = Running::start(here.path(), &["--dir", "to", "--durability", "none"]);
    let (code, said) = run(here.path(), "import", &to, &[]);
    assert_eq!(code, 0, "{said}");
    let mut copy = to.client();
    let sum: i64 = (0..ACCOUNTS)
        .map(|n| match call(&mut copy, &format!("GET account:{n}")) {
            Answer::Bulk(balance) => String::from_utf8(balance).unwrap().parse::<i64>().unwrap(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(sum, 100 * i64::try_from(ACCOUNTS).unwrap());
}

/// Answers as a server whose key `rotten` cannot be read, one connection.
fn answer_with_a_rotten_key(stream: &TcpStream) {
    let mut requests = BufReader::new(stream);
    let mut out = stream;
    let mut line = || {
        let mut line = String::new();
        requests.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    loop {
        let head = line();
        let Some(count) = head.strip_prefix('*') else {
            return;
        };
        let words: Vec<String> = (0..count.parse().unwrap())
            .map(|_| {
                line();
                line()
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = match words[..] {
            ["CONFIG", ..] => "*2\r\n$9\r\ndatabases\r\n$1\r\n1\r\n",
            ["DBSIZE"] => ":2\r\n",
            ["FUNCTION", ..] => "-ERR unknown command\r\n",
            ["SCAN", ..] => "*2\r\n$1\r\n0\r\n*2\r\n$6\r\nrotten\r\n$5\r\nsound\r\n",
            ["PEXPIRETIME" | "DUMP", "rotten"] => "-ERR page 7 is damaged\r\n",
            ["PEXPIRETIME", ..] => ":-1\r\n",
            // A string of one byte.
            ["DUMP", ..] => "$13\r\n\0\x01x\x0a\x0012345678\r\n",
            _ => "+OK\r\n",
        };
        out.write_all(reply.as_bytes()).unwrap();
    }
}

/// A key that cannot be read is named, and the file has the others.
#[test]
fn a_key_that_cannot_be_read_is_left_out() {
    let here = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || answer_with_a_rotten_key(&listener.accept().unwrap().0));
    let output = pando(here.path())
        .args(["export", "dump.rdb", "--port", &port])
        .output()
        .unwrap();
    server.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("'rotten': ERR page 7 is damaged"), "{said}");
    assert!(
        said.contains("1 keys could not be read; all others are in dump.rdb"),
        "{said}"
    );
    let file = fs::read(here.path().join("dump.rdb")).unwrap();
    assert!(
        file.starts_with(b"REDIS0010\xfe\0\0\x05sound\x01x\xff"),
        "{file:?}"
    );
}

/// Whatever fails, the file of before stays as it was, and nothing lies beside it.
#[test]
fn an_export_that_fails_leaves_the_file_of_before() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("dump.rdb");
    let server = Running::start(here.path(), &["--requirepass", "secret"]);
    fs::write(&file, "before").unwrap();
    let check = |(code, said): (i32, String), expected: i32, text: &str| {
        assert!(code == expected && said.contains(text), "{code} {said}");
        assert_eq!(fs::read(&file).unwrap(), b"before");
    };
    let part = here.path().join("dump.rdb.part");
    check(run(here.path(), "export", &server, &[]), 1, "NOAUTH");
    check(
        run(here.path(), "export", &server, &["--password", "x"]),
        1,
        "WRONGPASS",
    );
    assert!(!part.exists());
    // Another export writes it.
    let held = fs::File::create(&part).unwrap();
    held.lock().unwrap();
    let with_password = ["--password", "secret"];
    check(
        run(here.path(), "export", &server, &with_password),
        2,
        "another export writes it",
    );
    drop(held);
    // What one that was killed has left is not in the way.
    fs::write(&part, vec![7; 10_000]).unwrap();
    let (code, said) = run(here.path(), "export", &server, &with_password);
    assert_eq!(code, 0, "{said}");
    assert!(!part.exists() && fs::read(&file).unwrap().len() < 100);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (code, said) = run(here.path(), "export", &server, &with_password);
    assert!(
        code == 4 && said.contains("dump.rdb: is a directory"),
        "{code} {said}"
    );
}
