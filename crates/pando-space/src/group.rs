//! The regions that share a lock: the upper level of the bitmap, and extents that are likely free.
//!
//! A group keeps, for each common size, places where such a run was seen. They are hints: the bits
//! alone decide, so a hint that has gone stale costs one test, and nothing has to be given back
//! when space runs out.

use std::ops::Range;

use crate::region::{REGION_WORDS, Region};

/// Sizes, in blocks, up to which places are kept.
const READY_BLOCKS_MAX: usize = 16;
/// Places kept of each size.
const READY_MAX: usize = 64;
/// Places that one search adds.
const READY_REFILL: u32 = 32;

/// A run within a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Index of the region in the group.
    pub(crate) region: usize,
    /// First block, relative to the region.
    pub(crate) start: u32,
}

/// How a search ended that found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Miss {
    /// There is no such run in any region of the group.
    Nothing,
    /// The words that it may look at were used up.
    Bounded,
}

/// Regions under one lock.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) regions: Vec<Region>,
    /// One bit for each region: it has a free block.
    not_full: Vec<u64>,
    /// Where the last search ended.
    cursor: usize,
    ready: [Vec<Found>; READY_BLOCKS_MAX],
    /// Ones of all regions.
    pub(crate) free: u64,
    /// Free units of all regions.
    pub(crate) units: u64,
    /// Blocks of a unit. Constant.
    unit: u32,
}

/// What a region's counts were before it changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Before {
    free: u32,
    units: u32,
}

impl Before {
    pub(crate) fn of(region: &Region) -> Self {
        Self {
            free: region.free(),
            units: region.units(),
        }
    }
}

impl Group {
    pub(crate) fn new(unit: u32) -> Self {
        Self {
            regions: Vec::new(),
            not_full: Vec::new(),
            cursor: 0,
            ready: Default::default(),
            free: 0,
            units: 0,
            unit,
        }
    }

    /// Adds a region of free blocks.
    pub(crate) fn push(&mut self, blocks: u32) {
        let index = self.regions.len();
        self.regions.push(Region::new(blocks, self.unit));
        if index.is_multiple_of(64) {
            self.not_full.push(0);
        }
        self.update(index, Before::default());
    }

    /// Removes the last region, which is all free.
    pub(crate) fn pop(&mut self) {
        let region = self.regions.pop().expect("the group has a region");
        assert!(region.is_all_free(), "what is cut off is free");
        self.free -= u64::from(region.free());
        self.units -= u64::from(region.units());
        let index = self.regions.len();
        self.not_full[index / 64] &= !(1 << (index % 64));
        if index.is_multiple_of(64) {
            self.not_full.pop();
        }
        self.cursor = 0;
    }

    /// Brings the counts up to date after a region changed that had those of `before`.
    pub(crate) fn update(&mut self, index: usize, before: Before) {
        let now = self.regions[index].free();
        self.free = self.free - u64::from(before.free) + u64::from(now);
        let units = self.regions[index].units();
        self.units = self.units - u64::from(before.units) + u64::from(units);
        let bit = 1 << (index % 64);
        if now > 0 {
            self.not_full[index / 64] |= bit;
        } else {
            self.not_full[index / 64] &= !bit;
        }
    }

    /// Allocates a run that is free.
    pub(crate) fn take(&mut self, index: usize, start: u32, count: u32) {
        let before = Before::of(&self.regions[index]);
        self.regions[index].take(start, count);
        self.update(index, before);
    }

    /// Frees a run; `Err` names a block of it that is free already.
    pub(crate) fn give(&mut self, index: usize, start: u32, count: u32) -> Result<(), u32> {
        let before = Before::of(&self.regions[index]);
        self.regions[index].give(start, count)?;
        self.update(index, before);
        self.remember(index, start, count);
        Ok(())
    }

    fn remember(&mut self, region: usize, start: u32, count: u32) {
        if let Some(ready) = self.ready.get_mut(count as usize - 1)
            && ready.len() < READY_MAX
        {
            ready.push(Found { region, start });
        }
    }

    /// True if such a run exists and is free.
    pub(crate) fn is_free(&self, index: usize, start: u32, count: u32) -> bool {
        self.regions
            .get(index)
            .is_some_and(|region| region.is_free(start, count))
    }

