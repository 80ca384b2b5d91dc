//! Batches: writes to any tables that happen together or not at all.

use crate::error::{Error, Result};
use crate::options::Durability;
use crate::table::Table;
use crate::write_set::{Own, WriteSet};

/// Writes that are committed together with [`crate::Db::write`]. Of several writes to one key the
/// last one counts.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) set: WriteSet,
}

/// How a batch is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What the return promises; None: what the store was opened with.
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// The given durability.
    pub fn durability(durability: Durability) -> Self {
        Self {
            durability: Some(durability),
        }
    }
}

impl Batch {
    /// A batch without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) {
        let table = self.set.table(&table.state);
        self.set.write(table, key, Some(value));
    }

    /// Removes `key`, whether it exists or not.
    pub fn delete(&mut self, table: &Table, key: &[u8]) {
        let table = self.set.table(&table.state);
        self.set.write(table, key, None);
    }

    /// Reads `key` as it would be after the batch: its own writes first, then the table.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::InChunks`] for a value of [`Batch::put_large`].
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let index = self.set.table(&table.state);
        match self.set.own(index, key) {
            Own::Value(value) => Ok(Some(value.to_vec())),
            Own::Large(_) => Err(Error::InChunks),
            Own::Gone => Ok(None),
            Own::Unknown => table.get(key),
        }
    }

    /// Number of keys that it writes.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// True if it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_read_only()
    }

    /// Forgets all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.set.clear();
    }
}
