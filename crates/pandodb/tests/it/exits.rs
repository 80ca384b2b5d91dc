//! Processes that end while the kernel keeps running: the next process reads their unsynced writes,
//! and a power cut loses them.

use pando_sync::thread;
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Device};
use pandodb::{Db, Durability, VerifyReport, WriteOptions};

use crate::fixture::copy_directory;

const MODES: [CrashMode; 4] = [
    CrashMode::AllLost,
    CrashMode::AllSurvive,
    CrashMode::RandomSubset,
    CrashMode::TornSectors,
];
const KEYS: u32 = 600;

fn try_open(device: &FaultyDevice) -> pandodb::Result<Db> {
    let options = Db::builder().max_memory(4 << 20).log_bytes(2 << 20);
    Db::open_device(options, AnyDevice::from(device.clone()))
}

fn open(device: &FaultyDevice) -> Db {
    try_open(device).unwrap()
}

fn put_all(db: &Db, value: u8, durability: Durability) -> pandodb::Result<()> {
    let table = db.table("t")?;
    let options = WriteOptions::durability(durability);
    for number in 0..KEYS {
        table.put_with(&number.to_be_bytes(), &[value; 300], options)?;
    }
    Ok(())
}

/// Cuts the power. Checks that the store is sound, and that each key has `value`.
fn cut(device: &FaultyDevice, value: u8, what: &str) {
    for mode in MODES {
        let after = device.after_crash(1, mode);
        let what = format!("{what}, {mode:?}");
        let report = VerifyReport::of_device(&AnyDevice::from(after.clone())).unwrap();
        assert!(report.damages.is_empty(), "{what}: {:?}", report.damages);
        let db = try_open(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = db.table("t").unwrap();
        for number in 0..KEYS {
            let found = table.get(&number.to_be_bytes()).unwrap();
            assert_eq!(found.unwrap(), [value; 300], "{what}: {number}");
        }
        assert_eq!(table.len(), u64::from(KEYS), "{what}");
    }
}

/// Returns a store whose process ended during the sync of a superblock that names other pages than
/// the one on disk, with many changes after it.
fn ended_in_superblock_sync(nth: u64) -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    put_all(&db, 1, Durability::None).unwrap();
    db.checkpoint().unwrap();
    put_all(&db, 2, Durability::None).unwrap();
    let ends = Fault::CrashLater {
        changes: u64::MAX,
        turns: u32::MAX,
    };
    device.fail(FaultPlan::once(Operation::Sync, "superblock", nth, ends));
    thread::scope(|scope| {
        scope.spawn(|| db.checkpoint());
        while device.faults_struck() == 0 {
            thread::yield_now();
        }
        // The log has room for all of these writes, so none of them waits for the checkpoint.
        let put = put_all(&db, 3, Durability::None).and_then(|()| db.flush());
        device.crash_now();
        put.unwrap();
    });
    drop(db);
    device
}

#[test]
fn an_opening_makes_the_checkpoint_durable_that_it_has_read_before_it_writes_anything_else() {
    for nth in [1, 2] {
        let ended = ended_in_superblock_sync(nth);
        let seen = ended.snapshot_file("superblock");
        assert_ne!(seen, ended.durable_file("superblock"));
        for operation in [Operation::Write, Operation::Sync] {
            for end in 1..=8 {
                let next = ended.after_exit(1);
                next.fail(FaultPlan::once(operation, "", end, Fault::Crash));
                let what = format!("sync {nth}, then {operation:?} {end}");
                let opened = try_open(&next);
                cut(&next, 3, &what);
                drop(opened);
            }
        }
    }
}

/// After a failed sync the file's pages count as clean, so no later sync writes them.
#[test]
fn a_superblock_whose_sync_has_failed_is_written_again() {
    for nth in [1, 2] {
        let device = FaultyDevice::new(1);
        let db = open(&device);
        put_all(&db, 1, Durability::None).unwrap();
        db.checkpoint().unwrap();
        put_all(&db, 2, Durability::None).unwrap();
        db.flush().unwrap();
        device.fail(FaultPlan::once(
            Operation::Sync,
            "superblock",
            nth,
            Fault::Io,
        ));
        db.checkpoint().unwrap_err();
        drop(db);
        // The next opening is by another process, and by the same one.
        for next in [device.after_exit(2), device] {
            // The crash comes after the two writes of the superblock that was read.
            next.fail(FaultPlan::once(Operation::Write, "", 3, Fault::Crash));
            let seen = next.snapshot_file("superblock");
            try_open(&next).unwrap_err();
            assert_eq!(next.durable_file("superblock")[..4096], seen[..4096]);
            assert_eq!(next.durable_file("superblock")[4096..], seen[..4096]);
            cut(&next, 2, "after a failed sync");
        }
    }
}

