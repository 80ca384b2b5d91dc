//! Merges of the mapping and removals of old files that fail: nothing needs them at once, so the
//! store continues without.

use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Create, Device, OpenOptions};
use pandodb::{Compression, Db, Durability, Error, VerifyReport, WriteOptions};

use crate::fixture::{open_on, wait_for_garbage};

/// Deletes, each with a checkpoint, that take more groups than there are in journals with room.
const KEYS: u32 = 1000;

fn open(device: &FaultyDevice) -> Db {
    let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
    open_on(device, options)
}

/// Writes a checkpoint after a small change.
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

/// Lets the journal grow until `enough` returns true.
fn grow_until(db: &Db, mut enough: impl FnMut() -> bool) {
    for number in 0.. {
        if enough() {
            break;
        }
        grow(db, number);
        assert!(number < 2000, "the condition was never met");
    }
}

/// Returns a store whose journal is nearly long enough to be merged.
fn nearly_merged() -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    grow_until(&db, || {
        let bytes = device.snapshot_file("journal.1");
        let used = bytes
            .chunks(4096)
            .take_while(|group| group[..4] == *b"PJNL");
        assert!(has(&device, "map.1") && !has(&device, "map.3"));
        used.count() >= 1010
    });
    db.close().unwrap();
    device
}

/// Puts until the disk is full. Returns the number of keys.
fn fill(db: &Db) -> u32 {
    let none = WriteOptions::durability(Durability::None);
    let table = db.table("t").unwrap();
    for number in 0_u32.. {
        let mut value = [0; 1000];
        fastrand::Rng::with_seed(number.into()).fill(&mut value);
        match table.put_with(&number.to_be_bytes(), &value, none) {
            Ok(_) => {}
            Err(Error::Full { .. }) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the disk is never full")
}

/// The journal grows with each checkpoint while the disk is full.
#[test]
fn deletes_and_openings_go_on_when_the_journal_cannot_grow() {
    let device = FaultyDevice::new(1);
    device.set_capacity(32 << 20);
    let db = open(&device);
    let keys = fill(&db);
    assert!(keys > 5000, "{keys} keys on 32 MiB");
    let free = device.free_bytes().unwrap();
    assert!(free < 1 << 20, "{free} bytes are free on a full disk");
    // Another program takes the rest of the disk, also what the log gives back.
    let mut capacity = 32 << 20;
    let mut take_rest = || {
        capacity -= device.free_bytes().unwrap();
        device.set_capacity(capacity);
    };
    let table = db.table("t").unwrap();
    // Each checkpoint adds a group of 4 KiB, so several journals are used up.
    for number in 0..600_u32 {
        take_rest();
        assert!(table.delete(&number.to_be_bytes()).unwrap());
        db.checkpoint().unwrap();
    }
    assert!(!has(&device, "map.2"), "merged more than once");
    drop(table);
    db.close().unwrap();
    for _ in 0..40 {
        // Each opening and each close writes a checkpoint.
        let db = open(&device);
        assert_eq!(db.table("t").unwrap().len(), u64::from(keys) - 600);
        let names = device.list().unwrap();
        let bases = names.iter().filter(|name| name.starts_with("map."));
        assert_eq!(bases.count(), 2, "room for the next merge is kept");
        db.close().unwrap();
    }
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in 600..keys {
        assert!(table.delete(&number.to_be_bytes()).unwrap());
    }
    assert!(table.is_empty());
    drop(table);
    db.checkpoint().unwrap();
    // The data file still has room.
    for number in 0..50 {
        grow(&db, number);
    }
    close(db, &device);
}

/// No file gets blocks, although the disk is not full: a checkpoint merges into the files that are
/// kept for that, and waits once there are none. Nothing poisons the store.
#[test]
fn checkpoints_wait_while_blocks_cannot_be_allocated() {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in 0..KEYS + 50 {
        table.put(&number.to_be_bytes(), b"value").unwrap();
    }
    db.checkpoint().unwrap();
    device.fail(FaultPlan::sticky(Operation::Allocate, "", 1, Fault::Io));
    let deleted = AtomicU32::new(0);
    thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            for number in 0..KEYS {
                assert!(table.delete(&number.to_be_bytes()).unwrap());
                db.checkpoint().unwrap();
                deleted.fetch_add(1, Ordering::Relaxed);
            }
        });
        // It waits if nothing happens for a second behind a merge.
        let (mut seen, mut since) = (0, time::now());
        while !deleting.is_finished() && since.elapsed() < Duration::from_secs(1) {
            let now = deleted.load(Ordering::Relaxed);
            if now != seen || has(&device, "map.1") {
                (seen, since) = (now, time::now());
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(db.report().poisoned, None);
        assert!(seen < KEYS, "no checkpoint has waited");
        device.clear_faults();
        deleting.join().expect("each checkpoint has ended");
    });
    drop(table);
    close(db, &device);
}

