//! PANDO DUMP: the whole store as of one moment, beside clients that go on, and never in their way.

use std::collections::BTreeMap;

use pando_resp::Answer;
use pando_server::Durability;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now, unix_ms};
use pandodb::device::Device;
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::{Db, DumpFile, DumpReport};

use crate::client::{Client, encode, show};
use crate::failures::{key, send_sets, serve, value};
use crate::fixture::{Fixture, options};
use crate::statistics::fields;

const HALF: &str = "store.dump.half";
const STARTED: (&str, &str) = ("PANDO DUMP", "+Background dump started");

fn info(client: &mut Client) -> BTreeMap<String, String> {
    let all = fields(client, "persistence");
    let of_dump = all.into_iter();
    of_dump
        .filter(|(name, _)| name.starts_with("dump_"))
        .collect()
}

/// Waits for the end of the dump that runs; returns what INFO tells of it.
fn ended(client: &mut Client) -> BTreeMap<String, String> {
    let began = now();
    loop {
        let told = info(client);
        if told["dump_in_progress"] == "0" {
            return told;
        }
        let percent = told.get("dump_percent");
        assert!(percent.is_none_or(|percent| percent.parse::<u32>().unwrap() <= 100));
        assert!(began.elapsed() < Duration::from_secs(120), "{told:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Dumps, and returns a server of a store that was loaded from it.
fn dump_and_serve(client: &mut Client, device: &FaultyDevice) -> Fixture {
    client.check(&[STARTED]);
    let told = ended(client);
    assert_eq!(told["dump_last_status"], "ok", "{told:?}");
    serve_dump(device)
}

fn serve_dump(device: &FaultyDevice) -> Fixture {
    let text = device.snapshot_file(DumpFile::NAME);
    Fixture::opened_by(options(), move |_| {
        let copy = FaultyDevice::new(1);
        let builder = || Db::builder().max_memory(32 << 20);
        DumpReport::load_into(&text[..], copy.clone().into(), builder())?;
        Db::open_device(builder(), copy.into())
    })
}

/// Each write of the file takes a while, in which the thread yields so often.
fn slow_down(device: &FaultyDevice, yields: u32) {
    let slow = Fault::Yield(yields);
    device.fail(FaultPlan::sticky(Operation::Write, "store.dump", 1, slow));
}

#[track_caller]
fn check_no_half(device: &FaultyDevice) {
    let names = device.list().unwrap();
    assert!(!names.iter().any(|name| name == HALF), "{names:?}");
}

fn put(client: &mut Client, numbers: std::ops::Range<usize>) {
    for _ in 0..send_sets(client, numbers) {
        assert_eq!(show(&client.answer()), "+OK");
    }
}

const ACCOUNTS: usize = 300;

/// Moves money between strings, and between them and fields of a large hash.
fn move_money(client: &mut Client, side: usize, stop: &AtomicBool, moves: &AtomicU64) {
    let mut turn = side;
    while !stop.load(Ordering::Relaxed) {
        turn = (turn * 5 + 7 + side) % 10_007;
        let (from, to) = (turn % ACCOUNTS, turn / 3 % ACCOUNTS);
        let amount = (turn % 90).to_string();
        for command in [
            &["MULTI"][..],
            &["DECRBY", &format!("account:{from}"), &amount],
            &["HINCRBY", "bank", &format!("field:{to}"), &amount],
            &["INCRBY", &format!("account:{to}"), "3"],
            &["HINCRBY", "bank", &format!("field:{from}"), "-3"],
            &["EXEC"],
        ] {
            let reply = client.call(command);
            assert!(!matches!(reply, Answer::Error(_)), "{reply:?}");
        }
        moves.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the writers, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The money of all, and what has been moved by now, as one number.
fn money(client: &mut Client) -> (i64, i64) {
    let number = |answer: &Answer| match answer {
        Answer::Bulk(bytes) => str::from_utf8(bytes).unwrap().parse::<i64>().unwrap(),
        other => panic!("{other:?}"),
    };
    let Answer::Array(fields) = client.run_raw("HVALS bank") else {
        panic!("no fields");
    };
    let mut all: Vec<i64> = fields.iter().map(number).collect();
    for account in 0..ACCOUNTS {
        all.push(number(&client.run_raw(&format!("GET account:{account}"))));
    }
    let moved = all.iter().map(|of| (of - 1000).abs()).sum();
    (all.iter().sum(), moved)
}

#[test]
fn a_dump_beside_writers_has_whole_transactions() {
    let (server, device) = serve(Durability::Durable, None);
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        client.run(&format!("SET account:{account} 1000"));
        client.run(&format!("HSET bank field:{account} 1000"));
    }
    // So that dumps take a while.
    put(&mut client, 0..3000);
    let (all, _) = money(&mut client);
    assert!(all > 0);
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seen = 0;
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for side in 0..2 {
            let mut client = server.client();
            let (stop, moves) = (&stop, &moves);
            scope.spawn(move || move_money(&mut client, side, stop, moves));
        }
        for _ in 0..3 {
            let begin = moves.load(Ordering::Relaxed);
            let began = now();
            while moves.load(Ordering::Relaxed) < begin + 100 {
                assert!(began.elapsed() < Duration::from_secs(120), "no money moves");
                thread::yield_now();
            }
            let copy = dump_and_serve(&mut client, &device);
            let (sum, moved) = money(&mut copy.client());
            assert_eq!(sum, all);
            assert_ne!(moved, seen, "each dump is of another moment");
            seen = moved;
        }
    });
    assert_eq!(money(&mut client).0, all);
    let begin = moves.load(Ordering::Relaxed);
    assert!(begin > 300, "{begin}");
}

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";

/// Puts something of every type, in each of its forms.
fn put_every_type(client: &mut Client) {
    let deadline = (unix_ms() + 10_000_000).to_string();
    let long = "x".repeat(5 << 20);
    let key = "k".repeat(3000);
    for command in [
        &["SET", "text", "one\r\n\u{e9}"][..],
        &["SET", "soon", "gone", "PXAT", &deadline],
        &["SET", "long", &long],
        &["SETRANGE", "long", "1000000", "patched"],
        &["SET", &key, "of a long key"],
        &["SETBIT", "bits", "100000", "1"],
        &["PFADD", "distinct", "a", "b", "c"],
        &["RPUSH", "list", "a", "b", "c"],
        &["HSET", "hash", "f", "1", "g", "2"],
        &["HPEXPIREAT", "hash", &deadline, "FIELDS", "1", "f"],
        &["SADD", "numbers", "1", "2", "3"],
        &[
            "GEOADD", "places", "13.4", "52.5", "Berlin", "2.35", "48.86", "Paris",
        ],
        &["XADD", "stream", "1-1", "field", "value"],
        &["XADD", "stream", "2-1", "field", "other"],
        &["XADD", "stream", "3-1", "field", "last"],
        &["XDEL", "stream", "2-1"],
        &["XGROUP", "CREATE", "stream", "group", "0"],
        &[
            "XREADGROUP",
            "GROUP",
            "group",
            "me",
            "COUNT",
            "1",
            "STREAMS",
            "stream",
            ">",
        ],
        &["XGROUP", "CREATECONSUMER", "stream", "group", "idle"],
        &["SELECT", "3"],
        &["SET", "elsewhere", "3"],
        &["SELECT", "0"],
    ] {
        let reply = client.call(command);
        assert!(
            !matches!(reply, Answer::Error(_)),
            "{}: {reply:?}",
            command[0]
        );
    }
    put_large(client, &deadline);
    if cfg!(feature = "scripts") {
        assert_eq!(
            show(&client.call(&["FUNCTION", "LOAD", LIBRARY])),
            "\"lib\""
        );
    }
}

/// Puts collections that have rows for their elements; fields of the hash have a deadline.
fn put_large(client: &mut Client, deadline: &str) {
    for number in 0..3000 {
        let element = format!("element {number}");
        let number = number.to_string();
        for command in [
            &["HSET", "large-hash", &element, &number][..],
            &["SADD", "large-set", &element],
            &["ZADD", "large-sorted", &number, &element],
            &["RPUSH", "large-list", &element],
        ] {
            client.send(&encode(command));
        }
    }
    for _ in 0..4 * 3000 {
        assert!(matches!(client.answer(), Answer::Integer(1..)));
    }
    let with_deadlines = ["HPEXPIREAT", "large-hash", deadline, "FIELDS", "2"];
    let fields = ["element 7", "element 2999"];
    let reply = client.call(&[&with_deadlines[..], &fields].concat());
    assert_eq!(show(&reply), "[:1 :1]");
}

/// Commands whose replies tell all that a store has of [`put_every_type`].
const LOOK: [&str; 34] = [
    "DBSIZE",
    "GET text",
    "PEXPIRETIME soon",
    "GET long",
    "GETBIT bits 100000",
    "STRLEN bits",
    "PFCOUNT distinct",
    "LRANGE list 0 -1",
    "HGETALL hash",
    "HPEXPIRETIME hash FIELDS 2 f g",
    "SMEMBERS numbers",
    "GEOPOS places Berlin Paris",
    "GEOSEARCH places FROMMEMBER Paris BYRADIUS 2000 km ASC WITHDIST",
    "XRANGE stream - +",
    "XINFO STREAM stream FULL",
    "XPENDING stream group",
    "HLEN large-hash",
    "HGETALL large-hash",
    "HSCAN large-hash 0 COUNT 10000",
    "SCARD large-set",
    "SMEMBERS large-set",
    "SSCAN large-set 0 COUNT 10000",
    "ZRANGE large-sorted 0 -1 WITHSCORES",
    "ZCOUNT large-sorted 100 200",
    "LRANGE large-list 0 -1",
    "LINDEX large-list 1500",
    "OBJECT ENCODING large-hash",
    "TYPE stream",
    "FUNCTION LIST",
    "FCALL seven 0",
    "PANDO RANGE - + VALUES",
    "SELECT 3",
    "GET elsewhere",
    "SELECT 0",
];

#[test]
fn every_type_comes_back_as_it_was() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    put_every_type(&mut client);
    let copy = dump_and_serve(&mut client, &device);
    // What comes later is not in it.
    client.run("SET text later");
    client.run("SET text one");
    let mut other = copy.client();
    assert_eq!(other.text("GET text"), "one\r\n\u{e9}");
    client.call(&["SET", "text", "one\r\n\u{e9}"]);
    for command in LOOK {
        let (one, same) = (client.run(command), other.run(command));
        assert!(one == same, "{command}:\n{one:.300}\n{same:.300}");
    }
    let long_key = "k".repeat(3000);
    assert_eq!(other.text(&format!("GET {long_key}")), "of a long key");
    let times = [
        "HPEXPIRETIME",
        "large-hash",
        "FIELDS",
        "2",
        "element 7",
        "element 8",
    ];
    let (one, same) = (client.call(&times), other.call(&times));
    assert_eq!(one, same);
    assert!(matches!(&one, Answer::Array(of) if matches!(of[0], Answer::Integer(1..))));
    // They go on apart.
    other.check(&[("XACK stream group 1-1", ":1"), ("LLEN list", ":3")]);
    client.check(&[(
        "XPENDING stream group",
        "[:1 \"1-1\" \"1-1\" [[\"me\" \"1\"]]]",
    )]);
    // The copy can be dumped, too.
    other.check(&[STARTED]);
    assert_eq!(ended(&mut other)["dump_last_status"], "ok");
}

#[test]
fn a_dump_is_told_of_and_can_be_aborted() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    client.check(&[
        ("PANDO DUMP ABORT", "-ERR No dump in progress."),
        ("PANDO DUMP now", "-ERR syntax error"),
        ("PANDO DUMP ABORT now", "-ERR syntax error"),
        ("MULTI", "+OK"),
    ]);
    let refused = client.run("PANDO DUMP");
    assert!(refused.contains("not allowed"), "{refused}");
    client.run("DISCARD");
    let help = client.run("PANDO HELP");
    assert!(help.contains("DUMP [ABORT]"), "{help}");
    let docs = client.run("COMMAND DOCS pando|dump");
    assert!(docs.contains("as of one moment"), "{docs}");
    let told = info(&mut client);
    let none = [("dump_in_progress", "0"), ("dump_last_status", "none")];
    let none = none.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(told, BTreeMap::from(none));
    put(&mut client, 0..6000);
    let begin = unix_ms() / 1000;
    client.check(&[STARTED]);
    let whole = ended(&mut client);
    assert_eq!(whole["dump_last_status"], "ok");
    let number = |name: &str| whole[name].parse::<u64>().unwrap();
    let text = device.snapshot_file(DumpFile::NAME);
    assert_eq!(number("dump_file_bytes"), text.len() as u64);
    assert!(number("dump_file_rows") >= 6000);
    assert!((begin..=number("dump_last_end_time")).contains(&number("dump_file_time")));
    assert!(whole["dump_last_time_sec"].parse::<f64>().unwrap() < 60.0);
    // Of one that is aborted nothing stays, and what was there does.
    slow_down(&device, 30_000);
    client.check(&[("SET later 1", "+OK"), STARTED]);
    let mut percents = Vec::new();
    while device.snapshot_file(HALF).len() < 1 << 20 {
        let told = info(&mut client);
        percents.push(told["dump_percent"].parse::<u32>().unwrap());
        client.check(&[
            ("PANDO DUMP", "-ERR Background dump already in progress"),
            ("SET beside 1", "+OK"),
        ]);
    }
    assert!(percents.is_sorted(), "{percents:?}");
    client.check(&[("PANDO DUMP ABORT", "+OK")]);
    let told = ended(&mut client);
    assert_eq!(told["dump_last_status"], "aborted");
    for name in ["dump_file_time", "dump_file_bytes", "dump_file_rows"] {
        assert_eq!(told[name], whole[name], "{name}");
    }
    check_no_half(&device);
    assert!(device.snapshot_file(DumpFile::NAME) == text);
    client.check(&[("PANDO DUMP ABORT", "-ERR No dump in progress.")]);
    device.clear_faults();
    let copy = dump_and_serve(&mut client, &device);
    copy.client()
        .check(&[("MGET later beside", "[\"1\" \"1\"]")]);
}

