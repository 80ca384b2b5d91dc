//! Moving pages and chunks from the end of the data file to its front.
//!
//! While a compaction runs, everything is allocated at the lowest place. A page is moved by marking
//! it dirty, so that its next image is nearer to the front. A chunk is copied. Their old places are
//! free with the next checkpoint. This is repeated in rounds, because writers continue.
//!
//! A chunk needs a run of blocks, and pages break runs up, one block here and there. So when no run
//! is left, pages are moved together at the front first, and chunks in the next round.

use std::ops::ControlFlow;

use pando_device::{File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_format::{Extent, PageId, StoredPage};
use pando_pool::{ApplyToken, Attempt, Restart};
use pando_stats::Ticker;

use crate::compact::progress::{CompactPhase, CompactProgress};
use crate::compact::run::{CUT_FROM, Compaction, MOVE_FROM, Part};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Largest number of rounds: writers may fill the end as fast as it is emptied.
const ROUNDS_MAX: u32 = 8;
/// What is used lies together if the holes in it are less than one part in this many.
const USED_SHARE: u64 = 128;
/// Number of pages that are checked, and read, together.
const GROUP: u32 = 64;
/// Number of blocks that are counted together when the place for pages is chosen.
const WINDOW_BLOCKS: u64 = 4096;

/// Limits beyond which something has to move, in blocks.
#[derive(Debug, Clone, Copy)]
struct MoveLimits {
    /// For chunks that end beyond it.
    chunks: u64,
    /// For pages that end beyond it.
    pages: u64,
}

/// Result of moving a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    Done,
    /// It was freed, or is already in place.
    Gone,
    /// There is no run for it, or somebody may be reading it at its place.
    NoRun,
}