/// If the mark of creation were not durable first, a power cut could leave files that are no store
/// and never become one.
#[test]
fn the_mark_of_creation_is_durable_before_anything_else_is_made() {
    let failed = FaultyDevice::new(1);
    let fault = FaultPlan::once(Operation::SyncDirectory, "", 1, Fault::Io);
    failed.fail(fault);
    try_open(&failed).unwrap_err();
    assert_eq!(failed.list().unwrap(), ["creating"]);
    for change in 1.. {
        let next = failed.after_exit(1);
        next.crash_at_change(change);
        let opened = try_open(&next);
        let ends = next.is_crashed();
        for seed in 0..20 {
            let after = next.after_crash(seed, CrashMode::RandomSubset);
            if let Err(error) = try_open(&after) {
                let names = after.list().unwrap();
                panic!("change {change}, seed {seed}: {error}: {names:?}");
            }
        }
        drop(opened);
        if !ends || change > 40 {
            break;
        }
    }
}

/// A superblock must not name a length of the file that is visible but not durable.
#[test]
fn the_length_of_the_data_file_is_made_durable_by_who_opens_it() {
    for seed in 0..8 {
        let device = FaultyDevice::new(seed);
        let db = open(&device);
        let table = db.table("filler").unwrap();
        let blocks = db.report().data_bytes;
        let mut number = 0_u32;
        while db.report().data_bytes == blocks {
            let none = WriteOptions::durability(Durability::None);
            table
                .put_with(&number.to_be_bytes(), &[7; 4000], none)
                .unwrap();
            number += 1;
        }
        drop(table);
        device.fail(FaultPlan::once(Operation::Sync, "data", 1, Fault::Io));
        db.checkpoint().unwrap_err();
        drop(db);
        let db = open(&device);
        put_all(&db, 1, Durability::None).unwrap();
        db.checkpoint().unwrap();
        device.crash_now();
        drop(db);
        cut(&device, 1, &format!("seed {seed}"));
    }
}

/// A directory is renamed while its store is open, and another store is made at its path: neither
/// writes to the files of the other. The processes end without a close.
#[test]
fn stores_whose_directories_are_renamed_stay_apart() {
    const MOVED_ROUNDS: u32 = 40;
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let open = |name: &str| {
        let options = Db::builder().max_memory(16 << 20).log_bytes(64 << 20);
        options.open(at(name)).unwrap()
    };
    let write = |db: &Db, own: &[u8], rounds: std::ops::Range<u32>| {
        let table = db.table("t").unwrap();
        let options = WriteOptions::durability(Durability::None);
        for round in rounds {
            let value = [own, &round.to_be_bytes(), &[7; 600]].concat();
            for key in 0..1000_u32 {
                table.put_with(&key.to_be_bytes(), &value, options).unwrap();
            }
        }
        db.flush().unwrap();
    };
    let first = open("path");
    write(&first, b"first", 0..1);
    std::fs::rename(at("path"), at("moved")).unwrap();
    let second = open("path");
    write(&second, b"second", 0..1);
    // Both need new files of the log.
    for round in 1..MOVED_ROUNDS {
        write(&first, b"first", round..round + 1);
        write(&second, b"second", round..round + 1);
    }
    for (from, to) in [("moved", "first"), ("path", "second")] {
        copy_directory(&at(from), &at(to));
        let db = open(to);
        let table = db.table("t").unwrap();
        let newest = [to.as_bytes(), &(MOVED_ROUNDS - 1).to_be_bytes(), &[7; 600]].concat();
        for key in 0..1000_u32 {
            let found = table.get(&key.to_be_bytes()).unwrap();
            assert_eq!(found.unwrap(), newest, "{to}: {key}");
        }
    }
    first.close().unwrap();
    second.close().unwrap();
}
