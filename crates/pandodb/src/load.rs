//! Filling an empty table from keys in order.
//!
//! Batches at the right edge of the tree: a leaf that is full stays full there, and the next key
//! goes to a new one. Every batch is in the log as any other; a checkpoint at the end makes the
//! whole load durable with one sync of each file.

use crate::batch::{Batch, WriteOptions};
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::table::Table;

/// Entries in a batch: the more, the less each of them costs.
const BATCH_ENTRIES: std::ops::RangeInclusive<usize> = 256..=4096;
/// A batch has an entry for so many frames.
const FRAMES_PER_ENTRY: usize = 64;
/// Bytes of keys and values in a batch, for each entry that it may have: a few leaves, far below
/// what any log buffer takes.
const BATCH_BYTES_PER_ENTRY: usize = 64;

/// Fills an empty table with entries that come in the order of their keys: made by
/// [`Table::loader`].
///
/// Entries become readable in batches, in order. All of them are there, and durable, when
/// [`Loader::finish`] has returned; after an error, a crash or without it the table holds those up
/// to some batch, and [`crate::Db::clear_tables`] takes them out.
///
/// ```
/// # fn main() -> pandodb::Result<()> {
/// let db = pandodb::Db::builder().open_in_memory()?;
/// let table = db.table("numbers")?;
/// let mut loader = table.loader()?;
/// for number in 0..1000_u32 {
///     loader.put(&number.to_be_bytes(), b"a value")?;
/// }
/// assert_eq!(loader.finish()?, 1000);
/// assert_eq!(table.len(), 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "what was put last is written by `finish`"]
pub struct Loader<'a> {
    table: &'a Table,
    batch: Batch,
    batch_bytes: usize,
    /// Most entries of a batch.
    batch_entries_max: usize,
    /// Entries that were put.
    count: u64,
    /// The last key.
    last: Vec<u8>,
}

impl Loader<'_> {
    /// Puts an entry, whose key must lie behind those before it. Blocks now and then, as a write
    /// does.
    ///
    /// # Errors
    /// [`Error::NotAscending`]; as [`crate::Db::write`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.count > 0 && &self.last[..] >= key {
            return Err(Error::NotAscending { entry: self.count });
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        let more = key.len() + value.len();
        let bytes_max = self.batch_entries_max * BATCH_BYTES_PER_ENTRY;
        if self.batch_bytes + more > bytes_max || self.batch.len() >= self.batch_entries_max {
            self.write()?;
        }
        self.batch.put(self.table, key, value);
        self.batch_bytes += more;
        self.count += 1;
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let options = WriteOptions::durability(Durability::None);
        self.table.db().write(&mut self.batch, options)?;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Writes what is left and makes all of it durable; returns how many entries were put. Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`] and [`crate::Db::checkpoint`].
    pub fn finish(mut self) -> Result<u64> {
        self.write()?;
        self.table.db().checkpoint()?;
        Ok(self.count)
    }
}

impl Table {
    /// Begins to fill this table, which must be empty, with entries in the order of their keys.
    /// Leaves end up full. Others may use the table meanwhile; what they put is not checked.
    ///
    /// # Errors
    /// [`Error::NotEmpty`].
    pub fn loader(&self) -> Result<Loader<'_>> {
        if !self.is_empty() {
            return Err(Error::NotEmpty {
                name: self.name().to_owned(),
            });
        }
        let frames = self.db().engine().pool.frames();
        let (least, most) = BATCH_ENTRIES.into_inner();
        Ok(Loader {
            table: self,
            batch: Batch::new(),
            batch_bytes: 0,
            batch_entries_max: (frames / FRAMES_PER_ENTRY).clamp(least, most),
            count: 0,
            last: Vec::new(),
        })
    }

    /// Puts `entries`, whose keys must ascend, into this table, which must be empty; returns how
    /// many they were: [`Table::loader`] for an iterator. Blocks.
    ///
    /// # Errors
    /// As [`Table::loader`], [`Loader::put`] and [`Loader::finish`].
    pub fn load_sorted<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut loader = self.loader()?;
        for (key, value) in entries {
            loader.put(key.as_ref(), value.as_ref())?;
        }
        loader.finish()
    }
}
