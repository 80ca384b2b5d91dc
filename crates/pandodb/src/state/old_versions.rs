//! Registered snapshots and the values that they still read, and the commits that wait for room for
//! such values (decision 067).

use pando_format::PageSize;
use pando_stats::Statistics;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, WaitList};
use pando_versions::{Snapshots, Versions};

use crate::error::{Error, Result};
use crate::memory_share::MemoryShare;

/// Bytes of a version besides its key and its value: tree, LSN, groups, slot.
const VERSION_BYTES: u64 = 40;
/// A batch that needs at most one in this many frames need not be measured.
const LITTLE_SHARE: u64 = 16;

/// Snapshots and old versions of one store.
#[derive(Debug)]
pub(crate) struct OldVersions {
    pub(crate) snapshots: Snapshots,
    pub(crate) versions: Versions,
    /// Commits that wait for room for versions.
    pub(crate) waiters: WaitList,
    /// The most frames that a waiting commit has asked for since the last look; 0 if none has.
    wanted: AtomicU64,
    /// Largest record that is stored in a leaf of the store, without its key.
    inline_bytes_max: u64,
}

impl OldVersions {
    /// Returns no snapshots and no versions, for a store with pages of `page_size`; versions will
    /// take at most `bytes` of memory.
    pub(crate) fn new(
        page_size: PageSize,
        bytes: u64,
        statistics: Arc<Statistics>,
    ) -> Result<Self> {
        let versions = Versions::new(page_size, bytes, statistics);
        let versions = versions.map_err(|error| Error::unmapped("old versions", error))?;
        Ok(Self {
            snapshots: Snapshots::new(),
            versions,
            waiters: WaitList::new(),
            wanted: AtomicU64::new(0),
            inline_bytes_max: page_size.bytes() as u64 / 2,
        })
    }

    /// Returns the most frames that the versions of a batch need: `writes` writes, whose keys have
    /// `key_bytes` together, and which replace records of `old_bytes` in leaves. Values outside of
    /// leaves are not copied.
    pub(crate) fn frames_for(&self, writes: u64, key_bytes: u64, old_bytes: u64) -> u64 {
        let bytes = version_bytes(writes, key_bytes, old_bytes);
        self.versions.frames_for(writes, bytes)
    }

    /// Returns whether the versions of such a batch have room if there are no others.
    pub(crate) fn fit_alone(&self, writes: u64, key_bytes: u64, old_bytes: u64) -> bool {
        let bytes = version_bytes(writes, key_bytes, old_bytes);
        self.versions.fit_alone(writes, bytes)
    }

    /// Bytes of the largest record that is stored in a leaf of the store, without its key.
    pub(crate) fn inline_bytes_max(&self) -> u64 {
        self.inline_bytes_max
    }

    /// Returns whether so many frames may be reserved without a closer look.
    pub(crate) fn is_little(&self, frames: u64) -> bool {
        frames <= self.versions.frames() / LITTLE_SHARE
    }

    /// Returns how much memory versions take.
    pub(crate) fn memory(&self) -> MemoryShare {
        let frame = self.versions.frame_bytes();
        MemoryShare {
            budget_bytes: self.versions.frames() * frame,
            used_bytes: self.versions.used() * frame,
        }
    }

    /// Notes that a commit waits for `frames` frames.
    pub(crate) fn want(&self, frames: u64) {
        // Relaxed: the thread that makes room is woken afterwards.
        self.wanted.fetch_max(frames, Ordering::Relaxed);
    }

    /// Returns whether a commit may wait for room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Takes the number of frames that commits wait for.
    pub(crate) fn take_wanted(&self) -> u64 {
        self.wanted.swap(0, Ordering::Relaxed)
    }
}

/// Returns the bytes of the versions of a batch: see [`OldVersions::frames_for`].
fn version_bytes(writes: u64, key_bytes: u64, old_bytes: u64) -> u64 {
    key_bytes * 9 / 8 + writes * VERSION_BYTES + old_bytes
}
