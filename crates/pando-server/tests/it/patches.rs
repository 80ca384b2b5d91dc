//! Strings in chunks of which a few bytes are changed: those lie over the chunks.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions, check_rows};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, all_is_given_back, options};
use crate::statistics::fields;
use crate::until_end::End;

const MEMBERS: &str = "db/0/members";
const CHUNK: u64 = 16 << 10;

/// Opens a store whose strings lie in chunks of 16 KiB from 6,000 bytes on.
fn open(path: &Path) -> pandodb::Result<Db> {
    let builder = Db::builder().max_memory(32 << 20);
    builder.chunk_size(CHUNK).chunk_values_over(6000).open(path)
}

/// A server that waits for no sync.
fn quick() -> ServerOptions {
    ServerOptions {
        durability: Durability::None,
        ..options()
    }
}

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(quick(), move |_| open(&path))
}

fn server() -> Fixture {
    Fixture::opened_by(quick(), open)
}

/// Returns `count` random bytes.
fn random(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    let reply = client.call(&[b"SET", key.as_bytes(), value]);
    assert_eq!(show(&reply), "+OK");
}

fn set_range(client: &mut Client, key: &str, offset: usize, new: &[u8]) -> String {
    let offset = offset.to_string();
    show(&client.call(&[b"SETRANGE", key.as_bytes(), offset.as_bytes(), new]))
}

#[track_caller]
fn holds(client: &mut Client, key: &str, value: &[u8]) {
    let reply = client.call(&["GET", key]);
    assert!(reply == Answer::Bulk(value.to_vec()), "GET {key}");
    assert_eq!(
        show(&client.call(&["STRLEN", key])),
        format!(":{}", value.len())
    );
}

/// A string, and the command that is to make the same of the one in the store.
fn change(client: &mut Client, string: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let most = if random.u8(..8) == 0 { 20_000 } else { 300 };
    let offset = random.usize(..string.len() + 50);
    let new = random_of(random, most);
    match random.u8(..10) {
        0 => {
            string.extend(&new);
            let reply = client.call(&[&b"APPEND"[..], b"k", &new]);
            assert_eq!(show(&reply), format!(":{}", string.len()));
        }
        1..=4 => {
            let (at, bit) = (offset * 8 + random.usize(..8), random.bool());
            string.resize(string.len().max(offset + 1), 0);
            let mask = 0x80 >> (at % 8);
            let was = string[offset] & mask != 0;
            match bit {
                true => string[offset] |= mask,
                false => string[offset] &= !mask,
            }
            let (at, bit) = (at.to_string(), u8::from(bit).to_string());
            let reply = client.call(&["SETBIT", "k", &at, &bit]);
            assert_eq!(show(&reply), format!(":{}", i32::from(was)));
        }
        5 => {
            let offset = offset.min(string.len() - 2);
            let old = u16::from_be_bytes([string[offset], string[offset + 1]]);
            let new = old.wrapping_add(77);
            string[offset..offset + 2].copy_from_slice(&new.to_be_bytes());
            let at = (offset * 8).to_string();
            let reply = client.call(&["BITFIELD", "k", "INCRBY", "u16", &at, "77"]);
            assert_eq!(show(&reply), format!("[:{new}]"));
        }
        _ => {
            string.resize(string.len().max(offset + new.len()), 0);
            string[offset..offset + new.len()].copy_from_slice(&new);
            assert_eq!(
                set_range(client, "k", offset, &new),
                format!(":{}", string.len())
            );
        }
    }
}

fn random_of(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let mut new = vec![0; random.usize(1..most)];
    random.fill(&mut new);
    new
}

