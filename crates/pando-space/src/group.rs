//! Groups of regions that share a lock: the upper levels of the bitmap.
//!
//! For each power of two up to the longest extent there is a set of the regions that may have a run
//! of that length (decision 032). The bound of each region's longest run is also copied to an
//! array, so that a search skips the regions without such a run and does not touch them.

use std::ops::Range;

use pando_format::extent::EXTENT_BLOCKS_MAX;

use crate::region::{REGION_BLOCKS, REGION_WORDS, Region, blocks_in};
use crate::region_set::RegionSet;

/// Number of powers of two up to the longest extent.
const LEVELS: usize = EXTENT_BLOCKS_MAX.ilog2() as usize + 1;
/// Maximum number of regions from which one call of [`Group::lend`] takes extents.
const LEND_REGIONS: usize = 4;

const _: () = assert!(REGION_BLOCKS <= u16::MAX as u32, "bounds have 16 bits");

/// A run within a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Index of the region in the group.
    pub(crate) region: usize,
    /// First block, relative to the region.
    pub(crate) start: u32,
}

/// Why a search found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Miss {
    /// No region of the group has such a run.
    Nothing,
    /// The search has read as many words as it may.
    Bounded,
}

/// Extents to keep ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Length of an extent in blocks.
    pub(crate) count: u32,
    /// Number of extents.
    pub(crate) extents: usize,
    /// The core whose magazine gets them.
    pub(crate) core: usize,
}

/// Regions under one lock.
#[derive(Debug)]
pub(crate) struct Group {
    /// By their index in this group. [`Group::update`] follows each change of their counts.
    pub(crate) regions: Vec<Region>,
    /// By level: the regions with a bound of at least 2 to the power of the level.
    levels: [RegionSet; LEVELS],
    /// Copies of [`Region::run_bound`], by region.
    bounds: Vec<u16>,
    /// The region where the last search ended.
    cursor: usize,
    /// Number of ones (free blocks) in all regions.
    pub(crate) free: u64,
    /// Number of free units of all regions.
    pub(crate) units: u64,
    /// Number of freed blocks that the ledger does not count yet.
    pub(crate) pending: u64,
    /// Number of frees so far, besides those that the ledger counts.
    pub(crate) frees: u64,
    /// Length of a unit in blocks. Constant.
    unit: u32,
}

/// The counts of a region before it changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Before {
    free: u32,
    units: u32,
}

impl Before {
    /// Copies the counts; the caller changes the region next, and then calls [`Group::update`].
    pub(crate) fn of(region: &Region) -> Self {
        Self {
            free: region.free(),
            units: region.units(),
        }
    }
}

/// Returns the number of levels that a bound reaches.
fn levels_of(bound: u32) -> usize {
    let bits = u32::BITS - bound.leading_zeros();
    (bits as usize).min(LEVELS)
}

impl Group {
    /// Makes a group without regions, which counts free units of `unit` blocks.
    pub(crate) fn new(unit: u32) -> Self {
        Self {
            regions: Vec::new(),
            levels: Default::default(),
            bounds: Vec::new(),
            cursor: 0,
            free: 0,
            units: 0,
            pending: 0,
            frees: 0,
            unit,
        }
    }

    /// Adds a region of free blocks.
    pub(crate) fn push(&mut self, blocks: u32) {
        let index = self.regions.len();
        self.regions.push(Region::new(blocks, self.unit));
        self.bounds.push(0);
        self.levels.iter_mut().for_each(RegionSet::push);
        self.update(index, Before::default());
    }

    /// Removes the last region, which is entirely free.
    pub(crate) fn pop(&mut self) {
        let region = self.regions.pop().expect("the group has a region");
        assert!(region.is_all_free(), "what is cut off is free");
        self.free -= u64::from(region.free());
        self.units -= u64::from(region.units());
        self.bounds.pop();
        self.levels.iter_mut().for_each(RegionSet::pop);
        self.cursor = 0;
    }

    /// Updates the counts after a change of region `index`, whose counts were `before`.
    pub(crate) fn update(&mut self, index: usize, before: Before) {
        let now = self.regions[index].free();
        self.free = self.free - u64::from(before.free) + u64::from(now);
        let units = self.regions[index].units();
        self.units = self.units - u64::from(before.units) + u64::from(units);
        self.copy_bound(index);
    }

    /// Updates the copy of a region's bound, and its levels.
    fn copy_bound(&mut self, index: usize) {
        let now = self.regions[index].run_bound();
        let before = u32::from(self.bounds[index]);
        if now == before {
            return;
        }
        self.bounds[index] = bound_of(now);
        let (now, before) = (levels_of(now), levels_of(before));
        for level in before..now {
            self.levels[level].insert(index);
        }
        for level in now..before {
            self.levels[level].remove(index);
        }
    }

    /// Allocates the given run, which is free.
    pub(crate) fn take(&mut self, index: usize, start: u32, count: u32) {
        let before = Before::of(&self.regions[index]);
        self.regions[index].take(start, count);
        self.update(index, before);
    }

