//! The store that a run works on: a temporary one, a named one, or one in memory.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pando_device::AnyDevice;
use pandodb::{Builder, Db, IoBackend, Table};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::options::KvOptions;
use crate::place::temporary;

const TABLE: &str = "bench";
/// A file that stores have and other directories do not.
const STORE_FILE: &str = "superblock";

/// An open store. Its temporary directory is removed with it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) db: Db,
    /// The only table, which the workloads use.
    pub(crate) table: Table,
    /// The first number that no workload of this run has inserted, once one has inserted keys.
    fresh_start: Cell<Option<u64>>,
    /// Directory of the store, if it is on a disk.
    path: Option<PathBuf>,
    _directory: Option<TempDir>,
}

impl Store {
    /// Opens or creates the store that the options name; without a directory a temporary one.
    pub(crate) fn open(options: &KvOptions) -> Result<Self> {
        let builder = builder(options);
        let (db, directory) = match (&options.dir, options.io_backend) {
            (_, IoBackend::Memory) => (builder.open_in_memory()?, None),
            (Some(path), _) => {
                check_directory(path, options.use_existing_db)?;
                (builder.open(path)?, None)
            }
            (None, _) => {
                let directory = temporary()?;
                (builder.open(directory.path())?, Some(directory))
            }
        };
        let path = match options.io_backend {
            IoBackend::Memory => None,
            _ => options.dir.clone(),
        };
        let own = |directory: &TempDir| directory.path().to_owned();
        let path = path.or_else(|| directory.as_ref().map(own));
        Self::of(db, path, directory)
    }

    /// Opens the store on `device`, which may be opened again later.
    pub(crate) fn open_on(options: &KvOptions, device: AnyDevice) -> Result<Self> {
        Self::of(Db::open_device(builder(options), device)?, None, None)
    }

    fn of(db: Db, path: Option<PathBuf>, directory: Option<TempDir>) -> Result<Self> {
        let table = db.table(TABLE)?;
        Ok(Self {
            db,
            table,
            fresh_start: Cell::new(None),
            path,
            _directory: directory,
        })
    }

    /// Returns its directory; `None`: it is in memory, or on a device of the caller.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns another handle of the table.
    pub(crate) fn handle(&self) -> Result<Table> {
        Ok(self.db.table(TABLE)?)
    }

    /// Returns the first number that no key of the store has. For keys without order this is a
    /// guess after earlier runs: a few of their keys are written again.
    pub(crate) fn fresh_start(&self, options: &KvOptions) -> Result<u64> {
        if let Some(start) = self.fresh_start.get() {
            return Ok(start);
        }
        let keys = options.keys();
        let start = match keys.is_ordered() {
            true => {
                let last = self.table.iter().next_back().transpose()?;
                let number = last.and_then(|(key, _)| keys.number(&key));
                number.map_or(0, |number| number.saturating_add(1))
            }
            false => self.table.len(),
        };
        Ok(start.max(options.num))
    }

    /// Records that numbers below `start` were inserted; `None`: the table was cleared.
    pub(crate) fn set_fresh_start(&self, start: Option<u64>) {
        self.fresh_start.set(start);
    }

    /// Closes the store and waits until everything is on disk.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.table);
        Ok(self.db.close()?)
    }
}

fn builder(options: &KvOptions) -> Builder {
    let mut builder = Db::builder()
        .max_memory(options.max_memory)
        .durability(options.durability)
        .io_backend(options.io_backend);
    if let Some(reads) = options.queue_depth {
        builder = builder.queue_depth(reads);
    }
    if let Some(threads) = options.completion_threads {
        builder = builder.completion_threads(threads);
    }
    if let Some(bytes) = options.page_bytes {
        builder = builder.page_size(bytes);
    }
    if let Some(bytes) = options.block_bytes {
        builder = builder.block_size(bytes);
    }
    if let Some(bytes) = options.log_bytes {
        builder = builder.log_bytes(bytes);
    }
    if let Some(interval) = options.checkpoint_interval {
        builder = builder.checkpoint_interval(interval);
    }
    if let Some(age) = options.settle_snapshots_after {
        builder = builder.settle_snapshots_after(age);
    }
    if let Some(compression) = options.compression {
        builder = builder.compression(compression);
    }
    builder
}

/// Refuses a directory with a store unless that is wanted, and one without a store if one is
/// wanted.
pub(crate) fn check_directory(path: &Path, use_existing: bool) -> Result<()> {
    let holds_store = path.join(STORE_FILE).exists();
    let shown = path.display();
    match (holds_store, use_existing) {
        (true, false) => Err(Error::option(
            "dir",
            format!("{shown} holds a store; --use-existing-db uses it, an empty directory is fine"),
        )),
        (false, true) => Err(Error::option(
            "use-existing-db",
            format!("{shown} holds no store"),
        )),
        _ => Ok(()),
    }
}

/// Returns the size of the files of the store in `path`, as the file system reports it.
pub(crate) fn disk_bytes(path: &Path) -> Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let failed = |source| Error::Io {
        during: format!("looking at {}", path.display()),
        source,
    };
    let mut bytes = 0;
    for file in std::fs::read_dir(path).map_err(failed)? {
        // A segment of the log may have been removed in the meantime.
        if let Ok(metadata) = file.map_err(failed)?.metadata() {
            bytes += metadata.blocks() * BLOCK_BYTES;
        }
    }
    Ok(bytes)
}