fn end_of(extent: Extent) -> u64 {
    u64::from(extent.block) + u64::from(extent.blocks)
}

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    /// Moves pages and chunks until what is used lies together at the front, and removes free
    /// blocks behind it from the allocator, but for those that would be added again at once. The
    /// length of the file itself does not change yet.
    pub(super) fn move_to_front(&mut self) -> Part<()> {
        let engine = self.engine;
        let (_, first) = engine.store.space.used_and_end();
        let mut without_run = 0;
        let mut before = u64::MAX;
        for _ in 0..ROUNDS_MAX {
            self.checkpoint()?;
            let goal = engine.store.space.cut_goal(engine.store.committed_blocks());
            engine
                .store
                .space
                .cut_tail(goal, || engine.store.committed_blocks());
            let (used, end) = engine.store.space.used_and_end();
            let excess = end.saturating_sub(used);
            if excess <= used / USED_SHARE {
                break;
            }
            // Not the end: one page that a checkpoint wrote while the front was still taken by what
            // it was about to free says nothing of all the others.
            let behind = engine.bytes_behind(used);
            if behind >= before && without_run == 0 {
                break;
            }
            before = behind;
            let all = first.saturating_sub(used).max(1);
            let done = 1.0 - excess as f64 / all as f64;
            let from = MOVE_FROM + (CUT_FROM - MOVE_FROM) * done.clamp(0.0, 1.0);
            let part = (from, from.midpoint(CUT_FROM));
            let pages = match without_run {
                0 => used,
                _ => self.pages_end(used)?,
            };
            assert!(
                pages <= used,
                "pages beyond all that is used would stay there"
            );
            let limits = MoveLimits {
                // A hole that is shorter than a chunk may stay between two of them.
                chunks: used + u64::from(EXTENT_BLOCKS_MAX),
                pages,
            };
            without_run = self.move_behind(CompactPhase::Move, limits, part)?;
        }
        Ok(())
    }

    /// Writes every page again, however far at the front it is.
    pub(super) fn write_all_again(&mut self, part: (f64, f64)) -> Part<()> {
        self.go_on(CompactPhase::Rewrite, part.0)?;
        let limits = MoveLimits {
            chunks: u64::MAX,
            pages: 0,
        };
        let without_run = self.move_behind(CompactPhase::Rewrite, limits, part)?;
        assert_eq!(without_run, 0, "no chunk is moved");
        Ok(())
    }

    /// Moves everything beyond the limits. Returns the number of chunks for which there was no run.
    fn move_behind(
        &mut self,
        phase: CompactPhase,
        limits: MoveLimits,
        part: (f64, f64),
    ) -> Part<u64> {
        let high_water = self.engine.store.pool.page_ids().high_water();
        let mut without_run = 0;
        let mut buffer = IoBuf::default();
        for start in (0..high_water).step_by(GROUP as usize) {
            let share = f64::from(start) / f64::from(high_water);
            // A group may be 64 reads and writes.
            self.go_on(phase, part.0 + (part.1 - part.0) * share)?;
            let mut group = Vec::new();
            for page in (start..high_water.min(start + GROUP)).map(PageId) {
                let Some(extent) = self.engine.store.pool.stored_extent(page) else {
                    continue;
                };
                if let Some(stored) = self.engine.store.pool.chunk(page) {
                    if end_of(stored.extent) > limits.chunks {
                        self.go_on(phase, part.0 + (part.1 - part.0) * share)?;
                        let moved = self.engine.move_chunk(page, limits.chunks, &mut buffer)?;
                        without_run += u64::from(moved == Moved::NoRun);
                    }
                } else if end_of(extent) > limits.pages {
                    group.push(page);
                }
            }
            self.write_group(&group, limits.pages)?;
        }
        Ok(without_run)
    }

    /// Has those of `pages` that end beyond `limit` written again.
    fn write_group(&mut self, pages: &[PageId], limit: u64) -> Part<()> {
        let engine = self.engine;
        for group in pages.chunks((engine.store.pool.frames() / 16).max(1)) {
            let absent: Vec<PageId> = group
                .iter()
                .copied()
                .filter(|page| engine.store.pool.is_on_disk(*page))
                .collect();
            if !absent.is_empty() {
                // A page that cannot be read now is read again below, where the error is reported.
                let _late = engine.fetch_many(&absent);
            }
            for page in group {
                let _reservation = self.room_to_change()?;
                engine.in_gate(1, |engine, token| engine.write_again(token, *page, limit))?;
            }
        }
        Ok(())
    }

    /// Returns where the pages would end if they were moved together at the front, between the
    /// chunks that are there.
    fn pages_end(&mut self, used: u64) -> Part<u64> {
        let engine = self.engine;
        let windows = usize_of(engine.store.space.blocks().div_ceil(WINDOW_BLOCKS));
        let mut chunks = vec![0_u64; windows];
        let mut pages = 0;
        for page in (0..engine.store.pool.page_ids().high_water()).map(PageId) {
            let Some(extent) = engine.store.pool.stored_extent(page) else {
                continue;
            };
            let blocks = u64::from(extent.blocks);
            let window = (u64::from(extent.block) / WINDOW_BLOCKS) as usize;
            match (engine.store.pool.chunk(page), chunks.get_mut(window)) {
                (None, _) => pages += blocks,
                (Some(_), Some(count)) => *count += blocks,
                (Some(_), None) => {}
            }
        }
        self.check()?;
        let mut end = 0;
        for count in chunks {
            if pages == 0 {
                break;
            }
            let room = WINDOW_BLOCKS.saturating_sub(count);
            end += WINDOW_BLOCKS.min(count + pages);
            pages = pages.saturating_sub(room);
        }
        Ok(end.min(used))
    }
}

impl Engine {
    /// Bytes of the pages and chunks that end behind block `limit`.
    pub(super) fn bytes_behind(&self, limit: u64) -> u64 {
        let pages = (0..self.store.pool.page_ids().high_water()).map(PageId);
        let extents = pages.filter_map(|page| self.store.pool.stored_extent(page));
        let behind = extents.filter(|extent| end_of(*extent) > limit);
        let blocks: u64 = behind.map(|extent| u64::from(extent.blocks)).sum();
        blocks * self.store.space.block_bytes()
    }