/// The server ends it, and does not wait for all of it.
#[test]
fn a_shutdown_ends_a_dump() {
    let (mut server, device) = serve(Durability::None, None);
    let mut client = server.client();
    put(&mut client, 0..6000);
    // All of it would take half a minute, or more.
    slow_down(&device, 400_000);
    client.check(&[STARTED]);
    while device.snapshot_file(HALF).is_empty() {
        thread::yield_now();
    }
    server.handle.shutdown();
    server.join().unwrap();
    check_no_half(&device);
    assert!(device.snapshot_file(DumpFile::NAME).is_empty());
}

fn used(device: &FaultyDevice) -> u64 {
    (1 << 30) - device.free_bytes().unwrap()
}

#[test]
fn a_dump_that_has_no_room_fails_before_clients_do() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    put(&mut client, 0..6000);
    client.check(&[("SAVE", "+OK")]);
    device.set_capacity(used(&device) + (4 << 20));
    client.check(&[STARTED]);
    let told = ended(&mut client);
    assert_eq!(told["dump_last_status"], "err", "{told:?}");
    let error = &told["dump_last_error"];
    assert!(
        error.contains("gives way") && error.contains("make room"),
        "{error}"
    );
    assert!(!told.contains_key("dump_file_bytes"));
    check_no_half(&device);
    put(&mut client, 10_000..10_100);
    device.set_capacity(1 << 30);
    let copy = dump_and_serve(&mut client, &device);
    assert_eq!(
        copy.client().text(&format!("GET {}", key(10_099))),
        value(10_099)
    );
}

