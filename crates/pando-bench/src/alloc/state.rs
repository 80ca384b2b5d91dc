//! How full a space is, and how fragmented: built before anything is measured.

use pando_format::cast::{u32_of, usize_of};

use super::allocator::Allocator;
use crate::error::Result;
use crate::random::Random;

/// Number of blocks that all threads together may free at the beginning.
const SAMPLE: u64 = 1 << 18;

/// The state that a space is brought into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Number of all blocks, free or not.
    pub(crate) blocks: u64,
    /// Share of the blocks that are allocated, 1 to 99.
    pub(crate) fill_percent: u64,
    /// The free blocks are in many pieces.
    pub(crate) fragmented: bool,
    /// For the lengths of runs and the order of the sample.
    pub(crate) seed: u64,
}

impl State {
    /// Fills `allocator`, which is empty, as this says. Returns allocated blocks from all over it,
    /// in random order; none unless it is fragmented.
    pub(crate) fn build(&self, allocator: &impl Allocator) -> Result<Vec<u32>> {
        let used = self.blocks * self.fill_percent / 100;
        if !self.fragmented {
            allocator.mark(0, u32_of(used))?;
            return Ok(Vec::new());
        }
        let mut random = Random::new(self.seed, self.fill_percent);
        let (used_mean, hole_mean) = self.means();
        let each = (used / SAMPLE).max(1);
        let (mut sample, mut seen) = (Vec::new(), 0_u64);
        let mut position = 0;
        while position < self.blocks {
            let run = between(&mut random, used_mean).min(self.blocks - position);
            allocator.mark(u32_of(position), u32_of(run))?;
            let mut next = seen.next_multiple_of(each);
            while next < seen + run {
                sample.push(u32_of(position + (next - seen)));
                next += each;
            }
            seen += run;
            position += run + between(&mut random, hole_mean);
        }
        for index in (1..sample.len()).rev() {
            sample.swap(index, usize_of(random.below(index as u64 + 1)));
        }
        Ok(sample)
    }

    /// Returns the mean lengths of used and of free runs. Above 90 % free runs are single blocks.
    fn means(&self) -> (u64, u64) {
        let (used, free) = (self.fill_percent, 100 - self.fill_percent);
        match used {
            90.. => (used.div_ceil(free), 1),
            50.. => (4 * used / free, 4),
            _ => (4, 4 * free / used),
        }
    }
}

/// Returns a random number from 1 to twice `mean` minus 1.
fn between(random: &mut Random, mean: u64) -> u64 {
    1 + random.below(2 * mean - 1)
}

#[cfg(test)]
mod tests {
    use pando_space::Space;

    use super::super::allocator::ours;
    use super::*;

    fn built(fill_percent: u64, fragmented: bool) -> (Space, Vec<u32>) {
        let blocks = 1_000_003;
        let space = ours(blocks);
        let state = State {
            blocks,
            fill_percent,
            fragmented,
            seed: 1,
        };
        let sample = state.build(&space).unwrap();
        (space, sample)
    }

    #[test]
    fn a_space_is_as_full_as_asked_for_and_in_pieces_or_not() {
        for fill in [10, 50, 90, 99] {
            let (space, sample) = built(fill, false);
            assert_eq!((space.survey().runs, sample.len()), (1, 0));
            assert_eq!(space.free_blocks(), 1_000_003 - 1_000_003 * fill / 100);
            let (space, sample) = built(fill, true);
            let used = 100.0 * (1.0 - space.free_blocks() as f64 / 1_000_003.0);
            assert!((used - fill as f64).abs() < 1.0, "{used} of {fill}");
            assert!(space.survey().runs > 5000, "{:?}", space.survey());
            assert!(sample.len() > 20_000, "{}", sample.len());
            // Each block of the sample can be freed once.
            let before = space.free_blocks();
            sample
                .iter()
                .for_each(|block| Allocator::free(&space, *block));
            assert_eq!(space.free_blocks(), before + sample.len() as u64);
        }
    }
}
