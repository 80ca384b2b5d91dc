//! Crashes at every change of a close that cuts the data file, and at many of a store that is idle
//! and gives free space back by itself (decision 082).

use pando_device::faulty::CrashMode;
use pando_device::{AnyDevice, Device, FaultyDevice, File, OpenOptions};
use pando_sim::crash::MODES;
use pando_sim::panics;
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::{Builder, Db, Durability, VerifyReport, WriteOptions};

use crate::number;

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const KEPT: u64 = 500;
const DROPPED: u64 = 10_000;

fn open(device: &FaultyDevice) -> pandodb::Result<Db> {
    open_with(device, None)
}

fn open_with(device: &FaultyDevice, give_back_after: Option<Duration>) -> pandodb::Result<Db> {
    let options = Builder::default().max_memory(4 << 20).frames(256);
    let options = options.give_back_after(give_back_after);
    panics::watch("a store");
    Db::open_device(options.log_bytes(1 << 20), AnyDevice::from(device.clone()))
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(60)
}

fn data_bytes(device: &FaultyDevice) -> u64 {
    data_bytes_if_alive(device).unwrap()
}

fn data_bytes_if_alive(device: &FaultyDevice) -> Option<u64> {
    let any = AnyDevice::from(device.clone());
    let file = any.open("data", OpenOptions::read()).ok()?;
    file.len().ok()
}

/// Writes pairs that stay, and a table behind them that is dropped: the end of the file is free
/// with the last checkpoint.
fn fill(device: &FaultyDevice) -> Db {
    let db = open(device).unwrap();
    for (table, count) in [("kept", KEPT), ("dropped", DROPPED)] {
        let table = db.table(table).unwrap();
        for number in 0..count {
            table
                .put_with(&number.to_be_bytes(), &value(number), NONE)
                .unwrap();
        }
        db.checkpoint().unwrap();
    }
    db.drop_table("dropped").unwrap();
    while db.garbage_left() {
        thread::yield_now();
    }
    db
}

fn check(device: &FaultyDevice, what: &str) {
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert!(report.damages.is_empty(), "{what}: {:?}", report.damages);
    let db = open(device).unwrap();
    let kept = db.table("kept").unwrap();
    for number in 0..KEPT {
        let found = kept.get(&number.to_be_bytes()).unwrap();
        assert_eq!(found, Some(value(number)), "{what}");
    }
    assert_eq!(kept.iter().count() as u64, KEPT, "{what}");
    // It still has room.
    kept.put(&[0xff; 8], b"new").unwrap();
    drop(kept);
    db.close().unwrap();
}

#[test]
fn a_close_that_cuts_the_data_file_may_be_cut_off_at_any_change() {
    let whole = FaultyDevice::new(1);
    let db = fill(&whole);
    let (before, first) = (data_bytes(&whole), whole.changes());
    db.close().unwrap();
    let changes = whole.changes() - first;
    let after = data_bytes(&whole);
    assert!(before > 5 << 20 && after < before / 2, "{before}, {after}");
    check(&whole, "whole");
    // The threads of the store change the order a little from run to run.
    for change in 1..=changes + 2 {
        let device = FaultyDevice::new(change);
        let db = fill(&device);
        device.crash_at_change(device.changes() + change);
        let closed = db.close();
        device.crash_now();
        for mode in MODES {
            let what = format!("change {change} of {changes}, {mode:?}, {closed:?}");
            check(&device.after_crash(change, mode), &what);
        }
    }
}

/// A store whose table lies between holes that are twice as long, as a crash left it.
fn with_holes() -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open(&device).unwrap();
    let tables = ["kept", "one", "two"].map(|name| db.table(name).unwrap());
    for number in 0..KEPT {
        for table in &tables {
            for row in 0..if table.name() == "kept" { 1 } else { 10 } {
                let key = [number.to_be_bytes(), [row; 8]].concat();
                let key = if table.name() == "kept" {
                    &key[..8]
                } else {
                    &key
                };
                table.put_with(key, &value(number), NONE).unwrap();
            }
        }
        if number % 50 == 49 {
            db.checkpoint().unwrap();
        }
    }
    drop(tables);
    for table in ["one", "two"] {
        db.drop_table(table).unwrap();
    }
    while db.garbage_left() {
        thread::yield_now();
    }
    db.checkpoint().unwrap();
    device.crash_now();
    device.after_crash(1, CrashMode::AllSurvive)
}

/// Opens the store, and waits until the crash, or until its file is half as long.
fn idle(device: &FaultyDevice) {
    let Ok(db) = open_with(device, Some(Duration::from_millis(4))) else {
        return;
    };
    let before = data_bytes_if_alive(device).unwrap_or(0);
    let until = time::now() + Duration::from_secs(60);
    while data_bytes_if_alive(device).is_some_and(|bytes| bytes > before / 2) {
        assert!(time::now() < until, "{before} bytes stay");
        thread::park_timeout(Duration::from_millis(1));
    }
    device.crash_now();
    drop(db);
}

#[test]
fn an_idle_store_that_gives_space_back_may_crash_at_any_change() {
    let original = with_holes();
    let whole = original.after_crash(1, CrashMode::AllSurvive);
    let first = whole.changes();
    idle(&whole);
    let changes = whole.changes() - first;
    check(&whole.after_crash(1, CrashMode::AllLost), "whole");
    let points = number("PANDO_GIVE_BACK_POINTS", 16);
    // The last ones are those of the checkpoint that names the shorter file, and of the cut.
    let last = changes.saturating_sub(12)..=changes;
    for change in (0..points)
        .map(|point| 1 + point * changes / points)
        .chain(last)
    {
        let device = original.after_crash(change, CrashMode::AllSurvive);
        device.crash_at_change(device.changes() + change);
        idle(&device);
        for mode in MODES {
            let what = format!("change {change} of {changes}, {mode:?}");
            check(&device.after_crash(change, mode), &what);
        }
    }
}
