//! A full disk on which everything is deleted, as fast as threads can (decision 058).
//!
//! Each delete changes a page that is then written to a free block, and only a checkpoint frees the
//! page's old block: between two checkpoints, which nobody requests, there are many more deletes
//! than the reserve has room for. None is refused, whichever call makes it, and in the end
//! everything is gone.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use pando_device::FaultyDevice;
use pando_device::faulty::Random;
use pando_sync::{park, thread, thread_waker};
use pandodb::{Batch, Db, Durability, Error, Table, WriteOptions};

use crate::crash::limit;
use crate::failure::{Result, fail};
use crate::faults::{FaultCounts, open, unexpected};
use crate::store;
use crate::watchdog::Watchdog;

const THREADS: u64 = 3;
/// Two values fit into a page of 4 KiB; they do not compress.
const VALUE_BYTES: usize = 1800;
const WRITES_MAX: u64 = 20_000;
/// Deletes per batch.
const BATCH: u64 = 20;
const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Fills a disk of 13 MiB and empties it.
///
/// # Errors
/// What is wrong, with the command that repeats the case.
pub fn empty(seed: u64) -> Result<FaultCounts> {
    let command = format!("cargo run -p pando-sim -- full --seed {seed}");
    let _watchdog = Watchdog::new(limit(), command.clone());
    empty_full(seed).map_err(|failure| failure.within(format!("replay: {command}\n ")))
}

/// Adjacent keys belong to different threads, and lie far apart.
fn key(thread: u64, number: u64) -> [u8; 8] {
    (number * THREADS + thread)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()
}

fn empty_full(seed: u64) -> Result<FaultCounts> {
    let device = FaultyDevice::new(seed);
    // The initial files take 8 MiB of pages and 2 MiB of log.
    device.set_capacity(13 << 20);
    let db = open(seed, &device)?;
    let table = db.table("t").map_err(unexpected("creating a table"))?;
    let ends = on_threads(|thread| fill(&table, thread))?;
    let stored: u64 = ends.iter().sum();
    if table.len() != stored {
        return fail(format!("{} are counted of {stored}", table.len()));
    }
    on_threads(|thread| {
        let end = ends[usize::try_from(thread).expect("one of a few")];
        delete_all(&db, &table, thread, end)
    })?;
    if !table.is_empty() || table.iter().next().is_some() {
        return fail(format!("{} are left of {stored}", table.len()));
    }
    db.checkpoint().map_err(unexpected("a checkpoint"))?;
    table
        .put_with(b"again", &[1; VALUE_BYTES], NONE)
        .map_err(unexpected("a put when all is deleted"))?;
    drop(table);
    db.close().map_err(unexpected("closing"))?;
    store::verify(&device)?;
    Ok(FaultCounts {
        cases: 1,
        refused: THREADS,
        ..FaultCounts::default()
    })
}

fn on_threads<T: Send>(work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => fail("a thread panicked"),
        });
        joined.collect()
    })
}

/// Puts until a put is refused; returns the number of puts that succeeded.
fn fill(table: &Table, thread: u64) -> Result<u64> {
    let mut random = Random::new(thread);
    let mut value = [0; VALUE_BYTES];
    for number in 0..WRITES_MAX {
        value.fill_with(|| random.number().to_le_bytes()[0]);
        match table.put_with(&key(thread, number), &value, NONE) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return Ok(number),
            Err(error) => return fail(format!("put {number} of {thread}: {error}")),
        }
    }
    fail("a disk of 13 MiB took 100 MB")
}

/// Deletes everything: one by one, in batches, and with futures.
fn delete_all(db: &Db, table: &Table, thread: u64, end: u64) -> Result<()> {
    let mut number = 0;
    while number < end {
        let done = match number / BATCH % 3 {
            0 => table.delete_with(&key(thread, number), NONE),
            1 => wait_for(table.delete_async(&key(thread, number))),
            _ => {
                let mut batch = Batch::new();
                for number in number..end.min(number + BATCH) {
                    batch.delete(table, &key(thread, number));
                }
                number += batch.len() as u64 - 1;
                db.write(&mut batch, NONE).map(|()| true)
            }
        };
        match done {
            Ok(true) => number += 1,
            other => return fail(format!("delete {number} of {end} of {thread}: {other:?}")),
        }
    }
    Ok(())
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = thread_waker();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => park(),
        }
    }
}