/// The data file has free blocks, but there would be no room to merge a mapping with all the pages
/// that fit in them.
#[test]
fn puts_are_refused_before_a_merge_has_no_room() {
    let device = FaultyDevice::new(1);
    device.set_capacity(1 << 40);
    let options = Db::builder().max_memory(8 << 20).log_bytes(8 << 20);
    let options = options.page_size(4096).chunk_values_over(100_000);
    // An image of a page needs one block or two.
    let options = options.block_size(512).compression(Compression::Lz4);
    let db = open_on(&device, options);
    let table = db.table("t").unwrap();
    let mut large = vec![7; 1 << 20];
    fastrand::Rng::with_seed(1).fill(&mut large);
    for number in 0..60_u32 {
        table.put(&number.to_be_bytes(), &large).unwrap();
    }
    for number in 0..60_u32 {
        assert!(table.delete(&number.to_be_bytes()).unwrap());
    }
    wait_for_garbage(&db);
    // The second checkpoint frees what the first one has retired.
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    // Another program takes the rest of the disk.
    let used = (1 << 40) - device.free_bytes().unwrap();
    device.set_capacity(used);
    let none = WriteOptions::durability(Durability::None);
    let put = |number: u32| table.put_with(&number.to_be_bytes(), &[7; 3000], none);
    let (keys, refused) = (0..)
        .find_map(|number| put(number).err().map(|error| (number, error)))
        .unwrap();
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(refused.to_string().contains("mapping"), "{refused}");
    assert!((20_000..60_000).contains(&keys), "{keys} keys");
    for number in 0..300_u32 {
        assert!(table.delete(&number.to_be_bytes()).unwrap());
        db.checkpoint().unwrap();
    }
    assert!(!has(&device, "map.1"), "merged");
    // Deleted keys make room for other keys.
    put(0).unwrap();
    device.set_capacity(1 << 40);
    for number in keys..keys + 20_000 {
        put(number).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let report = VerifyReport::of_device(&AnyDevice::from(device)).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
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
        (Operation::Write, "map.2"),
        (Operation::Sync, "map.2"),
        (Operation::Sync, "journal.2"),
        (Operation::SyncDirectory, ""),
    ] {
        let device = nearly.after_crash(1, CrashMode::AllSurvive);
        let db = open(&device);
        // The opening itself reads and syncs.
        device.fail(FaultPlan::once(operation, prefix, 1, Fault::Io));
        let what = format!("{operation:?} of '{prefix}'");
        grow_until(&db, || device.faults_struck() > 0);
        assert_eq!(db.report().poisoned, None, "{what}");
        grow_until(&db, || !has(&device, "map.1"));
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

/// A directory that became read-only: the disk has room, and the error does not say that it has
/// none.
#[test]
fn files_of_the_mapping_that_cannot_be_made_are_named() {
    let device = nearly_merged().after_crash(1, CrashMode::AllSurvive);
    let db = open(&device);
    for name in ["map.3", "journal.3"] {
        device.fail(FaultPlan::sticky(Operation::Open, name, 1, Fault::Denied));
    }
    grow_until(&db, || !has(&device, "map.1"));
    let table = db.table("t").unwrap();
    let put = |number: u32| table.put(&number.to_be_bytes(), &[7; 1000]);
    let refused = (50..20_000).find_map(|number| put(number).err());
    let text = refused
        .expect("new pages need a longer mapping")
        .to_string();
    assert!(text.contains("map.3") && text.contains("denied"), "{text}");
    device.clear_faults();
    put(20_000).expect("the files can be made");
    assert_eq!(db.report().poisoned, None);
    drop(table);
    db.close().unwrap();
}

#[test]
fn files_that_cannot_be_removed_do_not_keep_a_store_from_being_opened() {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    for number in 0..50 {
        grow(&db, number);
    }
    db.close().unwrap();
    // The last one looks like a file whose preparation was interrupted.
    for name in ["map.7", "journal.7", "log/0000000000000007"] {
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
