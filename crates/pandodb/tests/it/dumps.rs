//! Dumps and what is loaded from them: every kind of table and value, of one moment beside writers,
//! cut off at any byte, and crashes and full disks while one is loaded.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pandodb::device::faulty::{CrashMode, FaultyDevice};
use pandodb::device::{AnyDevice, Device};
use pandodb::{
    Batch, Builder, Compression, Db, DumpReport, Error, Snapshot, TableOptions, VerifyReport,
    weight_byte,
};

use crate::fixture::{NONE, fill, open_on, scattered_key, text_key};
use crate::snapshots::{Model, State, Stop, read_all};

const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];

fn options() -> Builder {
    Db::builder().max_memory(16 << 20).chunk_size(8192)
}

fn dump(snapshot: &Snapshot) -> (Vec<u8>, DumpReport) {
    let mut text = Vec::new();
    let report = snapshot.dump(&mut text, |_, _| ()).unwrap();
    (text, report)
}

fn load(text: &[u8], device: &FaultyDevice) -> Result<DumpReport, Error> {
    DumpReport::load_into(text, device.clone().into(), options())
}

/// Returns what is wrong with a text that is no dump.
fn refusal(text: &[u8]) -> (u64, String) {
    match load(text, &FaultyDevice::new(1)) {
        Err(Error::InvalidDump { line, what }) => (line, what),
        other => panic!("{other:?}"),
    }
}

/// The text without what differs between a store and its copy.
fn rows(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let differs = |line: &str| ["lsn ", "checksum "].iter().any(|of| line.starts_with(of));
    let lines = text.split_inclusive('\n').filter(|line| !differs(line));
    lines.collect::<String>().into_bytes()
}

/// Returns a store with tables of every kind and values of every form.
fn of_every_kind() -> Db {
    let db = options().compression(Compression::Lz4);
    let db = db.open_in_memory().unwrap();
    let plain = db.table("plain\n\ttable, '\u{e9}' \\").unwrap();
    for key in [&b""[..], b"\0", b"a b", b"end 1", b"whole 9", &[0xff; 300]] {
        plain
            .put_with(key, &[key, b"\t\n\\"].concat(), NONE)
            .unwrap();
    }
    plain.put_with(b"nothing", b"", NONE).unwrap();
    for bytes in [2000, 9000, 100_000] {
        let value: Vec<u8> = (0..=255).cycle().take(bytes).collect();
        plain
            .put_with(&text_key(bytes as u32), &value, NONE)
            .unwrap();
    }
    for (name, head) in [("with a head", &b"head\xfe"[..]), ("without", b"")] {
        let mut writer = db.value_writer(100_001).unwrap();
        writer.write(&[7; 100_001]).unwrap();
        let value = writer.finish_with_head(head.to_vec()).unwrap();
        let mut batch = Batch::new();
        batch.put_large(&plain, name.as_bytes(), value);
        db.write(&mut batch, NONE).unwrap();
    }
    let counted = db.table_with("counted", TableOptions::new().counted(true));
    fill(&counted.unwrap(), 0..9000, |number| {
        (scattered_key(number), [b'v'; 20])
    });
    let weighted = db.table_with("weighted", TableOptions::new().weighted(true));
    fill(&weighted.unwrap(), 0..3000, |number| {
        (text_key(number), [weight_byte((number % 50) as u8), 1])
    });
    db.table("empty").unwrap();
    db
}

