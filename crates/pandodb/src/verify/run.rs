//! Checks and figures of a store that nobody has open; writes nothing.
//!
//! Loads the newest checkpoint, without the log. Every page of the mapping is read, and its
//! checksum and structure are checked. The trees are walked: every page has one parent, every block
//! has one owner, and the counts are those of a scan. The log after the checkpoint is read and its
//! records are checked, but not applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pando_device::{AnyDevice, DirectoryDevice};

use crate::error::{Error, Result};
use crate::options::{Budget, Builder};
use crate::pages::codec_sample::known_compression;
use crate::recovery::open::{Access, Loaded, load};
use crate::verify::stat::StoreStat;

use crate::verify::walk::{Damage, Walk};

/// Result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Figures of everything that could be read.
    pub stat: StoreStat,
    /// Number of pages that were read and checked.
    pub pages_checked: u64,
    /// Number of pages and chunks that nothing names, because what named them could not be read
    /// when it was freed. They are not damage, but take space until the store is compacted.
    pub leaked: u64,
    /// Number of writes that are in no table, because the page of their key could not be read when
    /// they were applied. Each of them is also in `damages`.
    pub writes_aside: u64,
    /// Everything that is wrong; empty for a sound store.
    pub damages: Vec<Damage>,
}

/// Checks the store in `directory`: every checksum, every structure, every owner. Calls `progress`
/// with the number of pages done, and of all pages.
///
/// # Errors
/// If the store cannot be loaded: it is in use, there is none, or superblock or mapping are
/// damaged.
pub fn verify(directory: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
    let device = DirectoryDevice::open_directory(directory.as_ref(), true, 1);
    verify_device(
        &AnyDevice::from(device.map_err(Error::io("opening the directory"))?),
        progress,
    )
}

/// Returns figures of the store in `directory`, for which all its pages are read. Calls `progress`
/// as [`verify`] does.
///
/// # Errors
/// As [`verify`]; the first damage that is found.
pub fn stat(directory: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<StoreStat> {
    let report = verify(directory, progress)?;
    match report.damages.into_iter().next() {
        Some(damage) => Err(Error::corrupt(damage.place, damage.what)),
        None => Ok(report.stat),
    }
}

impl VerifyReport {
    /// As [`verify`], for a store on a device of the caller.
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
        // Any store can be read, whatever its budget was when it was created.
        budget.page_ids_max = u32::MAX as usize;
        budget
    };
    let Loaded {
        store, superblock, ..
    } = load(device, budget, Access::Read)?;
    let mut walk = Walk {
        store: &store,
        superblock,
        seen: BTreeMap::new(),
        is_table: false,
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
    // Taken before the extents of the log are marked: those do not belong to the checkpoint.
    let used = space.blocks() - space.free_blocks();
    let free = space.survey();
    let (chunks, chunk_bytes) = walk.chunks();
    let log = walk.log();
    let stat = StoreStat {
        generation: superblock.generation.0,
        checkpoint_lsn: superblock.checkpoint_lsn.0,
        page_size: superblock.page_bytes,
        block_size: superblock.block_bytes,
        compression: known_compression(&superblock)?,
        stored,
        data_bytes: store.space.blocks() * store.space.block_bytes(),
        used_bytes: used * store.space.block_bytes(),
        free_runs: free.runs,
        free_run_bytes_max: free.largest_run * store.space.block_bytes(),
        fragmentation_percent: free.fragmentation_percent(),
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
        "pages that were not counted"
    );
    Ok(VerifyReport {
        stat,
        pages_checked: walk.done,
        leaked: walk.leaked,
        writes_aside: walk.writes_aside,
        damages: walk.damages,
    })
}
