//! Making the data file durable, for all threads that ask.
//!
//! A write-back that fails is told to one of the threads that sync a file, once; a sync of another
//! thread that begins or ends a moment later succeeds, and what the failed one was to write is not
//! on disk (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So syncs
//! take turns, and one that fails poisons the store before the next begins. Whoever finds that a
//! sync has begun after it had asked, and succeeded, needs none of its own.

use pando_device::{AnyFile, File};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};

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

impl DataSyncs {
    /// Makes durable what was written to `file` before the call. Blocks. `check` is asked before,
    /// and `fail` is told of an error, before anybody else's sync begins.
    ///
    /// # Errors
    /// That of `check`; what the device reports.
    pub(crate) fn sync(
        &self,
        file: &AnyFile,
        during: &'static str,
        check: impl FnOnce() -> Result<()>,
        fail: impl FnOnce(&Error),
    ) -> Result<()> {
        // Release: whoever sees this ticket sees, and syncs, what was written before it.
        let ticket = 1 + self.asked.fetch_add(1, Ordering::Release);
        let mut served = self.served.lock();
        // After the lock: a sync that failed has said so before it let go of it.
        check()?;
        if *served >= ticket {
            return Ok(());
        }
        // Acquire: pairs with the Release of each ticket that is served here.
        let serves = self.asked.load(Ordering::Acquire);
        file.sync().map_err(|error| {
            let error = Error::io_fatal(during)(error);
            fail(&error);
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
    use crate::files::mapping::DATA;

    fn open(device: &FaultyDevice) -> Engine {
        let options = Db::builder().max_memory(16 << 20);
        crate::recovery::open::open(AnyDevice::from(device.clone()), options).unwrap()
    }

    /// What a sync that failed was to write is lost, whoever syncs next.
    #[test]
    fn a_sync_that_fails_fails_for_all_that_ask() {
        for _ in 0..20 {
            let device = FaultyDevice::new(1);
            let engine = open(&device);
            device.fail(FaultPlan::once(Operation::Sync, DATA, 1, Fault::Io));
            thread::scope(|scope| {
                let ask = || engine.store.sync_data("syncing").is_ok();
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
            let block = engine.store.space.block_bytes();
            let first = engine.store.space.blocks();
            engine.store.space.want(first);
            engine.store.space.grow_if_wanted(0);
            thread::scope(|scope| {
                for number in 0..8 {
                    let engine = &engine;
                    scope.spawn(move || {
                        let mut bytes = IoBuf::new(block as usize);
                        bytes.fill(1 + number as u8);
                        let place = (first + number) * block;
                        engine.store.data.write_at(&bytes, place).unwrap();
                        engine.store.sync_data("syncing").unwrap();
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
