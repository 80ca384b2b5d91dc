//! The end of a compaction: files become as short as what they hold.

use std::ops::ControlFlow;

use crate::compact::progress::CompactProgress;
use crate::compact::run::{Compaction, Part};
use crate::engine::Engine;
use crate::error::{Error, Result};

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    /// Merges the mapping, cuts the data file where the space ends, and gives back what the log
    /// does not use. Returns how many bytes of the log that are.
    pub(super) fn cut_files(&mut self) -> Part<u64> {
        let engine = self.engine;
        engine.merge_mapping()?;
        // Once more, if the file has grown meanwhile.
        let goal = engine.store.space.cut_goal(engine.store.committed_blocks());
        engine
            .store
            .space
            .cut_tail(goal, || engine.store.committed_blocks());
        // Names the shorter file and the new mapping, and removes the old one.
        engine.checkpoint_now()?;
        self.check()?;
        assert!(
            engine.store.space.is_low(),
            "what is cut off may be given out"
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
        files.mapping.merge(pages)
    }

    fn trim_log(&self) -> Result<u64> {
        // What would be made later would not be given back. A full disk makes none.
        if let Err(error) = self.log.prepare_segments()
            && !error.is_full()
        {
            return Err(error.into());
        }
        self.log.trim().map_err(Error::from)
    }
}