/// Reads parts of the string in all ways.
fn compare(client: &mut Client, string: &[u8], random: &mut fastrand::Rng) {
    let from = random.usize(..string.len());
    let to = (from + random.usize(..40_000)).min(string.len() - 1);
    let part = &string[from..=to];
    let (from, to) = (from.to_string(), to.to_string());
    let reply = client.call(&["GETRANGE", "k", &from, &to]);
    assert!(reply == Answer::Bulk(part.to_vec()), "{from} to {to}");
    let bits: u32 = part.iter().map(|byte| byte.count_ones()).sum();
    let reply = client.call(&["BITCOUNT", "k", &from, &to]);
    assert_eq!(show(&reply), format!(":{bits}"));
    let at = random.usize(..string.len() * 8);
    let bit = string[at / 8] & (0x80 >> (at % 8)) != 0;
    let reply = client.call(&["GETBIT", "k", &at.to_string()]);
    assert_eq!(show(&reply), format!(":{}", i32::from(bit)));
}

/// Commands of one client, beside the same ones on a vector of bytes.
#[test]
fn changes_of_parts_are_those_of_the_whole() {
    let server = server();
    let mut client = server.client();
    for seed in 0..3 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut string = self::random(seed, 40_000);
        set(&mut client, "k", &string);
        for step in 0..800 {
            change(&mut client, &mut string, &mut random);
            compare(&mut client, &string, &mut random);
            if step % 40 == 0 {
                holds(&mut client, "k", &string);
            }
            match step % 100 {
                // Its patches go with it.
                30 => {
                    client.check(&[("RENAME k k2", "+OK"), ("RENAME k2 k", "+OK")]);
                }
                60 => {
                    client.check(&[("COPY k k2", ":1")]);
                    holds(&mut client, "k2", &string);
                    client.check(&[("DEL k", ":1"), ("RENAME k2 k", "+OK")]);
                }
                90 => {
                    client.check(&[("EXPIRE k 1000", ":1"), ("TTL k", ":1000")]);
                    client.check(&[("PERSIST k", ":1")]);
                }
                _ => {}
            }
        }
        holds(&mut client, "k", &string);
        client.check(&[("TYPE k", "+string"), ("OBJECT ENCODING k", "\"raw\"")]);
        let text = client.run("INCR k");
        assert_eq!(text, "-ERR value is not an integer or out of range");
    }
}

#[test]
fn patches_are_what_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut string = self::random(7, 50_000);
    set(&mut on_disk(directory.path()).client(), "k", &string);
    for _ in 0..6 {
        let server = on_disk(directory.path());
        let mut client = server.client();
        holds(&mut client, "k", &string);
        for _ in 0..20 {
            change(&mut client, &mut string, &mut random);
        }
        holds(&mut client, "k", &string);
    }
}

/// Number of rows of the table of elements in the store, which no server has open.
fn rows(path: &Path) -> u64 {
    let db = open(path).unwrap();
    assert_eq!(check_rows(&db).unwrap().descriptions, [""; 0]);
    db.existing_table(MEMBERS).map_or(0, |table| table.len())
}

#[test]
fn what_is_given_up_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    let string = random(1, 30_000);
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        for key in [
            "deleted", "set", "ends", "moved", "renamed", "stored", "got", "long",
        ] {
            set(&mut client, key, &string);
            assert_eq!(set_range(&mut client, key, 20_000, b"abc"), ":30000");
            assert_eq!(set_range(&mut client, key, 5, b"de"), ":30000");
        }
        let mut whole = string.clone();
        whole[20_000..20_003].copy_from_slice(b"abc");
        whole[5..7].copy_from_slice(b"de");
        client.check(&[
            ("COPY set copied", ":1"),
            ("DEL deleted", ":1"),
            ("SET set short", "+OK"),
            ("PEXPIRE ends 1", ":1"),
            ("MOVE moved 1", ":1"),
            ("RENAME renamed copied", "+OK"),
            ("BITOP AND stored stored none", ":30000"),
            ("SELECT 1", "+OK"),
        ]);
        holds(&mut client, "moved", &whole);
        client.check(&[("DEL moved", ":1"), ("SELECT 0", "+OK")]);
        holds(&mut client, "copied", &whole);
        let got = client.call(&["GETDEL", "got"]);
        assert!(got == Answer::Bulk(whole.clone()));
        // All of its patches are written over.
        assert_eq!(
            set_range(&mut client, "long", 0, &string[..21_000]),
            ":30000"
        );
        holds(&mut client, "long", &string);
        client.check(&[("DEL copied", ":1")]);
    }
    assert!(rows(directory.path()) > 0);
    all_is_given_back(|| on_disk(directory.path()), || rows(directory.path()));
}

