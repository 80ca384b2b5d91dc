//! Batches: writes to any tables that are applied together or not at all.

use crate::api::db::Db;
use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::options::WriteOptions;
use crate::writes::set::{Own, WriteSet};

/// Writes that are committed together with [`crate::Db::write`]. If several writes name one key,
/// the last one counts.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) set: WriteSet,
}

impl Batch {
    /// Returns a batch without writes.
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

    /// Reads `key` as it would be after the batch, which does not notice if it changes before the
    /// commit: [`Db::transact`] does. Looks at the batch's own writes first, then at the table.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::InChunks`] for a value of [`Batch::put_large`], and for one that
    /// [`Db::write`] has stored in chunks already.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(index) = self.set.index_of(&table.state) else {
            return table.get(key);
        };
        match self.set.own(index, key) {
            Own::Value(value) => Ok(Some(value.to_vec())),
            Own::Large(_) => Err(Error::InChunks),
            Own::Gone => Ok(None),
            Own::Unknown => table.get(key),
        }
    }

    /// Number of keys that the batch writes.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// True if the batch writes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_read_only()
    }

    /// Drops all writes, but keeps the memory.
    pub fn clear(&mut self) {
        self.set.clear();
    }
}

impl Db {
    /// Commits a batch: all of it or nothing, also over several tables. An empty batch costs
    /// nothing. Blocks for space, for pages, and for durability if asked. The batch may be used
    /// again after [`Batch::clear`].
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::BatchTooLarge`], [`Error::Full`],
    /// [`Error::NoSuchTable`], [`Error::OtherStore`], [`Error::LockTimeout`] after
    /// [`crate::Builder::lock_timeout`], [`Error::Poisoned`]: nothing was written. The exception is
    /// an error of the device during the sync: whether the batch was written is unknown until the
    /// store is opened again.
    pub fn write(&self, batch: &mut Batch, options: WriteOptions) -> Result<()> {
        self.commit(&mut batch.set, options).map(drop)
    }
}
