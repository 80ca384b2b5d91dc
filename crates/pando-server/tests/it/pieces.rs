//! Long strings of which a part is changed, whose bytes lie in rows of their own.

use std::path::Path;

use pando_resp::Answer;
use pando_server::{Durability, ServerOptions, check_rows};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::Db;

use crate::client::{Client, encode, show};
use crate::fixture::{Fixture, all_is_given_back, open_on_disk, open_small, options};
use crate::statistics::fields;
use crate::until_end::End;

const MEMBERS: &str = "db/0/members";

/// Returns a client of a server that cuts strings of 24 bytes into pieces of three.
fn client_of(server: &Fixture) -> Client {
    let mut client = server.client();
    client.check(&[("CONFIG SET packed-bytes-max 3", "+OK")]);
    client
}

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

/// Returns the string at `key`.
fn get(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&["GET", key]) {
        Answer::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Number of rows of the table of elements in the store, which no server has open.
fn rows(path: &Path) -> u64 {
    let db = Db::builder().max_memory(32 << 20).open(path).unwrap();
    db.existing_table(MEMBERS).map_or(0, |table| table.len())
}

/// Commands of one client, beside the same ones on a vector of bytes.
#[test]
fn changes_of_parts_are_those_of_the_whole() {
    let server = Fixture::new();
    for (bytes, packed) in [(200_usize, "3"), (9000, "300"), (60_000, "1800")] {
        let mut client = server.client();
        client.check(&[(&format!("CONFIG SET packed-bytes-max {packed}"), "+OK")]);
        let mut random = fastrand::Rng::with_seed(bytes as u64);
        let mut string: Vec<u8> = Vec::new();
        client.run("DEL k");
        for _ in 0..1500 {
            let offset = random.usize(..bytes);
            let new = vec![random.u8(b'a'..=b'z'); random.usize(1..bytes / 10)];
            let text = String::from_utf8(new.clone()).unwrap();
            let at = offset.to_string();
            let reply = match random.u8(..6) {
                0 if string.len() + new.len() < 2 * bytes => {
                    string.extend(&new);
                    client.call(&["APPEND", "k", &text])
                }
                0 | 1 => {
                    let bit = 0x80 >> (offset % 8);
                    string.resize(string.len().max(offset / 8 + 1), 0);
                    let was = string[offset / 8] & bit != 0;
                    string[offset / 8] |= bit;
                    let reply = client.call(&["SETBIT", "k", &at, "1"]);
                    assert_eq!(show(&reply), format!(":{}", i32::from(was)));
                    continue;
                }
                2 => {
                    string.resize(string.len().max(offset + new.len()), 0);
                    string[offset..offset + new.len()].copy_from_slice(&new);
                    client.call(&["SETRANGE", "k", &at, &text])
                }
                3 => {
                    let end = (offset + new.len() - 1).to_string();
                    let part = string.get(offset..).unwrap_or_default();
                    let part = &part[..part.len().min(new.len())];
                    let reply = client.call(&["GETRANGE", "k", &at, &end]);
                    assert_eq!(reply, Answer::Bulk(part.to_vec()));
                    continue;
                }
                // From the second time on it moves the deadline.
                4 => {
                    let reply = client.run("EXPIRE k 10000");
                    assert_eq!(reply, format!(":{}", u8::from(!string.is_empty())));
                    if !string.is_empty() {
                        assert_eq!(get(&mut client, "k"), string);
                    }
                    continue;
                }
                _ => client.call(&["STRLEN", "k"]),
            };
            assert_eq!(show(&reply), format!(":{}", string.len()));
        }
        assert_eq!(get(&mut client, "k"), string);
        let bits: u32 = string.iter().map(|byte| byte.count_ones()).sum();
        client.check(&[("BITCOUNT k", &format!(":{bits}"))]);
    }
}

#[test]
fn strings_in_pieces_are_what_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let text = "0123456789".repeat(10);
    {
        let server = on_disk(directory.path());
        let mut client = client_of(&server);
        client.check(&[
            (&format!("SET k {text}"), "+OK"),
            ("SETRANGE k 50 x", ":100"),
            ("SETBIT zeros 800 0", ":0"),
        ]);
    }
    let server = on_disk(directory.path());
    let mut client = client_of(&server);
    let whole = [&text[..50], "x", &text[51..]].concat();
    let check = |client: &mut Client| {
        client.check(&[
            ("GET k", &format!("\"{whole}\"")),
            ("STRLEN zeros", ":101"),
            ("BITCOUNT zeros", ":0"),
            ("TYPE k", "+string"),
            ("OBJECT ENCODING k", "\"raw\""),
        ]);
    };
    check(&mut client);
    // New ones do not get the ids of those that were there, which may be nothing but zeros.
    client.check(&[
        ("SETRANGE k2 100 abc", ":103"),
        ("SETRANGE k3 30 def", ":33"),
    ]);
    check(&mut client);
}

