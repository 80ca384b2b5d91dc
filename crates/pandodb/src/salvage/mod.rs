//! A way out for damaged stores: everything that can be read goes into a new store, and what cannot
//! be read is listed. The damaged store is only read (decision 062).
//!
//! ```text
//! superblock, mapping      what is sound of them           source, mapping
//! catalogue, garbage table names, writes that were aside   names
//! each table               its leaves, found or guessed    walk -> copy
//! writes that were aside   by key, the oldest first        changes
//! the log                  by key, batch by batch          changes
//! ```
//! No value is made up: what is copied has been read whole, with its checksums. What lies below a
//! node that cannot be read is looked for among all pages; the range of that node counts as lost
//! all the same, since nobody knows whether all of it was found.

mod changes;
mod copy;
mod mapping;
mod names;
mod source;
mod walk;

use std::path::Path;

use pando_device::{AnyDevice, Device, DirectoryDevice};

use crate::api::db::Db;
use crate::error::{Error, Result};
use crate::options::{Builder, Durability};
use crate::verify::walk::Damage;

use changes::Changes;
use copy::Copier;
use names::Names;
use source::Source;
use walk::Walker;

/// A table as it was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedTable {
    /// Its name: `lost/` and the number of its tree when its own is lost.
    pub name: String,
    /// Its entries in the new store.
    pub rows: u64,
    /// Bytes of keys and values that were copied for it.
    pub bytes: u64,
}

/// Keys of which some, or all, are not in the new store, or are older there than they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    /// The table.
    pub table: String,
    /// The first key.
    pub from: Vec<u8>,
    /// The first key behind it; None: up to the end of the table.
    pub to: Option<Vec<u8>>,
    /// Rows in it that were found though what leads to them could not be read.
    pub found: u64,
    /// What could not be read.
    pub why: String,
}

impl LostRange {
    /// True if `key` lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.to.as_ref().is_none_or(|to| *key < **to)
    }
}

/// What [`salvage`] has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// What is in the new store.
    pub tables: Vec<SalvagedTable>,
    /// Batches of the log that were applied.
    pub batches: u64,
    /// Writes that had been put aside and are in their tables now.
    pub writes_aside: u64,
    /// Keys that are lost, by table and key.
    pub lost: Vec<LostRange>,
    /// Damage that may have cost more than `lost` says: it names no keys.
    pub unbounded: Vec<Damage>,
    /// Damage that cost nothing beyond what `lost` says.
    pub harmless: Vec<Damage>,
}

impl SalvageReport {
    /// True if everything that the store held is in the new one.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.unbounded.is_empty()
    }

    /// Salvages a store on a device of the caller's, as [`salvage`].
    ///
    /// # Errors
    /// As [`salvage`].
    pub fn of_devices(from: &AnyDevice, into: AnyDevice, options: Builder) -> Result<Self> {
        salvage_devices(from, |_| Ok(into), options, &mut |_, _| ())
    }
}

/// Copies everything that can be read of the store in `directory`, which nobody has open and which
/// is not changed, into a new store in `into`, a directory that is empty or does not exist. Sizes
/// of page and block and the hash key are those of the old store; other `options` count for the
/// new one. `progress` is called with pages done and in all.
///
/// # Errors
/// When there is no store, or no superblock of it that can be read, when it is in use, and whatever
/// goes wrong with the new store. Damage is no error: it is in the report.
pub fn salvage(
    directory: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: Builder,
    mut progress: impl FnMut(u64, u64),
) -> Result<SalvageReport> {
    let from = DirectoryDevice::open_directory(directory.as_ref(), true, 1)
        .map_err(Error::io("opening the directory"))?;
    // Made when there is something to copy.
    let open = |options: &Builder| {
        let directory = into.as_ref().to_owned();
        let threads = options.completion_threads;
        options.io_backend.open_device(directory, threads)
    };
    salvage_devices(&from.into(), open, options, &mut progress)
}

fn salvage_devices(
    from: &AnyDevice,
    open_into: impl FnOnce(&Builder) -> Result<AnyDevice>,
    options: Builder,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SalvageReport> {
    let mut report = SalvageReport::default();
    let source = Source::load(from, &mut report)?;
    let into = open_into(&options)?;
    check_empty(&into)?;
    tracing::info!(
        checkpoint_lsn = source.superblock.checkpoint_lsn.0,
        "salvage begins"
    );
    let mut options = options.durability(Durability::None);
    options.page_size = source.superblock.page_bytes as usize;
    options.block_size = source.superblock.block_bytes as usize;
    options.hash_key = Some(source.superblock.hash_key);
    let db = Db::open_device(options, into)?;
    let salvaged = run(&source, &db, &mut report, progress);
    let closed = db.close();
    salvaged?;
    closed?;
    Ok(report)
}

fn check_empty(into: &AnyDevice) -> Result<()> {
    let names = into
        .list()
        .map_err(Error::io("listing the new directory"))?;
    match names.first() {
        None => Ok(()),
        Some(name) => Err(Error::InvalidOption {
            option: "dir",
            what: format!("holds '{name}'; a new store needs an empty directory"),
        }),
    }
}

fn run(
    source: &Source,
    db: &Db,
    report: &mut SalvageReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut walker = Walker::new(&source.store, progress);
    let names = Names::read(&mut walker, report)?;
    let mut copier = Copier::new(&source.store, db);
    for (name, tree) in &names.tables {
        copier.begin(tree.id, name)?;
        copier.tree(&mut walker, *tree)?;
    }
    for tree in &names.nameless {
        copier.nameless(&mut walker, *tree)?;
    }
    let mut changes = Changes::new(&mut copier, &mut walker, names.is_whole);
    report.writes_aside = changes.aside(&names.aside, report)?;
    report.batches = changes.log(source, report)?;
    copier.finish(report)
}
