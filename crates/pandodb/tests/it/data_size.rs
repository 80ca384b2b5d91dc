//! The data file does not run ahead of what it holds (decision 082).

use std::ops::ControlFlow;

use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::device::{AnyDevice, Device, File, MemoryDevice, OpenOptions};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Builder, CompactPhase, Db, Table, VerifyReport, WriteOptions};

use crate::fixture::{NONE, fill, open_on, padded_key, scattered_key, wait_for_garbage};

const MIB: u64 = 1 << 20;

/// Options with which nothing goes back while a store is open.
fn options() -> Builder {
    Db::builder().max_memory(32 << 20).give_back_after(None)
}

fn options_with(wait: u64) -> Builder {
    options().give_back_after(Some(Duration::from_millis(wait)))
}

/// Returns the length of the data file.
fn data_bytes(device: &AnyDevice) -> u64 {
    let file = device.open("data", OpenOptions::read());
    file.unwrap().len().unwrap()
}

/// Returns the bytes that pages use in a store that is closed and sound.
fn used_bytes(device: &AnyDevice) -> u64 {
    let report = VerifyReport::of_device(device).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    report.stat.used_bytes
}

/// Checks that the file of a closed store is as long as the documentation says.
fn assert_short(device: &AnyDevice) {
    let (data, used) = (data_bytes(device), used_bytes(device));
    // The reserve, what is kept ready, and a step at least.
    let most = (used * 115 / 100).max(used + 2 * MIB);
    assert!(data <= most, "{data} bytes for {used}");
}

/// Waits until the file of an open store is that short: the file itself, whatever the store says.
fn wait_until_short(db: &Db, device: &AnyDevice) {
    let until = time::now() + Duration::from_secs(60);
    loop {
        let report = db.report();
        let used = report.data_bytes - report.data_free_bytes;
        let data = data_bytes(device);
        if data <= (used * 115 / 100).max(used + 2 * MIB) {
            return;
        }
        assert!(time::now() < until, "{data} for {used}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Returns a store with a table of `mib` MiB that lies between holes of the same length.
fn with_holes(device: &AnyDevice, options: Builder, mib: u32) -> Db {
    with_holes_and_end(device, options, mib, 0)
}

/// As [`with_holes`], with so many MiB that are free behind them.
fn with_holes_and_end(device: &AnyDevice, options: Builder, mib: u32, end: u32) -> Db {
    let db = Db::open_device(options, device.clone()).unwrap();
    let tables = ["kept", "dropped"].map(|name| db.table(name).unwrap());
    for number in 0..mib * 1024 {
        for table in &tables {
            table
                .put_with(&padded_key(number), &[7; 1008], NONE)
                .unwrap();
        }
        if number % 1024 == 1023 {
            db.checkpoint().unwrap();
        }
    }
    drop(tables);
    load(&db.table("end").unwrap(), end);
    db.checkpoint().unwrap();
    for name in ["dropped", "end"] {
        db.drop_table(name).unwrap();
    }
    wait_for_garbage(&db);
    db.checkpoint().unwrap();
    db
}

/// Writes pairs of together `mib` MiB, in the order of their keys.
fn load(table: &Table, mib: u32) {
    fill(table, 0..mib * 1024, |number| {
        (padded_key(number), [7; 1008])
    });
}

#[test]
fn a_new_store_has_a_small_file() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    for _ in 0..3 {
        let db = Db::open_device(Db::builder(), device.clone()).unwrap();
        assert!(data_bytes(&device) <= 2 * MIB);
        db.table("t").unwrap().put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert!(data_bytes(&device) <= 2 * MIB);
    }
}

/// What is free at the end goes back when the store is closed, and the next life reads what is
/// there, and can write.
/// Replay does not know to how many leaves the keys of a long batch belong. It makes room for the
/// pages of a few of them at a time, and most share theirs.
#[test]
fn replay_of_a_long_batch_makes_no_long_file() {
    let device = FaultyDevice::new(7);
    let db = open_on(&device, options());
    let table = db.table("t").unwrap();
    let mut batch = Batch::new();
    for number in 0..10_000 {
        batch.put(&table, &scattered_key(number), b"value");
    }
    db.write(&mut batch, WriteOptions::default()).unwrap();
    let crashed = device.after_crash(7, CrashMode::AllLost);
    let again = open_on(&crashed, options());
    assert_eq!(again.table("t").unwrap().len(), 10_000);
    let bytes = again.report().data_bytes;
    // Four pages for each write would be 156 MiB.
    assert!(bytes <= 16 * MIB, "{bytes}");
}

#[test]
fn a_clean_close_cuts_the_free_end() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = Db::open_device(options(), device.clone()).unwrap();
    let kept = db.table("kept").unwrap();
    load(&kept, 10);
    db.checkpoint().unwrap();
    load(&db.table("dropped").unwrap(), 30);
    db.checkpoint().unwrap();
    db.drop_table("dropped").unwrap();
    wait_for_garbage(&db);
    let before = data_bytes(&device);
    assert!(before > 40 * MIB, "{before}");
    drop(kept);
    db.close().unwrap();
    assert!(data_bytes(&device) < before / 2, "{}", data_bytes(&device));
    assert_short(&device);
    let db = Db::open_device(options(), device.clone()).unwrap();
    assert_eq!(db.table("kept").unwrap().iter().count(), 10 * 1024);
    load(&db.table("kept").unwrap(), 12);
    db.close().unwrap();
    used_bytes(&device);
}

/// A close that has nothing to cut does not change the file, and writes no further checkpoint.
#[test]
fn a_close_cuts_nothing_that_the_next_life_would_add_again() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = Db::open_device(options(), device.clone()).unwrap();
    load(&db.table("t").unwrap(), 8);
    db.close().unwrap();
    let before = data_bytes(&device);
    let generation = || VerifyReport::of_device(&device).unwrap().stat.generation;
    for _ in 0..4 {
        let first = generation();
        let db = Db::open_device(options(), device.clone()).unwrap();
        db.table("t").unwrap().put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert_eq!(data_bytes(&device), before);
        // That of the opening, and that of the close.
        assert_eq!(generation(), first + 2);
    }
}

