//! The end of a compaction: files are cut to the length that they need.

use std::ops::ControlFlow;

use crate::compact::progress::CompactProgress;
use crate::compact::run::{Compaction, Part};
use crate::engine::Engine;
use crate::error::Result;

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    /// Merges the mapping, cuts the data file, and frees space that the log does not use. Returns
    /// the number of bytes freed in the log.
    pub(super) fn cut_files(&mut self) -> Part<u64> {
        let engine = self.engine;
        engine.merge_mapping()?;
        // Once more, because the file may have grown meanwhile.
        let goal = engine.store.space.cut_goal(engine.store.committed_blocks());
        engine
            .store
            .space
            .cut_tail(goal, || engine.store.committed_blocks());
        // It names the shorter file and the new mapping, and removes the old one.
        engine.checkpoint_now()?;
        self.check()?;
        assert!(
            engine.store.space.is_low(),
            "blocks that are cut may be allocated"
        );
        engine.store.space.truncate_file()?;
        Ok(engine.trim_log()?)
    }
}

impl Engine {
    /// Merges base and journal of the mapping, however short the journal is, into a base that ends
    /// with the last page. The next checkpoint names it.
    fn merge_mapping(&self) -> Result<()> {
        let mut files = self.checkpoint.lock_files();
        self.store.check_poison()?;
        let pages = u64::from(self.store.pool.page_ids().trim());
        let tables = self.store.mapping_size().tables;
        let reserve = &self.store.mapping_reserve;
        files.mapping.merge(pages, tables, reserve)
    }

    fn trim_log(&self) -> Result<u64> {
        let removed = self.log.remove_free();
        Ok(removed + self.log.trim()?)
    }
}