#[test]
fn tables_and_values_of_every_kind_come_back() {
    let db = of_every_kind();
    let (text, report) = dump(&db.snapshot_settled().unwrap());
    assert!(
        text.iter()
            .all(|byte| matches!(byte, b'\t' | b'\n' | b' '..=b'~'))
    );
    assert_eq!((report.rows(), report.tables.len()), (12_012, 4));
    let device = FaultyDevice::new(1);
    let loaded = load(&text, &device).unwrap();
    assert_eq!(loaded.tables, report.tables);
    assert_eq!(loaded.lsn, report.lsn);
    let stat = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert_eq!(stat.damages, []);
    assert_eq!(stat.stat.compression, Some(Compression::Lz4));
    let copy = open_on(&device, options());
    assert_eq!(copy.hash_key(), db.hash_key());
    assert_eq!(copy.tables(), db.tables());
    let name = &copy.tables()[2];
    let (plain, old) = (copy.table(name).unwrap(), db.table(name).unwrap());
    for (key, head) in [(&b"with a head"[..], &b"head\xfe"[..]), (b"without", b"")] {
        let value = plain.get_reader(key).unwrap().unwrap();
        assert_eq!((value.is_chunked(), value.head()), (true, head));
        let before = read_all(old.get_reader(key).unwrap().unwrap());
        assert_eq!(read_all(value), before);
    }
    for name in ["counted", "weighted"] {
        let (table, before) = (copy.table(name).unwrap(), db.table(name).unwrap());
        assert_eq!(table.count(..).unwrap(), before.count(..).unwrap());
    }
    // The young snapshot of the copy has the same text.
    assert_eq!(rows(&dump(&copy.snapshot().unwrap()).0), rows(&text));
}

/// What a snapshot has, by table and key.
fn content(db: &Db) -> State {
    let entries = |name: &String| {
        let table = db.table(name).unwrap();
        table.iter().map(Result::unwrap).collect::<BTreeMap<_, _>>()
    };
    let tables = db.tables();
    let named = tables.iter().map(|name| (name.clone(), entries(name)));
    named.collect()
}

#[test]
fn dumps_of_old_snapshots_beside_changes_of_tables_have_their_moment() {
    for seed in 0..3 {
        let device = FaultyDevice::new(seed);
        let options = options().max_memory(64 << 20).frames(256);
        let options = options.chunk_values_over(16 << 10);
        let mut model = Model::of(open_on(&device, options), seed);
        let mut open: Vec<(Snapshot, State)> = Vec::new();
        for step in 0..900 {
            model.change();
            if step % 150 == 10 {
                let db = &model.db;
                let snapshot = match step % 300 {
                    10 => db.snapshot().unwrap(),
                    _ => db.snapshot_settled().unwrap(),
                };
                open.push((snapshot, model.now.clone()));
            }
            if step % 150 == 149 {
                model.db.compact(|_| ControlFlow::Continue(())).unwrap();
            }
        }
        for (snapshot, state) in open {
            let (text, _) = dump(&snapshot);
            let copy = FaultyDevice::new(seed);
            load(&text, &copy).unwrap();
            assert_eq!(
                content(&open_on(&copy, self::options())),
                state,
                "seed {seed}"
            );
        }
    }
}

