//! Discarded blocks: free space that the file system has (decision 042).

use pando_device::Error as DeviceError;
use pando_format::Extent;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

/// Blocks that were given back to the file system.
#[derive(Debug)]
pub(crate) struct Discards {
    /// Discards are asked for, and the file system supports them.
    pub(crate) on: AtomicBool,
    /// The discarded extents; the allocator sees them as allocated.
    pub(crate) extents: Mutex<Vec<Extent>>,
    /// Their number of blocks. Written under the lock of `extents`.
    blocks: AtomicU64,
    /// Why discards were turned off.
    failure: Mutex<Option<String>>,
}

impl Default for Discards {
    fn default() -> Self {
        Self {
            on: AtomicBool::new(false),
            extents: Mutex::new(Rank::Discards, Vec::new()),
            blocks: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }
}

impl Discards {
    /// Number of discarded blocks: free, but not for the allocator.
    pub(crate) fn blocks(&self) -> u64 {
        // Relaxed: for information only.
        self.blocks.load(Ordering::Relaxed)
    }

    /// Why nothing is discarded although it was asked for; None if nothing failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Notes that `extents` have changed; the caller holds their lock.
    pub(crate) fn note(&self, extents: &[Extent]) {
        self.blocks.store(sum(extents), Ordering::Relaxed);
    }

    /// Turns discards off: the file system refused one.
    pub(crate) fn fail(&self, error: &DeviceError) {
        self.on.store(false, Ordering::Relaxed);
        *self.failure.lock() = Some(format!("discards: {error}"));
    }
}

/// Total number of blocks of `extents`.
pub(crate) fn sum(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.blocks)).sum()
}
