//! Upper bound of the number of pages that changes of tables dirty.
//!
//! Emptying tables has to be possible on a full disk, for all tables of a server at once. So for a
//! batch that only empties and drops tables the bound is close enough to fit into the reserve
//! (decision 058): a row of the catalogue that gets another tree stays as long as it is, and the
//! rows of trees that are to be freed follow one another behind all other rows.

use pando_format::PageId;

use crate::commit::pages::{COUNTED_FROM, leaves_at_most};
use crate::engine::Engine;
use crate::error::Result;
use crate::tables::state::CATALOGUE;
use crate::writes::set::{TableChange, WriteSet};

/// Most pages that any change of one table dirties.
const PAGES_PER_CHANGE: u64 = 16;
/// Bytes of a leaf that the garbage row of a tree takes, at most: its key, its value, and what the
/// leaf knows of it.
const GARBAGE_ROW_BYTES: u64 = 64;

/// What a batch that changes tables needs pages for.
pub(crate) struct ChangeNeeds {
    /// Pages for garbage rows of what its writes replace.
    garbage: u64,
    /// Pages for the changes of tables.
    of_changes: u64,
    /// Leaves that its writes belong to, if they are counted.
    leaves: Option<u64>,
    writes: u64,
}

impl ChangeNeeds {
    /// True if blocks for these are enough for what it needs `now`.
    pub(crate) fn are_enough_for(&self, now: &Self) -> bool {
        let most = |leaves| leaves_at_most(self.writes, leaves);
        self.garbage >= now.garbage
            && self.of_changes >= now.of_changes
            && self.leaves.map(most) >= now.leaves
    }
}

impl Engine {
    /// Returns what the batch needs pages for; `changes` is the number of tables that it changes.
    /// Blocks.
    pub(crate) fn needs_of_change(&self, set: &WriteSet, changes: u64) -> Result<ChangeNeeds> {
        Ok(ChangeNeeds {
            garbage: self.garbage_pages(set),
            of_changes: self.pages_of_changes(set, changes)?,
            leaves: self.leaves_of_writes(set)?,
            writes: set.len() as u64,
        })
    }

    /// Returns the most pages that such a batch dirties, and how many more page ids it may need.
    pub(crate) fn pages_of_change(&self, set: &WriteSet, needs: &ChangeNeeds) -> (u64, u64) {
        let most = self.pages_of(set, needs.garbage, None);
        let pages = most.min(self.pages_of(set, needs.garbage, needs.leaves));
        (needs.of_changes + pages, most - pages)
    }

    /// Returns the number of leaves that the keys of a long batch belong to. A table that is made
    /// or emptied has one. Blocks.
    fn leaves_of_writes(&self, set: &WriteSet) -> Result<Option<u64>> {
        let mut changes = set.table_changes.iter();
        let takes = changes.any(|(_, change)| matches!(change, TableChange::Take(_)));
        if set.len() < COUNTED_FROM || takes {
            return Ok(None);
        }
        let mut leaves: Vec<PageId> = Vec::with_capacity(set.len());
        for (table, key, _) in set.writes() {
            if let Some(tree) = set.tables[table].state.tree()
                && !set.changes_table(table)
            {
                let locate = || tree.try_locate(&self.store.pool, key);
                leaves.push(self.store.drive(locate)?.place.finger().page());
            }
        }
        Ok(Some(number_of(leaves) + set.table_changes.len() as u64))
    }

    /// Returns the most pages that the changes of tables in the batch dirty, besides those that its
    /// writes do; `changes` is their number. Blocks.
    fn pages_of_changes(&self, set: &WriteSet, changes: u64) -> Result<u64> {
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
        Ok(number_of(leaves))
    }
}

/// Returns how many different pages these are.
fn number_of(mut pages: Vec<PageId>) -> u64 {
    pages.sort_unstable();
    pages.dedup();
    pages.len() as u64
}
