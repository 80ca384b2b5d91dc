//! Stores that are closed while one of their files finds the disk full.
//!
//! If there is room again in time, the close succeeds as usual. If not, it fails within its time
//! limit and reports why; nothing that was durable is lost, and if the log could be written,
//! nothing that was acknowledged either.

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::{Durability, Error, WriteOptions};

use crate::failure::{Result, fail};
use crate::faults::{open, unexpected};
use crate::store;
use crate::watchdog::Watchdog;

/// Prefixes of the names of files that a close writes.
pub const FILES: [&str; 4] = ["data", "journal", "superblock", "log/"];
/// Maximum time of a close that finds no room.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);
const ROOM_COMES: Duration = Duration::from_millis(400);
const DURABLE: u64 = 1500;
const QUICK: u64 = 1500;

/// Closes a store whose writes to `file` find the disk full; if `room_comes`, there is room soon
/// after.
///
/// # Errors
/// What is wrong.
pub fn close(seed: u64, file: &str, room_comes: bool) -> Result<()> {
    let what = format!("closing with {file} full, seed {seed}, room comes: {room_comes}");
    let _watchdog = Watchdog::new(4 * CLOSE_LIMIT, what.clone());
    close_full(seed, file, room_comes).map_err(|failure| failure.within(what))
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn close_full(seed: u64, file: &str, room_comes: bool) -> Result<()> {
    let device = FaultyDevice::new(seed);
    let db = open(seed, &device)?;
    let table = db.table("t").map_err(unexpected("creating a table"))?;
    let durable = WriteOptions::durability(Durability::Durable);
    for number in 0..DURABLE {
        let put = table.put_with(&key(number), &[7; 100], durable);
        put.map_err(unexpected("a durable put"))?;
    }
    device.fail(FaultPlan::sticky(Operation::Write, file, 1, Fault::Full));
    let none = WriteOptions::durability(Durability::None);
    let mut acknowledged = DURABLE;
    while acknowledged < DURABLE + QUICK {
        match table.put_with(&key(acknowledged), &[8; 100], none) {
            Ok(()) => acknowledged += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => return fail(format!("put {acknowledged}: {error}")),
        }
    }
    drop(table);
    let began = time::now();
    let closed = thread::scope(|scope| {
        if room_comes {
            scope.spawn(|| {
                thread::sleep(ROOM_COMES);
                device.clear_faults();
            });
        }
        db.close()
    });
    match (&closed, room_comes) {
        (Ok(()), true) => {}
        (Err(error @ (Error::Full { .. } | Error::Poisoned { .. })), false)
            if error.to_string().contains("no space is left") => {}
        _ => return fail(format!("close: {closed:?}")),
    }
    if began.elapsed() > CLOSE_LIMIT {
        return fail(format!("close took {:?}", began.elapsed()));
    }
    device.clear_faults();
    let kept = match file {
        "log/" if !room_comes => DURABLE,
        _ => acknowledged,
    };
    store::verify(&device)?;
    let db = open(seed, &device)?;
    let table = db.table("t").map_err(unexpected("opening a table"))?;
    for number in 0..kept {
        match table.get(&key(number)) {
            Ok(Some(_)) => {}
            other => return fail(format!("{number} of {kept}: {other:?}")),
        }
    }
    if table.len() < kept || table.len() > acknowledged {
        return fail(format!("{} of {kept} to {acknowledged}", table.len()));
    }
    table
        .put(b"again", b"yes")
        .map_err(unexpected("a put after all"))?;
    drop(table);
    db.close().map_err(unexpected("closing with room"))?;
    store::verify(&device)
}
