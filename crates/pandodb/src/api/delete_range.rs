//! Deletes of ranges of any size, in several commits.

use std::ops::RangeBounds;

use crate::api::batch::Batch;
use crate::api::iter::Iter;
use crate::api::table::Table;
use crate::error::Result;
use crate::options::{Durability, WriteOptions};

/// Keys, and bytes of them, that are deleted in one commit.
const KEYS_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 10;

impl Table {
    /// Removes the keys in `range`, in ascending order and in commits of a bounded number of keys;
    /// returns how many it has removed. Others see the range shrink, and a crash leaves its last
    /// part; [`Transaction::delete_range`] removes all or nothing. Keys that are put meanwhile may
    /// or may not be removed, and keys that others remove meanwhile may be counted. Takes little
    /// memory, whatever the range holds, and reads the leaves, but no values outside of them. To
    /// empty a table, [`Db::clear_tables`] is one small write. Blocks.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// let log = db.table("log")?;
    /// for hour in 0..24_u32 {
    ///     log.put(&hour.to_be_bytes(), b"what happened")?;
    /// }
    /// assert_eq!(log.delete_range(..&20_u32.to_be_bytes()[..])?, 20);
    /// assert_eq!(log.len(), 4);
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::range`] and [`Db::write`]; what was removed before stays removed, and becomes
    /// durable with the next commit that is.
    ///
    /// [`Db::clear_tables`]: crate::Db::clear_tables
    /// [`Db::write`]: crate::Db::write
    /// [`Transaction::delete_range`]: crate::Transaction::delete_range
    pub fn delete_range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Result<u64> {
        self.delete_range_with(range, WriteOptions::default())
    }

    /// As [`Table::delete_range`], with the durability of `options` for all of it.
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_range_with<'k>(
        &self,
        range: impl RangeBounds<&'k [u8]>,
        options: WriteOptions,
    ) -> Result<u64> {
        let mut left = self.range(range);
        let (mut batch, mut key) = (Batch::new(), Vec::new());
        let mut count = 0;
        let mut is_over = !take_key(&mut left, &mut key)?;
        while !is_over {
            let mut bytes = 0;
            while !is_over && batch.len() < KEYS_MAX && bytes < BYTES_MAX {
                bytes += key.len();
                batch.delete(self, &key);
                is_over = !take_key(&mut left, &mut key)?;
            }
            count += batch.len() as u64;
            // What is durable makes all before it durable, too.
            let options = match is_over {
                true => options,
                false => WriteOptions::durability(Durability::None),
            };
            self.db.write(&mut batch, options)?;
            batch.clear();
        }
        Ok(count)
    }
}

/// Replaces `key` by the next one. Returns false if none are left.
fn take_key(left: &mut Iter<'_>, key: &mut Vec<u8>) -> Result<bool> {
    let next = left.next_key().transpose()?;
    key.clear();
    key.extend_from_slice(next.unwrap_or_default());
    Ok(next.is_some())
}
