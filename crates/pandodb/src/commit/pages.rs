//! Upper bound of the number of pages that a batch dirties: blocks for that many pages are reserved
//! before its record is written. Debug builds compare the bound with the actual number
//! (`section.rs`).
//!
//! A write changes its leaf, and may split it. An inner node changes when a child is split, and is
//! split itself when it is full. After a load all nodes are full: a batch whose keys lie apart may
//! split one node on each level per write, as long as the level has that many nodes.

use pando_tree::Tree;

use crate::engine::Engine;
use crate::space::urgency::Urgency;
use crate::writes::set::WriteSet;

/// Pages that one write may dirty: its leaf, a new leaf, and its share of the inner nodes that are
/// made for new children. After a split a node takes at least two more children before it is split
/// again, so the share is at most a half, a quarter, an eighth of a node for each write on the
/// levels above.
const PAGES_PER_WRITE: u64 = 3;
/// The same for a delete in a batch that only frees room: the leaf of each write. On a full disk
/// this has to fit into the reserve.
const PAGES_PER_DELETE: u64 = 1;
/// Further pages that a batch may dirty: splits up to the root. A single write needs no more.
const PAGES_PER_BATCH: u64 = 8;
/// Pages that a put of one value may dirty that lies in its leaf, besides those for garbage rows.
pub(crate) const PAGES_OF_PUT: u64 = PAGES_PER_WRITE + PAGES_PER_BATCH;
/// Assumed number of levels of a tree whose root is not in memory.
const LEVELS_UNKNOWN: u64 = 4;

impl Engine {
    /// Returns the most pages that the batch dirties, `garbage` of them for garbage rows.
    pub(crate) fn pages_of(&self, set: &WriteSet, garbage: u64) -> u64 {
        let page = self.store.pool.page_size().bytes();
        let piece = pando_tree::overflow::payload_bytes_max(self.store.pool.page_size());
        let overflow: usize = set
            .values_beyond(page / 4)
            .map(|bytes| bytes.div_ceil(piece) + 4)
            .sum();
        let of_writes = match set.urgency() {
            Urgency::Deletes => PAGES_PER_DELETE * set.len() as u64 + self.counting_pages(set),
            _ if set.len() == 1 => PAGES_PER_WRITE,
            Urgency::FreesRoom => {
                let puts = set.puts();
                let deletes = set.len() as u64 - puts;
                PAGES_PER_WRITE * puts + PAGES_PER_DELETE * deletes + self.inner_pages(set)
            }
            Urgency::No => PAGES_PER_WRITE * set.len() as u64 + self.inner_pages(set),
        };
        of_writes + PAGES_PER_BATCH + overflow as u64 + garbage
    }

    /// Returns how many inner nodes a batch that only deletes changes, at most: those above its
    /// leaves in counted trees. A single one changes no more than there are levels.
    fn counting_pages(&self, set: &WriteSet) -> u64 {
        let is_counted = |tree: Tree| tree.id.is_counted();
        match set
            .tables
            .iter()
            .any(|table| table.tree().is_some_and(is_counted))
        {
            true => self.inner_pages(set),
            false => 0,
        }
    }

    /// Returns how many inner nodes the batch changes or makes by splits, at most: on each level no
    /// more than there are writes, and no more than there can be nodes if each has one on every
    /// level below it.
    fn inner_pages(&self, set: &WriteSet) -> u64 {
        let writes = set.len() as u64;
        if writes <= 1 {
            return 0;
        }
        let trees = set.tables.iter().filter_map(|table| table.tree());
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
