//! The data file becomes shorter: while a compaction runs, everything is allocated at the lowest
//! place, and what is free at the end is cut off, as it is when a store is closed (decisions 033
//! and 082).

use pando_device::File;
use pando_format::Extent;
use pando_space::LowCursor;
use pando_sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::space::growth::GROWTH_MIN_BYTES;
use crate::space::keeper::SpaceKeeper;
use crate::space::urgency::Urgency;

/// Of a store at rest, less than this fraction of the file is spare.
const SPARE_SHARE: u64 = 32;
/// What is free at the end stays if it is less than this fraction of the file.
const TAIL_SHARE: u64 = 64;

/// While this exists, everything is allocated at the lowest place.
#[derive(Debug)]
pub(crate) struct LowPlaces<'a>(&'a SpaceKeeper);

impl Drop for LowPlaces<'_> {
    fn drop(&mut self) {
        let was_low = self.0.low.swap(false, Ordering::Relaxed);
        assert!(was_low, "somebody else has ended it");
    }
}

impl SpaceKeeper {
    /// Makes everything be allocated at the lowest place until the result is dropped. One caller at
    /// a time.
    pub(crate) fn begin_low(&self) -> LowPlaces<'_> {
        // Blocks in magazines would be taken regardless of where they are.
        self.space().drain_ready();
        *self.low_cursor.lock() = LowCursor::default();
        let was_low = self.low.swap(true, Ordering::Relaxed);
        assert!(!was_low, "one at a time");
        // Otherwise the end of the file could not be cut.
        self.take_back(|| false);
        LowPlaces(self)
    }

    /// True while everything is allocated at the lowest place.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Allocates the lowest run of `blocks` blocks, if everything is allocated at the lowest place.
    pub(super) fn take_lowest(&self, blocks: u32) -> Option<Extent> {
        // Relaxed: a thread that reads this too early allocates anywhere, as before.
        if !self.low.load(Ordering::Relaxed) {
            return None;
        }
        self.space()
            .allocate_lowest(blocks, &mut self.low_cursor.lock())
    }

    /// Takes a run of `blocks` blocks that ends at or below `limit`, within what may be reserved,
    /// to move something down that is above `limit`. `None` if there is no such run.
    pub(crate) fn take_below(
        &self,
        blocks: u32,
        limit: u64,
        committed: impl FnOnce() -> u64,
    ) -> Option<Extent> {
        let _reservation = self.reserve_run(blocks, committed)?;
        let extent = self.take_lowest(blocks)?;
        assert_eq!(extent.blocks, blocks, "a run of another length");
        if u64::from(extent.block) + u64::from(extent.blocks) <= limit {
            return Some(extent);
        }
        self.free_all([extent]);
        None
    }

    /// Returns how many blocks the file needs when dirty pages will need `committed` blocks: with
    /// fewer it would grow again at once.
    pub(crate) fn cut_goal(&self, committed: u64) -> u64 {
        let used = self.blocks().saturating_sub(self.space().free_blocks());
        let needed = used + committed + self.reserved_blocks() + self.delete_reserve(Urgency::No);
        needed + self.kept_free(needed)
    }

    /// Number of blocks that are free beyond what the file needs when dirty pages will need
    /// `committed` blocks.
    pub(crate) fn spare(&self, committed: u64) -> u64 {
        self.blocks().saturating_sub(self.cut_goal(committed))
    }

    /// True if so much is spare that the file is too long for a store at rest.
    pub(crate) fn has_spare(&self) -> bool {
        let least = GROWTH_MIN_BYTES / self.block_bytes();
        self.spare(0) >= least.max(self.blocks() / SPARE_SHARE)
    }

    /// Notes how much is spare now, before a checkpoint frees what it has replaced: never is less
    /// free. `committed` as in [`SpaceKeeper::spare`].
    pub(crate) fn note_trough(&self, committed: u64) {
        // Relaxed: a hint.
        self.trough
            .fetch_min(self.spare(committed), Ordering::Relaxed);
    }

    /// Returns the least that was noted since the last call, in blocks; None if nothing was.
    pub(crate) fn take_trough(&self) -> Option<u64> {
        let trough = self.trough.swap(u64::MAX, Ordering::Relaxed);
        (trough < u64::MAX).then_some(trough)
    }

    /// Returns how many blocks are in use, and how many there are up to the last of these. They are
    /// equal when everything lies together at the front.
    pub(crate) fn used_and_end(&self) -> (u64, u64) {
        let _sizing = self.sizing.lock();
        // The end first: what is freed meanwhile makes the number of used blocks smaller.
        let end = self.blocks() - self.space().free_tail();
        let used = self.blocks().saturating_sub(self.space().free_blocks());
        (used, end)
    }

    /// Blocks that stay free besides the reserve when a file is cut to `blocks`.
    fn kept_free(&self, blocks: u64) -> u64 {
        self.low_water_of(blocks) + GROWTH_MIN_BYTES / self.block_bytes()
    }

    /// Removes free blocks at the end from the allocator, down to `limit` blocks, and only as far
    /// as neither reservations nor `committed` blocks need them. The length of the file does not
    /// change. Returns the number of removed blocks.
    pub(crate) fn cut_tail(&self, limit: u64, committed: impl FnOnce() -> u64) -> u64 {
        let _sizing = self.sizing.lock();
        let blocks = self.space().blocks();
        let wanted = blocks.saturating_sub(limit).min(self.space().free_tail());
        // Do not cut off what would be added again at once.
        let keep = self.kept_free(blocks - wanted);
        // SeqCst: withhold first, read afterwards: see `taken`.
        self.withheld.fetch_add(wanted, Ordering::SeqCst);
        let taken = self.taken(committed, Urgency::No) + keep;
        let free = self.free_for_pages(u64::MAX) + wanted;
        let spare = free.saturating_sub(taken);
        let cut = wanted.min(spare);
        assert!(blocks - cut >= limit.min(blocks), "cut below the limit");
        let done = cut > 0 && self.space().shrink_to(blocks - cut).is_ok();
        let before = self.withheld.fetch_sub(wanted, Ordering::SeqCst);
        assert!(before >= wanted, "blocks are withheld until now");
        self.waiters().notify_all();
        if done { cut } else { 0 }
    }

    /// True if cutting the free end of the file down to `goal` blocks is worth a checkpoint.
    pub(crate) fn has_long_tail(&self, goal: u64) -> bool {
        let blocks = self.blocks();
        let beyond = blocks.saturating_sub(goal).min(self.space().free_tail());
        let least = GROWTH_MIN_BYTES / self.block_bytes();
        beyond >= least.max(blocks / TAIL_SHARE)
    }

    /// True if the file is longer than the allocator knows: blocks have left that, and the file was
    /// not cut then.
    pub(crate) fn is_file_longer(&self) -> Result<bool> {
        let _sizing = self.sizing.lock();
        let length = self
            .file()
            .len()
            .map_err(Error::io("reading the length of the data file"))?;
        Ok(length > self.blocks() * self.block_bytes())
    }

    /// Cuts the file to the blocks of the allocator, or to `named` blocks if those are more. The
    /// newest checkpoint is durable in both slots and names so many, and the caller keeps others
    /// from being named meanwhile: so whichever checkpoint an opening finds, the file is as long as
    /// that, however many more blocks somebody has removed from the allocator.
    pub(crate) fn truncate_file(&self, named: u64) -> Result<()> {
        let _sizing = self.sizing.lock();
        let bytes = self.space().blocks().max(named) * self.block_bytes();
        assert!(bytes > 0, "the system trees need blocks");
        self.file()
            .set_len(bytes)
            .map_err(Error::io("cutting the data file"))
    }
}
