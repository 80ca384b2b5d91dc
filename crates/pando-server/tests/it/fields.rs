//! Deadlines of the fields of hashes, small and large ones.

use std::collections::BTreeMap;
use std::path::Path;

use fastrand::Rng;
use pando_sync::thread;
use pando_sync::time::{Duration, unix_ms};
use pandodb::Db;

use crate::client::Client;
use crate::fixture::{Fixture, open_on_disk, options};

/// A time that no test lives to see.
const FAR: u64 = 40_000_000_000_000;

fn on_disk(path: &Path) -> Fixture {
    let path = path.to_owned();
    Fixture::opened_by(options(), move |_| open_on_disk(&path))
}

/// Runs `test` with hashes that stay packed, and with such that become large at once.
fn in_both_forms(test: impl Fn(&mut Client)) {
    for packed in ["1800", "12"] {
        let server = Fixture::new();
        let mut client = server.client();
        let limit = format!("CONFIG SET packed-bytes-max {packed}");
        client.check(&[
            (&limit, "+OK"),
            ("CONFIG SET hash-max-listpack-entries 1", "+OK"),
        ]);
        test(&mut client);
    }
}

/// Sleeps until the clock shows a time after `time`.
fn sleep_until(time: u64) {
    while unix_ms() <= time + 2 {
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn times_are_set_asked_and_removed() {
    in_both_forms(|client| {
        client.check(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HTTL h FIELDS 2 a x", "[:-1 :-2]"),
            ("HTTL none FIELDS 2 a x", "[:-2 :-2]"),
            ("HEXPIRE none 9 FIELDS 2 a x", "[:-2 :-2]"),
            ("HPERSIST none FIELDS 1 a", "[:-2]"),
            ("HEXPIRE h 100 FIELDS 3 a x b", "[:1 :-2 :1]"),
            ("HTTL h FIELDS 3 a b c", "[:100 :100 :-1]"),
            ("HEXPIREAT h 40000000000 FIELDS 1 a", "[:1]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:40000000000]"),
            ("HPEXPIREAT h 40000000000001 FIELDS 1 a", "[:1]"),
            ("HPEXPIRETIME h FIELDS 1 a", "[:40000000000001]"),
            ("HEXPIRETIME h FIELDS 1 a", "[:40000000001]"),
            ("HEXPIRE h 50 NX FIELDS 2 b c", "[:0 :1]"),
            ("HEXPIRE h 50 XX FIELDS 2 b x", "[:1 :-2]"),
            ("HEXPIRE h 40 GT FIELDS 1 b", "[:0]"),
            ("HEXPIRE h 60 GT FIELDS 1 b", "[:1]"),
            ("HEXPIRE h 70 LT FIELDS 1 b", "[:0]"),
            ("HEXPIRE h 30 lt FIELDS 1 b", "[:1]"),
            ("HPERSIST h FIELDS 3 a a x", "[:1 :-1 :-2]"),
            ("HEXPIRE h 30 GT FIELDS 1 a", "[:0]"),
            ("HEXPIRE h 30 LT FIELDS 1 a", "[:1]"),
            // HSET gives a field up, HINCRBY changes its value.
            ("HSET h a 5", ":0"),
            ("HTTL h FIELDS 2 a b", "[:-1 :30]"),
            ("HINCRBY h b 1", ":3"),
            ("HTTL h FIELDS 1 b", "[:30]"),
            ("HPEXPIREAT h 1 FIELDS 2 b b", "[:2 :-2]"),
            ("HEXISTS h b", ":0"),
            ("HLEN h", ":2"),
            ("HEXPIRE h 0 FIELDS 2 a c", "[:2 :2]"),
            ("EXISTS h", ":0"),
        ]);
    });
}

#[test]
fn values_are_read_and_written_with_times() {
    in_both_forms(|client| {
        client.check(&[
            ("HSETEX h EX 100 FIELDS 2 a 1 b 2", ":1"),
            ("HTTL h FIELDS 2 a b", "[:100 :100]"),
            ("HSETEX h FNX FIELDS 2 b 5 c 6", ":0"),
            ("HSETEX h FXX KEEPTTL FIELDS 2 b 5 c 6", ":0"),
            ("HMGET h a b c", "[\"1\" \"2\" nil]"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 b 5", ":1"),
            ("HTTL h FIELDS 1 b", "[:100]"),
            ("HSETEX h FIELDS 1 b 6", ":1"),
            ("HTTL h FIELDS 1 b", "[:-1]"),
            ("HGETEX h FIELDS 3 a x b", "[\"1\" nil \"6\"]"),
            ("HGETEX h PXAT 40000000000000 FIELDS 1 b", "[\"6\"]"),
            ("HPEXPIRETIME h FIELDS 1 b", "[:40000000000000]"),
            ("HGETEX h PERSIST FIELDS 2 a b", "[\"1\" \"6\"]"),
            ("HTTL h FIELDS 2 a b", "[:-1 :-1]"),
            ("HGETEX none EX 9 FIELDS 2 a b", "[nil nil]"),
            ("HSETEX h PXAT 1 FIELDS 1 a 9", ":1"),
            ("HGETEX h EXAT 1 FIELDS 2 a b", "[nil \"6\"]"),
            ("EXISTS h", ":0"),
        ]);
    });
}

#[test]
fn errors_are_those_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let matching = "-ERR The `numfields` parameter must match the number of arguments";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    client.check(&[
        ("SET s 1", "+OK"),
        ("HSET h f 1", ":1"),
        ("HEXPIRE s x FIELDS 1 f", wrong_type),
        ("HTTL s FIELDS 0 f", wrong_type),
        ("HPERSIST s FIELDS 1 f", wrong_type),
        ("HGETEX s FIELDS 1 f", wrong_type),
        ("HSETEX s FIELDS 1 f 1", wrong_type),
        (
            "HEXPIRE h 1 FIELDS 1",
            "-ERR wrong number of arguments for 'hexpire' command",
        ),
        (
            "HEXPIRE h x FIELDS 1 f",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HEXPIRE h -1 FIELDS 1 f",
            "-ERR invalid expire time, must be >= 0",
        ),
        (
            "HEXPIRE h 70368744178 FIELDS 1 f",
            "-ERR invalid expire time in 'hexpire' command",
        ),
        (
            "HPEXPIREAT h 70368744177664 FIELDS 1 f",
            "-ERR invalid expire time in 'hpexpireat' command",
        ),
        ("HPEXPIREAT h 70368744177663 FIELDS 1 f", "[:1]"),
        ("HEXPIRE h 1 WHAT 1 f", missing),
        ("HEXPIRE h 1 NX XX FIELDS 1 f", missing),
        (
            "HEXPIRE h 1 FIELDS 0 f",
            "-ERR Parameter `numFields` should be greater than 0",
        ),
        ("HEXPIRE h 1 FIELDS 2 f", matching),
        ("HTTL h WHAT 1 f", missing),
        (
            "HTTL h FIELDS x f",
            "-ERR Number of fields must be a positive integer",
        ),
        ("HPERSIST h FIELDS 1 f g", matching),
    ]);
}

#[test]
fn errors_of_commands_with_values_are_those_of_redis() {
    let server = Fixture::new();
    let mut client = server.client();
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    client.check(&[
        ("HSET h f 1", ":1"),
        (
            "HGETEX h FIELDS 0 f",
            "-ERR Number of fields must be a positive integer",
        ),
        (
            "HGETEX h FIELDS 2 f",
            "-ERR The `numfields` parameter must match the number of arguments",
        ),
        ("HGETEX h WHAT FIELDS 1 f", missing),
        ("HGETEX h EX 1 PERSIST FIELDS 1 f", missing),
        ("HGETEX h PERSIST EX 1 FIELDS 1 f", missing),
        (
            "HGETEX h EX x FIELDS 1 f",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HSETEX h EX 1 KEEPTTL FIELDS 1 f 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "HSETEX h FXX FNX FIELDS 1 f 1",
            "-ERR Only one of FXX or FNX arguments can be specified",
        ),
        (
            "HSETEX h FIELDS 2 f 1 g",
            "-ERR wrong number of arguments for 'hsetex' command",
        ),
    ]);
}

#[test]
fn a_watched_hash_changes_when_a_field_expires() {
    in_both_forms(|client| {
        let soon = unix_ms() + 400;
        client.check(&[
            ("HSET h a 1 b 2", ":2"),
            (&format!("HPEXPIREAT h {soon} FIELDS 1 a"), "[:1]"),
            ("WATCH h", "+OK"),
        ]);
        sleep_until(soon);
        client.check(&[
            ("MULTI", "+OK"),
            ("HGET h a", "+QUEUED"),
            ("EXEC", "nil"),
            ("HPEXPIRE h 1000000 FIELDS 1 b", "[:1]"),
            ("WATCH h", "+OK"),
            ("HPERSIST h FIELDS 1 b", "[:1]"),
            ("MULTI", "+OK"),
            ("HGET h b", "+QUEUED"),
            ("EXEC", "nil"),
        ]);
    });
}

/// Number of rows of the tables of database 0.
fn rows(path: &Path) -> [u64; 3] {
    let db = Db::builder().max_memory(32 << 20).open(path).unwrap();
    ["keys", "elements", "members"].map(|name| {
        let table = db.existing_table(&format!("db/0/{name}"));
        table.map_or(0, |table| table.len())
    })
}

#[test]
fn restarts_keep_times_and_the_cleaner_leaves_nothing() {
    for packed in ["1800", "12"] {
        let directory = tempfile::tempdir().unwrap();
        let server = on_disk(directory.path());
        let mut client = server.client();
        let limit = format!("CONFIG SET packed-bytes-max {packed}");
        client.check(&[
            (&limit, "+OK"),
            ("CONFIG SET hash-max-listpack-entries 1", "+OK"),
        ]);
        let soon = unix_ms() + 3000;
        let long = "f".repeat(3000);
        let many: Vec<String> = (0..700).map(|n| format!("field{n} v")).collect();
        client.check(&[
            ("HSET h a 1 b 2", ":2"),
            (&format!("HPEXPIREAT h {soon} FIELDS 1 a"), "[:1]"),
            ("HPEXPIREAT h 40000000000000 FIELDS 1 b", "[:1]"),
            (&format!("HSETEX g PXAT {soon} FIELDS 1 {long} 1"), ":1"),
            (
                &format!("HSETEX m PXAT {soon} FIELDS 700 {}", many.join(" ")),
                ":1",
            ),
            ("HSET m lives 1", ":1"),
        ]);
        drop(client);
        drop(server);
        let server = on_disk(directory.path());
        let mut client = server.client();
        client.check(&[
            ("HPEXPIRETIME h FIELDS 2 a b", &format!("[:{soon} :{FAR}]")),
            (
                &format!("HPEXPIRETIME g FIELDS 1 {long}"),
                &format!("[:{soon}]"),
            ),
        ]);
        sleep_until(soon);
        client.check(&[
            ("HLEN h", ":1"),
            ("EXISTS g m", ":1"),
            ("HSCAN g 0", "[\"0\" []]"),
            ("HGETALL m", "[\"lives\" \"1\"]"),
            ("HRANDFIELD h 5", "[\"b\"]"),
        ]);
        // The cleaner removes them by and by.
        let sleeps = if packed == "12" { 3000 } else { 1000 };
        thread::sleep(Duration::from_millis(sleeps));
        client.check(&[("DBSIZE", ":2"), ("HLEN m", ":1")]);
        drop(client);
        drop(server);
        // Of b its row and that of its deadline, and the one that lives among many.
        let members = if packed == "12" { 3 } else { 1 };
        assert_eq!(rows(directory.path()), [2, 1, members]);
        let server = on_disk(directory.path());
        let mut client = server.client();
        client.check(&[("DEL h m", ":2")]);
        thread::sleep(Duration::from_millis(sleeps));
        drop(client);
        drop(server);
        assert_eq!(rows(directory.path()), [0, 0, 0]);
    }
}

/// A hash as the model has it: value and deadline of each field.
type Hash = BTreeMap<String, (i64, Option<u64>)>;

/// What a random command is about.
struct Draw {
    key: &'static str,
    other: &'static str,
    field: &'static str,
    condition: &'static str,
    time: u64,
    number: i64,
}

fn integer(of: bool) -> String {
    format!(":{}", i32::from(of))
}

/// What the server should have.
#[derive(Default)]
struct Model {
    keys: BTreeMap<String, Hash>,
}

impl Model {
    fn expire(&mut self, now_ms: u64) {
        for hash in self.keys.values_mut() {
            hash.retain(|_, (_, deadline)| deadline.is_none_or(|of| of > now_ms));
        }
        self.keys.retain(|_, hash| !hash.is_empty());
    }

    /// Sets the deadline of a field; a past one deletes it. Returns the code of HEXPIRE.
    fn set_time(&mut self, key: &str, field: &str, (condition, time): (&str, u64)) -> i64 {
        let Some((_, old)) = self.keys.get_mut(key).and_then(|hash| hash.get_mut(field)) else {
            return -2;
        };
        let allowed = match condition {
            "NX" => old.is_none(),
            "XX" => old.is_some(),
            "GT" => old.is_some_and(|old| time > old),
            "LT" => old.is_none_or(|old| time < old),
            _ => true,
        };
        if !allowed {
            return 0;
        }
        *old = Some(time);
        self.expire(1);
        if time <= 1 { 2 } else { 1 }
    }

    /// Returns a random command and its reply; `soon` is a time that is not reached yet.
    fn step(&mut self, random: &mut Rng, soon: u64) -> (String, String) {
        let mut any = |of: &[&'static str]| of[random.usize(..of.len())];
        let (key, other) = (any(&["a", "b", "c"]), any(&["a", "b", "c"]));
        let draw = Draw {
            key,
            other,
            field: any(&["f", "g", "h", "i", "j", "k", "l", "m"]),
            condition: any(&["", "", "NX", "XX", "GT", "LT"]),
            time: [soon, soon, soon + 1, FAR, FAR + 1, 1][random.usize(..6)],
            number: random.i64(0..100),
        };
        match random.u8(..14) {
            kind @ 0..=5 => self.plain(kind, &draw),
            kind => self.timed(kind, &draw),
        }
    }

    fn set(&mut self, draw: &Draw, value: i64, deadline: Option<u64>) {
        let hash = self.keys.entry(draw.key.to_owned()).or_default();
        hash.insert(draw.field.to_owned(), (value, deadline));
        self.expire(1);
    }

    fn old(&self, draw: &Draw) -> Option<(i64, Option<u64>)> {
        self.keys.get(draw.key)?.get(draw.field).copied()
    }

    /// A command that knows nothing of deadlines.
    fn plain(&mut self, kind: u8, draw: &Draw) -> (String, String) {
        let Draw {
            key, field, number, ..
        } = draw;
        let old = self.old(draw);
        match kind {
            0..=2 => {
                self.set(draw, *number, None);
                let command = format!("HSET {key} {field} {number}");
                (command, integer(old.is_none()))
            }
            3 => {
                if old.is_none() {
                    self.set(draw, *number, None);
                }
                let command = format!("HSETNX {key} {field} {number}");
                (command, integer(old.is_none()))
            }
            4 => {
                let (before, deadline) = old.unwrap_or_default();
                self.set(draw, before + number, deadline);
                let reply = format!(":{}", before + number);
                (format!("HINCRBY {key} {field} {number}"), reply)
            }
            _ => {
                self.set(draw, 0, Some(1));
                (format!("HDEL {key} {field}"), integer(old.is_some()))
            }
        }
    }

    /// A command that sets, keeps or carries deadlines.
    fn timed(&mut self, kind: u8, draw: &Draw) -> (String, String) {
        let Draw {
            key,
            other,
            field,
            condition,
            time,
            ..
        } = draw;
        let old = self.old(draw);
        let hash = self.keys.get(*key).cloned().unwrap_or_default();
        match kind {
            6..=8 => {
                let code = self.set_time(key, field, (condition, *time));
                let command = format!("HPEXPIREAT {key} {time} {condition} FIELDS 1 {field}");
                (command, format!("[:{code}]"))
            }
            9 => {
                let code = match old {
                    None => -2,
                    Some((_, None)) => -1,
                    Some((value, Some(_))) => {
                        self.set(draw, value, None);
                        1
                    }
                };
                let command = format!("HPERSIST {key} FIELDS 1 {field}");
                (command, format!("[:{code}]"))
            }
            10 => {
                let _code = self.set_time(key, field, ("", *time));
                let value = old.map_or_else(|| "nil".to_owned(), |(of, _)| format!("\"{of}\""));
                let command = format!("HGETEX {key} PXAT {time} FIELDS 1 {field}");
                (command, format!("[{value}]"))
            }
            11 => self.set_with_time(draw),
            12 if !hash.is_empty() && key != other => {
                self.keys.insert((*other).to_owned(), hash);
                (format!("COPY {key} {other} REPLACE"), integer(true))
            }
            13 if !hash.is_empty() && key != other => {
                self.keys.remove(*key);
                self.keys.insert((*other).to_owned(), hash);
                (format!("RENAME {key} {other}"), "+OK".to_owned())
            }
            _ => (format!("HLEN {key}"), format!(":{}", hash.len())),
        }
    }

    fn set_with_time(&mut self, draw: &Draw) -> (String, String) {
        let Draw {
            key,
            field,
            time,
            number,
            ..
        } = draw;
        let old = self.old(draw);
        let (option, deadline) = match number % 3 {
            0 => ("KEEPTTL".to_owned(), old.and_then(|(_, deadline)| deadline)),
            1 => (format!("PXAT {time}"), Some(*time)),
            _ => (String::new(), None),
        };
        let (check, goes) = match number % 4 {
            0 => ("FXX", old.is_some()),
            1 => ("FNX", old.is_none()),
            _ => ("", true),
        };
        if goes {
            self.set(draw, *number, deadline);
        }
        let command = format!("HSETEX {key} {check} {option} FIELDS 1 {field} {number}");
        (command, integer(goes))
    }

    fn check(&self, client: &mut Client) {
        for key in ["a", "b", "c"] {
            let hash = self.keys.get(key).cloned().unwrap_or_default();
            let sorted = |text: &str| {
                let text = text.trim_start_matches('[').trim_end_matches(']');
                let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                words.sort();
                words
            };
            let mut names: Vec<String> = hash.keys().map(|field| format!("\"{field}\"")).collect();
            names.sort();
            let length = format!(":{}", hash.len());
            assert_eq!(client.run(&format!("HLEN {key}")), length);
            assert_eq!(sorted(&client.run(&format!("HKEYS {key}"))), names);
            assert_eq!(sorted(&client.run(&format!("HRANDFIELD {key} 99"))), names);
            let exists = format!(":{}", i32::from(!hash.is_empty()));
            assert_eq!(client.run(&format!("EXISTS {key}")), exists);
            for field in ["f", "g", "h", "i", "j", "k", "l", "m"] {
                let found = hash.get(field);
                let time = found.map_or(-2, |(_, of)| of.map_or(-1, |of| of.cast_signed()));
                let value =
                    found.map_or_else(|| "nil".to_owned(), |(value, _)| format!("\"{value}\""));
                client.check(&[
                    (
                        &format!("HPEXPIRETIME {key} FIELDS 1 {field}"),
                        &format!("[:{time}]"),
                    ),
                    (&format!("HGET {key} {field}"), &value),
                ]);
            }
        }
    }
}

/// Random commands before a time that fields expire at, and a look behind it. Some commands are in
/// transactions; the cleaner runs beside them.
#[test]
fn random_commands_are_those_of_a_model() {
    let seed = Rng::new().u64(..);
    println!("seed {seed}");
    in_both_forms(|client| {
        let mut random = Rng::with_seed(seed);
        let mut model = Model::default();
        for _ in 0..16 {
            let soon = unix_ms() + 800;
            for _ in 0..random.usize(1..20) {
                if unix_ms() + 600 > soon {
                    break;
                }
                if random.u8(..4) > 0 {
                    let (command, reply) = model.step(&mut random, soon);
                    assert_eq!(client.run(&command), reply, "{command}");
                    continue;
                }
                assert_eq!(client.run("MULTI"), "+OK");
                let mut replies = Vec::new();
                for _ in 0..random.usize(1..6) {
                    let (command, reply) = model.step(&mut random, soon);
                    assert_eq!(client.run(&command), "+QUEUED", "{command}");
                    replies.push(reply);
                }
                assert_eq!(client.run("EXEC"), format!("[{}]", replies.join(" ")));
            }
            if unix_ms() + 600 < soon {
                model.check(client);
            }
            assert!(unix_ms() < soon, "the machine is too slow for this test");
            sleep_until(soon);
            model.expire(soon + 2);
            model.check(client);
        }
    });
}