    /// Marks `page` to be written again if it still ends beyond `limit`.
    fn write_again(&self, token: &ApplyToken<'_>, page: PageId, limit: u64) -> Attempt<()> {
        let mut latch = match self.store.pool.exclusive(page) {
            Ok(latch) => latch,
            // The page was freed.
            Err(Restart::Damaged(..)) => return Ok(()),
            Err(restart) => return Err(restart),
        };
        let extent = self.store.pool.stored_extent(page);
        if latch.page() == page
            && extent.is_some_and(|extent| end_of(extent) > limit)
            && latch.write_again(token)?
        {
            self.store.statistics.tick(Ticker::CompactPages, 1);
        }
        Ok(())
    }

    /// Copies chunk `page` to a run that ends at or below `limit`. Blocks.
    fn move_chunk(&self, page: PageId, limit: u64, buffer: &mut IoBuf) -> Result<Moved> {
        let block_bytes = self.store.space.block_bytes();
        if buffer.is_empty() {
            *buffer = IoBuf::new(usize_of(u64::from(EXTENT_BLOCKS_MAX) * block_bytes));
        }
        loop {
            // Read the epoch first: see Pool::move_chunk.
            let epoch = self.store.pool.epochs().current();
            let Some(old) = self.store.pool.chunk(page) else {
                return Ok(Moved::Gone);
            };
            if end_of(old.extent) <= limit {
                return Ok(Moved::Gone);
            }
            if self.store.registry.reads_by_place() {
                return Ok(Moved::NoRun);
            }
            let committed = || self.store.committed_blocks();
            let Some(extent) = self
                .store
                .space
                .take_below(old.extent.blocks, limit, committed)
            else {
                return Ok(Moved::NoRun);
            };
            assert!(end_of(extent) <= limit, "a chunk moves to the front");
            assert!(
                end_of(extent) <= old.extent.block.into()
                    || end_of(old.extent) <= extent.block.into(),
                "the places of a chunk overlap"
            );
            let copied = self.copy_extent(old.extent, extent, buffer);
            if let Err(error) = copied {
                self.store.space.free_all([extent]);
                // If the chunk was freed meanwhile, its blocks may have been cut off or reused.
                match self.store.pool.chunk(page) {
                    Some(now) if now == old => return Err(error),
                    _ => continue,
                }
            }
            let new = StoredPage { extent, ..old };
            // Dirties no page: only the chunk's word changes.
            let moved = self.in_gate(0, |engine, token| {
                let same = token.epoch() == epoch;
                Ok(same && engine.store.pool.move_chunk(token, page, old, new))
            });
            if !matches!(moved, Ok(true)) {
                self.store.space.free_all([extent]);
            }
            if moved? {
                self.store.statistics.tick(Ticker::CompactChunks, 1);
                return Ok(Moved::Done);
            }
        }
    }

    fn copy_extent(&self, from: Extent, to: Extent, buffer: &mut IoBuf) -> Result<()> {
        let block_bytes = self.store.space.block_bytes();
        assert_eq!(from.blocks, to.blocks, "a copy is as long");
        buffer.set_len(usize_of(u64::from(from.blocks) * block_bytes));
        self.store
            .data
            .read_at(buffer, u64::from(from.block) * block_bytes)
            .map_err(Error::io("reading a chunk to move it"))?;
        let bytes = buffer.len() as u64;
        self.store
            .data
            .write_at(buffer, u64::from(to.block) * block_bytes)
            .map_err(Error::io("writing a chunk to move it"))?;
        self.store.statistics.tick(Ticker::ChunkReads, 1);
        self.store.statistics.tick(Ticker::ChunkReadBytes, bytes);
        self.store.statistics.tick(Ticker::ChunkWrites, 1);
        self.store.statistics.tick(Ticker::ChunkWriteBytes, bytes);
        Ok(())
    }
}