/// The cleaner moves the entry of an old deadline, and the head stays.
#[test]
fn deadlines_leave_the_patches_where_they_are() {
    let server = server();
    let mut client = server.client();
    let mut string = random(2, 30_000);
    set(&mut client, "k", &string);
    string[100..103].copy_from_slice(b"abc");
    assert_eq!(set_range(&mut client, "k", 100, b"abc"), ":30000");
    client.check(&[("PEXPIRE k 300", ":1"), ("PEXPIRE k 600000", ":1")]);
    thread::sleep(Duration::from_millis(1500));
    holds(&mut client, "k", &string);
    assert_eq!(set_range(&mut client, "k", 200, b"def"), ":30000");
    string[200..203].copy_from_slice(b"def");
    let reply = client.call(&["GETEX", "k", "PERSIST"]);
    assert!(reply == Answer::Bulk(string.clone()));
    client.check(&[("TTL k", ":-1"), ("PEXPIRE k 1", ":1")]);
    thread::sleep(Duration::from_millis(20));
    client.check(&[("EXISTS k", ":0")]);
}

/// What a change writes does not depend on the length of a chunk; nor does what it reads, once the
/// chunk was read.
#[test]
fn a_change_writes_and_reads_little() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let open = move |_: &Path| Db::builder().max_memory(64 << 20).open(&path);
    let server = Fixture::opened_by(quick(), open);
    let mut client = server.client();
    set(&mut client, "k", &random(3, 24 << 20));
    let written = |client: &mut Client| {
        let fields = fields(client, "everything");
        let of = [
            "log_bytes_total",
            "chunk_write_bytes_total",
            "chunk_read_bytes_total",
        ];
        of.map(|of| fields[of].parse::<u64>().unwrap())
    };
    let bits = 4 << 23;
    for bit in (0..bits).step_by(16 << 13) {
        client.run(&format!("GETBIT k {bit}"));
    }
    let before = written(&mut client);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let bit = random.usize(..bits);
        client.run(&format!("SETBIT k {bit} {}", random.u8(..2)));
    }
    let after = written(&mut client);
    let logged = (after[0] - before[0]) / 200;
    assert!(logged < 600, "{logged} bytes of the log for each change");
    assert_eq!(after[1], before[1]);
    let read = (after[2] - before[2]) / 200;
    assert!(read <= 4096, "{read} bytes of chunks for each change");
}

/// Blocks of a chunk that was read before are checked by themselves.
#[test]
fn damage_of_a_block_is_found_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let open = move |_: &Path| {
        let builder = Db::builder().max_memory(32 << 20).chunk_size(256 << 10);
        builder.chunk_values_over(6000).open(&path)
    };
    let mut server = Fixture::opened_by(quick(), open);
    let mut client = server.client();
    let string = random(10, 500_000);
    set(&mut client, "k", &string);
    let part = |client: &mut Client, from: usize| {
        client.call(&["GETRANGE", "k", &from.to_string(), &(from + 99).to_string()])
    };
    let good = |from: usize| Answer::Bulk(string[from..from + 100].to_vec());
    for from in [200_000, 100_000, 4050, 300_000, 499_900] {
        assert!(part(&mut client, from) == good(from), "{from}");
    }
    let mut damaged = 0;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        let wanted = &string[100_010..100_042];
        let found = bytes.windows(32).position(|window| window == wanted);
        if let Some(place) = found {
            bytes[place] ^= 1;
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&bytes[place..=place], place as u64)
                .unwrap();
            file.sync_all().unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "it lies in one place");
    server.is_damaged();
    let reply = client.run("GETBIT k 800080");
    assert!(reply.starts_with("-ERR"), "{reply}");
    assert!(part(&mut client, 200_000) == good(200_000), "another block");
}

