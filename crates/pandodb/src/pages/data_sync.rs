//! Makes the data file durable for all threads that ask.
//!
//! The kernel reports a failed write-back to one of the threads that sync a file, once. A sync of
//! another thread that begins or ends a moment later succeeds, although the data of the failed one
//! is not on disk (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So
//! syncs run one at a time, and a sync that fails poisons the store before the next one begins. A
//! thread needs no sync of its own if one has begun after the thread asked for it, and has
//! succeeded.

use pando_device::{AnyFile, File};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};

/// The syncs of the data file.
#[derive(Debug)]
pub(crate) struct DataSyncs {
    /// Number of requests for a sync so far.
    asked: AtomicU64,
    /// Number of those requests that have been served. Locked during a sync.
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
    /// Makes durable what was written to `file` before the call. Blocks. Calls `check` before a
    /// sync; on an error calls `fail` before anybody else's sync begins.
    ///
    /// # Errors
    /// The error of `check`; what the device reports.
    pub(crate) fn sync(
        &self,
        file: &AnyFile,
        during: &'static str,
        check: impl FnOnce() -> Result<()>,
        fail: impl FnOnce(&Error),
    ) -> Result<()> {
        // Release: a thread that reads this ticket sees, and syncs, what was written before it.
        let ticket = 1 + self.asked.fetch_add(1, Ordering::Release);
        let mut served = self.served.lock();
        // Check under the lock: a sync that failed has reported it before it released the lock.
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
    use crate::files::names::DATA;

    fn open(device: &FaultyDevice) -> Engine {
        let options = Db::builder().max_memory(16 << 20);
        crate::recovery::open::open(AnyDevice::from(device.clone()), options).unwrap()
    }

    /// A failed sync loses the writes it was for, whichever thread syncs next.
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
                    assert!(
                        !thread.join().unwrap(),
                        "a lost write was reported as durable"
                    );
                }
            });
        }
    }

    /// A write that was made before a call is durable when the call returns, whichever thread has
    /// synced.
    #[test]
    fn what_was_written_before_is_durable_behind() {
        for _ in 0..20 {
            let device = FaultyDevice::new(1);
            let engine = open(&device);
            let block = engine.store.space.block_bytes();
            let first = engine.store.space.blocks();
            engine.store.space.want(first);
            engine
                .store
                .space
                .grow_if_wanted(0, |_| crate::space::growth::MadeRoom::None);
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