/// Each batch moves an amount between two accounts.
#[test]
fn a_dump_beside_writers_has_whole_batches() {
    let db = options().open_in_memory().unwrap();
    let tables = [db.table("a").unwrap(), db.table("b").unwrap()];
    for table in &tables {
        fill(table, 0..2000, |number| {
            (text_key(number), 1000_i64.to_be_bytes())
        });
    }
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let text = thread::scope(|scope| {
        let _stop = Stop(&stop);
        for side in 0..2 {
            let (tables, stop, moves, db) = (&tables, &stop, &moves, &db);
            scope.spawn(move || {
                let mut number = side;
                while !stop.load(Ordering::Relaxed) {
                    number = (number * 7 + 10) % 2000 / 2 * 2 + side;
                    let key = text_key(number);
                    let mut batch = Batch::new();
                    for (table, sign) in tables.iter().zip([1, -1]) {
                        let old = table.get(&key).unwrap().unwrap();
                        let old = i64::from_be_bytes(old.try_into().unwrap());
                        batch.put(table, &key, &(old + sign).to_be_bytes());
                    }
                    db.write(&mut batch, NONE).unwrap();
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while moves.load(Ordering::Relaxed) < 500 {
            thread::yield_now();
        }
        dump(&db.snapshot_settled().unwrap()).0
    });
    let device = FaultyDevice::new(1);
    load(&text, &device).unwrap();
    let content = content(&open_on(&device, options()));
    let amount = |value: &[u8]| i64::from_be_bytes(value.try_into().unwrap());
    let mut moved = 0;
    for (key, value) in &content["a"] {
        let (one, other) = (amount(value), amount(&content["b"][key]));
        assert_eq!(one + other, 2000);
        moved += i64::from(one != 1000);
    }
    assert!(moved > 0);
}

/// A small dump with each kind of row.
fn small() -> Vec<u8> {
    let db = options().open_in_memory().unwrap();
    let table = db.table_with("t\t", TableOptions::new().counted(true));
    let table = table.unwrap();
    table.put(b"key\\", b"value\0").unwrap();
    table.put_streamed(b"long", 100, &[b'x'; 100][..]).unwrap();
    let mut writer = db.value_writer(70).unwrap();
    writer.write(&[b'y'; 70]).unwrap();
    let mut batch = Batch::new();
    batch.put_large(
        &table,
        b"longer",
        writer.finish_with_head(b"h".to_vec()).unwrap(),
    );
    db.write(&mut batch, NONE).unwrap();
    db.table("u").unwrap().put(b"", b"").unwrap();
    dump(&db.snapshot().unwrap()).0
}

#[test]
fn a_dump_that_is_cut_off_anywhere_is_refused() {
    let text = small();
    let whole = load(&text, &FaultyDevice::new(1)).unwrap();
    assert_eq!(whole.rows(), 4);
    for end in 0..text.len() {
        let (_, what) = refusal(&text[..end]);
        let begins = end <= b"pando-dump 1".len();
        assert_eq!(begins, what.contains("it is no dump"), "{end}: {what}");
        assert!(begins || what.contains("it ends here"), "{end}: {what}");
    }
    let (_, what) = refusal(&[&text[..], b"\n"].concat());
    assert!(what.contains("more behind the end"), "{what}");
}

#[test]
fn a_dump_in_which_one_bit_is_wrong_is_refused() {
    let text = small();
    for at in 0..text.len() {
        for bit in [0, 1, 5, 7] {
            let mut text = text.clone();
            text[at] ^= 1 << bit;
            let (line, what) = refusal(&text);
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            assert!(line as usize <= lines + 2, "{line} of {lines}: {what}");
        }
    }
}

/// Numbers of lines are told; so is the right checksum, and a table may go without one.
#[test]
fn a_text_that_was_changed_by_hand_is_loaded_when_it_says_so() {
    let text = String::from_utf8(small()).unwrap();
    let (begin, rest) = text.split_once("end 3 ").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    let by_hand = |begin: &str, end: &str| [begin, end, "\n", rest].concat().into_bytes();
    let changed = begin.replace("value", "other");
    let device = FaultyDevice::new(1);
    load(&by_hand(&changed, "end 3"), &device).unwrap();
    let copy = open_on(&device, options());
    let value = copy.table("t\t").unwrap().get(b"key\\").unwrap();
    assert_eq!(value.unwrap(), b"other\0");
    for (begin, end, line, why) in [
        (&changed[..], "end 3 12345678", 12, "was changed"),
        (begin, "end 3 +1", 12, "was changed"),
        (begin, "end 2", 12, "is said to have '2' rows; there are 3"),
        (begin, "end", 12, "is said to have '' rows"),
        (begin, "ende 3", 12, "there is 'ende 3' where a row is"),
        (
            begin,
            "key\\\\\tagain\nend 4",
            13,
            "there are 4, with 3 keys",
        ),
        (begin, "a\tb\tc\td\nend 4", 12, "third field"),
        (begin, "a\tb\t0\t\nend 4", 12, "third field"),
        (begin, "a\tb\t999999999999\tx\nend 4", 12, "third field"),
        (begin, "a\tb\t2\tx\nend 4", 12, "1 are missing"),
        (begin, "a\tb\t2\txyz\nend 4", 12, "1 are too many"),
        (begin, "a\tb\t2\txy\tz\nend 4", 12, "2 bytes was announced"),
        (begin, "a\\g\tb\nend 4", 12, "behind a backslash"),
    ] {
        let (at, what) = refusal(&by_hand(begin, end));
        assert!(at == line && what.contains(why), "{end}: {at}, {what}");
    }
    for (old, new, why) in [
        ("pando-dump 1", "pando-dump 2", "of version '2'"),
        ("page-size 4096", "page-size 8192", "not"),
        ("table counted", "table round", "neither plain"),
        ("table plain u", "table plain t\\09", "two tables"),
        ("whole 2", "whole 3", "where 'table' begins another"),
    ] {
        let (_, what) = refusal(text.replacen(old, new, 1).as_bytes());
        assert!(what.contains(why), "{new}: {what}");
    }
}

#[test]
fn a_row_that_is_too_long_is_an_error() {
    let text = String::from_utf8(small()).unwrap();
    let with = |row: &str| text.replacen("key\\\\\t", &format!("{row}\nkey\\\\\t"), 1);
    let (_, what) = refusal(with(&"k".repeat(20_000)).as_bytes());
    assert!(what.contains("more than 16384 bytes"), "{what}");
    let key = with(&["k".repeat(2000), "\tv".into()].concat());
    let refused = load(key.as_bytes(), &FaultyDevice::new(1)).unwrap_err();
    assert!(matches!(refused, Error::KeyTooLong { .. }), "{refused}");
    let value = with(&["k\t", &"v".repeat(9 << 20)].concat());
    let (_, what) = refusal(value.as_bytes());
    assert!(what.contains("max_memory"), "{what}");
}

/// Whatever is left behind is no store, or all of it; and loading again makes it whole.
#[test]
fn a_load_that_is_cut_off_leaves_no_store_behind() {
    let db = options().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..600, |number| (text_key(number), [1; 900]));
    table.put(b"long", &[2; 300_000]).unwrap();
    let expected = content(&db);
    let (text, _) = dump(&db.snapshot().unwrap());
    let device = FaultyDevice::new(1);
    load(&text, &device).unwrap();
    let changes = device.changes();
    assert!(changes > 100, "{changes}");
    let mut ends = [0; 3];
    let step = (changes / 150).max(1) as usize;
    let first_and_last = (1..40).chain(changes - 40..changes + 20);
    for at in first_and_last.chain((40..changes - 40).step_by(step)) {
        let device = FaultyDevice::new(at);
        device.crash_at_change(at);
        let has_ended = load(&text, &device).is_ok();
        device.crash_now();
        let device = device.after_crash(at, MODES[at as usize % MODES.len()]);
        let names = device.list().unwrap();
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let is_store = has("superblock") && !has("creating");
        let there = Db::open_device(options(), device.clone().into());
        match there {
            Ok(db) if !is_store && !has_ended => {
                // Nothing of the load is there, and a new store was made.
                assert!(db.tables().is_empty());
                ends[0] += 1;
                continue;
            }
            Ok(db) => {
                assert_eq!(content(&db), expected, "{at}");
                ends[2] += 1;
                continue;
            }
            Err(Error::InvalidOption {
                option: "dir",
                what,
            }) if !has_ended => {
                assert!(what.contains("load it again"), "{at}: {what}");
                ends[1] += 1;
            }
            Err(other) => panic!("{at}: {other}"),
        }
        load(&text, &device).unwrap();
        assert_eq!(content(&open_on(&device, options())), expected, "{at}");
        assert!(!device.list().unwrap().iter().any(|name| name == "loading"));
    }
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
}

#[test]
fn a_full_disk_ends_a_load_and_it_can_be_begun_again() {
    let db = options().open_in_memory().unwrap();
    fill(&db.table("t").unwrap(), 0..9000, |number| {
        (text_key(number), [1; 900])
    });
    let (text, _) = dump(&db.snapshot().unwrap());
    let device = FaultyDevice::new(1);
    device.set_capacity(12 << 20);
    let full = load(&text, &device).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    device.set_capacity(1 << 30);
    let half = Db::open_device(options(), device.clone().into()).unwrap_err();
    assert!(half.to_string().contains("load it again"), "{half}");
    load(&text, &device).unwrap();
    assert_eq!(open_on(&device, options()).table("t").unwrap().len(), 9000);
    let again = load(&text, &device).unwrap_err();
    assert!(
        again.to_string().contains("into an empty directory"),
        "{again}"
    );
}

#[test]
fn a_snapshot_names_its_tables() {
    let db = options().open_in_memory().unwrap();
    for name in ["b", "a"] {
        db.table(name).unwrap();
    }
    let (young, settled) = (db.snapshot().unwrap(), db.snapshot_settled().unwrap());
    db.drop_table("a").unwrap();
    db.table("c").unwrap();
    for snapshot in [young, settled] {
        assert_eq!(snapshot.tables().unwrap(), ["a", "b"]);
    }
    assert_eq!(db.tables(), ["b", "c"]);
}
