//! Leaves that are read before somebody looks up many keys, one after the other.

use std::cell::Cell;

use pando_format::PageId;

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::error::Result;
use crate::pages::leaves::fetch_leaves;
use crate::pages::store::Store;

/// Most keys whose leaves are read at the same time.
const KEYS_MAX: usize = 128;

/// What [`Snapshot::prefetch`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchedLeaves {
    /// How many keys, from the first on, it has been done for.
    pub keys: usize,
    /// Number of their pages that were not in memory. If there are none again and again, somebody
    /// may well do without.
    pub missing: usize,
}

impl Snapshot {
    /// Reads the leaves where the first of `keys` of `table` are, or would be, as far as they are
    /// not in memory, all at the same time. Returns how many keys these are: at least one of those
    /// there are, and no more than a part of the memory has room for. Blocks until they are there.
    ///
    /// Reads of these keys that follow soon find their leaves in memory: so somebody who cannot use
    /// [`Snapshot::get_many`], because values may be too long to be held in memory, or decides
    /// about each key after the last one, need not wait for one page after the other. Values
    /// outside of leaves are not read, and what a page could not be read for is left to the read
    /// that needs it.
    ///
    /// ```
    /// # fn main() -> pandodb::Result<()> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("t")?;
    /// # table.put(b"apple", b"red")?;
    /// let snapshot = db.snapshot()?;
    /// let mut keys: &[&[u8]] = &[b"apple", b"plum"];
    /// while !keys.is_empty() {
    ///     let (now, later) = keys.split_at(snapshot.prefetch(&table, keys)?.keys);
    ///     for key in now {
    ///         let value = snapshot.get_reader(&table, key)?;
    ///         // Read as much of it as is needed.
    ///     #   assert_eq!(value.is_some(), *key == b"apple");
    ///     }
    ///     keys = later;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; [`Error::NoSuchTable`] for a table that did not exist;
    /// [`Error::OtherStore`].
    ///
    /// [`Error::SnapshotEnded`]: crate::Error::SnapshotEnded
    /// [`Error::NoSuchTable`]: crate::Error::NoSuchTable
    /// [`Error::OtherStore`]: crate::Error::OtherStore
    pub fn prefetch(&self, table: &Table, keys: &[&[u8]]) -> Result<FetchedLeaves> {
        let engine = self.engine_of(table)?;
        let tree = self.tree_of(table)?;
        let missing = Cell::new(0);
        let together = |store: &Store, pages: &[PageId]| {
            missing.set(missing.get() + engine.fetch_some_of(store, pages));
            Ok(())
        };
        let count = match self.settled() {
            Some(settled) => settled.prefetch(&together, tree, keys)?,
            None => {
                let count = keys.len().min(engine.fetch_depth()).min(KEYS_MAX);
                let store = &engine.store;
                fetch_leaves((&store.pool, tree), &keys[..count], |pages| {
                    together(store, pages)
                })?;
                count
            }
        };
        Ok(FetchedLeaves {
            keys: count,
            missing: missing.get(),
        })
    }
}
