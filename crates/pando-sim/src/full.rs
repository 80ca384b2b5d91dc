//! Full disks: at each single write of a workload, for good until there is room, and with every
//! frame dirty (decision 037).
//!
//! Nothing is lost, reads still work, deletes are accepted, and the store recovers by itself.

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation, Random};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Durability, Error, Table, WriteOptions};

use crate::crash::limit;
use crate::failure::{Result, fail};
use crate::faults::{FaultCase, FaultCounts, RESUME_TRIES, Stage, no_errors, open, unexpected};
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan};

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Makes every `step`-th write of the workload of `seed` find the disk full: once alone, and once
/// with all writes after it until there is room.
///
/// # Errors
/// The failure of the first case that failed.
pub fn sweep(seed: u64, step: u64) -> Result<FaultCounts> {
    let mut counts = FaultCounts::default();
    for sticky in [false, true] {
        let mut nth = 1 + seed % step;
        loop {
            let done = FaultCase {
                seed,
                stage: Stage::Work,
                operation: Operation::Write,
                full: true,
                sticky,
                nth,
            }
            .run()?;
            counts.add(done);
            if done.struck == 0 {
                // The workload has fewer writes.
                break;
            }
            nth += step;
        }
    }
    Ok(counts)
}

/// The device accepts no page writes, and puts run until they are refused. Reads, also of pages
/// that are not in memory, and deletes must still work; once there is room, puts must work again by
/// themselves.
///
/// # Errors
/// What is wrong.
pub fn fill_frames(seed: u64) -> Result<FaultCounts> {
    let command = format!("cargo run -p pando-sim -- full --seed {seed}");
    let _watchdog = Watchdog::new(limit(), command.clone());
    dirty(seed).map_err(|failure| failure.within(format!("replay: {command}\n ")))
}

fn key(number: u64) -> [u8; 8] {
    // Adjacent numbers lie in different leaves.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Checks that the numbers below `end` have their values, except those that were deleted.
fn check_numbers(table: &Table, end: u64, deleted: u64) -> Result<()> {
    for number in 0..end {
        match table.get(&key(number)) {
            Ok(found) if found.is_some() == (number >= deleted) => {}
            other => return fail(format!("{number} of {end}, {deleted} deleted: {other:?}")),
        }
    }
    Ok(())
}

fn dirty(seed: u64) -> Result<FaultCounts> {
    const STORED: u64 = 4000;
    const WRITES_MAX: u64 = 100_000;
    let device = FaultyDevice::new(seed);
    let db = open(seed, &device)?;
    let table = db.table("t").map_err(unexpected("creating a table"))?;
    for number in 0..STORED {
        let put = table.put_with(&key(number), &[7; 200], NONE);
        put.map_err(unexpected("filling"))?;
    }
    db.checkpoint().map_err(unexpected("a checkpoint"))?;
    device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
    let mut number = STORED;
    let refused = loop {
        match table.put_with(&key(number), &[8; 200], NONE) {
            Ok(()) => number += 1,
            Err(Error::Full { what }) => break what,
            Err(error) => return fail(format!("put {number}: {error}")),
        }
        if number > WRITES_MAX {
            return fail("pages cannot be written, and puts are never refused");
        }
    };
    check_numbers(&table, number, 0).map_err(|failure| failure.within(refused))?;
    let mut deleted = 0;
    loop {
        match table.delete_with(&key(deleted), NONE) {
            Ok(true) => deleted += 1,
            // No frame is left that may be dirtied.
            Err(Error::Full { .. }) => break,
            other => return fail(format!("delete {deleted}: {other:?}")),
        }
        if deleted == STORED {
            break;
        }
    }
    check_numbers(&table, number, deleted)?;
    device.clear_faults();
    let mut tries = 0;
    while let Err(error) = table.put_with(&key(number), &[9], NONE) {
        tries += 1;
        if tries > RESUME_TRIES || !matches!(error, Error::Full { .. }) {
            return fail(format!("still refused when there is room: {error}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    check_numbers(&table, number + 1, deleted)?;
    if table.len() != number + 1 - deleted {
        return fail(format!("{} entries are counted", table.len()));
    }
    drop(table);
    db.close().map_err(unexpected("closing"))?;
    store::verify(&device)?;
    let db = open(seed, &device)?;
    let table = db.table("t").map_err(unexpected("opening a table"))?;
    check_numbers(&table, number + 1, deleted)?;
    Ok(FaultCounts {
        cases: 1,
        struck: device.faults_struck(),
        refused: 1,
        ..FaultCounts::default()
    })
}

/// Fills a disk, which gets room again later: nothing is lost, reads still work, and the store
/// recovers by itself.
///
/// # Errors
/// What is wrong.
pub fn fill_disk(seed: u64) -> Result<FaultCounts> {
    let command = format!("cargo run -p pando-sim -- full --seed {seed}");
    let _watchdog = Watchdog::new(limit(), command.clone());
    fill(seed).map_err(|failure| failure.within(format!("replay: {command}\n ")))
}

/// Returns a value that does not compress, or, for one number in four, does: so pages take
/// different amounts of space.
fn ballast(number: u64) -> Vec<u8> {
    let mut value = vec![7; 20_000];
    if !number.is_multiple_of(4) {
        let mut random = Random::new(number);
        value.fill_with(|| random.number().to_le_bytes()[0]);
    }
    value
}

fn fill(seed: u64) -> Result<FaultCounts> {
    let device = FaultyDevice::new(seed);
    // The initial files take 8 MiB of pages and 2 MiB of log.
    device.set_capacity(13 << 20);
    let plan = Plan {
        keys: 600,
        ..Plan::of_seed(seed, 2400)
    };
    let db = open(seed, &device)?;
    let table = db
        .table("ballast")
        .map_err(unexpected("creating a table"))?;
    let mut stored = 0_u64;
    let refused = loop {
        match table.put_with(&stored.to_be_bytes(), &ballast(stored), NONE) {
            Ok(()) => stored += 1,
            Err(Error::Full { what }) if what.is_empty() => {
                return fail("refused without a reason");
            }
            Err(Error::Full { .. }) => break stored,
            Err(error) => return fail(format!("put {stored} on a full disk: {error}")),
        }
        if stored > 2000 {
            return fail("a disk of 13 MiB took 40 MB");
        }
    };
    let count = table.iter().filter(|entry| entry.is_ok()).count() as u64;
    if count != stored || table.len() != stored {
        return fail(format!(
            "{stored} were put, {count} are there, {} counted",
            table.len()
        ));
    }
    for number in 0..stored / 2 {
        match table.delete_with(&number.to_be_bytes(), NONE) {
            Ok(true) => {}
            other => return fail(format!("delete {number} on a full disk: {other:?}")),
        }
    }
    device.set_capacity(1 << 30);
    db.checkpoint().map_err(unexpected("a checkpoint"))?;
    let mut tries = 0;
    while let Err(error) = table.put_with(b"again", b"1", NONE) {
        tries += 1;
        if tries > 200 {
            return fail(format!("still refused when there is room: {error}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    drop(table);
    db.drop_table("ballast")
        .map_err(unexpected("dropping a table"))?;
    let run = workload::run(&db, plan, &[])?;
    no_errors(&run)?;
    db.close().map_err(unexpected("closing"))?;
    store::verify(&device)?;
    Ok(FaultCounts {
        cases: 1,
        refused,
        ..FaultCounts::default()
    })
}
