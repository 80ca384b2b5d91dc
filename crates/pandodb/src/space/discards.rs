//! What was discarded: space that is free, and that the file system has.

use pando_device::Error as DeviceError;
use pando_format::Extent;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

/// What was given back to the file system.
#[derive(Debug)]
pub(crate) struct Discards {
    /// They are asked for, and the file system can.
    pub(crate) on: AtomicBool,
    /// To the allocator they are taken.
    pub(crate) extents: Mutex<Vec<Extent>>,
    /// Their sum; written under the lock of `extents`.
    blocks: AtomicU64,
    /// Why there are none any more.
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
    /// Blocks that were given back, and are free but to the allocator.
    pub(crate) fn blocks(&self) -> u64 {
        // Relaxed: a figure.
        self.blocks.load(Ordering::Relaxed)
    }

    /// Why nothing is discarded though that was asked for.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// The extents have changed: the caller holds their lock.
    pub(crate) fn note(&self, extents: &[Extent]) {
        self.blocks.store(sum(extents), Ordering::Relaxed);
    }

    /// The file system does not take anything back.
    pub(crate) fn fail(&self, error: &DeviceError) {
        self.on.store(false, Ordering::Relaxed);
        *self.failure.lock() = Some(format!("discards: {error}"));
    }
}

/// Blocks of them.
pub(crate) fn sum(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.blocks)).sum()
}
