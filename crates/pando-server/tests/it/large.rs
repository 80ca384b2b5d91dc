//! Strings that are too long for pages: they are staged as they arrive, and sent as they are read.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;

use pando_resp::Answer;
use pando_server::ServerOptions;
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Condvar, Mutex, Rank, thread};
use pandodb::Db;
use pandodb::device::MemoryDevice;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, options};
use crate::statistics::conflicts;
use crate::until_end::End;

const MIB: usize = 1 << 20;
/// Length of the longest value in pages.
const PLAIN: usize = 6000;

/// A server whose strings lie in small chunks, and its store.
struct Large {
    server: Fixture,
    db: Arc<Mutex<Option<Db>>>,
}

impl Large {
    fn new() -> Self {
        Self::with(options(), |builder, path| builder.open(path))
    }

    fn with(
        options: ServerOptions,
        open: impl FnOnce(pandodb::Builder, &Path) -> pandodb::Result<Db> + Send + 'static,
    ) -> Self {
        let db = Arc::new(Mutex::new(Rank::Caller, None));
        let place = db.clone();
        let server = Fixture::opened_by(options, move |path| {
            let builder = Db::builder()
                .max_memory(32 << 20)
                .chunk_size(16 << 10)
                .chunk_values_over(PLAIN);
            let opened = open(builder, path)?;
            *place.lock() = Some(opened.clone());
            Ok(opened)
        });
        Self { server, db }
    }

    fn db(&self) -> Db {
        self.db.lock().clone().expect("the store is open")
    }

