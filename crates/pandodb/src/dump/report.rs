//! What a dump contains.

use pando_format::Lsn;

use crate::files::names::DUMP;

/// A table of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedTable {
    /// Its name.
    pub name: String,
    /// Number of its entries.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// What a dump contains: result of [`Snapshot::dump`](crate::Snapshot::dump) and
/// [`load_dump`](crate::load_dump()).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// The dump has all commits up to this one, and none after it.
    pub lsn: Lsn,
    /// Its tables, in the order of the dump: that of their names.
    pub tables: Vec<DumpedTable>,
}

impl DumpReport {
    /// Number of entries of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Bytes of keys and values of all tables.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }
}

/// Progress of a dump that an open store writes of itself: see
/// [`Db::dump_to_file`](crate::Db::dump_to_file).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DumpProgress {
    /// The fraction that is done, from 0 to 1: an estimate.
    pub share: f64,
    /// Bytes of the file so far.
    pub bytes: u64,
}

/// A file that has a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpFile {
    /// What it contains.
    pub report: DumpReport,
    /// Bytes of the file.
    pub bytes: u64,
}

impl DumpFile {
    /// Name of the file in the directory of the store.
    pub const NAME: &str = DUMP;
}
