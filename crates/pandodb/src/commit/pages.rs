//! How many pages a batch makes dirty at worst: for so many blocks are reserved to it before its
//! record is written. Debug builds compare the number with what happens (`section.rs`).
//!
//! A write changes its leaf, and may split it. A node above is changed when one below it is split,
//! and is split itself when it is full. After a load all of them are full: a batch whose writes lie
//! apart may split a node on each level for each write, as long as there are so many.

use crate::engine::Engine;
use crate::writes::set::WriteSet;

/// Pages that one write may make dirty: its leaf, a new one, and its part of the nodes that are
/// made for new ones. A node takes two more at least before it is split again, so these are at most
/// a half, a quarter, an eighth of a node for each write on the levels above.
const PAGES_PER_WRITE: u64 = 3;
/// The same of a write of a batch that only deletes: its leaf. On a full disk it has to fit into
/// the reserve.
const PAGES_PER_DELETE: u64 = 1;
/// Pages that a batch may make dirty on top: splits up to the root. One write needs no more.
const PAGES_PER_BATCH: u64 = 8;
/// Levels of a tree whose root is not in memory.
const LEVELS_UNKNOWN: u64 = 4;

impl Engine {
    /// Pages that the batch makes dirty at worst, `garbage` of them for garbage rows.
    pub(crate) fn pages_of(&self, set: &WriteSet, garbage: u64) -> u64 {
        let page = self.store.pool.page_size().bytes();
        let piece = pando_tree::overflow::payload_bytes_max(self.store.pool.page_size());
        let overflow: usize = set
            .values_beyond(page / 4)
            .map(|bytes| bytes.div_ceil(piece) + 4)
            .sum();
        let of_writes = match set.only_deletes() {
            true => PAGES_PER_DELETE * set.len() as u64,
            false => PAGES_PER_WRITE * set.len() as u64 + self.inner_pages(set),
        };
        of_writes + PAGES_PER_BATCH + overflow as u64 + garbage
    }

    /// Nodes above the leaves that are there, and those that they are split into: on each level not
    /// more than there are writes, nor than there can be nodes with one on each level below them.
    fn inner_pages(&self, set: &WriteSet) -> u64 {
        let writes = set.len() as u64;
        if writes <= 1 {
            return 0;
        }
        let trees = set.tables.iter().filter_map(|table| table.tree);
        let levels = trees.map(|tree| match tree.try_root_level(&self.store.pool) {
            Ok(level) => u64::from(level),
            Err(_) => LEVELS_UNKNOWN,
        });
        let pages = u64::from(self.store.pool.page_ids().high_water());
        (1..=levels.max().unwrap_or(0))
            .map(|level| 2 * writes.min(pages / (level + 1)))
            .sum()
    }
}
