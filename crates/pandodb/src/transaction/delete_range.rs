//! Deletes of ranges in a transaction.

use std::ops::{Bound, RangeBounds};

use crate::api::table::Table;
use crate::error::Result;
use crate::transaction::handle::Transaction;

/// Keys, and bytes of them, that are found before they are deleted.
const KEYS_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 10;

impl Transaction {
    /// Removes the keys of `table` in `range`, as the transaction sees them; returns how many. What
    /// lies in the range counts as read, also where there is nothing. Reads the leaves, but no
    /// values outside of them. Blocks for pages that are not in memory.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// let sessions = db.table("sessions")?;
    /// sessions.put(b"2026-11-28/ann", b"")?;
    /// sessions.put(b"2026-11-29/bob", b"")?;
    /// let ended = db.transact(|transaction| {
    ///     transaction.delete_range(&sessions, ..&b"2026-11-29"[..])
    /// })?;
    /// assert_eq!((ended, sessions.len()), (1, 1));
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::range`] and [`Transaction::delete`]: above all [`Error::Full`] for more
    /// keys than there is memory for; [`Table::delete_range`] takes any number. The transaction is
    /// then as if this had not been called, but for what it has read.
    ///
    /// [`Error::Full`]: crate::Error::Full
    pub fn delete_range<'k>(
        &mut self,
        table: &Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<u64> {
        let before = self.savepoint();
        let deleted = self.delete_all(table, (owned(range.start_bound()), range.end_bound()));
        if deleted.is_err() {
            self.rollback_to(before)?;
        }
        self.release(before);
        deleted
    }

    fn delete_all(
        &mut self,
        table: &Table,
        (mut low, high): (Bound<Vec<u8>>, Bound<&&[u8]>),
    ) -> Result<u64> {
        let (mut keys, mut count) = (Vec::new(), 0);
        loop {
            let (mut bytes, mut is_over) = (0, true);
            let rest = (low.as_ref().map(|key| &key[..]), high.map(|key| *key));
            for entry in self.range_of_keys(table, rest) {
                let (key, _) = entry?;
                bytes += key.len();
                keys.push(key);
                if keys.len() >= KEYS_MAX || bytes >= BYTES_MAX {
                    is_over = false;
                    break;
                }
            }
            count += keys.len() as u64;
            for key in keys.drain(..) {
                self.delete(table, &key)?;
                low = Bound::Excluded(key);
            }
            if is_over {
                return Ok(count);
            }
        }
    }
}

fn owned(bound: Bound<&&[u8]>) -> Bound<Vec<u8>> {
    bound.map(|key| key.to_vec())
}