#[test]
fn what_is_given_up_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = on_disk(directory.path());
        let mut client = client_of(&server);
        for key in [
            "deleted", "set", "ends", "moved", "renamed", "stored", "list",
        ] {
            client.check(&[(&format!("SETRANGE {key} 60 abc"), ":63")]);
        }
        client.check(&[
            ("COPY set copied", ":1"),
            ("DEL deleted", ":1"),
            ("SET set short", "+OK"),
            ("PEXPIRE ends 1", ":1"),
            ("MOVE moved 1", ":1"),
            ("RENAME renamed copied", "+OK"),
            ("BITOP AND stored stored none", ":63"),
            ("GETDEL list", &format!("\"{}abc\"", "\0".repeat(60))),
            ("RPUSH list a", ":1"),
            ("STRLEN copied", ":63"),
            ("EXPIRE copied 1000", ":1"),
            ("PERSIST copied", ":1"),
            ("GETRANGE copied 58 -1", "\"\0\0abc\""),
            ("DEL copied", ":1"),
        ]);
    }
    assert!(rows(directory.path()) > 0);
    all_is_given_back(|| on_disk(directory.path()), || rows(directory.path()));
}

/// A deadline of its own goes with the head, and the cleaner moves its entry.
#[test]
fn deadlines_leave_the_pieces_where_they_are() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    client.check(&[
        ("SETRANGE k 40 abc", ":43"),
        ("PEXPIRE k 300", ":1"),
        ("PEXPIRE k 600000", ":1"),
    ]);
    // The first entry is due now, and the row is written again with another one.
    thread::sleep(Duration::from_millis(1500));
    client.check(&[
        ("GETRANGE k 40 -1", "\"abc\""),
        ("APPEND k def", ":46"),
        ("GETEX k PERSIST", &format!("\"{}abcdef\"", "\0".repeat(40))),
        ("TTL k", ":-1"),
        ("GETRANGE k 39 -1", "\"\0abcdef\""),
    ]);
}

/// All bytes of the string are the same one; each transaction changes them all. Readers meet
/// several in a row, until they compare what they have read with what is there.
#[test]
fn readers_see_one_state() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    client.check(&[
        (&format!("SET k {}", "0".repeat(3000)), "+OK"),
        ("SETRANGE k 5 0", ":3000"),
    ]);
    let write = |from: u32| {
        let mut writer = server.client();
        for n in from..from + 150 {
            // A part is at most half, and so three of them change all.
            let third = (n % 10).to_string().repeat(1000);
            let mut sent = encode(&["MULTI"]);
            for at in ["0", "1000", "2000"] {
                sent.extend(encode(&["SETRANGE", "k", at, &third]));
            }
            sent.extend(encode(&["EXEC"]));
            writer.send(&sent);
            for _ in 0..4 {
                writer.answer();
            }
            assert_eq!(show(&writer.answer()), "[:3000 :3000 :3000]");
        }
    };
    let over = End::default();
    thread::scope(|scope| {
        let bring = over.brought();
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = server.client();
                while !over.is_there() {
                    let whole = get(&mut reader, "k");
                    assert_eq!(whole, vec![whole[0]; 3000]);
                    let part = show(&reader.call(&["GETRANGE", "k", "900", "2100"]));
                    let part = part.trim_matches('"').as_bytes();
                    assert_eq!(part, vec![part[0]; 1201]);
                }
            });
        }
        let writers = [0, 5].map(|from| scope.spawn(move || write(from)));
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        drop(bring);
    });
}

