//! Dumps that an open store writes to a file of its directory: of one moment beside writers, whole
//! or not there whatever happens meanwhile, and never in the way of the store.

use std::fs;
use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{Duration, now};
use pandodb::device::Device;
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::{Batch, Builder, Db, DumpFile, DumpProgress, DumpReport, Error, Table};

use crate::fixture::{NONE, fill, open_on, text_key};
use crate::snapshots::Stop;

const HALF: &str = "store.dump.half";
const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];

fn options() -> Builder {
    Db::builder().max_memory(16 << 20)
}

fn go_on(_: DumpProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Returns a store with so many rows of a kilobyte.
fn store_with(rows: u32, device: &FaultyDevice) -> (Db, Table) {
    let db = open_on(device, options());
    let table = db.table("t").unwrap();
    fill(&table, 0..rows, |number| (text_key(number), [b'v'; 1000]));
    (db, table)
}

/// Returns the store that the dump on `device` makes.
fn loaded(device: &FaultyDevice) -> (Db, DumpReport) {
    let text = device.snapshot_file(DumpFile::NAME);
    let copy = FaultyDevice::new(1);
    let report = DumpReport::load_into(&text[..], copy.clone().into(), options()).unwrap();
    (open_on(&copy, options()), report)
}

/// The value of one row, by which dumps of this file differ.
fn mark_of(device: &FaultyDevice) -> Vec<u8> {
    let (copy, _) = loaded(device);
    copy.table("t").unwrap().get(b"mark").unwrap().unwrap()
}

#[track_caller]
fn check_no_half(device: &FaultyDevice) {
    let names = device.list().unwrap();
    assert!(!names.iter().any(|name| name == HALF), "{names:?}");
}

/// Each batch moves an amount between two rows, and dumps follow each other.
#[test]
fn dumps_beside_writers_have_whole_batches() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(2000, &device);
    fill(&table, 0..2000, |number| {
        (text_key(number), 1000_i64.to_be_bytes())
    });
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let amount = |table: &Table, number| {
        let value = table.get(&text_key(number)).unwrap().unwrap();
        i64::from_be_bytes(value.try_into().unwrap())
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for side in 0..2 {
            let (table, stop, moves, db) = (&table, &stop, &moves, &db);
            scope.spawn(move || {
                let mut number = side;
                while !stop.load(Ordering::Relaxed) {
                    number = (number * 7 + 10) % 1000 / 2 * 2 + side;
                    let mut batch = Batch::new();
                    for (number, sign) in [(number, 1), (number + 1000, -1)] {
                        let new = amount(table, number) + sign;
                        batch.put(table, &text_key(number), &new.to_be_bytes());
                    }
                    db.write(&mut batch, NONE).unwrap();
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut seen = 0;
        for _ in 0..3 {
            let begin = moves.load(Ordering::Relaxed);
            while moves.load(Ordering::Relaxed) < begin + 300 {
                thread::yield_now();
            }
            let written = db.dump_to_file(go_on).unwrap().unwrap();
            let (copy, report) = loaded(&device);
            assert_eq!(written.report, report);
            let len = device.snapshot_file(DumpFile::NAME).len() as u64;
            assert_eq!(written.bytes, len);
            let copy = copy.table("t").unwrap();
            let mut moved = 0;
            for number in 0..1000 {
                let one = amount(&copy, number);
                assert_eq!(one + amount(&copy, number + 1000), 2000);
                moved += (one - 1000).unsigned_abs();
            }
            assert!(moved > seen, "each dump is of a later moment");
            seen = moved;
        }
    });
    check_no_half(&device);
}

/// Whatever a crash leaves: under its name there is the dump from before, or the new one.
#[test]
fn a_crash_leaves_the_dump_from_before_or_the_new_one() {
    let old_and_new = |device: &FaultyDevice| {
        let (db, table) = store_with(600, device);
        table.put(b"mark", b"old").unwrap();
        db.dump_to_file(go_on).unwrap().unwrap();
        table.put(b"mark", b"new").unwrap();
        (db, device.changes())
    };
    // Threads of the engine change something, too: how often is another number each time.
    let (mut at, mut ends, mut seen) = (0, 0, [0; 2]);
    while ends < 4 {
        at += 1;
        let device = FaultyDevice::new(at);
        let (db, begin) = old_and_new(&device);
        device.crash_at_change(begin + at);
        let has_ended = matches!(db.dump_to_file(go_on), Ok(Some(_)));
        ends += u64::from(has_ended);
        device.crash_now();
        drop(db);
        let device = device.after_crash(at, MODES[at as usize % MODES.len()]);
        let mark = mark_of(&device);
        assert!(
            mark == b"new" || mark == b"old" && !has_ended,
            "{at}: {mark:?}"
        );
        seen[usize::from(mark == b"new")] += 1;
        let db = open_on(&device, options());
        check_no_half(&device);
        assert_eq!(mark_of(&device), mark, "the opening leaves it alone");
        assert_eq!(
            db.table("t").unwrap().get(b"mark").unwrap().unwrap(),
            b"new"
        );
        db.dump_to_file(go_on).unwrap().unwrap();
        assert_eq!(mark_of(&device), b"new");
    }
    assert!(
        at > 15 && seen.iter().all(|count| *count > 0),
        "{at}: {seen:?}"
    );
}

/// A process that was killed leaves a half dump, which takes the room that an opening needs.
#[test]
fn the_next_opening_removes_a_half_dump_before_it_needs_room() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(2000, &device);
    let mut half = None;
    let stopped = db.dump_to_file(|progress| match progress.bytes > 1 << 20 {
        false => ControlFlow::Continue(()),
        true => {
            table.put(b"mark", &[b'm'; 1000]).unwrap();
            half = Some(device.after_exit(1));
            ControlFlow::Break(())
        }
    });
    assert_eq!(stopped.unwrap(), None);
    drop((db, table));
    let device = half.unwrap();
    assert!(device.snapshot_file(HALF).len() > 1 << 20);
    let used = (1 << 30) - device.free_bytes().unwrap();
    device.set_capacity(used);
    let db = open_on(&device, options());
    check_no_half(&device);
    let table = db.table("t").unwrap();
    assert_eq!(table.len(), 2001);
    fill(&table, 0..100, |number| (text_key(number), [b'w'; 1000]));
}

/// At each piece.
#[test]
fn a_dump_that_is_told_to_stop_leaves_nothing() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(3000, &device);
    table.put(b"mark", b"old").unwrap();
    let mut pieces = 0;
    let mut shares = Vec::new();
    let count = |progress: DumpProgress| {
        pieces += 1;
        shares.push(progress.share);
        ControlFlow::Continue(())
    };
    db.dump_to_file(count).unwrap().unwrap();
    assert!(pieces > 10, "{pieces}");
    assert!(shares.is_sorted() && shares[0] == 0.0 && *shares.last().unwrap() > 0.9);
    table.put(b"mark", b"new").unwrap();
    for last in 1..=pieces {
        let mut piece = 0;
        let stop = |_: DumpProgress| {
            piece += 1;
            match piece < last {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        assert_eq!(db.dump_to_file(stop).unwrap(), None);
        check_no_half(&device);
        assert_eq!(mark_of(&device), b"old", "{last}");
    }
}

/// It ends by itself, before the store lacks anything.
#[test]
fn a_dump_gives_way_before_the_disk_is_full() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(4000, &device);
    table.put(b"mark", b"old").unwrap();
    db.checkpoint().unwrap();
    let used = (1 << 30) - device.free_bytes().unwrap();
    device.set_capacity(used + (4 << 20));
    let full = db.dump_to_file(go_on).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    let text = full.to_string();
    assert!(
        text.contains("gives way") && text.contains("make room"),
        "{text}"
    );
    check_no_half(&device);
    assert_eq!(device.snapshot_file(DumpFile::NAME), b"");
    fill(&table, 0..500, |number| (text_key(number), [b'w'; 1000]));
    device.set_capacity(1 << 30);
    db.dump_to_file(go_on).unwrap().unwrap();
    assert_eq!(mark_of(&device), b"old");
}

/// Somebody writes until the disk is full, while the dump is half written. What it took is the
/// store's again when it has ended.
#[test]
fn a_disk_that_writers_fill_ends_a_dump_and_they_go_on() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(4000, &device);
    db.checkpoint().unwrap();
    let used = (1 << 30) - device.free_bytes().unwrap();
    device.set_capacity(used + (24 << 20));
    let mut next = 10_000;
    let mut put = || {
        next += 1;
        table.put(&text_key(next), &[b'n'; 1000])
    };
    let mut has_filled = false;
    let refused = db.dump_to_file(|progress| {
        if progress.bytes > 1 << 20 && !has_filled {
            has_filled = true;
            while put().is_ok() {}
        }
        ControlFlow::Continue(())
    });
    let refused = refused.unwrap_err();
    assert!(
        has_filled && matches!(refused, Error::Full { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("make room"), "{refused}");
    check_no_half(&device);
    // Nothing was done but that it has ended; the disk may have to be asked again, and what commits
    // have replaced meanwhile comes with a checkpoint.
    let began = now();
    for _ in 0..100 {
        while let Err(error) = put() {
            assert!(began.elapsed() < Duration::from_secs(60), "{error}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What fails says so, and leaves what is there.
#[test]
fn a_file_that_cannot_be_written_leaves_the_dump_from_before() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(6000, &device);
    table.put(b"mark", b"old").unwrap();
    db.dump_to_file(go_on).unwrap().unwrap();
    table.put(b"mark", b"new").unwrap();
    for (operation, nth, fault, why) in [
        (
            Operation::Open,
            2,
            Fault::Denied,
            "making the file of a dump",
        ),
        (
            Operation::Write,
            3,
            Fault::Io,
            "writing a dump: cannot write",
        ),
        (Operation::Write, 3, Fault::Full, "no room for writes"),
        (Operation::Sync, 1, Fault::Io, "syncing a dump"),
        (Operation::Sync, 2, Fault::Io, "syncing a dump"),
        (
            Operation::Rename,
            1,
            Fault::Io,
            "cannot rename store.dump.half",
        ),
    ] {
        let name = DumpFile::NAME;
        device.fail(FaultPlan::once(operation, name, nth, fault));
        let error = db.dump_to_file(go_on).unwrap_err();
        assert!(error.to_string().contains(why), "{operation:?}: {error}");
        device.clear_faults();
        check_no_half(&device);
        assert_eq!(mark_of(&device), b"old", "{operation:?}");
        table.put(b"other", b"value").unwrap();
    }
    db.dump_to_file(go_on).unwrap().unwrap();
    assert_eq!(mark_of(&device), b"new");
}

/// Only so much waits in the page cache that a sync of the log does not wait for long.
#[test]
fn what_is_not_on_disk_of_a_dump_is_bounded() {
    let device = FaultyDevice::new(1);
    let (db, _table) = store_with(20_000, &device);
    let mut most = 0;
    let look = |progress: DumpProgress| {
        let durable = device.durable_file(HALF).len() as u64;
        most = most.max(progress.bytes - durable);
        ControlFlow::Continue(())
    };
    let written = db.dump_to_file(look).unwrap().unwrap();
    assert!(written.bytes > 16 << 20);
    assert!(most > 0 && most < 5 << 20, "{most}");
}

#[test]
fn one_dump_at_a_time_and_none_of_a_store_that_closes() {
    let device = FaultyDevice::new(1);
    let (db, table) = store_with(2000, &device);
    let mut again = Vec::new();
    let nested = |_: DumpProgress| {
        again.push(db.dump_to_file(go_on));
        ControlFlow::Continue(())
    };
    db.dump_to_file(nested).unwrap().unwrap();
    for result in again {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    table.put(b"mark", b"new").unwrap();
    let mut other = Some(db.clone());
    let closed = db.dump_to_file(|_| {
        if let Some(other) = other.take() {
            other.close().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(closed.unwrap_err().to_string(), Error::Closed.to_string());
    check_no_half(&device);
    let (copy, _) = loaded(&device);
    assert_eq!(copy.table("t").unwrap().get(b"mark").unwrap(), None);
}

/// A dump may lie in the directory, half or whole, and nothing else may.
#[test]
fn a_store_is_made_and_loaded_beside_a_dump() {
    let directory = tempfile::tempdir().unwrap();
    let (first, path) = (
        directory.path().join("first"),
        directory.path().join("next"),
    );
    let db = options().open(&first).unwrap();
    db.table("t").unwrap().put(b"key", b"value").unwrap();
    db.dump_to_file(go_on).unwrap().unwrap();
    db.close().unwrap();
    fs::create_dir(&path).unwrap();
    fs::copy(first.join(DumpFile::NAME), path.join(DumpFile::NAME)).unwrap();
    fs::write(path.join(HALF), "pando-du").unwrap();
    let text = fs::File::open(path.join(DumpFile::NAME)).unwrap();
    pandodb::load_dump(text, &path, options(), |_, _| ()).unwrap();
    let db = options().open(&path).unwrap();
    assert!(!path.join(HALF).exists());
    let table = db.table("t").unwrap();
    assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
    db.close().unwrap();
    let text = fs::read(path.join(DumpFile::NAME)).unwrap();
    fs::remove_dir_all(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join(DumpFile::NAME), &text).unwrap();
    let db = options().open(&path).unwrap();
    assert!(db.tables().is_empty());
    assert_eq!(fs::read(path.join(DumpFile::NAME)).unwrap(), text);
    let missing = options().open_existing(directory.path()).unwrap_err();
    assert!(matches!(missing, Error::InvalidOption { .. }), "{missing}");
}

/// It is told before all is written.
#[test]
fn a_directory_in_the_way_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = options().open(path).unwrap();
    db.table("t").unwrap().put(b"key", b"value").unwrap();
    for name in [DumpFile::NAME, HALF] {
        fs::create_dir(path.join(name)).unwrap();
        let mut pieces = 0;
        let count = |_: DumpProgress| {
            pieces += 1;
            ControlFlow::Continue(())
        };
        let error = db.dump_to_file(count).unwrap_err().to_string();
        let names_it = error.contains(&format!("{name}:"));
        assert!(names_it && error.contains("move it away"), "{error}");
        assert_eq!(pieces, 0);
        fs::remove_dir(path.join(name)).unwrap();
    }
    db.dump_to_file(go_on).unwrap().unwrap();
    assert!(path.join(DumpFile::NAME).is_file());
}