/// A chunk with many patches is written, and so is any when there are very many.
#[test]
fn patches_are_folded_into_their_chunks() {
    let directory = tempfile::tempdir().unwrap();
    // 512 pieces in four chunks; and 23,438 in 184, of which a server with this memory has 4,096.
    // Chunks are folded by chance: of four, all may have been folded lately.
    for (bytes, changes, least, most) in [(65_536, 3000, 1, 350), (3_000_000, 7000, 3500, 4096)] {
        let mut string = random(bytes as u64, bytes);
        let mut random = fastrand::Rng::with_seed(4);
        {
            let server = on_disk(directory.path());
            let mut client = server.client();
            set(&mut client, "k", &string);
            for _ in 0..changes {
                let offset = random.usize(..bytes * 8);
                string[offset / 8] ^= 0x80 >> (offset % 8);
                let bit = u8::from(string[offset / 8] & 0x80 >> (offset % 8) != 0);
                let reply = client.run(&format!("SETBIT k {offset} {bit}"));
                assert_eq!(reply, format!(":{}", 1 - bit));
            }
            // Long ones never make more of them than there may be.
            for _ in 0..20 {
                let offset = random.usize(..bytes - 2000);
                let new = self::random(offset as u64, 2000);
                string[offset..offset + 2000].copy_from_slice(&new);
                assert_eq!(
                    set_range(&mut client, "k", offset, &new),
                    format!(":{bytes}")
                );
            }
            holds(&mut client, "k", &string);
        }
        let rows = rows(directory.path());
        assert!((least..=most).contains(&rows), "{bytes}: {rows} rows");
        let server = on_disk(directory.path());
        let mut client = server.client();
        holds(&mut client, "k", &string);
        client.check(&[("DEL k", ":1")]);
    }
}

/// In all chunks of the string the same byte is written, in one transaction.
#[test]
fn readers_see_one_state() {
    let server = server();
    let mut client = server.client();
    set(&mut client, "k", &vec![b'0'; 40_000]);
    let write = |from: u32| {
        let mut writer = server.client();
        for n in from..from + 120 {
            let digit = (n % 10).to_string().repeat(30);
            let mut sent = encode(&["MULTI"]);
            for at in ["10", "17000", "39000"] {
                sent.extend(encode(&["SETRANGE", "k", at, &digit]));
            }
            sent.extend(encode(&["EXEC"]));
            writer.send(&sent);
            for _ in 0..4 {
                writer.answer();
            }
            assert_eq!(show(&writer.answer()), "[:40000 :40000 :40000]");
        }
    };
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                while !over.is_there() {
                    let Answer::Bulk(whole) = reader.call(&["GET", "k"]) else {
                        panic!("it is a string");
                    };
                    for at in [10, 39, 17_000, 17_029, 39_000, 39_029] {
                        assert_eq!(whole[at], whole[10], "{at}");
                    }
                }
            });
        }
        let writers = [0, 5].map(|from| scope.spawn(move || write(from)));
        let writers: Vec<_> = writers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        drop(bring);
        assert!(writers.iter().all(Result::is_ok));
    });
}

/// What was read of a string that has changed is read again, and after some times as of one
/// moment.
#[test]
fn a_long_read_ends_beside_writers() {
    let server = server();
    let mut client = server.client();
    set(&mut client, "k", &vec![0; 4_000_000]);
    assert_eq!(set_range(&mut client, "k", 9, b"abc"), ":4000000");
    let (over, began) = (End::default(), now());
    thread::scope(|scope| {
        let bring = over.brought();
        for writer in 0..2 {
            let (server, over) = (&server, &over);
            scope.spawn(move || {
                let mut client = server.client();
                let mut random = fastrand::Rng::with_seed(writer);
                while !over.is_there() && began.elapsed() < Duration::from_secs(90) {
                    let from = random.usize(1..15_999) * 250;
                    set_range(&mut client, "k", from, &[random.u8(..); 20]);
                }
            });
        }
        for _ in 0..3 {
            let reply = show(&client.call(&["BITCOUNT", "k"]));
            assert!(reply.starts_with(':'), "{reply}");
            let reply = client.call(&["GET", "k"]);
            assert!(matches!(reply, Answer::Bulk(whole) if whole[9..12] == *b"abc"));
        }
        drop(bring);
    });
}

