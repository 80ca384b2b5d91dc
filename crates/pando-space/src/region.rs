//! The bits of 4,096 blocks and their summary: the two lower levels of the bitmap.
//!
//! Plain data without a lock. Invariants after every method: bit `w` of `not_full` is set if word
//! `w` is not 0, bit `w` of `all_free` if it is all ones; `free` is the number of ones; `units` is
//! the number of disjoint runs of `unit` ones; no bit at or after `blocks` is set; no run of ones
//! is longer than `run_bound`.

use std::ops::Range;

use pando_format::cast::u32_of_len;
use pando_format::extent::EXTENT_BLOCKS_MAX;

const WORDS: usize = 64;
const WORD_BITS: u32 = u64::BITS;

/// Number of blocks of a region.
pub const REGION_BLOCKS: u32 = u32_of_len(WORDS) * WORD_BITS;

/// Maximum number of words that a search of one region reads.
pub(crate) const REGION_WORDS: u32 = u32_of_len(WORDS);

/// A region. Positions are relative to its first block. Taking or freeing an isolated run touches
/// two cache lines: that of the counts, and that of the word.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct Region {
    not_full: u64,
    all_free: u64,
    free: u32,
    /// Number of existing blocks: fewer than [`REGION_BLOCKS`] only in the last region.
    blocks: u32,
    /// Upper bound of the longest run. Failed searches lower it, and frees raise it to the run that
    /// they make.
    run_bound: u32,
    /// One bit for each core, set if its magazine may contain blocks of this region. Frees clear
    /// bits that they find outdated.
    pub(crate) in_magazines: u64,
    /// Length of a unit in blocks. Constant.
    unit: u32,
    /// Sum of the units of all maximal runs.
    units: u32,
    words: [u64; WORDS],
}

const _: () = assert!(
    std::mem::offset_of!(Region, words) <= 64,
    "counts lie in one line"
);

/// Returns a mask of `count` (1 to 64) ones from bit `start` on.
fn mask(start: u32, count: u32) -> u64 {
    (u64::MAX >> (WORD_BITS - count)) << start
}

/// Returns the words of the `count` bits from `start` on, and the mask of these bits in each word.
fn masks(start: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = start + count;
    let mut position = start;
    std::iter::from_fn(move || {
        (position < end).then(|| {
            let bit = position % WORD_BITS;
            let bits = (WORD_BITS - bit).min(end - position);
            let word = (position / WORD_BITS) as usize;
            position += bits;
            (word, mask(bit, bits))
        })
    })
}

