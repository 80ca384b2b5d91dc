//! Making the data file durable, for all threads that ask.
//!
//! A write-back that fails is told to one of the threads that sync a file, once; a sync of another
//! thread that begins or ends a moment later succeeds, and what the failed one was to write is not
//! on disk (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So syncs
//! take turns, and one that fails poisons the store before the next begins. Whoever finds that a
//! sync has begun after it had asked, and succeeded, needs none of its own.

use pando_device::File;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};
use crate::store::Store;

/// The syncs of the data file.
#[derive(Debug)]
pub(crate) struct DataSyncs {
    /// How often somebody asked for one.
    asked: AtomicU64,
    /// How many of those were served. Held during a sync.
    served: Mutex<u64>,
}

impl Default for DataSyncs {
    fn default() -> Self {
        Self {
            asked: AtomicU64::new(0),
            served: Mutex::new(Rank::DataSync, 0),
        }
    }
}

impl Store {
    /// Makes durable what was written to the data file before the call. Blocks.
    ///
    /// # Errors
    /// What the device reports: the store is poisoned then. That the store is poisoned.
    pub(crate) fn sync_data(&self, during: &'static str) -> Result<()> {
        // Release: whoever sees this ticket sees, and syncs, what was written before it.
        let ticket = 1 + self.data_syncs.asked.fetch_add(1, Ordering::Release);
        let mut served = self.data_syncs.served.lock();
        // Behind the lock: a sync that failed has poisoned the store before it let go of it.
        self.check_poison()?;
        if *served >= ticket {
            return Ok(());
        }
        // Acquire: pairs with the Release of each ticket that is served here.
        let serves = self.data_syncs.asked.load(Ordering::Acquire);
        self.data.sync().map_err(|error| {
            let error = Error::io_fatal(during)(error);
            self.poison(&error);
            error
        })?;
        *served = serves;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
    use pando_device::{AnyDevice, Device, File, IoBuf, OpenOptions};
    use pando_sync::thread;

    use crate::Db;
    use crate::engine::Engine;
    use crate::mapping_files::DATA;

    fn open(device: &FaultyDevice) -> Engine {
        let options = Db::builder().max_memory(16 << 20);
        crate::open::open(AnyDevice::from(device.clone()), options).unwrap()
    }

    /// What a sync that failed was to write is lost, whoever syncs next.
    #[test]
    fn a_sync_that_fails_fails_for_all_that_ask() {
        for _ in 0..20 {
            let device = FaultyDevice::new(1);
            let engine = open(&device);
            device.fail(FaultPlan::once(Operation::Sync, DATA, 1, Fault::Io));
            thread::scope(|scope| {
                let ask = || engine.sync_data("syncing").is_ok();
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                for thread in threads {
                    assert!(!thread.join().unwrap(), "told that what is lost is durable");
                }
            });
        }
    }

    #[test]
    fn what_was_written_before_is_durable_behind() {
        for _ in 0..20 {
            let device = FaultyDevice::new(1);
            let engine = open(&device);
            let block = engine.space.block_bytes();
            let first = engine.space.blocks();
            engine.space.want(first);
            engine.space.grow_if_wanted(0);
            thread::scope(|scope| {
                for number in 0..8 {
                    let engine = &engine;
                    scope.spawn(move || {
                        let mut bytes = IoBuf::new(block as usize);
                        bytes.fill(1 + number as u8);
                        let place = (first + number) * block;
                        engine.data.write_at(&bytes, place).unwrap();
                        engine.sync_data("syncing").unwrap();
                    });
                }
            });
            device.crash_now();
            let after = device.after_crash(1, CrashMode::AllLost);
            let file = after.open(DATA, OpenOptions::read()).unwrap();
            for number in 0..8 {
                let mut bytes = IoBuf::new(block as usize);
                file.read_at(&mut bytes, (first + number) * block).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 1 + number as u8));
            }
        }
    }
}
