//! The mapping journal is merged into its base, and the machine crashes during the merge.

use pando_device::FaultyDevice;
use pando_sim::crash::MODES;
use pando_sim::store;
use pandodb::{Db, Durability, WriteOptions};

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const SEED: u64 = 1;

/// Puts one entry and writes a checkpoint.
fn grow(db: &Db, number: u64) -> pandodb::Result<()> {
    let table = db.table("t")?;
    table.put_with(&(number % 500).to_be_bytes(), &number.to_be_bytes(), NONE)?;
    db.checkpoint()
}

/// Returns true once a merge has written its base. The file of the base exists before, filled with
/// zeros.
fn is_merged(device: &FaultyDevice) -> bool {
    device.snapshot_file("map.2").iter().any(|byte| *byte != 0)
}

/// Returns the number of the newest entry. Checks that all entries before it exist, too.
fn newest(db: &Db) -> u64 {
    let table = db.table("t").unwrap();
    let numbers = table.iter().map(|entry| entry.unwrap().1);
    let numbers = numbers.map(|value| u64::from_be_bytes(value.try_into().unwrap()));
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let newest = *numbers.last().unwrap();
    assert!(
        numbers
            .iter()
            .rev()
            .zip((0..=newest).rev())
            .all(|(a, b)| *a == b)
    );
    newest
}

#[test]
fn a_crash_while_the_mapping_is_merged_loses_nothing() {
    let device = FaultyDevice::new(SEED);
    let db = store::open(SEED, &device).unwrap();
    let mut number = 0;
    let mut before = Vec::new();
    while !is_merged(&device) {
        // Keeps copies from shortly before the merge.
        if number % 20 == 0 {
            before.push((number, device.after_crash(1, MODES[1])));
            before.drain(..before.len().saturating_sub(2));
        }
        grow(&db, number).unwrap();
        number += 1;
        assert!(number < 10_000, "never merged");
    }
    drop(db);
    let (start, before) = before.remove(0);
    // Counts the syncs from the copy to the merge, which are about as many in each run.
    let again = before.after_crash(1, MODES[1]);
    let db = store::open(SEED, &again).unwrap();
    (start..).find(|number| {
        grow(&db, *number).unwrap();
        is_merged(&again)
    });
    let syncs = again.sync_points();
    drop(db);
    let mut merged = 0;
    for point in syncs - 12..syncs + 12 {
        let device = before.after_crash(1, MODES[1]);
        device.crash_at_sync(point);
        let mut done = start;
        if let Ok(db) = store::open(SEED, &device) {
            while done < start + 60 && grow(&db, done).is_ok() {
                done += 1;
            }
            device.crash_now();
        }
        for mode in MODES {
            let after = device.after_crash(point, mode);
            merged += u64::from(is_merged(&after));
            store::verify(&after).unwrap();
            let db = store::open(SEED, &after).unwrap();
            let newest = newest(&db);
            assert!(
                newest + 1 >= done && newest <= done,
                "{newest} of {done}, {point}, {mode:?}"
            );
            db.close().unwrap();
            store::verify(&after).unwrap();
        }
    }
    assert!(merged > 0, "no crash came after the merge");
}