/// Returns the lowest position of `count` (1 to 64) consecutive ones within `word`.
fn run_in_word(word: u64, count: u32) -> Option<u32> {
    let mut starts = word;
    let mut covered = 1;
    while covered < count && starts != 0 {
        let step = covered.min(count - covered);
        starts &= starts >> step;
        covered += step;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

impl Region {
    /// Makes a region of `blocks` (1 to [`REGION_BLOCKS`]) free blocks, which are also counted in
    /// units of `unit` blocks.
    pub(crate) fn new(blocks: u32, unit: u32) -> Self {
        let mut region = Self {
            words: [0; WORDS],
            not_full: 0,
            all_free: 0,
            free: 0,
            blocks: 0,
            run_bound: 0,
            in_magazines: 0,
            unit,
            units: 0,
        };
        region.grow(blocks);
        region
    }

    /// Returns the number of free blocks.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Returns the number of free units.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// Returns the number of blocks that exist, free or not.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns whether every block that exists is free.
    pub(crate) fn is_all_free(&self) -> bool {
        self.free == self.blocks
    }

    /// Returns an upper bound of the length of free runs.
    pub(crate) fn run_bound(&self) -> u32 {
        self.run_bound
    }

    /// Adds free blocks up to `blocks` in total.
    pub(crate) fn grow(&mut self, blocks: u32) {
        assert!(blocks > self.blocks, "a region grows");
        assert!(blocks <= REGION_BLOCKS, "a region has its size");
        let start = std::mem::replace(&mut self.blocks, blocks);
        self.set(start, blocks - start);
    }

    /// Cuts off the blocks from `blocks` (at least 1) on. `Err` names one that is allocated;
    /// nothing changes then.
    pub(crate) fn shrink(&mut self, blocks: u32) -> Result<(), u32> {
        assert!(
            (1..self.blocks).contains(&blocks),
            "a region shrinks and stays"
        );
        let count = self.blocks - blocks;
        if let Some(used) = self.first_allocated(blocks, count) {
            return Err(used);
        }
        self.take(blocks, count);
        self.blocks = blocks;
        Ok(())
    }

    /// Returns the first position of `start .. start + count` that is not free.
    pub(crate) fn first_allocated(&self, start: u32, count: u32) -> Option<u32> {
        masks(start, count).find_map(|(word, mask)| {
            let used = !self.words[word] & mask;
            (used != 0).then(|| u32_of_len(word) * WORD_BITS + used.trailing_zeros())
        })
    }

    /// Returns the first position of `start .. start + count` that is free.
    fn first_free(&self, start: u32, count: u32) -> Option<u32> {
        masks(start, count).find_map(|(word, mask)| {
            let free = self.words[word] & mask;
            (free != 0).then(|| u32_of_len(word) * WORD_BITS + free.trailing_zeros())
        })
    }

    /// Returns whether `start .. start + count` exists and is free.
    pub(crate) fn is_free(&self, start: u32, count: u32) -> bool {
        start + count <= self.blocks && self.first_allocated(start, count).is_none()
    }

    /// Allocates the given blocks, which are free.
    pub(crate) fn take(&mut self, start: u32, count: u32) {
        assert!(start + count <= self.blocks, "blocks exist");
        let units = self.units_through(start, count);
        for (word, mask) in masks(start, count) {
            assert!(self.words[word] & mask == mask, "what is taken is free");
            self.words[word] &= !mask;
            let bit = 1 << word;
            self.all_free &= !bit;
            if self.words[word] == 0 {
                self.not_full &= !bit;
            }
        }
        self.took(count, units);
    }

    fn took(&mut self, count: u32, units: u32) {
        self.free -= count;
        self.units -= units;
        if self.free == 0 {
            self.run_bound = 0;
        }
    }

    /// Allocates up to `most` extents of `count` blocks from `start` on, where such a run begins,
    /// each from the low end of a run. Calls `each` with their first blocks.
    pub(crate) fn take_many(
        &mut self,
        count: u32,
        start: u32,
        mut most: usize,
        mut each: impl FnMut(u32),
    ) {
        if count == 1 && self.unit == 1 {
            return self.take_singles(start, most, each);
        }
        let mut position = start;
        while most > 0
            && let Some(start) = self.next_edge(position, true)
        {
            let run = self.free_from(start);
            position = start + run;
            let extents = ((run / count) as usize).min(most);
            if extents > 0 {
                let taken = u32_of_len(extents);
                self.take(start, taken * count);
                (0..taken).for_each(|index| each(start + index * count));
                most -= extents;
            }
        }
    }

    /// Like [`Region::take_many`] with single blocks, one word at a time.
    fn take_singles(&mut self, start: u32, most: usize, mut each: impl FnMut(u32)) {
        let most = u32_of_len(most);
        let mut left = most;
        let first = start / WORD_BITS;
        let mut candidates = self.not_full & (u64::MAX << first);
        while candidates != 0 && left > 0 {
            let index = candidates.trailing_zeros();
            candidates &= candidates - 1;
            let word = &mut self.words[index as usize];
            let mut rest = *word;
            while rest != 0 && left > 0 {
                each(index * WORD_BITS + rest.trailing_zeros());
                rest &= rest - 1;
                left -= 1;
            }
            let bit = 1 << index;
            self.all_free &= !bit;
            if rest == 0 {
                self.not_full &= !bit;
            }
            *word = rest;
        }
        let taken = most - left;
        self.took(taken, taken);
    }

    /// Returns an upper bound of the run around `start .. start + count`: its length, unless it is
    /// longer than any extent.
    fn run_around(&self, start: u32, count: u32) -> u32 {
        let (words, end) = (EXTENT_BLOCKS_MAX / WORD_BITS, start + count);
        let mut run = count;
        let (mut before, mut behind) = (start, end);
        for _ in 0..words {
            let bits = before % WORD_BITS;
            let bits = if bits == 0 { WORD_BITS } else { bits };
            if before == 0 {
                break;
            }
            let word = self.words[((before - 1) / WORD_BITS) as usize] << (WORD_BITS - bits);
            let ones = word.leading_ones().min(bits);
            run += ones;
            before -= ones;
            if ones < bits {
                break;
            }
        }
        for _ in 0..words {
            if behind == REGION_BLOCKS {
                break;
            }
            let bit = behind % WORD_BITS;
            let word = self.words[(behind / WORD_BITS) as usize] >> bit;
            let ones = word.trailing_ones();
            run += ones;
            behind += ones;
            if ones < WORD_BITS - bit {
                break;
            }
        }
        match run > EXTENT_BLOCKS_MAX - WORD_BITS {
            true => self.blocks,
            false => run,
        }
    }

    /// Returns the number of units that the run around `start .. start + count` has only while
    /// these blocks are free.
    fn units_through(&self, start: u32, count: u32) -> u32 {
        if self.unit == 1 {
            return count;
        }
        let (before, behind) = (self.free_before(start), self.free_from(start + count));
        (before + count + behind) / self.unit - before / self.unit - behind / self.unit
    }

    /// Returns the length of the free run that ends at `position`.
    fn free_before(&self, position: u32) -> u32 {
        let mut run = 0;
        while run < position {
            let end = position - run;
            let bits = (end - 1) % WORD_BITS + 1;
            let word = self.words[((end - 1) / WORD_BITS) as usize] << (WORD_BITS - bits);
            let ones = word.leading_ones().min(bits);
            run += ones;
            if ones < bits {
                break;
            }
        }
        run
    }

    /// Returns the length of the free run from `position` on.
    fn free_from(&self, position: u32) -> u32 {
        self.next_edge(position, false).unwrap_or(REGION_BLOCKS) - position
    }

    /// Returns whether the block before `start` is not free. Taking blocks there costs only the
    /// units that they contain or begin; in the middle of a run it could cost one more.
    pub(crate) fn is_low_edge(&self, start: u32) -> bool {
        start == 0 || !self.is_free(start - 1, 1)
    }

    /// Frees blocks. If any is free already, changes nothing, and `Err` names the first such block.
    pub(crate) fn give(&mut self, start: u32, count: u32) -> Result<(), u32> {
        assert!(start + count <= self.blocks, "blocks exist");
        match self.first_free(start, count) {
            Some(free) => Err(free),
            None => {
                self.set(start, count);
                Ok(())
            }
        }
    }

    fn set(&mut self, start: u32, count: u32) {
        for (word, mask) in masks(start, count) {
            self.words[word] |= mask;
            let bit = 1 << word;
            self.not_full |= bit;
            if self.words[word] == u64::MAX {
                self.all_free |= bit;
            }
        }
        self.free += count;
        self.units += self.units_through(start, count);
        if self.run_bound < self.blocks {
            self.run_bound = self.run_bound.max(self.run_around(start, count));
        }
    }

    /// Finds the lowest run of `count` free blocks, which stays free.
    pub(crate) fn find(&mut self, count: u32) -> Option<u32> {
        if count > self.run_bound || count > self.free {
            return None;
        }
        let found = self.search(count);
        if found.is_none() {
            self.run_bound = count - 1;
        }
        found
    }

    fn search(&self, count: u32) -> Option<u32> {
        // A run without a whole word has at most 63 blocks in each of two words.
        if count > 2 * (WORD_BITS - 1) && self.all_free == 0 {
            return None;
        }
        // Start and length of the run that ends at the end of the previous word.
        let (mut run_start, mut run) = (0, 0);
        let mut candidates = self.not_full;
        let mut next = 0;
        while candidates != 0 {
            let index = candidates.trailing_zeros();
            candidates &= candidates - 1;
            let (word, base) = (self.words[index as usize], index * WORD_BITS);
            if index != next || run == 0 {
                (run_start, run) = (base, 0);
            }
            next = index + 1;
            if run + word.trailing_ones() >= count {
                return Some(run_start);
            }
            if word == u64::MAX {
                run += WORD_BITS;
                continue;
            }
            if count <= WORD_BITS
                && let Some(bit) = run_in_word(word, count)
            {
                return Some(base + bit);
            }
            run = word.leading_ones();
            run_start = base + WORD_BITS - run;
        }
        None
    }

    /// Returns all maximal runs of free blocks in ascending order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        let mut position = 0;
        std::iter::from_fn(move || {
            let start = self.next_edge(position, true)?;
            let end = self.next_edge(start, false).unwrap_or(REGION_BLOCKS);
            position = end;
            Some(start..end)
        })
    }

    /// Returns the first position at or after `from` that is free (`free`), or that is not.
    fn next_edge(&self, from: u32, free: bool) -> Option<u32> {
        let first = (from / WORD_BITS) as usize;
        (first..WORDS).find_map(|index| {
            let word = if free {
                self.words[index]
            } else {
                !self.words[index]
            };
            let word = if index == first {
                word & u64::MAX << (from % WORD_BITS)
            } else {
                word
            };
            (word != 0).then(|| u32_of_len(index) * WORD_BITS + word.trailing_zeros())
        })
    }

    /// Returns the longest run, or the first one with at least `enough` blocks.
    pub(crate) fn longest_run(&mut self, enough: u32) -> Range<u32> {
        let mut longest = 0..0;
        for run in self.runs() {
            if run.len() > longest.len() {
                longest = run;
            }
            if blocks_in(&longest) >= enough {
                return longest;
            }
        }
        self.run_bound = blocks_in(&longest);
        longest
    }

    /// Returns the number of free blocks at the end of the existing ones.
    pub(crate) fn tail_run(&self) -> u32 {
        self.free_before(self.blocks)
    }

    /// Panics unless the invariants hold.
    pub(crate) fn check(&self) {
        let mut free = 0;
        for (index, word) in self.words.iter().enumerate() {
            assert_eq!(self.not_full >> index & 1 == 1, *word != 0);
            assert_eq!(self.all_free >> index & 1 == 1, *word == u64::MAX);
            free += word.count_ones();
        }
        assert_eq!(self.free, free, "the count equals the ones");
        let units: u32 = self.runs().map(|run| blocks_in(&run) / self.unit).sum();
        assert_eq!(self.units, units, "the units equal those of the runs");
        let longest = self.runs().map(|run| blocks_in(&run)).max();
        assert!(longest.unwrap_or(0) <= self.run_bound, "the bound holds");
        let end = self.runs().last().map_or(0, |run| run.end);
        assert!(end <= self.blocks, "what does not exist is not free");
    }
}

/// Returns the length of a run.
pub(crate) fn blocks_in(run: &Range<u32>) -> u32 {
    u32_of_len(run.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_find(bits: &[bool], count: usize) -> Option<u32> {
        let all = |start: &usize| bits[*start..start + count].iter().all(|bit| *bit);
        (0..=bits.len().checked_sub(count)?)
            .find(all)
            .map(|start| start as u32)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(64)
        })]

        #[test]
        fn searches_equal_those_of_a_vector(
            blocks in 1u32..=REGION_BLOCKS,
            taken in proptest::collection::vec((0u32..REGION_BLOCKS, 1u32..300), 0..60),
            counts in proptest::collection::vec(1u32..=300, 1..20),
            unit in 0u32..8,
        ) {
            let mut region = Region::new(blocks, 1 << unit);
            let mut bits = vec![true; blocks as usize];
            for (start, count) in taken {
                let end = blocks.min(start + count);
                for position in start..end {
                    if bits[position as usize] {
                        bits[position as usize] = false;
                        region.take(position, 1);
                    }
                }
            }
            region.check();
            for count in counts {
                let found = region.find(count);
                prop_assert_eq!(found, naive_find(&bits, count as usize));
                if let Some(start) = found {
                    prop_assert!(region.is_low_edge(start), "the lowest place is an edge");
                }
            }
            region.check();
            let runs: Vec<Range<u32>> = region.runs().collect();
            let mut rebuilt = vec![false; blocks as usize];
            for run in &runs {
                rebuilt[run.start as usize..run.end as usize].fill(true);
            }
            prop_assert_eq!(&rebuilt, &bits);
            let tail = bits.iter().rev().take_while(|bit| **bit).count();
            prop_assert_eq!(region.tail_run() as usize, tail);
            let longest = runs.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            prop_assert_eq!(region.longest_run(u32::MAX).len(), longest);
            region.check();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(64)
        })]

        #[test]
        fn many_are_taken_from_the_low_ends_of_runs(
            blocks in 1u32..=REGION_BLOCKS,
            taken in proptest::collection::vec((0u32..REGION_BLOCKS, 1u32..300), 0..60),
            count in 1u32..=16,
            most in 1usize..=64,
            unit in 0u32..5,
        ) {
            let mut region = Region::new(blocks, 1 << unit);
            for (start, len) in taken {
                for position in start..blocks.min(start + len) {
                    if region.is_free(position, 1) {
                        region.take(position, 1);
                    }
                }
            }
            let Some(start) = region.find(count) else {
                return Ok(());
            };
            let (mut twin, mut expected) = (region.clone(), Vec::new());
            while expected.len() < most
                && let Some(start) = twin.find(count)
            {
                prop_assert!(twin.is_low_edge(start));
                twin.take(start, count);
                expected.push(start);
            }
            let mut found = Vec::new();
            region.take_many(count, start, most, |start| found.push(start));
            region.check();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(region.words, twin.words);
            prop_assert_eq!(region.units(), twin.units());
        }
    }

    #[test]
    fn a_free_block_is_not_freed_again() {
        let mut region = Region::new(100, 4);
        region.take(10, 5);
        assert_eq!(region.give(10, 6), Err(15));
        assert_eq!(region.give(9, 2), Err(9));
        region.check();
        assert_eq!(region.give(10, 5), Ok(()));
        assert_eq!(region.give(12, 1), Err(12));
        assert!(region.is_all_free());
    }

    #[test]
    fn a_run_in_a_word_is_found_at_its_lowest_place() {
        assert_eq!(run_in_word(u64::MAX, 64), Some(0));
        assert_eq!(run_in_word(u64::MAX << 1, 64), None);
        assert_eq!(run_in_word(0b1110_0110, 3), Some(5));
        assert_eq!(run_in_word(0b1110_0110, 2), Some(1));
        assert_eq!(run_in_word(1 << 63, 1), Some(63));
        assert_eq!(run_in_word(0, 1), None);
    }
}
