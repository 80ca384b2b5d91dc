//! Filling an empty table from keys in order.
//!
//! Batches at the right edge of the tree: a leaf that is full stays full there, and the next key
//! goes to a new one. Every batch is in the log as any other; a checkpoint at the end makes the
//! whole load durable with one sync of each file.

use crate::batch::{Batch, WriteOptions};
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::table::Table;

/// Bytes of keys and values in a batch: a few leaves of the smallest page, far below what any log
/// buffer takes.
const BATCH_BYTES: usize = 16 << 10;
/// Entries in a batch.
const BATCH_ENTRIES: usize = 256;

impl Table {
    /// Puts `entries`, whose keys must ascend, into this table, which must be empty; returns how
    /// many they were. Leaves end up full, and all of it is durable on return. Blocks.
    ///
    /// Entries become readable in batches, in order. After an error, a panic of the iterator or a
    /// crash the table holds those up to some batch: [`crate::Db::clear_tables`] takes them out.
    /// Others may use the table meanwhile; what they put is not checked.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], when nothing was put; [`Error::NotAscending`]; as [`crate::Db::write`]
    /// and [`crate::Db::checkpoint`].
    pub fn load_sorted<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        if !self.is_empty() {
            return Err(Error::NotEmpty {
                name: self.name().to_owned(),
            });
        }
        let options = WriteOptions::durability(Durability::None);
        let mut batch = Batch::new();
        let (mut bytes, mut count) = (0, 0);
        let mut last: Option<Vec<u8>> = None;
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            if last.as_ref().is_some_and(|last| &last[..] >= key) {
                return Err(Error::NotAscending { entry: count });
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            let more = key.len() + value.len();
            if bytes + more > BATCH_BYTES || batch.len() >= BATCH_ENTRIES {
                self.db().write(&mut batch, options)?;
                batch.clear();
                bytes = 0;
            }
            batch.put(self, key, value);
            bytes += more;
            count += 1;
        }
        self.db().write(&mut batch, options)?;
        self.db().checkpoint()?;
        Ok(count)
    }
}
