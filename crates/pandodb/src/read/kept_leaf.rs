//! The leaves of settled snapshots: what the kept checkpoint has, and what was replaced before it.

use std::ops::Bound;

use pando_format::PageId;
use pando_tree::{LeafCopy, Tree};
use pando_versions::VersionRange;

use crate::engine::Engine;
use crate::error::Result;
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::Settled;
use crate::pages::store::Store;
use crate::read::merged_leaf::MergedLeaf;

impl Engine {
    /// Copies the leaf of `tree` where a scan of `settled` continues. Returns whether the records
    /// that count are those of `merged`, which is made if it is needed. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn scan_settled(
        &self,
        settled: &Settled,
        tree: Tree,
        at: KeptPosition<'_>,
        (leaf, merged): (&mut LeafCopy, &mut Option<Box<MergedLeaf>>),
        ahead: &mut KeptAhead,
    ) -> Result<bool> {
        let together = |store: &Store, pages: &[PageId]| self.fetch_many_of(store, pages);
        let is_merged = settled.scan_leaf(&together, tree, at, leaf, ahead)?;
        if is_merged {
            let merged = merged.get_or_insert_default();
            let collect = |bounds: (Bound<&[u8]>, Bound<&[u8]>), range: &mut VersionRange| {
                settled.collect(tree, bounds, range)
            };
            merged.merge_with(collect, (at.from, at.direction), leaf)?;
        }
        let statistics = &self.store.statistics;
        statistics.tick(pando_stats::Ticker::ScanLeaves, 1);
        Ok(is_merged)
    }
}