/// Clients write until the disk is full; the dump ends, and they go on without a restart.
#[test]
fn clients_that_fill_the_disk_end_a_dump_and_go_on() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    put(&mut client, 0..6000);
    client.check(&[("SAVE", "+OK")]);
    device.set_capacity(used(&device) + (24 << 20));
    slow_down(&device, 100_000);
    client.check(&[STARTED]);
    while device.snapshot_file(HALF).len() < 1 << 20 {
        thread::yield_now();
    }
    let (mut next, mut taken) = (100_000, 0);
    let began = now();
    while info(&mut client)["dump_in_progress"] == "1" {
        assert!(began.elapsed() < Duration::from_secs(240), "{taken}");
        let before = taken;
        for _ in 0..send_sets(&mut client, next..next + 100) {
            taken += usize::from(show(&client.answer()) == "+OK");
        }
        next += 100;
        if taken == before {
            // It is full: what the dump writes at this moment may take its time.
            thread::sleep(Duration::from_millis(5));
        }
    }
    let told = ended(&mut client);
    assert_eq!(told["dump_last_status"], "err", "{told:?}");
    let error = &told["dump_last_error"];
    assert!(error.contains("make room"), "{error}");
    assert!(taken > 1000, "{taken}");
    check_no_half(&device);
    // Room comes with the file, and more with the next checkpoints: what the dump was reading.
    let began = now();
    loop {
        let sent = send_sets(&mut client, 200_000..200_100);
        let done = (0..sent).filter(|_| show(&client.answer()) == "+OK");
        if done.count() == 100 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no room comes");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What cannot be written or read is told, and the server goes on.
#[test]
fn a_dump_that_fails_says_why() {
    let (server, device) = serve(Durability::None, None);
    let mut client = server.client();
    put(&mut client, 0..3000);
    for (operation, why) in [
        (
            Operation::Open,
            "making the file of a dump: cannot open store.dump",
        ),
        (
            Operation::Write,
            "writing a dump: cannot write store.dump.half",
        ),
        (
            Operation::Sync,
            "syncing a dump: cannot sync store.dump.half",
        ),
        (Operation::Rename, "cannot rename store.dump.half"),
    ] {
        device.fail(FaultPlan::sticky(operation, "store.dump", 1, Fault::Io));
        client.check(&[STARTED]);
        let told = ended(&mut client);
        assert_eq!(told["dump_last_status"], "err", "{told:?}");
        let error = &told["dump_last_error"];
        assert!(error.contains(why), "{error}");
        device.clear_faults();
        check_no_half(&device);
        client.check(&[("SET a 1", "+OK")]);
    }
    let copy = dump_and_serve(&mut client, &device);
    copy.client().check(&[("DBSIZE", ":3001")]);
}
