//! Several threads that find the disk full at the same moment.
//!
//! They wait at a barrier while the device loses its room, begin to write together, and continue
//! until each was refused. Where writes wait for a sync that only room can end, room comes after a
//! while. None hangs, none gets an error other than a full disk, what was refused does not exist
//! and everything else does; together they delete, and put again once there is room.

use pando_device::FaultyDevice;
use pando_device::faulty::{Fault, FaultPlan, Operation};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Db, Durability, Error, Table, WriteOptions};

use crate::crash::limit;
use crate::failure::{Result, fail};
use crate::faults::{FULL_TIME, FaultCounts, RESUME_TRIES, open, unexpected};
use crate::store;
use crate::watchdog::Watchdog;

/// Number of threads that write.
const THREADS: u64 = 4;
/// Number of entries of each thread before the disk is full.
const STORED: u64 = 300;
const WRITES_MAX: u64 = 50_000;
const VALUE_BYTES: usize = 700;

/// What a device without room refuses: writes, or the growth of a file.
const REFUSED: [(Operation, &str); 4] = [
    (Operation::Write, ""),
    (Operation::Write, "data"),
    (Operation::Write, "log"),
    (Operation::Allocate, ""),
];

/// Fills the disk under all threads, in each of these ways, for writes that wait for the disk and
/// for writes that do not.
///
/// # Errors
/// What is wrong, with the command that repeats the case.
pub fn meet(seed: u64) -> Result<FaultCounts> {
    let command = format!("cargo run -p pando-sim -- full --seed {seed}");
    let mut counts = FaultCounts::default();
    for (operation, prefix) in REFUSED {
        for durability in [Durability::Durable, Durability::None] {
            let what = format!("{operation:?} of '{prefix}', {durability:?}, replay: {command}");
            let _watchdog = Watchdog::new(limit(), what.clone());
            let fault = FaultPlan::sticky(operation, prefix, 1, Fault::Full);
            let done = Case {
                seed,
                fault,
                options: WriteOptions::durability(durability),
                // A write that is applied already is not refused, but waits for its sync.
                waits: durability == Durability::Durable
                    && operation == Operation::Write
                    && "log".starts_with(prefix),
                has_room: AtomicBool::new(false),
            };
            let done = done.run().map_err(|failure| failure.within(what))?;
            counts.add(done);
        }
    }
    Ok(counts)
}

struct Case {
    seed: u64,
    fault: FaultPlan,
    options: WriteOptions,
    /// Writes wait until there is room, and then succeed.
    waits: bool,
    has_room: AtomicBool,
}

/// Calls `work` on all threads, which begin together; returns their results in the order of
/// threads.
fn together<T: Send>(work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let line = AtomicU64::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (line, work) = (&line, &work);
                scope.spawn(move || {
                    // Relaxed: a barrier that publishes no data.
                    line.fetch_sub(1, Ordering::Relaxed);
                    while line.load(Ordering::Relaxed) > 0 {
                        thread::yield_now();
                    }
                    work(thread)
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => fail("a thread panicked"),
            })
            .collect()
    })
}

/// Adjacent keys belong to different threads.
fn key(thread: u64, number: u64) -> [u8; 8] {
    (number * THREADS + thread).to_be_bytes()
}

fn value(thread: u64, number: u64) -> Vec<u8> {
    let stamp = format!("{thread}/{number}/");
    stamp.bytes().cycle().take(VALUE_BYTES).collect()
}

/// Checks that of a thread's numbers exactly those from `deleted` to `end` have their values.
fn check(table: &Table, thread: u64, deleted: u64, end: u64) -> Result<()> {
    for number in 0..=end {
        let expected = (deleted..end).contains(&number);
        match table.get(&key(thread, number)) {
            Ok(None) if !expected => {}
            Ok(Some(found)) if expected && found == value(thread, number) => {}
            other => {
                let other = other.map(|found| found.map(|value| value.len()));
                return fail(format!(
                    "{number} of {thread}, of {deleted}..{end}: {other:?}"
                ));
            }
        }
    }
    Ok(())
}

