//! Pages that are freed without a record: replay has them all, and finds room for them
//! (decision 116).

use pando_sync::time::Duration;
use pandodb::device::faulty::{CrashMode, FaultyDevice};
use pandodb::statistics::Ticker;
use pandodb::{Builder, Db, Durability, Error, Table, WriteOptions};

use crate::fixture::open_on;

/// Less than it needs for what it holds and all that may be written at a time.
const CAPACITY: u64 = 13 << 20;
const NEVER: Duration = Duration::from_secs(3600);

fn unsynced() -> WriteOptions {
    WriteOptions::durability(Durability::None)
}

/// Puts ascending keys with values of half a page, from `first` on, until the store is full or has
/// `most` of them. Returns the key behind the last one.
fn fill(table: &Table, first: u32, most: u32) -> u32 {
    let mut random = fastrand::Rng::with_seed(7);
    for number in first..first + most {
        let mut value = [0; 1800];
        value.fill_with(|| random.u8(..));
        match table.put_with(&number.to_be_bytes(), &value, unsynced()) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    first + most
}

/// Deletes `keys` in order, with pauses in which emptied leaves are removed. Returns the number of
/// pages that were.
fn delete(db: &Db, table: &Table, keys: std::ops::Range<u32>) -> u64 {
    let before = db.statistics();
    for number in keys {
        table
            .delete_with(&number.to_be_bytes(), unsynced())
            .unwrap();
        if number % 32 == 0 {
            pando_sync::thread::sleep(Duration::from_millis(2));
        }
    }
    let freed = db.statistics().since(&before);
    freed.get(Ticker::PagesRemoved) + freed.get(Ticker::PagesMerged)
}

/// Makes the log durable, cuts the power, and opens the store again.
fn after_power_cut(
    (device, db): (&FaultyDevice, Db),
    capacity: Option<u64>,
    options: Builder,
) -> (FaultyDevice, Db) {
    db.flush().unwrap();
    device.crash_now();
    let _poisoned = db.close();
    let device = device.after_crash(1, CrashMode::AllLost);
    if let Some(capacity) = capacity {
        device.set_capacity(capacity);
    }
    let db = open_on(&device, options);
    (device, db)
}

/// Leaves that were emptied and removed are emptied again by replay, and stay until the checkpoint
/// that ends it.
#[test]
fn a_full_store_opens_behind_a_crash_after_deletes() {
    let device = FaultyDevice::new(1);
    device.set_capacity(CAPACITY);
    let options = || {
        let options = Db::builder().max_memory(16 << 20).log_bytes(8 << 20);
        options.checkpoint_interval(NEVER)
    };
    let db = open_on(&device, options());
    let table = db.table("t").unwrap();
    let end = fill(&table, 0, u32::MAX);
    db.checkpoint().unwrap();
    let gone = end * 9 / 10;
    let freed = delete(&db, &table, 0..gone);
    assert!(freed > 500, "{freed} pages were freed");
    drop(table);
    let (_device, db) = after_power_cut((&device, db), Some(CAPACITY), options());
    let table = db.table("t").unwrap();
    assert_eq!(table.len(), u64::from(end - gone));
    assert!(table.get(&gone.to_be_bytes()).unwrap().is_some());
    // What was deleted has made room, some of it behind the next checkpoints.
    let (mut next, wanted) = (end, end + gone / 2);
    for _ in 0..50 {
        next = fill(&table, next, wanted - next);
        db.checkpoint().unwrap();
    }
    assert_eq!(next, wanted);
}

/// Ids of pages that were removed are not used by others before replay would know.
#[test]
fn a_store_whose_page_table_is_full_opens_behind_a_crash_after_deletes() {
    let device = FaultyDevice::new(1);
    let options = || {
        let options = Db::builder().max_memory(4 << 20).log_bytes(64 << 20);
        options.checkpoint_interval(NEVER)
    };
    let db = open_on(&device, options());
    let table = db.table("t").unwrap();
    let end = fill(&table, 0, u32::MAX);
    db.checkpoint().unwrap();
    let freed = delete(&db, &table, 0..6000);
    assert!(freed > 1000, "{freed} pages were freed");
    // They wait for the checkpoint that frees the ids.
    assert_eq!(fill(&table, end, 5600), end + 5600);
    drop(table);
    let (_device, db) = after_power_cut((&device, db), None, options());
    let table = db.table("t").unwrap();
    assert_eq!(table.len(), u64::from(end - 6000 + 5600));
}
