//! Tests of `pando import` with values that are too long for one payload.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use pando_resp::{Answer, Client};
use pando_sync::thread;
use pando_sync::time::Duration;

use crate::running::{Running, call, pando};

/// Elements of a value that comes in several parts.
const ELEMENTS: usize = 40_000;
const FAR: &str = "9999999999999";

/// An RDB file that is being made.
struct File(Vec<u8>);

impl File {
    fn new() -> Self {
        Self(b"REDIS0012".to_vec())
    }

    /// Adds a key with the value of this kind.
    fn key(mut self, name: &str, kind: u8, value: &[u8]) -> Self {
        let length = u8::try_from(name.len()).unwrap();
        self.0.extend([kind, length]);
        self.0.extend(name.as_bytes());
        self.0.extend(value);
        self
    }

    /// Has the keys that follow be of this database.
    fn database(mut self, number: u8) -> Self {
        self.0.extend([0xfe, number]);
        self
    }

    /// Gives the next key a deadline.
    fn deadline(mut self, deadline: u64) -> Self {
        self.0.push(0xfc);
        self.0.extend(deadline.to_le_bytes());
        self
    }

    /// Adds the key `name` of a server.
    fn dumped(self, client: &mut Client, name: &str) -> Self {
        let Answer::Bulk(payload) = client.call(&["DUMP", name]).unwrap() else {
            panic!("{name} has no payload");
        };
        assert!(payload.len() > 600 << 10, "{name} is short");
        self.key(name, payload[0], &payload[1..payload.len() - 10])
    }

    /// Returns it without a sum.
    fn end(mut self) -> Vec<u8> {
        self.0.push(255);
        self.0.extend([0; 8]);
        self.0
    }
}

/// Imports `file` into the server; returns the exit code, and what was said.
fn import(here: &Path, server: &Running, file: &[u8], flags: &[&str]) -> (i32, String) {
    fs::write(here.join("long.rdb"), file).unwrap();
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let output = pando(here)
        .args(["import", "long.rdb", "--port", port])
        .args(flags)
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().unwrap(), said)
}

/// Runs `command` with the words that `of` gives for each of the elements, some at a time.
fn each(client: &mut Client, command: &str, of: impl Fn(usize) -> Vec<String>) {
    for start in (0..ELEMENTS).step_by(500) {
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        words.extend((start..start + 500).flat_map(&of));
        assert!(!matches!(client.call(&words).unwrap(), Answer::Error(_)));
    }
}

/// Makes values of all types.
fn fill(client: &mut Client) {
    each(client, "RPUSH list", |n| vec![format!("element-{n:020}")]);
    let long = "long".repeat(200_000);
    client.call(&["RPUSH", "list", &long, "-7", ""]).unwrap();
    each(client, "SADD set", |n| vec![format!("member-{n:020}")]);
    each(client, "ZADD sorted", |n| {
        vec![format!("{}", n as f64 / 7.0), format!("member-{n:020}")]
    });
    call(
        client,
        "ZADD sorted inf a -inf b 1e300 c -0 d 5e-324 e 0.1 f",
    );
    for hash in ["hash", "timed"] {
        each(client, &format!("HSET {hash}"), |n| {
            vec![format!("field-{n:010}"), format!("{n:015}")]
        });
    }
    for n in (0..ELEMENTS).step_by(1000) {
        let ms = 9_000_000_000_000 + n;
        call(
            client,
            &format!("HPEXPIREAT timed {ms} FIELDS 1 field-{n:010}"),
        );
    }
    for n in 0..ELEMENTS {
        let id = format!("{}-{}", 1 + n / 3, n % 3);
        client.push(&["XADD", "stream", &id, "field", &format!("{n:020}")]);
    }
    client.send().unwrap();
    (0..ELEMENTS).for_each(|_| assert!(matches!(client.reply().unwrap(), Answer::Bulk(_))));
    call(client, "XDEL stream 5-0 5-1 13334-0");
    for group in ["one", "two"] {
        call(client, &format!("XGROUP CREATE stream {group} 0"));
        for consumer in ["alice", "bob", "alice"] {
            let read = format!("XREADGROUP GROUP {group} {consumer} COUNT 300 STREAMS stream >");
            call(client, &read);
        }
        call(
            client,
            &format!("XGROUP CREATECONSUMER stream {group} idle"),
        );
    }
    call(client, "XACK stream one 1-1 2-2");
    call(
        client,
        "XCLAIM stream two bob 0 3-0 RETRYCOUNT 9 TIME 1234567 JUSTID",
    );
    call(client, "XADD stream 99999999-5 last entry");
    call(client, "XDEL stream 99999999-5");
}