#[test]
fn writers_of_one_string_lose_nothing() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    thread::scope(|scope| {
        for writer in 0..4_usize {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for n in 0..200 {
                    let bit = (n * 4 + writer).to_string();
                    assert_eq!(show(&client.call(&["SETBIT", "bits", &bit, "1"])), ":0");
                    client.call(&["APPEND", "log", &writer.to_string().repeat(5)]);
                }
            });
        }
    });
    client.check(&[("BITCOUNT bits", ":800"), ("STRLEN log", ":4000")]);
    let log = get(&mut client, "log");
    for line in log.chunks(5) {
        assert_eq!(line, [line[0]; 5]);
    }
}

/// The pages of the strings take many times the frames, and one of them becomes too long for
/// pieces.
#[test]
fn strings_are_larger_than_memory() {
    let options = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    let server = Fixture::opened_by(options, open_small);
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(3);
    let mut strings = vec![vec![0_u8; 700_000]; 3];
    for (number, string) in strings.iter_mut().enumerate() {
        let key = format!("bits{number}");
        client.check(&[(&format!("SETBIT {key} 5599999 0"), ":0")]);
        for _ in 0..1000 {
            let bit = random.usize(..5_600_000);
            string[bit / 8] |= 0x80 >> (bit % 8);
            client.run(&format!("SETBIT {key} {bit} 1"));
        }
    }
    for (number, string) in strings.iter().enumerate() {
        assert!(get(&mut client, &format!("bits{number}")) == *string);
    }
    let piece = "p".repeat(50_000);
    let string = &mut strings[0];
    while string.len() < 3_000_000 {
        string.extend(piece.bytes());
        let length = string.len();
        client.check(&[(&format!("APPEND bits0 {piece}"), &format!(":{length}"))]);
    }
    assert!(get(&mut client, "bits0") == *string);
    let found = client.call(&["GETRANGE", "bits0", "699990", "700009"]);
    assert_eq!(found, Answer::Bulk(string[699_990..700_010].to_vec()));
}

/// What a change logs does not depend on the length of the string.
#[test]
fn a_change_writes_little() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_disk(directory.path());
    let mut client = server.client();
    let text = "x".repeat(900_000);
    client.check(&[
        (&format!("SET k {text}"), "+OK"),
        ("SETRANGE k 7 y", ":900000"),
    ]);
    let before = logged(&mut client);
    for n in 0..200_u64 {
        client.run(&format!("SETBIT k {} 1", n * 36_007));
        client.run("APPEND k 0123456789");
    }
    let bytes = (logged(&mut client) - before) / 400;
    // A piece and a head, and what they are called.
    assert!(bytes < 2000, "{bytes} bytes of the log for each change");
}

fn logged(client: &mut Client) -> u64 {
    fields(client, "everything")["log_bytes_total"]
        .parse()
        .unwrap()
}

/// The first one that moves it puts the string where the next ones need not write it.
#[test]
fn a_deadline_that_moves_writes_little() {
    let directory = tempfile::tempdir().unwrap();
    let text = "x".repeat(100_000);
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        client.check(&[
            (&format!("SET k {text} EX 1000"), "+OK"),
            ("EXPIRE k 2000", ":1"),
        ]);
        let before = logged(&mut client);
        for n in 0..100 {
            client.check(&[
                (&format!("EXPIRE k {}", 3000 + n), ":1"),
                (&format!("GETEX k EX {}", 4000 + n), &format!("\"{text}\"")),
            ]);
        }
        let bytes = (logged(&mut client) - before) / 200;
        assert!(bytes < 1000, "{bytes} bytes of the log for each deadline");
        client.check(&[("PERSIST k", ":1"), ("TTL k", ":-1")]);
    }
    assert_eq!(rows(directory.path()), 1);
    let server = on_disk(directory.path());
    let mut client = server.client();
    client.check(&[
        ("GET k", &format!("\"{text}\"")),
        ("TTL k", ":-1"),
        ("DBSIZE", ":1"),
    ]);
}