#[test]
fn free_space_in_the_middle_of_an_idle_store_goes_back_by_itself() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options(), 12);
    let before = data_bytes(&device);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(data_bytes(&device), before, "it is turned off");
    assert!(before > 24 * MIB, "{before}");
    drop(db);
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options_with(100), 12);
    wait_until_short(&db, &device);
    assert_eq!(db.table("kept").unwrap().iter().count(), 12 * 1024);
    db.close().unwrap();
}

/// A close moves what is little.
#[test]
fn a_clean_close_moves_what_lies_behind_holes() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options(), 12);
    db.close().unwrap();
    assert_short(&device);
    let db = Db::open_device(options(), device).unwrap();
    assert_eq!(db.table("kept").unwrap().iter().count(), 12 * 1024);
}

/// What stays free beside a writer and its checkpoints goes back, too, while others read.
#[test]
fn free_space_goes_back_beside_writers() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options_with(40), 32);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let own = db.table("own").unwrap();
            for number in 0_u32.. {
                own.put_with(&padded_key(number % 100), &[1; 100], NONE)
                    .unwrap();
                if number.is_multiple_of(1000) {
                    db.checkpoint().unwrap();
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        wait_until_short(&db, &device);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.table("kept").unwrap().iter().count(), 32 * 1024);
    db.close().unwrap();
    assert_short(&device);
}

/// What is moved while a settled snapshot reads the old places makes nothing free, so nothing is.
#[test]
fn nothing_is_moved_beside_a_settled_snapshot() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    // Long enough for the snapshot to begin first, on a busy machine, too.
    let db = with_holes(&device, options_with(1200), 12);
    let snapshot = db.snapshot_settled().unwrap();
    let before = data_bytes(&device);
    thread::sleep(Duration::from_millis(3000));
    assert_eq!(db.statistics().get(Ticker::CompactPages), 0);
    assert_eq!(data_bytes(&device), before);
    let kept = db.table("kept").unwrap();
    assert_eq!(snapshot.iter(&kept).count(), 12 * 1024);
    drop(snapshot);
    wait_until_short(&db, &device);
    db.close().unwrap();
    assert_short(&device);
}

/// What has left the allocator leaves the file when the store is closed, at the latest: whoever
/// moved things has ended before the file was cut.
#[test]
fn a_close_cuts_what_a_compaction_that_ended_early_has_won() {
    // Some checkpoint has written a page somewhere into the free end. If that lies near the last
    // block there is nothing to win without moving it, and this needs another store.
    const TRIES: u32 = 20;
    let (device, db, before, allocated) = (0..TRIES)
        .find_map(|_| {
            let device = AnyDevice::from(MemoryDevice::new(1 << 30));
            // So much lies behind the holes that a close does not move it.
            let db = with_holes_and_end(&device, options(), 80, 120);
            let before = data_bytes(&device);
            let allocated = cut_without_moving(&db);
            (allocated < before - 4 * MIB).then_some((device, db, before, allocated))
        })
        .expect("one store in so many has a free end");
    assert_eq!(data_bytes(&device), before);
    db.close().unwrap();
    assert!(data_bytes(&device) <= allocated, "{}", data_bytes(&device));
    // It has moved nothing.
    assert!(data_bytes(&device) > used_bytes(&device) * 3 / 2);
}

/// Begins compactions that end before they move anything, until nothing more leaves the allocator.
/// Returns the bytes that it has left.
fn cut_without_moving(db: &Db) -> u64 {
    let mut allocated = u64::MAX;
    loop {
        let report = db.compact(|progress| match progress.phase {
            CompactPhase::Move => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(!report.unwrap().finished);
        let was = std::mem::replace(&mut allocated, db.report().data_bytes);
        if allocated == was {
            return allocated;
        }
    }
}

/// Who compacts does not meet a refusal because the store does so itself.
#[test]
fn a_compaction_takes_the_place_of_what_goes_on_by_itself() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options_with(20), 48);
    while db.statistics().get(Ticker::CompactPages) == 0 {
        thread::yield_now();
    }
    let report = db.compact(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.finished, "{report:?}");
    db.close().unwrap();
    assert_short(&device);
}
