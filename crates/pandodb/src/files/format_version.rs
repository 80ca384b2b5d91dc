//! Version of the format that a store has: the least one that has all that the store uses.
//!
//! A store of which a program knows no later version can be opened by that program. So what needs a
//! later version asks for it first, and is used only once both slots of the superblock have it:
//! from then on an older program refuses the store by name.

use pando_format::superblock::Superblock;
use pando_sync::atomic::{AtomicU32, Ordering};

/// The version that the next checkpoint writes, and the one that the last checkpoint has written.
#[derive(Debug)]
pub(crate) struct FormatVersion {
    wanted: AtomicU32,
    written: AtomicU32,
}

impl FormatVersion {
    /// Begins with the version of the superblock that was read or is about to be written.
    pub(crate) fn new(version: u32) -> Self {
        Self {
            wanted: AtomicU32::new(version),
            written: AtomicU32::new(version),
        }
    }

    /// Makes each checkpoint that begins from now on write at least this version.
    pub(crate) fn want(&self, version: u32) {
        // Release: the checkpoint that the caller asks for after this sees it.
        self.wanted.fetch_max(version, Ordering::Release);
    }

    /// Returns the version for a superblock.
    pub(crate) fn for_superblock(&self) -> u32 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Notes that both slots of the superblock were written, and returns it.
    pub(crate) fn written(&self, superblock: Superblock) -> Superblock {
        // Release: whoever sees it may use what the version has.
        self.written
            .fetch_max(superblock.version, Ordering::Release);
        superblock
    }

    /// Returns whether what this version has may be used.
    pub(crate) fn has(&self, version: u32) -> bool {
        self.written.load(Ordering::Acquire) >= version
    }
}