/// What commands show and make of a string in one piece, and that nothing of it is left.
#[test]
fn a_string_in_one_piece_is_a_string() {
    let directory = tempfile::tempdir().unwrap();
    let text = "0123456789".repeat(300);
    {
        let server = on_disk(directory.path());
        let mut client = server.client();
        for key in ["k", "appended", "cut", "renamed", "set", "ends"] {
            client.check(&[
                (&format!("SET {key} {text} EX 1000"), "+OK"),
                (&format!("EXPIRE {key} 2000"), ":1"),
            ]);
        }
        let whole = format!("\"{text}\"");
        client.check(&[
            ("TYPE k", "+string"),
            ("OBJECT ENCODING k", "\"raw\""),
            ("STRLEN k", ":3000"),
            ("GETRANGE k 2995 -1", "\"56789\""),
            ("GETBIT k 2", ":1"),
            ("BITCOUNT k 0 3", ":12"),
            ("BITPOS k 1", ":2"),
            ("SUBSTR k 10 12", "\"012\""),
            ("MGET k renamed", &format!("[{whole} {whole}]")),
            ("PANDO RANGE [k [k VALUES", &format!("[\"k\" {whole}]")),
            ("COPY k copied", ":1"),
            ("GET copied", &whole),
            (
                "PFCOUNT k",
                "-WRONGTYPE Key is not a valid HyperLogLog string value.",
            ),
            ("APPEND appended abc", ":3003"),
            ("SETRANGE appended 0 abc", ":3003"),
            ("GETRANGE appended 0 4", "\"abc34\""),
            ("SETBIT cut 0 1", ":0"),
            ("BITFIELD cut SET u8 8 65", "[:49]"),
            ("GETRANGE cut 1 3", "\"A23\""),
            ("RENAME renamed other", "+OK"),
            ("GET other", &whole),
            ("SET set short", "+OK"),
            ("TTL appended", ":2000"),
            ("PEXPIRE ends 1", ":1"),
        ]);
        // One that moves again, after its bytes were changed.
        client.check(&[
            ("EXPIRE appended 3000", ":1"),
            ("STRLEN appended", ":3003"),
            ("GETRANGE appended 0 4", "\"abc34\""),
            ("DEL k copied appended cut other", ":5"),
        ]);
    }
    all_is_given_back(|| on_disk(directory.path()), || rows(directory.path()));
}

/// GETs of one pipeline, of strings in their rows and in pieces, of absent keys and of a list.
#[test]
fn pipelines_of_gets_meet_strings_in_one_piece() {
    let server = Fixture::new();
    let mut client = server.client();
    let text = |n: usize| n.to_string().repeat(1000);
    for n in 10..30 {
        client.check(&[(&format!("SET k{n} {} EX 1000", text(n)), "+OK")]);
        if n % 3 == 0 {
            client.check(&[(&format!("EXPIRE k{n} 2000"), ":1")]);
        }
    }
    client.check(&[("RPUSH list a", ":1"), ("SET short value", "+OK")]);
    let mut random = fastrand::Rng::with_seed(5);
    for pieces_only in [true, false, true, false, false] {
        let names: Vec<_> = (0..200)
            .map(|_| match random.u8(..6) {
                _ if pieces_only => format!("k{}", 12 + 3 * random.usize(..6)),
                0 => "short".to_owned(),
                1 => "absent".to_owned(),
                2 if random.u8(..8) == 0 => "list".to_owned(),
                _ => format!("k{}", random.usize(10..30)),
            })
            .collect();
        let requests: Vec<_> = names
            .iter()
            .flat_map(|name| encode(&["GET", name]))
            .collect();
        client.send(&requests);
        for name in &names {
            let answer = client.answer();
            match &name[..] {
                "short" => assert_eq!(answer, Answer::Bulk(b"value".to_vec())),
                "absent" => assert_eq!(answer, Answer::Null),
                "list" => assert!(show(&answer).starts_with("-WRONGTYPE"), "{answer:?}"),
                name => {
                    let n = name[1..].parse().unwrap();
                    assert_eq!(answer, Answer::Bulk(text(n).into_bytes()), "{name}");
                }
            }
        }
    }
}