/// A reader that takes its time gets what was there when its command ran.
#[test]
fn a_slow_reader_sees_one_state() {
    let server = server();
    let mut client = server.client();
    let mut string = random(5, 8 << 20);
    set(&mut client, "k", &string);
    for at in (0..string.len() - 3).step_by(50_000) {
        string[at..at + 3].copy_from_slice(b"old");
        set_range(&mut client, "k", at, b"old");
    }
    let mut slow = std::net::TcpStream::connect(server.address).unwrap();
    slow.write_all(&encode(&["GET", "k"])).unwrap();
    let mut received = vec![0; 1000];
    slow.read_exact(&mut received).unwrap();
    for at in (0..string.len() - 3).step_by(2000) {
        set_range(&mut client, "k", at, b"new");
    }
    client.check(&[("DEL k", ":1")]);
    let header = format!("${}\r\n", string.len());
    let end = header.len() + string.len() + 2;
    let mut rest = vec![0; end - received.len()];
    slow.read_exact(&mut rest).unwrap();
    received.extend(rest);
    assert!(received[header.len()..end - 2] == string);
}

/// Each run of a command makes anew what the ones before it in the transaction have written.
#[test]
fn transactions_change_several_chunks() {
    let server = server();
    let mut client = server.client();
    let mut string = random(6, 100_000);
    set(&mut client, "k", &string);
    let commands: [&[&str]; 9] = [
        &["MULTI"],
        &["EXPIRE", "k", "1000"],
        &["GETRANGE", "k", "70000", "70003"],
        &["SETRANGE", "k", "10", "ten"],
        &["SETRANGE", "k", "50000", "fifty"],
        &["SETRANGE", "k", "90000", "ninety"],
        &["GETRANGE", "k", "49998", "50010"],
        &["GET", "k"],
        &["EXEC"],
    ];
    for command in commands {
        client.send(&encode(command));
    }
    for _ in 1..commands.len() {
        client.answer();
    }
    let Answer::Array(replies) = client.answer() else {
        panic!("it was executed");
    };
    assert!(replies[1] == Answer::Bulk(string[70_000..70_004].to_vec()));
    for (at, new) in [(10, &b"ten"[..]), (50_000, b"fifty"), (90_000, b"ninety")] {
        string[at..at + new.len()].copy_from_slice(new);
    }
    assert!(replies[5] == Answer::Bulk(string[49_998..50_011].to_vec()));
    assert!(replies[6] == Answer::Bulk(string.clone()));
    holds(&mut client, "k", &string);
    // One that was watched was changed by a patch.
    let mut other = server.client();
    client.check(&[("WATCH k", "+OK")]);
    assert_eq!(set_range(&mut other, "k", 10, b"TEN"), ":100000");
    client.check(&[("MULTI", "+OK"), ("STRLEN k", "+QUEUED"), ("EXEC", "nil")]);
    let script = "redis.call('SETRANGE', 'k', 11, 'xy') return redis.call('GETRANGE', 'k', 9, 13)";
    let reply = client.call(&["EVAL", script, "1", "k"]);
    let expected = [&string[9..10], b"Txy", &string[13..14]].concat();
    assert!(reply == Answer::Bulk(expected));
}

#[test]
fn interactive_transactions_see_their_own_patches() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    let string = random(8, 60_000);
    for level in ["READCOMMITTED", "SNAPSHOT", "TIMEOUT 5000"] {
        set(&mut client, "k", &string);
        let mut changed = string.clone();
        client.check(&[(&format!("PANDO BEGIN {level}"), "+OK")]);
        assert_eq!(set_range(&mut client, "k", 20_000, b"abc"), ":60000");
        changed[20_000..20_003].copy_from_slice(b"abc");
        holds(&mut client, "k", &changed);
        holds(&mut other, "k", &string);
        let long = random(9, 18_000);
        assert_eq!(set_range(&mut client, "k", 20_001, &long), ":60000");
        changed[20_001..38_001].copy_from_slice(&long);
        holds(&mut client, "k", &changed);
        client.check(&[("PANDO COMMIT", "+OK")]);
        holds(&mut other, "k", &changed);
        client.check(&[(&format!("PANDO BEGIN {level}"), "+OK")]);
        assert_eq!(set_range(&mut client, "k", 5, b"no"), ":60000");
        client.check(&[("PANDO ROLLBACK", "+OK")]);
        holds(&mut client, "k", &changed);
    }
}

