//! The end of a compaction, and of a store's life: files are cut to the length that they need.

use std::ops::ControlFlow;

use crate::compact::progress::CompactProgress;
use crate::compact::run::{Compaction, Part};
use crate::engine::Engine;
use crate::error::Result;

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    /// Merges the mapping, cuts the data file, and frees space that the log does not use. Returns
    /// the number of bytes freed in the log.
    pub(super) fn cut_files(&mut self) -> Part<u64> {
        self.engine.merge_mapping()?;
        self.cut_data()?;
        Ok(self.engine.log.remove_free(self.engine))
    }

    /// Cuts the data file to the length that it needs.
    pub(super) fn cut_data(&mut self) -> Part<()> {
        let engine = self.engine;
        // Once more, because the file may have grown meanwhile.
        let goal = engine.store.space.cut_goal(engine.store.committed_blocks());
        engine
            .store
            .space
            .cut_tail(goal, || engine.store.committed_blocks());
        // It names the shorter file, and the mapping if that is a new one.
        self.checkpoint()?;
        self.check()?;
        Ok(engine.truncate_data()?)
    }
}

/// Most bytes that are moved to the front while a store is closed, and somebody waits for that.
const CLOSE_BYTES_MAX: u64 = 32 << 20;
/// Holes of less than this fraction of what is used stay in a store that closes.
const HOLES_SHARE: u64 = 32;

impl Engine {
    /// Cuts off what is free at the end of the data file of a store that closes, after its last
    /// checkpoint, and moves what lies behind it to the front if that is little. It may be killed
    /// at any moment: another checkpoint names the shorter file first. The caller has
    /// `Engine::compacting`.
    ///
    /// # Errors
    /// [`Error::Poisoned`] only: all that counts is durable already, and whatever else fails leaves
    /// the file longer than it needs to be.
    pub(crate) fn cut_at_close(&self) -> Result<()> {
        let moved = match self.can_move_at_close() {
            true => self.give_back_at_close(),
            false => Ok(()),
        };
        if let Err(error) = moved.and_then(|()| self.cut_tail_at_close()) {
            tracing::warn!(%error, "free space of the data file stays");
        }
        self.store.check_poison()
    }

    /// Cuts off what is free at the end of the data file, and what has left the allocator before:
    /// who moved things may have ended before the file was cut.
    fn cut_tail_at_close(&self) -> Result<()> {
        let space = &self.store.space;
        if space.is_full() || self.store.life.is_short() {
            return Ok(());
        }
        let goal = space.cut_goal(self.store.committed_blocks());
        let is_cut =
            space.has_long_tail(goal) && space.cut_tail(goal, || self.store.committed_blocks()) > 0;
        if !is_cut && !space.is_file_longer()? {
            return Ok(());
        }
        self.checkpoint_once()?;
        self.truncate_data()
    }

    /// True if there is something to win by moving little, and room to do so. With discards the
    /// file system has what is free.
    fn can_move_at_close(&self) -> bool {
        let space = &self.store.space;
        let is_short = space.is_full() || self.store.life.is_short();
        let (used, end) = space.used_and_end();
        space.has_spare()
            && !(is_short || self.options.discard || self.holds_blocks())
            && end.saturating_sub(used) > used / HOLES_SHARE
            && self.bytes_behind(used) <= CLOSE_BYTES_MAX
    }

    /// Cuts the data file to the blocks that the allocator has, after a checkpoint that names no
    /// more.
    fn truncate_data(&self) -> Result<()> {
        // No other checkpoint becomes durable while these are locked.
        let files = self.lock_files();
        self.store.check_poison()?;
        let named = files.superblock.data_blocks;
        self.store.space.truncate_file(named)
    }

    /// Merges base and journal of the mapping, however short the journal is, into a base that ends
    /// with the last page. The next checkpoint names it.
    fn merge_mapping(&self) -> Result<()> {
        let mut files = self.lock_files();
        self.store.check_poison()?;
        let pages = u64::from(self.store.pool.page_ids().trim());
        let tables = self.store.mapping_size().tables;
        let reserve = &self.store.mapping_reserve;
        files.mapping.merge(pages, tables, reserve)
    }
}
