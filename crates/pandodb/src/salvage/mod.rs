//! Salvage of a damaged store: everything that can be read is copied into a new store, and
//! everything else is listed. The damaged store is only read (decision 062).
//!
//! ```text
//! superblock, mapping      their undamaged parts           source, mapping
//! catalogue, garbage table names, writes put aside         names
//! each table               its leaves, found or searched   walk -> copy
//! writes put aside         by key, oldest first            changes
//! the log                  by key, batch by batch          changes
//! ```
//! No value is made up: every copied value was read completely and matched its checksums. If a node
//! cannot be read, all pages are searched for the leaves below it; but its range counts as lost in
//! any case, because nobody knows whether all of them were found.

mod changes;
mod copy;
mod mapping;
mod names;
mod report;
mod source;
mod walk;

use std::path::Path;

use pando_device::{AnyDevice, DirectoryDevice};
use pando_format::PageSize;

use crate::api::db::Db;
use crate::error::{Error, Result};
use crate::files::filling;
use crate::options::{Budget, Builder, Durability};

use changes::Changes;
use copy::Copier;
use names::Names;
use source::DamagedStore;
use walk::Walker;

pub use report::{LostRange, SalvageReport, SalvagedTable};

/// Bytes of `max_memory` for each page that the page table can hold.
const MEMORY_PER_PAGE: u64 = 64;

impl SalvageReport {
    /// As [`salvage`], for a store on a device of the caller.
    ///
    /// # Errors
    /// As [`salvage`].
    pub fn of_devices(from: &AnyDevice, into: AnyDevice, options: Builder) -> Result<Self> {
        salvage_devices(from, |_| Ok(into), options, &mut |_, _| ())
    }
}

/// Copies everything that can be read of the store in `directory` into a new store in `into`, a
/// directory that is empty or does not exist, or has what an earlier salvage has left that did not
/// end: then it begins anew. Until it has ended well, `into` is not opened. The old store must not
/// be open, and is not changed. The new store has its sizes of pages and blocks and its hash key;
/// other `options` are those of the new store. Calls `progress` with the number of pages done, and
/// of all pages.
///
/// # Errors
/// If there is no store or it is in use, if no superblock can be read, or if something fails in the
/// new store. Damage is not an error: it is in the report.
pub fn salvage(
    directory: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: Builder,
    mut progress: impl FnMut(u64, u64),
) -> Result<SalvageReport> {
    let from = DirectoryDevice::open_directory(directory.as_ref(), true, 1)
        .map_err(Error::io("opening the directory"))?;
    // Created only when there is something to copy.
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
    // What would end it later ends it before much was read, or anything was made.
    options.check()?;
    let mut report = SalvageReport::default();
    let source = DamagedStore::load(from, &mut report)?;
    let page_bytes = source.superblock.page_bytes;
    let page_size = PageSize::new(page_bytes as usize).expect("it was loaded with it");
    check_page_ids(source.pages, Budget::new(&options, page_size).page_ids_max)?;
    let into = open_into(&options)?;
    let empty = "a new store needs an empty directory";
    filling::begin(&into, "into", empty)?;
    tracing::info!(
        checkpoint_lsn = source.superblock.checkpoint_lsn.0,
        "salvage begins"
    );
    let mut options = options.durability(Durability::None);
    options.page_size = Some(page_bytes as usize);
    options.block_size = Some(source.superblock.block_bytes as usize);
    options.hash_key = Some(source.superblock.hash_key);
    if options.compression.is_none() && source.compression.is_built_in() {
        options.compression = Some(source.compression);
    }
    options.is_loading = true;
    let db = Db::open_device(options, into.clone())?;
    let salvaged = run(&source, &db, &mut report, progress);
    let closed = db.close();
    salvaged?;
    closed?;
    filling::end(&into)?;
    Ok(report)
}

/// Checks that the new store can have as many pages as the damaged one.
fn check_page_ids(pages: usize, page_ids_max: usize) -> Result<()> {
    if pages <= page_ids_max {
        return Ok(());
    }
    let bytes = pages as u64 * MEMORY_PER_PAGE;
    Err(Error::InvalidOption {
        option: "max_memory",
        what: format!(
            "the store has {pages} pages, and the page table of the new one would hold \
             {page_ids_max}; at least {bytes} bytes are needed"
        ),
    })
}

fn run(
    source: &DamagedStore,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_a_new_store_is_said_to_need_is_enough() {
        let page_size = PageSize::new(PageSize::MIN).expect("it is one");
        let budget = |bytes: u64| Budget::new(&Builder::default().max_memory(bytes), page_size);
        let held = budget(16 << 20).page_ids_max;
        assert!(check_page_ids(held, held).is_ok());
        let Err(Error::InvalidOption { option, what }) = check_page_ids(held + 1, held) else {
            panic!("one page too many");
        };
        let words = what.split(' ').map(str::parse::<u64>);
        let needed = words.flatten().last().expect("it is said");
        assert_eq!(option, "max_memory");
        assert!(budget(needed).page_ids_max > held, "{what}");
    }
}