#[test]
fn writers_of_one_string_lose_nothing() {
    let server = server();
    let mut client = server.client();
    set(&mut client, "bits", &vec![0; 40_000]);
    thread::scope(|scope| {
        for writer in 0..4_usize {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for n in 0..200 {
                    let bit = ((n * 4 + writer) * 397).to_string();
                    assert_eq!(show(&client.call(&["SETBIT", "bits", &bit, "1"])), ":0");
                }
            });
        }
    });
    client.check(&[("BITCOUNT bits", ":800")]);
}

/// A patch that is gone and one that is too long are found; what can be read is.
#[test]
fn damage_of_patches_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let string = random(9, 20_000);
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        set(&mut client, "k", &string);
        set_range(&mut client, "k", 0, b"abc");
        set_range(&mut client, "k", 5000, b"abc");
    }
    let db = open(directory.path()).unwrap();
    let members = db.table(MEMBERS).unwrap();
    assert_eq!(check_rows(&db).unwrap().descriptions, [""; 0]);
    let (key, value) = members.iter().next_back().unwrap().unwrap();
    let problem = |what: &str| {
        let report = check_rows(&db).unwrap();
        let all = report.descriptions.join("; ");
        assert!(all.contains(what), "{what}: {all}");
    };
    members.delete(&key).unwrap();
    problem("pieces: 1 rows, and 2 by its head");
    members.put(&key, &[&value[..], b"more"].concat()).unwrap();
    problem("rows at places that it does not have: 1 rows, and 0");
    drop((members, db));
    let mut server = on_disk(directory.path());
    server.is_damaged();
    let mut client = server.client();
    let reply = client.run("GET k");
    assert!(
        reply.starts_with("-ERR") && reply.contains("Damaged"),
        "{reply}"
    );
    client.check(&[
        ("GETRANGE k 0 2", "\"abc\""),
        ("STRLEN k", ":20000"),
        ("DEL k", ":1"),
    ]);
}

/// A patch at the end of a string is short, and stays so when the string grows: a write behind it,
/// in the same stretch of 128 bytes, leaves it as it is.
#[test]
fn a_short_patch_stays_when_the_string_grows_behind_it() {
    let server = server();
    let mut client = server.client();
    for length in [128 * 300 + 40, 128 * 300 + 1, 128 * 300 + 127] {
        let mut string = random(length as u64, length);
        set(&mut client, "k", &string);
        let at = length - 1;
        string[at] ^= 1;
        assert_eq!(
            set_range(&mut client, "k", at, &[string[at]]),
            format!(":{length}")
        );
        string.extend([b'x'; 50]);
        client.check(&[(
            &format!("APPEND k {}", "x".repeat(50)),
            &format!(":{}", length + 50),
        )]);
        // It ends behind the end, so it goes to the chunks.
        let behind = length + 24;
        string.truncate(behind);
        string.extend([b'y'; 40]);
        assert_eq!(
            set_range(&mut client, "k", behind, &[b'y'; 40]),
            format!(":{}", length + 64)
        );
        holds(&mut client, "k", &string);
        // So does one of many bytes.
        let many = random(7, 9000);
        string.resize(length + 64, 0);
        string.truncate(length + 2);
        string.extend(&many);
        assert_eq!(
            set_range(&mut client, "k", length + 2, &many),
            format!(":{}", string.len())
        );
        holds(&mut client, "k", &string);
        client.check(&[("DEL k", ":1")]);
    }
}
