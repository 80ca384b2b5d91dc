//! The data file grows under a workload, and the machine crashes before, during and after the
//! growth.

use pando_device::faulty::Random;
use pando_device::{AnyDevice, Device, FaultyDevice, File, OpenOptions};
use pando_sim::crash::MODES;
use pando_sim::store;
use pandodb::{Db, Durability, WriteOptions};

use crate::number;

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const SEED: u64 = 1;
const VALUE_BYTES: usize = 60_000;
/// These fill more than the 2 MiB of a new data file.
const ENTRIES: u64 = 160;
const FIRST_BYTES: u64 = 2 << 20;

/// Returns bytes that do not compress.
fn value(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut value = vec![0; VALUE_BYTES];
    value.fill_with(|| random.below(256) as u8);
    value
}

fn put(db: &Db, number: u64) -> pandodb::Result<()> {
    let table = db.table("t")?;
    table.put_with(&number.to_be_bytes(), &value(number), NONE)?;
    if number % 4 == 3 {
        db.checkpoint()?;
    }
    Ok(())
}

fn data_bytes(device: &FaultyDevice) -> u64 {
    let any = AnyDevice::from(device.clone());
    any.open("data", OpenOptions::read())
        .unwrap()
        .len()
        .unwrap()
}

/// Returns a store whose file is about to grow, and the number of its entries.
fn almost_full() -> (FaultyDevice, u64) {
    let device = FaultyDevice::new(SEED);
    let db = store::open(SEED, &device).unwrap();
    let mut kept = (device.after_crash(1, MODES[1]), 0);
    for entry in 0..ENTRIES {
        put(&db, entry).unwrap();
        if data_bytes(&device) > FIRST_BYTES {
            return kept;
        }
        if entry % 4 == 3 {
            kept = (device.after_crash(1, MODES[1]), entry + 1);
        }
    }
    panic!("the file has not grown");
}

/// Puts `count` entries from `start` on, or fewer if the device crashes. Returns the number of the
/// entry after the last put that returned.
fn live(device: &FaultyDevice, start: u64, count: u64) -> u64 {
    let Ok(db) = store::open(SEED, device) else {
        return start;
    };
    (start..start + count)
        .find(|entry| put(&db, *entry).is_err())
        .unwrap_or(start + count)
}

#[test]
fn a_crash_while_the_data_file_grows_loses_nothing_that_was_in_a_checkpoint() {
    const COUNT: u64 = 24;
    let (before, start) = almost_full();
    let whole = before.after_crash(1, MODES[1]);
    assert_eq!(live(&whole, start, COUNT), start + COUNT);
    assert!(data_bytes(&whole) > FIRST_BYTES);
    let points = number("PANDO_CRASH_POINTS", 12).max(1);
    let spread = |all: u64| (1..=all).step_by((all / points).max(1) as usize);
    let syncs = spread(whole.sync_points()).map(|point| (point, true));
    let writes = spread(whole.writes()).map(|point| (point, false));
    let mut grown = 0;
    for (point, at_sync) in syncs.chain(writes) {
        let device = before.after_crash(1, MODES[1]);
        match at_sync {
            true => device.crash_at_sync(point),
            false => device.crash_after_writes(point),
        }
        let returned = live(&device, start, COUNT);
        device.crash_now();
        for mode in MODES {
            let place = format!("{point} {at_sync} {mode:?}");
            let after = device.after_crash(point, mode);
            grown += u64::from(data_bytes(&after) > FIRST_BYTES);
            store::verify(&after).unwrap();
            let db = store::open(SEED, &after).unwrap();
            let table = db.table("t").unwrap();
            let there = table.len();
            // The store has a prefix of the entries, with all that were in a checkpoint that
            // returned.
            assert!(
                there >= returned - returned % 4 && there <= returned + 1,
                "{place}: {there}"
            );
            for entry in 0..there {
                let found = table.get(&entry.to_be_bytes()).unwrap();
                assert!(found == Some(value(entry)), "{place}: {entry}");
            }
            put(&db, there).unwrap();
            drop(table);
            db.close().unwrap();
            store::verify(&after).unwrap();
        }
    }
    assert!(grown > 0, "no crash came after the file had grown");
}
