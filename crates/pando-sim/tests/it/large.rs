//! A durable put of a large value, a delete of it without a reservation, and puts that could use
//! its blocks. The machine crashes at every sync and at many writes.

use pando_device::{AnyDevice, FaultyDevice};
use pando_sim::crash::MODES;
use pando_sim::panics;
use pando_sim::store;
use pandodb::{Batch, Db, Durability, Table, WriteOptions};

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const DURABLE: WriteOptions = WriteOptions {
    durability: Some(Durability::Durable),
};
const VALUE_BYTES: usize = 5 * 4096 + 1;
const ROUNDS: u8 = 6;

fn open(device: &FaultyDevice) -> pandodb::Result<Db> {
    let options = Db::builder()
        .max_memory(4 << 20)
        .log_bytes(1 << 20)
        .durability(Durability::None)
        .chunk_size(4096)
        .chunk_values_over(6000);
    panics::watch("a store");
    Db::open_device(options, AnyDevice::from(device.clone()))
}

/// The calls that have returned, whose effects must be found.
#[derive(Debug, Default)]
struct Done {
    put: bool,
    delete_begun: bool,
    delete_durable: bool,
}

fn large(seed: u8) -> Vec<u8> {
    let bytes = (0..VALUE_BYTES).map(|at| (at / 7 % 251) as u8 ^ seed);
    bytes.collect()
}

/// Runs one life. With `checkpoints` the delete is durable before its blocks are wanted.
fn live(device: &FaultyDevice, checkpoints: bool, done: &mut Done) -> pandodb::Result<()> {
    let db = open(device)?;
    let table = db.table("t")?;
    table.put_with(b"k", &large(0), DURABLE)?;
    done.put = true;
    done.delete_begun = true;
    table.delete_with(b"k", NONE)?;
    if checkpoints {
        db.checkpoint()?;
        done.delete_durable = true;
    }
    for round in 1..=ROUNDS {
        let mut batch = Batch::new();
        batch.put(&table, b"small", &[round]);
        batch.put(&table, b"large", &large(round));
        db.write(&mut batch, NONE)?;
        if checkpoints && round % 3 == 0 {
            db.checkpoint()?;
        }
    }
    db.flush()?;
    db.close()
}

fn check(table: &Table, done: &Done, place: &str) {
    let found = table.get(b"k").unwrap();
    match found {
        Some(value) => assert!(value == large(0) && !done.delete_durable, "{place}"),
        None => assert!(!done.put || done.delete_begun, "{place}: lost"),
    }
    let small = table.get(b"small").unwrap();
    let found = table.get(b"large").unwrap();
    assert!(found == small.map(|round| large(round[0])), "{place}");
}

#[test]
fn a_large_value_that_is_deleted_without_a_reservation_is_there_whole_or_gone() {
    for checkpoints in [false, true] {
        let whole = FaultyDevice::new(1);
        live(&whole, checkpoints, &mut Done::default()).unwrap();
        let syncs = (1..=whole.sync_points()).map(|point| (point, true));
        let writes = (1..=whole.writes()).step_by(16).map(|point| (point, false));
        for (point, at_sync) in syncs.chain(writes) {
            let device = FaultyDevice::new(point);
            match at_sync {
                true => device.crash_at_sync(point),
                false => device.crash_after_writes(point),
            }
            let mut done = Done::default();
            let _ = live(&device, checkpoints, &mut done);
            device.crash_now();
            for mode in MODES {
                let place = format!("{checkpoints} {point} {at_sync} {mode:?} {done:?}");
                let after = device.after_crash(point, mode);
                let Ok(db) = open(&after) else {
                    // The store does not even exist.
                    assert!(!done.put, "{place}");
                    continue;
                };
                check(&db.table("t").unwrap(), &done, &place);
                db.close().unwrap();
                store::verify(&after).unwrap();
            }
        }
    }
}