    /// Waits until all garbage is freed. Returns the measure of free space.
    fn free(&self) -> u64 {
        let db = self.db();
        let since = now();
        loop {
            assert!(since.elapsed() < Duration::from_secs(20), "garbage stays");
            db.checkpoint().unwrap();
            if !db.garbage_left() {
                db.checkpoint().unwrap();
                return db.report().unallocated();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A measure of the free space of a store.
trait Unallocated {
    fn unallocated(&self) -> u64;
}

impl Unallocated for pandodb::Report {
    fn unallocated(&self) -> u64 {
        // The file may grow during a test, so only the used bytes count.
        u64::MAX - (self.data_bytes - self.data_free_bytes)
    }
}

/// Returns `count` random bytes that `seed` determines.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

trait Values {
    fn set(&mut self, key: &str, value: &[u8]);
    fn holds(&mut self, key: &str, value: &[u8]);
    fn call_with(&mut self, command: &str, value: &[u8]) -> Answer;
}

impl Values for Client {
    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(show(&self.call(&[b"SET", key.as_bytes(), value])), "+OK");
    }

    #[track_caller]
    fn holds(&mut self, key: &str, value: &[u8]) {
        let answer = self.call(&["GET", key]);
        assert!(answer == Answer::Bulk(value.to_vec()), "GET {key}");
        let length = i64::try_from(value.len()).unwrap();
        assert_eq!(self.integer(&format!("STRLEN {key}")), length);
    }

    /// Runs `command` with `value` in place of each `?`.
    fn call_with(&mut self, command: &str, value: &[u8]) -> Answer {
        let words: Vec<&[u8]> = command
            .split(' ')
            .map(|word| if word == "?" { value } else { word.as_bytes() })
            .collect();
        self.call(&words)
    }
}

fn bulk(bytes: &[u8]) -> Answer {
    Answer::Bulk(bytes.to_vec())
}

/// Lengths around the limits of values that are held whole, and of values in pages.
const LENGTHS: [usize; 8] = [
    PLAIN - 23,
    PLAIN,
    20_000,
    MIB,
    MIB + 1,
    3 * MIB + 17,
    16 << 10,
    2 * MIB,
];

#[test]
fn strings_of_all_lengths_are_set_read_and_replaced() {
    let large = Large::new();
    let mut client = large.server.client();
    let before = large.free();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let value = bytes(seed as u64, length);
        client.set("k", &value);
        client.holds("k", &value);
        client.check(&[("EXISTS k", ":1"), ("TYPE k", "+string"), ("TTL k", ":-1")]);
        for (from, to) in [
            (0, 0),
            (length - 5, length - 1),
            (4000, 4100),
            (16383, 16384),
        ] {
            if to < length {
                let answer = client.run_raw(&format!("GETRANGE k {from} {to}"));
                assert!(answer == bulk(&value[from..=to]), "{length}: {from}..={to}");
            }
        }
        assert!(client.run_raw("GETRANGE k -7 -2") == bulk(&value[length - 7..length - 1]));
        assert!(client.run_raw("GETRANGE k 5 4") == bulk(b""));
        assert!(client.run_raw(&format!("GETRANGE k {length} -1")) == bulk(b""));
        assert!(client.run_raw("SUBSTR k 0 -1") == bulk(&value));
        for (command, text) in [
            ("INCR k", "-ERR value is not an integer or out of range"),
            ("INCRBYFLOAT k 1", "-ERR value is not a valid float"),
        ] {
            assert_eq!(client.run(command), text);
        }
    }
    client.check(&[("DEL k", ":1")]);
    assert_eq!(large.free(), before);
}

#[test]
fn conditions_and_commands_of_several_keys_take_large_strings() {
    let large = Large::new();
    let mut client = large.server.client();
    let before = large.free();
    client.set("k", &bytes(7, 2 * MIB));
    let other = bytes(99, 2 * MIB + 5);
    let old = bytes(7, 2 * MIB);
    assert!(client.call_with("GETSET k ?", &other) == bulk(&old));
    assert!(client.call_with("SET k ? GET", &old) == bulk(&other));
    assert_eq!(show(&client.call_with("SET k ? NX", &other)), "nil");
    assert_eq!(show(&client.call_with("SETNX k ?", &other)), ":0");
    assert_eq!(show(&client.call_with("SETNX n ?", &other)), ":1");
    assert_eq!(show(&client.call_with("MSETNX m ? n 1", &other)), ":0");
    client.check(&[("EXISTS m", ":0")]);
    client.holds("k", &old);
    let used = client.integer("MEMORY USAGE k");
    assert!(used > 2 << 20, "{used}");
    let pairs = encode(&[
        &b"MSET"[..],
        b"a",
        &other,
        b"b",
        b"small",
        b"c",
        &old,
        b"a",
        &old,
        b"d",
        &other[..9000],
    ]);
    client.send(&pairs);
    assert_eq!(show(&client.answer()), "+OK");
    let many = client.call(&["MGET", "a", "b", "none", "c", "d", "a"]);
    let expected = vec![
        bulk(&old),
        bulk(b"small"),
        Answer::Null,
        bulk(&old),
        bulk(&other[..9000]),
        bulk(&old),
    ];
    assert!(many == Answer::Array(expected));
    assert!(client.run_raw("GETDEL a") == bulk(&old));
    client.check(&[
        ("EXISTS a b c d k n", ":5"),
        ("DBSIZE", ":5"),
        ("DEL b c d k n", ":5"),
        ("DBSIZE", ":0"),
    ]);
    assert_eq!(large.free(), before);
}

#[test]
fn parts_are_changed_as_in_a_vector() {
    let large = Large::new();
    let mut client = large.server.client();
    let big = bytes(1, 2 * MIB + 9);
    let steps: [(&str, usize, &[u8]); 12] = [
        // The command, the offset, and the new bytes.
        ("append", 0, &big[..5000]),
        ("append", 0, &big[..3000]),
        ("append", 0, b"x"),
        ("setrange", 1, b"second"),
        ("setrange", 7990, &big[..100]),
        ("append", 0, &big),
        ("setrange", MIB, b"middle"),
        ("setrange", 3 * MIB, b"behind zeros"),
        ("setrange", 100, &big),
        ("append", 0, &big[..MIB]),
        ("setrange", 0, &big),
        ("append", 0, b""),
    ];
    for key in ["k".to_owned(), "long".repeat(600)] {
        let mut model: Vec<u8> = Vec::new();
        for (command, offset, piece) in steps {
            let offset = match command {
                "append" => model.len(),
                _ => offset,
            };
            model.resize(model.len().max(offset + piece.len()), 0);
            model[offset..offset + piece.len()].copy_from_slice(piece);
            let place = match command {
                "append" => format!("APPEND {key} ?"),
                _ => format!("SETRANGE {key} {offset} ?"),
            };
            let length = client.call_with(&place, piece);
            assert_eq!(
                show(&length),
                format!(":{}", model.len()),
                "{command} {offset}"
            );
            client.holds(&key, &model);
        }
    }
    // SETRANGE on a missing key makes a string.
    assert_eq!(
        show(&client.call_with("SETRANGE z 10 ?", &big)),
        format!(":{}", big.len() + 10)
    );
    client.holds("z", &[&[0; 10], &big[..]].concat());
    client.check(&[
        (
            "SETRANGE k 536870911 ab",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        ("SETRANGE k -1 ab", "-ERR offset is out of range"),
    ]);
}

#[test]
fn a_change_of_a_part_writes_the_chunks_that_it_touches() {
    let large = Large::new();
    let mut client = large.server.client();
    let mut value = bytes(1, 64 * MIB);
    client.set("k", &value);
    let written = || {
        let ticker = pandodb::statistics::Ticker::ChunkWriteBytes;
        large.db().statistics().get(ticker)
    };
    let before = written();
    assert_eq!(client.integer("SETRANGE k 40000000 changed"), 64 << 20);
    assert_eq!(written() - before, 0, "it lies over the chunk");
    let long = bytes(2, 9000);
    let length = client.call_with("SETRANGE k 30000000 ?", &long);
    assert_eq!(show(&length), format!(":{}", 64 << 20));
    assert_eq!(written() - before, 16 << 10);
    assert_eq!(client.integer("APPEND k more"), (64 << 20) + 4);
    assert_eq!(written() - before, (16 << 10) + 4096);
    client.check(&[("EXPIRE k 1000", ":1"), ("PERSIST k", ":1")]);
    assert_eq!(written() - before, (16 << 10) + 4096);
    value[40_000_000..40_000_007].copy_from_slice(b"changed");
    value[30_000_000..30_009_000].copy_from_slice(&long);
    value.extend_from_slice(b"more");
    client.holds("k", &value);
}

#[test]
fn deadlines_move_and_end_without_the_chunks() {
    let large = Large::new();
    let mut client = large.server.client();
    let before = large.free();
    let value = bytes(1, 2 * MIB);
    assert_eq!(show(&client.call_with("SETEX k 100 ?", &value)), "+OK");
    assert_eq!(show(&client.call_with("PSETEX p 100000 ?", &value)), "+OK");
    client.check(&[
        ("TTL k", ":100"),
        ("TTL p", ":100"),
        ("EXPIRE k 200", ":1"),
        ("TTL k", ":200"),
        ("PERSIST p", ":1"),
        ("TTL p", ":-1"),
    ]);
    assert!(client.run_raw("GETEX k PX 300") == bulk(&value));
    client.check(&[("PEXPIRE k 5000000", ":1")]);
    client.holds("p", &value);
    // When the cleaner's old entry becomes due, it moves to the current deadline.
    assert_eq!(show(&client.call_with("SET moved ? PX 150", &value)), "+OK");
    client.check(&[("PEXPIRE moved 100000", ":1")]);
    // A key that no client reads is removed after its deadline.
    assert_eq!(show(&client.call_with("SET gone ? PX 100", &value)), "+OK");
    let since = now();
    while client.integer("DBSIZE") > 3 {
        assert!(since.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(400));
    for key in ["k", "p", "moved"] {
        client.holds(key, &value);
    }
    assert_eq!(client.integer("PTTL moved") / 10_000, 9);
    let keys = client.run("KEYS *");
    assert_eq!(keys.len(), "[\"k\" \"moved\" \"p\"]".len(), "{keys}");
    client.check(&[("DEL k p moved", ":3")]);
    assert_eq!(large.free(), before);
}

#[test]
fn transactions_put_read_and_change_large_strings() {
    let large = Large::new();
    let mut client = large.server.client();
    let mut value = bytes(1, 2 * MIB);
    client.check(&[("WATCH k", "+OK"), ("MULTI", "+OK")]);
    for command in ["SET k ?", "MSET x ? y ?"] {
        assert_eq!(show(&client.call_with(command, &value)), "+QUEUED");
    }
    for command in [
        "GET k",
        "APPEND k tail",
        "SETRANGE k 9 changed",
        "GETRANGE k 5 20",
    ] {
        assert_eq!(client.run(command), "+QUEUED");
    }
    assert_eq!(client.run("EXPIRE k 100"), "+QUEUED");
    assert_eq!(client.run("STRLEN k"), "+QUEUED");
    let Answer::Array(answers) = client.run_raw("EXEC") else {
        panic!("not an array");
    };
    let first = value.clone();
    value.extend_from_slice(b"tail");
    value[9..16].copy_from_slice(b"changed");
    let length = i64::try_from(value.len()).unwrap();
    let expected = vec![
        Answer::Simple("OK".into()),
        Answer::Simple("OK".into()),
        bulk(&first),
        Answer::Integer(length),
        Answer::Integer(length),
        bulk(&value[5..=20]),
        Answer::Integer(1),
        Answer::Integer(length),
    ];
    assert!(answers == expected);
    client.holds("k", &value);
    client.holds("x", &first);
    client.holds("y", &first);
    // Megabytes were written and read since.
    let left = client.integer("TTL k");
    assert!((60..=100).contains(&left), "{left}");
}

#[test]
fn transactions_that_are_not_executed_leave_nothing() {
    let large = Large::new();
    let mut client = large.server.client();
    let mut other = large.server.client();
    let before = large.free();
    let (first, value) = (bytes(1, 2 * MIB), bytes(2, 3 * MIB));
    client.set("x", &first);
    client.set("k", &first);
    // The transactions are discarded, aborted, or refused because a watched key has changed.
    let used = large.free();
    for end in ["DISCARD", "EXEC"] {
        client.check(&[("WATCH x", "+OK"), ("MULTI", "+OK")]);
        assert_eq!(show(&client.call_with("SET x ?", &value)), "+QUEUED");
        if end == "EXEC" {
            assert_eq!(
                show(&client.run_raw("NOSUCH")).split(' ').next(),
                Some("-ERR")
            );
        }
        assert_eq!(show(&client.call_with("SET x ?", &value)), "+QUEUED");
        let expected = match end {
            "EXEC" => "-EXECABORT Transaction discarded because of previous errors.",
            _ => "+OK",
        };
        assert_eq!(client.run(end), expected);
    }
    client.check(&[("WATCH x", "+OK"), ("MULTI", "+OK")]);
    assert_eq!(show(&client.call_with("SET x ?", &value)), "+QUEUED");
    other.check(&[("EXPIRE x 1000", ":1")]);
    assert_eq!(client.run("EXEC"), "nil");
    client.check(&[("DISCARD", "-ERR DISCARD without MULTI")]);
    assert_eq!(large.free(), used);
    client.holds("x", &first);
    // One transaction puts a value and takes it away.
    client.check(&[("MULTI", "+OK")]);
    assert_eq!(show(&client.call_with("SET x ?", &value)), "+QUEUED");
    client.check(&[
        ("GETDEL x", "+QUEUED"),
        ("FLUSHDB", "+QUEUED"),
        ("GET k", "+QUEUED"),
    ]);
    let Answer::Array(answers) = client.run_raw("EXEC") else {
        panic!("not an array");
    };
    assert!(answers[1] == bulk(&value) && answers[3] == Answer::Null);
    assert_eq!(large.free(), before);
}

#[test]
fn large_arguments_and_replies_keep_their_place_in_a_pipeline() {
    let large = Large::new();
    let mut client = large.server.client();
    let value = bytes(1, 3 * MIB);
    let mut input = Vec::new();
    for _ in 0..5 {
        input.extend_from_slice(b"PING\r\n");
        input.extend_from_slice(&encode(&[&b"SET"[..], b"k", &value]));
        input.extend_from_slice(&encode(&["STRLEN", "k"]));
        input.extend_from_slice(&encode(&["GET", "k"]));
        input.extend_from_slice(&encode(&["GET", "none"]));
        input.extend_from_slice(&encode(&["GET", "k"]));
    }
    let mut sender = client.stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        // The pieces end at arbitrary positions.
        let mut rest = input.as_slice();
        for size in (1..).map(|round: usize| round * 977 % 300_000 + 1) {
            let (piece, behind) = rest.split_at(rest.len().min(size));
            sender.write_all(piece).unwrap();
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        sender.shutdown(Shutdown::Write).unwrap();
    });
    for _ in 0..5 {
        assert_eq!(show(&client.answer()), "+PONG");
        assert_eq!(show(&client.answer()), "+OK");
        assert_eq!(show(&client.answer()), format!(":{}", value.len()));
        assert!(client.answer() == bulk(&value));
        assert_eq!(show(&client.answer()), "nil");
        assert!(client.answer() == bulk(&value));
    }
    assert!(client.is_closed());
    writer.join().unwrap();
}

#[test]
fn a_reply_is_what_was_there_when_its_command_ran() {
    let large = Large::new();
    let mut reader = large.server.client();
    let mut writer = large.server.client();
    let value = bytes(1, 40 * MIB);
    reader.set("k", &value);
    let before = large.free();
    reader.send(&encode(&["GET", "k"]));
    let mut first = [0; 100];
    reader.stream.read_exact(&mut first).unwrap();
    for seed in 2..5 {
        writer.set("k", &bytes(seed, 40 * MIB));
        large.db().checkpoint().unwrap();
    }
    writer.check(&[("DEL k", ":1")]);
    let mut rest = vec![0; b"$41943040\r\n".len() + value.len() + 2 - first.len()];
    reader.stream.read_exact(&mut rest).unwrap();
    let whole = [&first[..], &rest].concat();
    assert!(whole.starts_with(b"$41943040\r\n") && whole.ends_with(b"\r\n"));
    assert!(whole[11..11 + value.len()] == value);
    assert!(large.free() >= before + value.len() as u64);
}

#[test]
fn who_goes_away_leaves_nothing_behind() {
    let large = Large::new();
    let mut other = large.server.client();
    other.check(&[("SET a 1", "+OK")]);
    let before = large.free();
    let value = bytes(1, 20 * MIB);
    for sent in [100, MIB, 5 * MIB, 20 * MIB] {
        let mut client = large.server.client();
        client.check(&[("MULTI", "+OK")]);
        assert_eq!(
            show(&client.call_with("SET queued ?", &value[..2 * MIB])),
            "+QUEUED"
        );
        client.send(&encode(&[&b"SET"[..], b"k", &value])[..sent]);
    }
    while other.text("CLIENT LIST").lines().count() > 1 {
        thread::yield_now();
    }
    let since = now();
    while large.free() != before {
        assert!(since.elapsed() < Duration::from_secs(20));
    }
    other.check(&[("DBSIZE", ":1")]);
    // A reader that disconnects leaves nothing behind either.
    other.set("k", &value);
    for _ in 0..5 {
        let mut client = large.server.client();
        client.send(&encode(&["GET", "k"]).repeat(3));
        let mut some = [0; 1000];
        client.stream.read_exact(&mut some).unwrap();
    }
    other.check(&[("DEL k", ":1")]);
    let since = now();
    while large.free() != before {
        assert!(since.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn arguments_that_cannot_be_taken_are_passed_over() {
    let large = Large::with(
        ServerOptions {
            requirepass: Some("secret".into()),
            ..options()
        },
        |builder, path| builder.open(path),
    );
    let mut client = large.server.client();
    let value = bytes(1, 2 * MIB);
    client.check(&[("AUTH secret", "+OK")]);
    let limit = format!("has {} bytes, at most {MIB} are taken here", value.len());
    for (command, text) in [
        ("ECHO ?", format!("-ERR argument 1 of 'echo' {limit}")),
        ("GET ?", format!("-ERR argument 1 of 'get' {limit}")),
        ("SET ? v", format!("-ERR argument 1 of 'set' {limit}")),
        ("SET k v ?", format!("-ERR argument 3 of 'set' {limit}")),
        ("MSET k 1 ? 2", format!("-ERR argument 3 of 'mset' {limit}")),
        ("GETSET ? ?", format!("-ERR argument 1 of 'getset' {limit}")),
        (
            "GET k ?",
            "-ERR wrong number of arguments for 'get' command".into(),
        ),
        (
            "NOSUCH ? ?",
            "-ERR unknown command 'NOSUCH', with args beginning with: '' '' ".into(),
        ),
        (
            "? a",
            "-ERR unknown command '', with args beginning with: 'a' ".into(),
        ),
    ] {
        let answer = show(&client.call_with(command, &value));
        assert_eq!(answer, text, "{command}");
        client.check(&[("PING", "+PONG"), ("DBSIZE", ":0")]);
    }
    // Inside MULTI the refusal is an error that makes EXEC fail.
    client.check(&[("MULTI", "+OK")]);
    assert!(show(&client.call_with("ECHO ?", &value)).starts_with("-ERR argument"));
    assert!(client.run("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.text_of("CONFIG GET proto-max-bulk-len"), "536870912");
    // No argument may be longer than that.
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n");
    assert_eq!(
        show(&client.answer()),
        "-ERR Protocol error: invalid bulk length"
    );
    assert!(client.is_closed());
    // A client that has not authenticated may send only little.
    let mut unknown = large.server.client();
    unknown.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000000\r\n");
    assert_eq!(
        show(&unknown.answer()),
        "-ERR Protocol error: unauthenticated bulk length"
    );
    assert!(unknown.is_closed());
}

#[test]
fn large_arguments_are_passed_over_until_the_store_is_open() {
    let gate = Arc::new((Mutex::new(Rank::Caller, false), Condvar::new()));
    let opener_gate = gate.clone();
    let large = Large::with(options(), move |builder, path| {
        let mut opened = opener_gate.0.lock();
        while !*opened {
            opened = opener_gate.1.wait(opened);
        }
        builder.open(path)
    });
    let mut client = large.server.raw_client();
    let loading = "-LOADING Redis is loading the dataset in memory";
    let value = bytes(1, 3 * MIB);
    for _ in 0..3 {
        assert_eq!(show(&client.call_with("SET k ?", &value)), loading);
    }
    let command = encode(&[&b"SET"[..], b"k", &value]);
    client.send(&command[..2 * MIB]);
    let mut other = large.server.raw_client();
    assert_eq!(other.run("PING"), loading);
    while !other.text("CLIENT LIST").contains("qbuf=30 ") {
        thread::yield_now();
    }
    *gate.0.lock() = true;
    gate.1.notify_all();
    while other.run("PING") != "+PONG" {
        thread::yield_now();
    }
    // The command began before the store was open.
    client.send(&command[2 * MIB..]);
    assert_eq!(show(&client.answer()), loading);
    client.set("k", &value);
    client.holds("k", &value);
}

#[test]
fn a_full_disk_refuses_the_command_and_the_connection_goes_on() {
    let large = Large::with(options(), |builder, _| {
        Db::open_device(builder, MemoryDevice::new(96 << 20).into())
    });
    let mut client = large.server.client();
    let value = bytes(1, 20 * MIB);
    client.set("a", &value);
    let free = large.free();
    let too_much = bytes(2, 120 * MIB);
    for command in ["SET b ?", "APPEND a ?", "SETRANGE a 77 ?"] {
        let answer = show(&client.call_with(command, &too_much));
        assert!(
            answer.starts_with("-ERR") && answer.contains("no room"),
            "{answer}"
        );
        client.check(&[("PING", "+PONG"), ("STRLEN b", ":0")]);
        client.holds("a", &value);
        assert_eq!(large.free(), free);
    }
    client.set("b", &value);
    client.holds("b", &value);
}

#[test]
fn conflicts_change_large_strings_one_after_the_other() {
    let large = Large::new();
    let mut client = large.server.client();
    client.set("k", &bytes(1, 2 * MIB));
    client.set("same", &bytes(1, 2 * MIB));
    let address = large.server.address;
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                for round in 0..20 {
                    let piece = [b'a' + thread; 10_000];
                    let length = client.call(&[&b"APPEND"[..], b"k", &piece]);
                    assert!(matches!(length, Answer::Integer(_)), "{length:?}");
                    // The length of the value does not change, so only its chunks show that it
                    // changed.
                    let from = usize::from(thread) * 100;
                    if round > 0 {
                        let own = client.run_raw(&format!("GETRANGE same {from} {}", from + 99));
                        assert!(
                            own == bulk(&[b'A' + round - 1; 100]),
                            "the change was undone"
                        );
                    }
                    let place = format!("SETRANGE same {from} ?");
                    let length = client.call_with(&place, &[b'A' + round; 100]);
                    assert_eq!(show(&length), format!(":{}", 2 * MIB));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let Answer::Bulk(value) = client.run_raw("GET k") else {
        panic!("no string");
    };
    assert_eq!(value.len(), 2 * MIB + 4 * 20 * 10_000);
    assert!(value[..2 * MIB] == bytes(1, 2 * MIB));
    let mut counts = [0; 4];
    for piece in value[2 * MIB..].chunks(10_000) {
        assert!(piece.iter().all(|byte| *byte == piece[0]));
        counts[usize::from(piece[0] - b'a')] += 1;
    }
    assert_eq!(counts, [20; 4]);
    let same = [&[b'A' + 19; 400], &bytes(1, 2 * MIB)[400..]].concat();
    client.holds("same", &same);
}

/// What a command writes may be made of what it has read, and be another thing in its next run.
#[test]
fn a_result_is_made_anew_when_its_source_has_changed() {
    let large = Large::new();
    let mut client = large.server.client();
    client.set("source", &bytes(1, PLAIN * 4));
    let (stop, begun) = (End::default(), now());
    let met = thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut writer = large.server.client();
            for round in 0_u64.. {
                if stop.is_there() || begun.elapsed() > Duration::from_secs(30) {
                    break;
                }
                let length = writer.call_with("SETRANGE source 0 ?", &round.to_be_bytes());
                assert_eq!(show(&length), format!(":{}", PLAIN * 4));
            }
        });
        let before = conflicts(&mut client);
        let mut met = 0;
        while met < 20 && begun.elapsed() < Duration::from_secs(20) {
            client.send(b"MULTI\r\nGETRANGE source 0 7\r\nBITOP NOT result source\r\nEXEC\r\n");
            (0..3).for_each(|_| assert!(!show(&client.answer()).starts_with('-')));
            let Answer::Array(replies) = client.answer() else {
                panic!("EXEC replies with those of its commands");
            };
            let Answer::Bulk(read) = &replies[0] else {
                panic!("{:?}", replies[0]);
            };
            let inverted: Vec<u8> = read.iter().map(|byte| !byte).collect();
            let result = client.run_raw("GETRANGE result 0 7");
            assert_eq!(result, bulk(&inverted), "it is made of another source");
            met = conflicts(&mut client) - before;
        }
        drop(bring);
        met
    });
    assert!(met > 0, "nothing has changed meanwhile");
}

/// What a script asks of a string in its next run may be something else of the same bytes.
#[cfg(feature = "scripts")]
#[test]
fn what_a_script_gathers_is_what_it_asks_for() {
    let large = Large::new();
    let mut client = large.server.client();
    client.set("source", &bytes(1, MIB));
    client.run("SET n 10000000");
    let expected = [
        client.run("BITCOUNT source"),
        client.run("BITPOS source 1 0 -1"),
    ];
    let (stop, begun) = (End::default(), now());
    let met = thread::scope(|scope| {
        let bring = stop.brought();
        scope.spawn(|| {
            let mut writer = large.server.client();
            let limit = Duration::from_secs(30);
            while !stop.is_there() && begun.elapsed() < limit {
                writer.run("INCR n");
            }
        });
        let before = conflicts(&mut client);
        let mut met = 0;
        let script = "local n = redis.call('GET', 'n') % 2 \
                      if n == 0 then return {0, redis.call('BITCOUNT', 'source')} end \
                      redis.call('SET', 'm', n) \
                      return {1, redis.call('BITPOS', 'source', 1, 0, -1)}";
        while met < 200 && begun.elapsed() < Duration::from_secs(20) {
            let reply = show(&client.call(&["EVAL", script, "0"]));
            let fine = [0, 1].map(|n: usize| format!("[:{n} {}]", expected[n]));
            assert!(fine.contains(&reply), "{reply}, not one of {fine:?}");
            met = conflicts(&mut client) - before;
        }
        drop(bring);
        met
    });
    assert!(met > 0, "nothing has changed meanwhile");
}

#[test]
fn many_clients_that_announce_large_arguments_keep_to_the_budget() {
    const CLIENTS: usize = 120;
    let large = Large::new();
    let mut client = large.server.client();
    let memory = large.db().memory().chunk_buffers;
    let value = bytes(1, 2 * MIB);
    let request = encode(&[&b"SET"[..], b"announced", &value]);
    let mut halves: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut stream = large.server.client().stream;
            stream.write_all(&request[..1000]).unwrap();
            stream
        })
        .collect();
    let until = now() + Duration::from_secs(30);
    let used = || large.db().memory().chunk_buffers.used_bytes;
    // As many clients as there is room for have begun: one more would exceed it.
    let (chunk, room) = (16 << 10, memory.budget_bytes / 2);
    while used() + chunk <= room {
        assert!(now() < until, "{} of {room}", used());
        thread::yield_now();
    }
    assert!(used() <= room, "{} of {room}", used());
    // Other clients continue meanwhile, and the last one has its turn when the first ones
    // disconnect.
    client.set("short", b"value");
    client.holds("short", b"value");
    let mut last = halves.pop().unwrap();
    drop(halves);
    last.write_all(&request[1000..]).unwrap();
    let mut reply = [0; 5];
    last.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    last.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    client.holds("announced", &value);
}

#[test]
fn long_strings_go_to_other_keys() {
    let large = Large::new();
    let mut client = large.server.client();
    let value = bytes(50, MIB);
    client.set("a", &value);
    client.check(&[
        ("EXPIREAT a 4102444100", ":1"),
        ("RENAME a b", "+OK"),
        ("EXISTS a", ":0"),
        ("EXPIRETIME b", ":4102444100"),
    ]);
    client.holds("b", &value);
    client.check(&[
        ("COPY b c", ":1"),
        ("PERSIST b", ":1"),
        ("EXPIRETIME c", ":4102444100"),
        ("MOVE c 1", ":1"),
        ("DEL b", ":1"),
        ("SELECT 1", "+OK"),
        ("EXPIRETIME c", ":4102444100"),
    ]);
    client.holds("c", &value);
    // Inside EXEC, of a value that was written there, and back.
    client.check(&[("MULTI", "+OK")]);
    assert_eq!(show(&client.call_with("SET x ?", &value)), "+QUEUED");
    client.check(&[
        ("RENAME x y", "+QUEUED"),
        ("COPY y c REPLACE", "+QUEUED"),
        ("RENAME y x", "+QUEUED"),
        ("EXEC", "[+OK +OK :1 +OK]"),
        ("EXISTS y", ":0"),
    ]);
    client.holds("x", &value);
    client.holds("c", &value);
    client.check(&[("FLUSHALL", "+OK")]);
    large.free();
}

#[test]
fn bits_of_long_strings_are_read_and_changed() {
    let large = Large::new();
    let mut client = large.server.client();
    let value = bytes(51, MIB + 77);
    let ones = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum::<u64>()
    };
    client.set("a", &value);
    let check = |client: &mut Client, value: &[u8]| {
        client.check(&[
            ("BITCOUNT a", &format!(":{}", ones(value))),
            (
                "BITCOUNT a 100000 -100000",
                &format!(":{}", ones(&value[100_000..value.len() - 99_999])),
            ),
        ]);
        let place = 700_000;
        let bit = value[place] >> 3 & 1;
        let offset = place * 8 + 4;
        client.check(&[
            (&format!("GETBIT a {offset}"), &format!(":{bit}")),
            (
                &format!("BITFIELD_RO a GET u8 #{place}"),
                &format!("[:{}]", value[place]),
            ),
        ]);
    };
    check(&mut client, &value);
    let mut changed = value;
    changed[600_000] |= 0x80;
    changed[900_000] = 7;
    client.run("SETBIT a 4800000 1");
    client.run("BITFIELD a SET u8 #900000 7 GET u8 0");
    check(&mut client, &changed);
    client.holds("a", &changed);
    client.check(&[
        ("BITOP NOT n a", &format!(":{}", changed.len())),
        ("BITOP AND z a n", &format!(":{}", changed.len())),
        ("BITCOUNT z", ":0"),
        ("BITPOS z 1", ":-1"),
        ("BITOP OR z a n", &format!(":{}", changed.len())),
        ("BITPOS z 0", &format!(":{}", changed.len() * 8)),
        ("BITPOS z 0 0 -1", ":-1"),
        ("SETBIT z 8000001 0", ":1"),
        ("BITPOS z 0", ":8000001"),
        ("MULTI", "+OK"),
        ("SETBIT z 5 0", "+QUEUED"),
        ("BITPOS z 0", "+QUEUED"),
        ("BITCOUNT z 0 0", "+QUEUED"),
        ("EXEC", "[:1 :5 :7]"),
    ]);
    let refused = "-ERR the command reads long strings that do not fit into memory together";
    client.check(&[
        ("SETBIT huge 100000000 1", ":0"),
        ("BITOP NOT n huge", refused),
        ("BITFIELD huge SET u8 0 1 SET u8 99999992 1", refused),
        ("BITPOS huge 1", ":100000000"),
    ]);
}

#[test]
fn what_is_made_of_a_string_that_changes_meanwhile_is_made_again() {
    const ROUNDS: usize = 40;
    let large = Large::new();
    let values = [b'x', b'y'].map(|byte| vec![byte; MIB / 2]);
    let is_done = Arc::new(End::default());
    let bring = is_done.brought();
    let mut client = large.server.client();
    client.set("a", &values[0]);
    let writer = {
        let (mut client, is_done) = (large.server.client(), is_done.clone());
        thread::spawn(move || {
            // At times it leaves enough time for an EXEC: one that always loses never ends.
            for (round, value) in values.iter().cycle().enumerate() {
                if is_done.is_there() {
                    return;
                }
                client.set("a", value);
                thread::sleep(Duration::from_millis((1 << (round % 8)) / 2));
            }
        })
    };
    let ones = |byte: u8| i64::try_from(MIB / 2).unwrap() * i64::from(byte.count_ones());
    let script = [
        "MULTI",
        "COPY a b REPLACE",
        "BITCOUNT a",
        "GETRANGE a 9 9",
        "GETRANGE b 9 9",
    ];
    for _ in 0..ROUNDS {
        script.iter().for_each(|command| drop(client.run(command)));
        let Answer::Array(answers) = client.call(&["EXEC"]) else {
            panic!("EXEC replies an array");
        };
        let [copied, count, Answer::Bulk(a), Answer::Bulk(b)] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!(a, b, "the copy is what the same EXEC sees");
        let expected = [Answer::Integer(1), Answer::Integer(ones(a[0]))];
        assert_eq!([copied, count], [&expected[0], &expected[1]]);
    }
    drop(bring);
    writer.join().unwrap();
}