    /// True unless taking what begins there could cost one unit more than it has to.
    pub(crate) fn is_low_edge(&self, index: usize, start: u32) -> bool {
        self.unit == 1 || self.regions[index].is_low_edge(start)
    }

    /// Allocates `count` blocks wherever they are, looking at about `words` words of the bitmap.
    pub(crate) fn allocate(&mut self, count: u32, words: u32) -> Result<Found, Miss> {
        if let Some(found) = self.take_ready(count) {
            return Ok(found);
        }
        let found = self.find(count, words)?;
        self.take(found.region, found.start, count);
        self.cursor = found.region;
        self.refill(&found, count);
        Ok(found)
    }

    /// A place that was remembered, unless it lies in the middle of a longer run by now, where it
    /// could cost two units.
    fn take_ready(&mut self, count: u32) -> Option<Found> {
        while let Some(found) = self.ready.get_mut(count as usize - 1)?.pop() {
            if self.is_free(found.region, found.start, count)
                && self.is_low_edge(found.region, found.start)
            {
                self.take(found.region, found.start, count);
                return Some(found);
            }
        }
        None
    }

    /// Remembers what follows a run, so that the next ones need no search and lie in a row.
    fn refill(&mut self, found: &Found, count: u32) {
        if count as usize > READY_BLOCKS_MAX {
            return;
        }
        let region = &self.regions[found.region];
        let following = (1..=READY_REFILL)
            .map(|step| found.start + step * count)
            .take_while(|start| region.is_free(*start, count))
            .count() as u32;
        for step in (1..=following).rev() {
            self.remember(found.region, found.start + step * count, count);
        }
    }

    /// A run of `count` free blocks.
    fn find(&mut self, count: u32, words: u32) -> Result<Found, Miss> {
        let mut left = words;
        for range in [self.cursor..self.regions.len(), 0..self.cursor] {
            let mut next = range.start;
            while let Some(index) = self.next_not_full(next, range.end) {
                next = index + 1;
                let region = &mut self.regions[index];
                if left == 0 {
                    self.cursor = index;
                    return Err(Miss::Bounded);
                }
                if region.run_bound() < count {
                    left -= 1;
                    continue;
                }
                left = left.saturating_sub(REGION_WORDS);
                if let Some(start) = region.find(count) {
                    return Ok(Found {
                        region: index,
                        start,
                    });
                }
            }
        }
        Err(Miss::Nothing)
    }

    /// The longest run of a few regions, or the first that has `enough` blocks.
    pub(crate) fn longest(&mut self, enough: u32, regions: usize) -> Option<(usize, Range<u32>)> {
        let mut best: Option<(usize, Range<u32>)> = None;
        let mut looked = 0;
        for range in [self.cursor..self.regions.len(), 0..self.cursor] {
            let mut next = range.start;
            while let Some(index) = self.next_not_full(next, range.end) {
                next = index + 1;
                let best_len = best.as_ref().map_or(0, |(_, run)| run.len() as u32);
                if best_len >= enough || looked == regions {
                    self.cursor = index;
                    return best;
                }
                looked += 1;
                if self.regions[index].run_bound() > best_len {
                    let run = self.regions[index].longest_run(enough);
                    if run.len() as u32 > best_len {
                        best = Some((index, run));
                    }
                }
            }
        }
        best
    }

    /// The first region of `from .. end` that has a free block.
    fn next_not_full(&self, from: usize, end: usize) -> Option<usize> {
        let mut index = from;
        while index < end {
            let word = self.not_full[index / 64] >> (index % 64);
            if word != 0 {
                let found = index + word.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }

    /// Panics unless the invariants hold.
    pub(crate) fn check(&self) {
        let (mut free, mut units) = (0, 0);
        for (index, region) in self.regions.iter().enumerate() {
            region.check();
            free += u64::from(region.free());
            units += u64::from(region.units());
            let bit = self.not_full[index / 64] >> (index % 64) & 1;
            assert_eq!(bit == 1, region.free() > 0, "region {index}");
        }
        assert_eq!(self.free, free, "the count equals the sum");
        assert_eq!(self.units, units, "the units equal the sum");
        assert_eq!(self.not_full.len(), self.regions.len().div_ceil(64));
        assert!(self.cursor <= self.regions.len());
    }
}
