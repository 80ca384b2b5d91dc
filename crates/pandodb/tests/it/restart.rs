//! Acknowledged writes survive restarts at every durability, and damage is reported.

use pandodb::{Batch, Db, Durability, WriteOptions};

use crate::fixture::verified;

fn open(path: &std::path::Path) -> Db {
    Db::builder().max_memory(16 << 20).open(path).unwrap()
}

#[test]
fn a_clean_stop_keeps_everything_at_every_durability() {
    let directory = tempfile::tempdir().unwrap();
    for (round, durability) in [Durability::Durable, Durability::Periodic, Durability::None]
        .into_iter()
        .enumerate()
    {
        let db = open(directory.path());
        let table = db.table("t").unwrap();
        assert_eq!(table.len(), round as u64 * 100);
        for number in 0..100 {
            let key = format!("{round}-{number}");
            table
                .put_with(key.as_bytes(), b"v", WriteOptions::durability(durability))
                .unwrap();
        }
        db.close().unwrap();
    }
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    assert_eq!((table.len(), table.iter().count()), (300, 300));
}

#[test]
fn more_than_memory_survives_restarts_and_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let none = WriteOptions::durability(Durability::None);
    let key = |number: u32| format!("key{:08}", number.wrapping_mul(2_654_435_761) % 100_000_007);
    {
        let db = Db::builder()
            .max_memory(4 << 20)
            .open(directory.path())
            .unwrap();
        let table = db.table("t").unwrap();
        for start in (0..30_000_u32).step_by(100) {
            let mut batch = Batch::new();
            for number in start..start + 100 {
                batch.put(&table, key(number).as_bytes(), &[number as u8; 200]);
            }
            db.write(&mut batch, none).unwrap();
        }
        assert_eq!(table.len(), 30_000);
        drop(table);
        drop(db);
    }
    let report = verified(directory.path());
    assert_eq!(report.stat.tables[0].entries, 30_000);
    let db = Db::builder()
        .max_memory(4 << 20)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    for number in (0..30_000).step_by(7) {
        assert_eq!(
            table.get(key(number).as_bytes()).unwrap().unwrap(),
            [number as u8; 200]
        );
    }
    for number in 0..30_000 {
        assert!(table.delete_with(key(number).as_bytes(), none).unwrap());
    }
    assert_eq!(table.iter().count(), 0);
    drop(table);
    db.close().unwrap();
    let report = verified(directory.path());
    assert!(report.stat.used_bytes < 1 << 20, "{:?}", report.stat);
}

#[test]
fn verify_needs_no_write_permission_and_sees_a_flipped_bit() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    for number in 0..2000_u32 {
        table
            .put_with(
                &number.to_be_bytes(),
                &[5; 100],
                WriteOptions::durability(Durability::None),
            )
            .unwrap();
    }
    drop(table);
    db.close().unwrap();
    let stat = pandodb::stat(directory.path(), |_, _| ()).unwrap();
    assert_eq!(stat.tables[0].entries, 2000);
    let data = directory.path().join("data");
    let mut bytes = std::fs::read(&data).unwrap();
    // The position is within the values of a leaf.
    let at = bytes
        .windows(64)
        .position(|window| window == [5; 64])
        .unwrap();
    bytes[at] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let report = pandodb::verify(directory.path(), |_, _| ()).unwrap();
    assert!(!report.damages.is_empty());
    assert!(
        report.damages[0].what.contains("checksum"),
        "{:?}",
        report.damages
    );
}

#[test]
fn dropped_tables_stay_dropped_and_leave_no_pages() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let db = open(directory.path());
        let table = db.table("t").unwrap();
        assert_eq!(table.len(), 0);
        for number in 0..1000_u32 {
            table
                .put_with(
                    &number.to_be_bytes(),
                    &vec![round; 3000],
                    WriteOptions::durability(Durability::None),
                )
                .unwrap();
        }
        db.clear_tables(&[&table]).unwrap();
        drop(table);
        db.close().unwrap();
        verified(directory.path());
    }
}

#[test]
fn a_creation_that_ended_before_its_last_sync_is_not_begun_anew_later() {
    use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, Operation};
    use pandodb::device::{AnyDevice, FaultyDevice};
    for sync in 1..10 {
        let device = FaultyDevice::new(sync);
        let fault = FaultPlan::once(Operation::SyncDirectory, "", sync, Fault::Io);
        device.fail(fault);
        let open = |device: &FaultyDevice| {
            let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
            Db::open_device(options, AnyDevice::from(device.clone()))
        };
        drop(open(&device));
        device.clear_faults();
        let db = open(&device).unwrap();
        db.table("t").unwrap().put(b"k", b"v").unwrap();
        device.crash_now();
        drop(db);
        let db = open(&device.after_crash(1, CrashMode::AllLost)).unwrap();
        assert_eq!(db.table("t").unwrap().len(), 1, "{sync}");
    }
}
