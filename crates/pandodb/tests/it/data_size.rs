//! The data file does not run ahead of what it holds (decision 082).

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::device::{AnyDevice, Device, File, MemoryDevice, OpenOptions};
use pandodb::statistics::Ticker;
use pandodb::{Builder, Db, Table, VerifyReport};

use crate::fixture::{NONE, fill, padded_key, wait_for_garbage};

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

/// Waits until the file of an open store is that short.
fn wait_until_short(db: &Db) {
    let until = time::now() + Duration::from_secs(60);
    loop {
        let report = db.report();
        let used = report.data_bytes - report.data_free_bytes;
        if report.data_bytes <= (used * 115 / 100).max(used + 2 * MIB) {
            return;
        }
        assert!(time::now() < until, "{} for {used}", report.data_bytes);
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Returns a store with a table of `mib` MiB that lies between holes of the same length.
fn with_holes(device: &AnyDevice, options: Builder, mib: u32) -> Db {
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
    db.drop_table("dropped").unwrap();
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
    thread::park_timeout(Duration::from_millis(1500));
    assert_eq!(data_bytes(&device), before, "it is turned off");
    assert!(before > 24 * MIB, "{before}");
    drop(db);
    let db = with_holes(
        &AnyDevice::from(MemoryDevice::new(1 << 30)),
        options_with(100),
        12,
    );
    wait_until_short(&db);
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
        wait_until_short(&db);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.table("kept").unwrap().iter().count(), 32 * 1024);
    db.close().unwrap();
    assert_short(&device);
}

/// Who compacts does not meet a refusal because the store does so itself.
#[test]
fn a_compaction_takes_the_place_of_what_goes_on_by_itself() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = with_holes(&device, options_with(20), 48);
    while db.statistics().get(Ticker::CompactPages) == 0 {
        thread::yield_now();
    }
    let report = db.compact(|_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(report.finished, "{report:?}");
    db.close().unwrap();
    assert_short(&device);
}
