//! Checks and figures of a store that nobody has open; nothing is written.
//!
//! The newest checkpoint is loaded, without the log: every page of the mapping is read and its
//! checksum and structure checked; the trees are walked; every page has one parent, every block one
//! owner, the counts are those of a scan. The log behind the checkpoint is read and its records are
//! checked, not applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pando_device::{AnyDevice, DirectoryDevice};

use crate::error::{Error, Result};
use crate::options::{Budget, Builder};
use crate::recovery::open::{Loaded, load};
use crate::verify::stat::StoreStat;

use crate::verify::walk::{Damage, Walk};

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Figures of what could be read.
    pub stat: StoreStat,
    /// Pages that were read and checked.
    pub pages_checked: u64,
    /// Pages and chunks that nothing names any more, since what named them could not be read when
    /// it was freed. No damage: they only take room, until the store is compacted.
    pub leaked: u64,
    /// Writes that are in no table: the page of their key could not be read when they were due.
    /// Each is damage, too.
    pub writes_aside: u64,
    /// All that is wrong; empty for a sound store.
    pub damages: Vec<Damage>,
}

/// Checks the store in `directory`: every checksum, every structure, every owner. `progress` is
/// called with pages done and in all.
///
/// # Errors
/// When the store cannot be loaded at all: in use, no store, superblock or mapping damaged.
pub fn verify(directory: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
    let device = DirectoryDevice::open_directory(directory.as_ref(), true, 1);
    verify_device(
        &AnyDevice::from(device.map_err(Error::io("opening the directory"))?),
        progress,
    )
}

/// Figures of the store in `directory`, whose pages are all read for it. Calls `progress` as
/// [`verify`] does.
///
/// # Errors
/// As [`verify`]; the first damage that is met.
pub fn stat(directory: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<StoreStat> {
    let report = verify(directory, progress)?;
    match report.damages.into_iter().next() {
        Some(damage) => Err(Error::corrupt(damage.place, damage.what)),
        None => Ok(report.stat),
    }
}

impl VerifyReport {
    /// Checks a store on a device of the caller's, as [`verify`].
    ///
    /// # Errors
    /// As [`verify`].
    pub fn of_device(device: &AnyDevice) -> Result<Self> {
        verify_device(device, |_, _| ())
    }
}

fn verify_device(device: &AnyDevice, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
    let budget = |page_size| {
        let mut budget = Budget::new(&Builder::default(), page_size);
        // Any store can be looked at, whatever budget it was made with.
        budget.page_ids_max = u32::MAX as usize;
        budget
    };
    let Loaded {
        store, superblock, ..
    } = load(device, budget, None)?;
    let mut walk = Walk {
        store: &store,
        superblock,
        seen: BTreeMap::new(),
        leaks: BTreeSet::new(),
        leaked: 0,
        writes_aside: 0,
        damages: Vec::new(),
        progress,
        done: 0,
    };
    let stored = walk.stored();
    let mut tables = Vec::new();
    for (name, tree, entries) in walk.trees() {
        tables.extend(walk.tree(name, tree, entries));
    }
    walk.orphans();
    let space = store.space.space();
    // Before the extents of the log are taken: they are not the checkpoint's.
    let used = space.blocks() - space.free_blocks();
    let free = space.survey();
    let (chunks, chunk_bytes) = walk.chunks();
    let log = walk.log();
    let stat = StoreStat {
        generation: superblock.generation.0,
        checkpoint_lsn: superblock.checkpoint_lsn.0,
        page_size: superblock.page_bytes,
        block_size: superblock.block_bytes,
        stored,
        data_bytes: store.space.blocks() * store.space.block_bytes(),
        used_bytes: used * store.space.block_bytes(),
        free_runs: free.runs,
        free_run_bytes_max: free.largest_run * store.space.block_bytes(),
        fragmentation_percent: (free.fragmentation() * 100.0).round() as u64,
        chunks,
        chunk_bytes,
        log_batches: log.map_or(0, |log| log.records),
        log_bytes: log.map_or(0, |log| log.bytes),
        tables,
    };
    assert!(
        stat.used_bytes <= stat.data_bytes,
        "blocks that are not there"
    );
    assert!(
        walk.seen.len() as u64 <= walk.done,
        "pages that were not looked at"
    );
    Ok(VerifyReport {
        stat,
        pages_checked: walk.done,
        leaked: walk.leaked,
        writes_aside: walk.writes_aside,
        damages: walk.damages,
    })
}