impl Case {
    fn run(&self) -> Result<FaultCounts> {
        let device = FaultyDevice::new(self.seed);
        let db = open(self.seed, &device)?;
        let table = db.table("t").map_err(unexpected("creating a table"))?;
        together(|thread| {
            (0..STORED).try_for_each(|number| {
                let value = value(thread, number);
                let put = table.put_with(&key(thread, number), &value, self.options);
                put.map_err(unexpected("filling"))
            })
        })?;
        device.fail(self.fault.clone());
        let ends = thread::scope(|scope| {
            scope.spawn(|| {
                if self.waits {
                    thread::sleep(FULL_TIME);
                    device.clear_faults();
                    // Relaxed: a thread that sees it late makes one more put.
                    self.has_room.store(true, Ordering::Relaxed);
                }
            });
            together(|thread| self.fill(&table, thread))
        })?;
        let of = |all: &[u64], thread: u64| all[usize::try_from(thread).expect("one of a few")];
        together(|thread| check(&table, thread, 0, of(&ends, thread)))?;
        let deleted = together(|thread| self.delete(&table, thread))?;
        device.clear_faults();
        together(|thread| self.put_again(&table, thread, of(&ends, thread)))?;
        let check_all = |table: &Table| {
            together(|thread| check(table, thread, of(&deleted, thread), of(&ends, thread) + 1))
        };
        check_all(&table)?;
        let sum = |all: &[u64]| all.iter().sum::<u64>();
        let expected = sum(&ends) + THREADS - sum(&deleted);
        if table.len() != expected {
            return fail(format!("{} are counted of {expected}", table.len()));
        }
        drop(table);
        self.restart(db, &device, |db| {
            let table = db.table("t").map_err(unexpected("opening a table"))?;
            check_all(&table).map(drop)
        })?;
        Ok(FaultCounts {
            cases: 1,
            struck: device.faults_struck(),
            refused: THREADS,
            ..FaultCounts::default()
        })
    }

    /// Puts until a put is refused, or has waited for room; returns the number after the last one
    /// that was accepted.
    fn fill(&self, table: &Table, thread: u64) -> Result<u64> {
        for number in STORED..WRITES_MAX {
            let value = value(thread, number);
            match table.put_with(&key(thread, number), &value, self.options) {
                Ok(()) if self.has_room.load(Ordering::Relaxed) => return Ok(number + 1),
                Ok(()) => {}
                Err(Error::Full { what }) if !what.is_empty() => return Ok(number),
                Err(error) => return fail(format!("put {number} of {thread}: {error}")),
            }
        }
        fail("the disk is full, and puts are never refused")
    }

    /// Deletes some entries, or as many as are accepted; returns their number.
    fn delete(&self, table: &Table, thread: u64) -> Result<u64> {
        for number in 0..STORED / 4 {
            match table.delete_with(&key(thread, number), self.options) {
                Ok(true) => {}
                Err(Error::Full { .. }) => return Ok(number),
                other => return fail(format!("delete {number} of {thread}: {other:?}")),
            }
        }
        Ok(STORED / 4)
    }

    /// There is room: a put that was refused is accepted after a while.
    fn put_again(&self, table: &Table, thread: u64, number: u64) -> Result<()> {
        let value = value(thread, number);
        for _ in 0..RESUME_TRIES {
            match table.put_with(&key(thread, number), &value, self.options) {
                Ok(()) => return Ok(()),
                Err(Error::Full { .. }) => thread::sleep(Duration::from_millis(10)),
                Err(error) => return fail(format!("with room again: {error}")),
            }
        }
        fail("still refused when there is room")
    }

    /// Closes the store and opens it again.
    fn restart(
        &self,
        db: Db,
        device: &FaultyDevice,
        check: impl Fn(&Db) -> Result<()>,
    ) -> Result<()> {
        db.close().map_err(unexpected("closing"))?;
        store::verify(device)?;
        check(&open(self.seed, device)?)
    }
}