/// Everything about these values; sets and hashes in one order.
fn contents(client: &mut Client) -> Vec<(String, Answer)> {
    let mut all = Vec::new();
    for command in [
        "LRANGE list 0 -1",
        "SMEMBERS set",
        "ZRANGE sorted 0 -1 WITHSCORES",
        "HGETALL hash",
        "HGETALL timed",
        "XRANGE stream - +",
        "XINFO STREAM stream",
        "XINFO GROUPS stream",
    ] {
        let mut answer = call(client, command);
        if let Answer::Array(parts) = &mut answer {
            match command.split_once(' ').unwrap().0 {
                "SMEMBERS" => parts.sort_by_key(|part| format!("{part:?}")),
                "HGETALL" => {
                    let mut pairs: Vec<_> = parts.chunks(2).map(<[_]>::to_vec).collect();
                    pairs.sort_by_key(|pair| format!("{pair:?}"));
                    *parts = pairs.concat();
                }
                _ => {}
            }
        }
        all.push((command.to_owned(), answer));
    }
    for group in ["one", "two"] {
        let command = format!("XPENDING stream {group} - + 10000");
        let mut answer = call(client, &command);
        if let Answer::Array(entries) = &mut answer {
            for entry in entries {
                if let Answer::Array(entry) = entry {
                    // How long ago it was delivered.
                    let _ = entry.remove(2);
                }
            }
        }
        all.push((command, answer));
    }
    for n in (0..ELEMENTS).step_by(500) {
        let command = format!("HPEXPIRETIME timed FIELDS 1 field-{n:010}");
        let answer = call(client, &command);
        all.push((command, answer));
    }
    all
}

