//! Upper bound of the number of pages that changes of tables dirty.
//!
//! Emptying tables has to be possible on a full disk, for all tables of a server at once. So for a
//! batch that only empties and drops tables the bound is close enough to fit into the reserve
//! (decision 058): a row of the catalogue that gets another tree stays as long as it is, and the
//! rows of trees that are to be freed follow one another behind all other rows.

use pando_format::PageId;

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::state::CATALOGUE;
use crate::writes::set::{TableChange, WriteSet};

/// Most pages that any change of one table dirties.
const PAGES_PER_CHANGE: u64 = 16;
/// Bytes of a leaf that the garbage row of a tree takes, at most: its key, its value, and what the
/// leaf knows of it.
const GARBAGE_ROW_BYTES: u64 = 64;

impl Engine {
    /// Returns the most pages that the changes of tables in the batch dirty, besides those that its
    /// writes do; `changes` is their number. Blocks.
    pub(crate) fn pages_of_changes(&self, set: &WriteSet, changes: u64) -> Result<u64> {
        let removes = |(_, change): &(usize, TableChange)| {
            matches!(change, TableChange::Clear | TableChange::Drop)
        };
        if set.swaps_tables() {
            return self.catalogue_leaves(set);
        }
        if !set.table_changes.iter().all(removes) {
            return Ok(PAGES_PER_CHANGE * changes);
        }
        let empties = |(_, change): &&(usize, TableChange)| matches!(change, TableChange::Clear);
        let roots = set.table_changes.iter().filter(empties).count() as u64;
        // A leaf that is split leaves half of it free at least. Each leaf that is made has a share
        // of the inner nodes above it; what a single split makes is counted with the batch.
        let half = self.store.pool.page_size().bytes() as u64 / 2;
        let garbage = 1 + 2 * (changes * GARBAGE_ROW_BYTES).div_ceil(half);
        Ok(roots + self.catalogue_leaves(set)? + garbage)
    }

    /// Returns the number of leaves that have the rows of the tables which change. Blocks.
    fn catalogue_leaves(&self, set: &WriteSet) -> Result<u64> {
        let mut leaves: Vec<PageId> = Vec::with_capacity(set.table_changes.len());
        for (table, _) in &set.table_changes {
            let name = set.tables[*table].state.name.as_bytes();
            let finger = self.store.drive(|| {
                let located = CATALOGUE.try_locate(&self.store.pool, name)?;
                Ok(located.place.finger())
            })?;
            leaves.push(finger.page());
        }
        leaves.sort_unstable();
        leaves.dedup();
        Ok(leaves.len() as u64)
    }
}