    /// Frees a run. `Err` names a block of it that is free already.
    pub(crate) fn give(&mut self, index: usize, start: u32, count: u32) -> Result<(), u32> {
        let before = Before::of(&self.regions[index]);
        self.regions[index].give(start, count)?;
        self.update(index, before);
        Ok(())
    }

    /// Returns whether the run exists and is free.
    pub(crate) fn is_free(&self, index: usize, start: u32, count: u32) -> bool {
        self.regions
            .get(index)
            .is_some_and(|region| region.is_free(start, count))
    }

    /// Returns false if taking a run that begins there could cost one unit more than necessary.
    pub(crate) fn is_low_edge(&self, index: usize, start: u32) -> bool {
        self.unit == 1 || self.regions[index].is_low_edge(start)
    }

    /// Allocates `count` blocks anywhere in the group, and reads about `words` words of the bitmap.
    pub(crate) fn allocate(&mut self, count: u32, words: u32) -> Result<Found, Miss> {
        let found = self.find(count, words)?;
        self.take(found.region, found.start, count);
        self.cursor = found.region;
        Ok(found)
    }

    /// Allocates extents for the magazine of a core, from a few regions, and reads about `words`
    /// words for the first one. Calls `each` with the region and the first block in it of each
    /// extent.
    pub(crate) fn lend(
        &mut self,
        wanted: Wanted,
        words: u32,
        mut each: impl FnMut(usize, u32),
    ) -> Result<(), Miss> {
        let mut left = wanted.extents;
        for round in 0..LEND_REGIONS {
            let found = match self.find(wanted.count, words) {
                Err(miss) if round == 0 => return Err(miss),
                Err(_) => break,
                Ok(found) => found,
            };
            let index = found.region;
            self.cursor = index;
            let region = &mut self.regions[index];
            let before = Before::of(region);
            region.in_magazines |= 1 << wanted.core;
            region.take_many(wanted.count, found.start, left, |start| {
                left -= 1;
                each(index, start);
            });
            self.update(index, before);
            if left <= wanted.extents / 2 {
                break;
            }
        }
        Ok(())
    }

    /// Finds a run of `count` free blocks in a region, which need not exist.
    pub(crate) fn find_in(&mut self, index: usize, count: u32) -> Option<u32> {
        let found = self.regions.get_mut(index)?.find(count);
        if found.is_none() {
            self.copy_bound(index);
        }
        found
    }

    /// Finds a run of `count` free blocks.
    fn find(&mut self, count: u32, words: u32) -> Result<Found, Miss> {
        let level = count.ilog2() as usize;
        let mut left = words;
        for range in [self.cursor..self.regions.len(), 0..self.cursor] {
            let mut next = range.start;
            while let Some(index) = self.levels[level].first_in(next..range.end) {
                next = index + 1;
                if left == 0 {
                    self.cursor = index;
                    return Err(Miss::Bounded);
                }
                if u32::from(self.bounds[index]) < count {
                    left -= 1;
                    continue;
                }
                left = left.saturating_sub(REGION_WORDS);
                if let Some(start) = self.find_in(index, count) {
                    return Ok(Found {
                        region: index,
                        start,
                    });
                }
            }
        }
        Err(Miss::Nothing)
    }

    /// Finds the longest run of a few regions, or the first with at least `enough` blocks.
    pub(crate) fn longest(&mut self, enough: u32, regions: usize) -> Option<(usize, Range<u32>)> {
        let mut best: Option<(usize, Range<u32>)> = None;
        let mut looked = 0;
        for range in [self.cursor..self.regions.len(), 0..self.cursor] {
            let mut next = range.start;
            while let Some(index) = self.levels[0].first_in(next..range.end) {
                next = index + 1;
                let best_len = best.as_ref().map_or(0, |(_, run)| blocks_in(run));
                if best_len >= enough || looked == regions {
                    self.cursor = index;
                    return best;
                }
                looked += 1;
                if u32::from(self.bounds[index]) > best_len {
                    let run = self.regions[index].longest_run(enough);
                    self.copy_bound(index);
                    if blocks_in(&run) > best_len {
                        best = Some((index, run));
                    }
                }
            }
        }
        best
    }

    /// Panics unless the invariants hold.
    pub(crate) fn check(&self) {
        let (mut free, mut units) = (0, 0);
        for (index, region) in self.regions.iter().enumerate() {
            region.check();
            free += u64::from(region.free());
            units += u64::from(region.units());
            assert_eq!(u32::from(self.bounds[index]), region.run_bound());
            for (level, regions) in self.levels.iter().enumerate() {
                let reaches = region.run_bound() >= 1 << level;
                assert_eq!(regions.contains(index), reaches, "region {index}");
            }
        }
        assert_eq!(self.free, free, "the count equals the sum");
        assert_eq!(self.units, units, "the units equal the sum");
        assert_eq!(self.bounds.len(), self.regions.len());
        assert!(self.cursor <= self.regions.len());
    }
}

/// Returns the copy of a region's bound.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a run is no longer than its region: asserted above"
)]
fn bound_of(run_bound: u32) -> u16 {
    debug_assert!(run_bound <= REGION_BLOCKS, "a run within a region");
    run_bound as u16
}
