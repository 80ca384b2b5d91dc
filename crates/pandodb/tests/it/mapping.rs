//! Merges of the mapping, and the removal of old files, that fail: nothing needs them, so they are
//! left undone, and the store goes on.

use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Create, Device, OpenOptions};
use pandodb::{Db, Durability, VerifyReport, WriteOptions};

use crate::fixture::open_on;

fn open_with(device: &FaultyDevice, log_bytes: u64) -> Db {
    let options = Db::builder().max_memory(4 << 20).log_bytes(log_bytes);
    open_on(device, options)
}

fn open(device: &FaultyDevice) -> Db {
    open_with(device, 1 << 20)
}

/// One checkpoint, and a little for it to write.
fn grow(db: &Db, number: u32) {
    let none = WriteOptions::durability(Durability::None);
    let table = db.table("t").unwrap();
    table
        .put_with(&(number % 50).to_be_bytes(), &number.to_be_bytes(), none)
        .unwrap();
    db.checkpoint().unwrap();
}

fn has(device: &FaultyDevice, name: &str) -> bool {
    let names = device.list().unwrap();
    names.iter().any(|known| known == name)
}

/// Grows the journal until `enough`.
fn grow_until(db: &Db, mut enough: impl FnMut() -> bool) {
    for number in 0.. {
        if enough() {
            break;
        }
        grow(db, number);
        assert!(number < 2000, "it never came to that");
    }
}

/// A store with a journal that is nearly long enough to be merged.
fn nearly_merged() -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    grow_until(&db, || {
        let bytes = device.snapshot_file("journal.1");
        let used = bytes
            .chunks(4096)
            .take_while(|group| group[..4] == *b"PJNL");
        assert!(!has(&device, "map.2"));
        used.count() >= 1010
    });
    db.close().unwrap();
    device
}

fn close(db: Db, device: &FaultyDevice) {
    assert_eq!(db.report().poisoned, None);
    db.close().unwrap();
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    let db = open(device);
    assert_eq!(db.table("t").unwrap().len(), 50);
}

#[test]
fn a_merge_that_fails_is_left_undone_and_tried_again() {
    let nearly = nearly_merged();
    for (operation, prefix) in [
        (Operation::Read, "journal.1"),
        (Operation::Open, "map.2"),
        (Operation::Write, "map.2"),
        (Operation::Sync, "map.2"),
        (Operation::Allocate, "journal.2"),
        (Operation::Sync, "journal.2"),
        (Operation::SyncDirectory, ""),
    ] {
        let device = nearly.after_crash(1, CrashMode::AllSurvive);
        let db = open(&device);
        // The opening reads and syncs, too.
        device.fail(FaultPlan::once(operation, prefix, 1, Fault::Io));
        let what = format!("{operation:?} of '{prefix}'");
        grow_until(&db, || device.faults_struck() > 0);
        assert_eq!(db.report().poisoned, None, "{what}");
        grow_until(&db, || has(&device, "map.2") && !has(&device, "map.1"));
        close(db, &device);
    }
}

#[test]
fn old_files_of_the_mapping_that_cannot_be_removed_are_left_for_later() {
    let device = nearly_merged().after_crash(1, CrashMode::AllSurvive);
    let db = open(&device);
    for name in ["map.1", "journal.1"] {
        device.fail(FaultPlan::sticky(Operation::Remove, name, 1, Fault::Denied));
    }
    grow_until(&db, || device.faults_struck() > 5);
    assert!(has(&device, "map.1") && has(&device, "journal.1"));
    device.clear_faults();
    grow(&db, 0);
    assert!(!has(&device, "map.1") && !has(&device, "journal.1"));
    close(db, &device);
}

#[test]
fn files_that_cannot_be_removed_do_not_keep_a_store_from_being_opened() {
    let device = FaultyDevice::new(1);
    let db = open_with(&device, 16 << 20);
    for number in 0..50 {
        grow(&db, number);
    }
    while !has(&device, "log/0000000000000007") {
        pando_sync::thread::yield_now();
    }
    db.close().unwrap();
    for name in ["map.7", "journal.7"] {
        device.open(name, OpenOptions::create(Create::New)).unwrap();
    }
    device.fail(FaultPlan::sticky(Operation::Remove, "", 1, Fault::Io));
    drop(open(&device));
    assert!(device.faults_struck() > 2);
    assert!(has(&device, "map.7") && has(&device, "log/0000000000000007"));
    device.clear_faults();
    let db = open(&device);
    assert!(!has(&device, "map.7") && !has(&device, "journal.7"));
    assert!(!has(&device, "log/0000000000000007"));
    close(db, &device);
}