/// Readers and writers of one key, whose deadline moves all the time.
#[test]
fn readers_see_one_string_while_its_deadline_moves() {
    let server = Fixture::new();
    let text = |n: u8| char::from(b'a' + n % 26).to_string().repeat(5000);
    server
        .client()
        .check(&[(&format!("SET k {}", text(0)), "+OK")]);
    let over = End::default();
    thread::scope(|scope| {
        let _bring = over.brought();
        for _ in 0..2 {
            scope.spawn(|| {
                let _bring = over.brought();
                let mut client = server.client();
                while !over.is_there() {
                    for command in [&["GET", "k"][..], &["GETEX", "k", "EX", "1000"]] {
                        let Answer::Bulk(bytes) = client.call(command) else {
                            panic!("it is a string");
                        };
                        assert_eq!(bytes.len(), 5000);
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    }
                }
            });
        }
        let mut client = server.client();
        for n in 1..=150 {
            client.check(&[
                (&format!("SET k {} EX 500", text(n)), "+OK"),
                ("EXPIRE k 700", ":1"),
                ("EXPIRE k 800", ":1"),
            ]);
        }
    });
}

#[test]
fn ranges_of_keys_show_them() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    client.check(&[
        ("SETRANGE b 30 abc", ":33"),
        ("SET c short", "+OK"),
        (
            "PANDO RANGE - + VALUES TYPE string",
            &format!("[\"b\" \"{}abc\" \"c\" \"short\"]", "\0".repeat(30)),
        ),
        ("SCAN 0 TYPE string", "[\"0\" [\"b\" \"c\"]]"),
    ]);
}

/// A piece that is gone, one that is too long, and one behind the end are found; what can be read
/// is.
#[test]
fn damage_of_pieces_is_found() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = on_disk(directory.path());
        let mut client = client_of(&server);
        client.check(&[
            (&format!("SET k {}", "x".repeat(90)), "+OK"),
            ("SETRANGE k 0 y", ":90"),
        ]);
    }
    let db = open_on_disk(directory.path()).unwrap();
    let members = db.table(MEMBERS).unwrap();
    assert_eq!(check_rows(&db).unwrap().descriptions, [""; 0]);
    let (key, value) = members.iter().next_back().unwrap().unwrap();
    let mut behind = key.clone();
    *behind.last_mut().unwrap() += 1;
    let problem = |what: &str| {
        let report = check_rows(&db).unwrap();
        let all = report.descriptions.join("; ");
        assert!(all.contains(what), "{what}: {all}");
    };
    members.delete(&key).unwrap();
    problem("pieces: 29 rows, and 30 by its head");
    members.put(&behind, &value).unwrap();
    problem("rows at places that it does not have: 1 rows, and 0");
    members.delete(&behind).unwrap();
    members.put(&key, &value).unwrap();
    let mut first = key;
    *first.last_mut().unwrap() = 0;
    members.put(&first, b"four").unwrap();
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
        ("GETRANGE k 3 6", "\"xxxx\""),
        ("STRLEN k", ":90"),
        ("DEL k", ":1"),
    ]);
}

/// A string in one piece is not shown as something else if that is not there, or another one.
#[test]
fn a_single_piece_that_is_not_what_its_head_says_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = on_disk(directory.path());
        server.client().check(&[
            (&format!("SET k {} EX 1000", "x".repeat(5000)), "+OK"),
            ("EXPIRE k 2000", ":1"),
        ]);
    }
    for bytes in [0, 4999, 5001] {
        {
            let db = open_on_disk(directory.path()).unwrap();
            let members = db.table(MEMBERS).unwrap();
            let (key, _) = members.iter().next().unwrap().unwrap();
            members.put(&key, &vec![b'x'; bytes]).unwrap();
            let report = check_rows(&db).unwrap();
            let all = report.descriptions.join("; ");
            let what = "rows at places that it does not have: 1 rows, and 0";
            assert!(all.contains(what), "{bytes}: {all}");
        }
        let mut server = on_disk(directory.path());
        server.is_damaged();
        let mut client = server.client();
        for command in ["GET k", "GETEX k", "APPEND k y"] {
            let reply = client.run(command);
            assert!(
                reply.starts_with("-ERR") && reply.contains("Damaged"),
                "{command} {bytes}: {reply}"
            );
        }
        client.check(&[("STRLEN k", ":5000"), ("EXPIRE k 3000", ":1")]);
    }
}