fn left_behind(client: &mut Client) -> usize {
    match call(client, "KEYS pando-import:*") {
        Answer::Array(names) => names.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn collections_of_any_length_come_over() {
    let here = tempfile::tempdir().unwrap();
    let from = Running::start(here.path(), &["--dir", "from"]);
    let mut client = from.client();
    fill(&mut client);
    let mut file = File::new();
    for name in ["list", "set", "sorted", "hash", "timed", "stream"] {
        if name == "hash" {
            file = file.deadline(FAR.parse().unwrap());
        }
        file = file.dumped(&mut client, name);
    }
    let file = file.end();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let mut copied = server.client();
    call(&mut copied, "SET list taken");
    let (code, said) = import(here.path(), &server, &file, &[]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("'list': BUSYKEY Target key name already exists."));
    assert!(said.contains("5 keys and 0 libraries"), "{said}");
    assert_eq!(
        call(&mut copied, "GET list"),
        Answer::Bulk(b"taken".to_vec())
    );
    let (code, said) = import(here.path(), &server, &file, &["--replace"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("6 keys and 0 libraries"), "{said}");
    let expected = contents(&mut client);
    for (found, expected) in contents(&mut copied).into_iter().zip(expected) {
        assert_eq!(found.0, expected.0);
        assert!(found.1 == expected.1, "{} differs", found.0);
    }
    for (name, deadline) in [("hash", FAR.parse().unwrap()), ("timed", -1), ("list", -1)] {
        let found = call(&mut copied, &format!("PEXPIRETIME {name}"));
        assert_eq!(found, Answer::Integer(deadline), "{name}");
    }
    assert_eq!(call(&mut copied, "DBSIZE"), Answer::Integer(6));
}

#[test]
fn strings_that_are_compressed_come_over_whatever_their_length() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    // An "a", and 264 bytes more with each reference to the byte before.
    let (count, references) = (100_000_u32, 3 * 100_000_u32);
    let mut value = vec![0xc3, 0x80];
    value.extend((references + 2).to_be_bytes());
    value.push(0x80);
    value.extend((count * 264 + 1).to_be_bytes());
    value.extend([0, b'a']);
    value.extend([0xe0, 0xff, 0].repeat(count as usize));
    let file = File::new().key("string", 0, &value).end();
    let (code, said) = import(here.path(), &server, &file, &[]);
    assert_eq!(code, 0, "{said}");
    let mut client = server.client();
    let length = Answer::Integer((count * 264 + 1).into());
    assert_eq!(call(&mut client, "STRLEN string"), length);
    let end = call(&mut client, "GETRANGE string -3 -1");
    assert_eq!(end, Answer::Bulk(b"aaa".to_vec()));
}

/// Elements of a list, each a string of 100 bytes.
fn hundreds(count: u32) -> Vec<u8> {
    let mut list = vec![0x80];
    list.extend(count.to_be_bytes());
    for _ in 0..count {
        list.extend([0x40, 100]);
        list.extend([b'x'; 100]);
    }
    list
}

#[test]
fn a_long_value_is_there_as_a_whole_or_not_at_all() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let mut client = server.client();
    // What is behind the first parts is no listpack.
    let mut listpacks = vec![0x80, 0, 0, 0x4e, 0x21];
    for _ in 0..20_000 {
        listpacks.extend([1, 0x40, 100]);
        listpacks.extend([b'x'; 100]);
    }
    listpacks.extend([2, 3, 1, 2, 3]);
    let file = File::new()
        .key("bad", 18, &listpacks)
        .database(3)
        .key("good", 1, &hundreds(20_000))
        .end();
    let (code, said) = import(here.path(), &server, &file, &[]);
    assert_eq!(code, 4, "{said}");
    let why = "'bad': it has an element that is too long, or is damaged";
    assert!(said.contains(why), "{said}");
    assert_eq!(call(&mut client, "DBSIZE"), Answer::Integer(0));
    call(&mut client, "SELECT 3");
    assert_eq!(call(&mut client, "LLEN good"), Answer::Integer(20_000));
    assert_eq!(call(&mut client, "DBSIZE"), Answer::Integer(1));
    call(&mut client, "SELECT 0");
    // The file ends within the value.
    let cut = File::new().key("cut", 1, &hundreds(20_000)).0;
    let (code, said) = import(here.path(), &server, &cut[..cut.len() - 1000], &[]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("it ends in the middle"), "{said}");
    assert_eq!(call(&mut client, "EXISTS cut"), Answer::Integer(0));
    assert_eq!(left_behind(&mut client), 0);
    // The server refuses a part.
    let hash = timed(20_000, 1 << 50, 0);
    let file = File::new().key("late", 24, &hash).end();
    let (code, said) = import(here.path(), &server, &file, &[]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("'late': ERR invalid expire time"), "{said}");
    assert_eq!(call(&mut client, "EXISTS late"), Answer::Integer(0));
    assert_eq!(left_behind(&mut client), 0);
}

#[test]
fn an_import_that_is_killed_leaves_nothing_for_good() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let mut import = pando(here.path())
        .args(["import", "-", "--port", port])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let file = File::new().key("list", 1, &hundreds(20_000)).0;
    let mut input = import.stdin.take().unwrap();
    input.write_all(&file[..file.len() - 1000]).unwrap();
    let mut client = server.client();
    let deadline = |client: &mut Client| match call(client, "KEYS pando-import:*") {
        Answer::Array(names) => names.first().map(|name| {
            let Answer::Bulk(name) = name else {
                panic!("{name:?}")
            };
            client.call(&[b"PTTL", &name[..]]).unwrap()
        }),
        other => panic!("{other:?}"),
    };
    let is_due = |ttl: Option<Answer>| match ttl {
        Some(Answer::Integer(ttl)) => (1..=3_600_000).contains(&ttl),
        _ => false,
    };
    let mut tries = 0;
    while !is_due(deadline(&mut client)) {
        tries += 1;
        assert!(tries < 12_000, "for a minute nothing had a deadline");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(call(&mut client, "EXISTS list"), Answer::Integer(0));
    import.kill().unwrap();
    import.wait().unwrap();
    assert!(is_due(deadline(&mut client)));
}

/// A hash of fields with this deadline, of which the last `left` have none.
fn timed(count: u32, deadline: u64, left: u32) -> Vec<u8> {
    let mut hash = deadline.to_le_bytes().to_vec();
    hash.push(0x80);
    hash.extend(count.to_be_bytes());
    for n in 0..count {
        // 1 is the first deadline, 0 none.
        hash.push(u8::from(n < count - left));
        hash.push(30);
        hash.extend(format!("{n:030}").as_bytes());
        hash.extend([1, b'v']);
    }
    hash
}

#[test]
fn fields_that_have_expired_stay_behind() {
    let here = tempfile::tempdir().unwrap();
    let server = Running::start(here.path(), &["--dir", "store"]);
    let mut client = server.client();
    for (name, left) in [("over", 0), ("half", 10_000)] {
        let hash = timed(20_000, 1000, left);
        let file = File::new().key(name, 24, &hash).end();
        let (code, said) = import(here.path(), &server, &file, &[]);
        assert_eq!(code, 0, "{said}");
        let figures = format!("{} keys and 0 libraries", u8::from(left > 0));
        assert!(said.contains(&figures), "{said}");
        let length = call(&mut client, &format!("HLEN {name}"));
        assert_eq!(length, Answer::Integer(left.into()));
    }
    assert_eq!(left_behind(&mut client), 0);
}