/// So whoever compares two heads knows whether a piece was changed between them.
#[test]
fn each_change_gives_another_head() {
    let directory = tempfile::tempdir().unwrap();
    let mut heads = Vec::new();
    for command in [
        "SETRANGE k 40 abc",
        "SETRANGE k 40 xyz",
        "SETBIT k 1 1",
        "SETBIT k 1 0",
    ] {
        {
            let server = on_disk(directory.path());
            let reply = client_of(&server).run(command);
            assert!(reply.starts_with(':'), "{reply}");
        }
        let db = open_on_disk(directory.path()).unwrap();
        let head = db.table("db/0/keys").unwrap().get(b"\0k").unwrap().unwrap();
        assert!(!heads.contains(&head), "{command}");
        heads.push(head);
    }
}

#[test]
fn nothing_is_appended_to_what_becomes_pieces() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let zeros = "\0".repeat(40);
    client.call(&["SET", "zeros", &zeros]);
    let append = |client: &mut Client, key| show(&client.call(&["APPEND", key, ""]));
    assert_eq!(append(&mut client, "zeros"), ":40");
    client.check(&[("CONFIG SET packed-bytes-max 0", "+OK")]);
    assert_eq!(append(&mut client, "empty"), ":0");
    client.check(&[
        ("STRLEN zeros", ":40"),
        ("GET empty", "\"\""),
        ("SETBIT zeros 0 1", ":0"),
        ("BITCOUNT zeros", ":1"),
    ]);
    // It changes nothing, and is a change all the same.
    let mut other = server.client();
    client.check(&[("WATCH zeros", "+OK")]);
    assert_eq!(append(&mut other, "zeros"), ":40");
    client.check(&[("MULTI", "+OK"), ("GET zeros", "+QUEUED"), ("EXEC", "nil")]);
}

/// Strings that are much longer together than a command may keep.
#[test]
fn many_strings_are_read_by_one_command() {
    let options = ServerOptions {
        durability: Durability::None,
        ..options()
    };
    let open = |_: &Path| Db::builder().max_memory(64 << 20).open_in_memory();
    let server = Fixture::opened_by(options, open);
    let mut client = server.client();
    let keys: Vec<String> = (0..18).map(|n| format!("bits{n}")).collect();
    let half = "\0".repeat(499_990);
    for key in &keys {
        client.check(&[(&format!("SETBIT {key} 7999999 1"), ":0")]);
        for at in ["0", "499990"] {
            assert_eq!(
                show(&client.call(&["SETRANGE", key, at, &half])),
                ":1000000"
            );
        }
    }
    let of_all = |words: &[&str]| -> Vec<String> {
        let words = words.iter().map(|word| (*word).to_owned());
        words.chain(keys.iter().cloned()).collect()
    };
    let replies = client.call(&of_all(&["BITOP", "OR", "all"]));
    assert_eq!(show(&replies), ":1000000");
    client.check(&[("BITCOUNT all", ":1"), ("DEL all", ":1")]);
    let mut sent = encode(&["MULTI"]);
    for key in &keys {
        sent.extend(encode(&["BITCOUNT", key]));
    }
    sent.extend(encode(&["EXEC"]));
    client.send(&sent);
    for _ in 0..=keys.len() {
        client.answer();
    }
    let ones = vec![":1"; keys.len()].join(" ");
    assert_eq!(show(&client.answer()), format!("[{ones}]"));
}

/// Each would leave the pieces of the other behind.
#[test]
fn transactions_that_cut_one_string_take_turns() {
    let server = Fixture::new();
    let mut client = client_of(&server);
    let mut other = server.client();
    client.check(&[
        (&format!("SET k {}", "0".repeat(40)), "+OK"),
        ("PANDO BEGIN READCOMMITTED", "+OK"),
        ("SETRANGE k 3 1", ":40"),
    ]);
    other.check(&[("PANDO BEGIN READCOMMITTED", "+OK")]);
    other.send(&encode(&["SETRANGE", "k", "30", "2"]));
    thread::sleep(Duration::from_millis(50));
    client.check(&[("PANDO COMMIT", "+OK")]);
    assert_eq!(show(&other.answer()), ":40");
    other.check(&[("PANDO COMMIT", "+OK")]);
    client.check(&[("GETRANGE k 3 3", "\"1\""), ("GETRANGE k 30 30", "\"2\"")]);
}
