//! Statistics of free blocks and runs. Other threads may change the counted blocks meanwhile.

use pando_format::extent::EXTENT_BLOCKS_MAX;

use crate::region::REGION_BLOCKS;
use crate::space::Space;

/// Result of a walk over all bits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Survey {
    /// Number of free blocks, counted bit by bit.
    pub free: u64,
    /// Number of maximal runs of free blocks.
    pub runs: u64,
    /// Length of the longest run in blocks.
    pub largest_run: u64,
    /// Number of free blocks in runs that are too short for the longest extent, but for the run at
    /// the end: a longer file would make it longer, and a cut removes it.
    pub scattered: u64,
    /// Number of all blocks, free or not.
    pub blocks: u64,
}

impl Survey {
    /// Returns the fragmentation: the share of all blocks that are free and [scattered]. It is what
    /// a compaction can win, as far as it moves things together: 0 in a space whose used blocks lie
    /// together at the front, however short the rest is.
    ///
    /// [scattered]: Survey::scattered
    pub fn fragmentation(&self) -> f64 {
        if self.blocks == 0 {
            return 0.0;
        }
        self.scattered as f64 / self.blocks as f64
    }

    /// Returns [`Survey::fragmentation`] in percent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share is from 0 to 1"
    )]
    pub fn fragmentation_percent(&self) -> u64 {
        (self.fragmentation() * 100.0).round() as u64
    }

    fn add_run(&mut self, blocks: u64, is_tail: bool) {
        if blocks == 0 {
            return;
        }
        self.free += blocks;
        self.runs += 1;
        self.largest_run = self.largest_run.max(blocks);
        if blocks < u64::from(EXTENT_BLOCKS_MAX) && !is_tail {
            self.scattered += blocks;
        }
    }
}

impl Space {
    /// Returns the number of free blocks, reserved or not, including ready extents.
    pub fn free_blocks(&self) -> u64 {
        self.free_in_groups() + self.ready_blocks()
    }

    fn free_in_groups(&self) -> u64 {
        (0..self.groups()).map(|group| self.free_of(group)).sum()
    }

    /// Returns the number of free units, which are disjoint free runs of unit length:
    /// [`Space::allocate_mixed`] can still allocate this many extents of any lengths up to a unit.
    /// Ready extents are not counted before [`Space::drain_ready`].
    pub fn free_units(&self) -> u64 {
        (0..self.groups()).map(|group| self.units_of(group)).sum()
    }

    /// Returns the length of the longest free run in blocks.
    pub fn largest_run(&self) -> u64 {
        self.survey().largest_run
    }

    /// Walks over all bits, one region at a time, after giving back ready extents.
    pub fn survey(&self) -> Survey {
        let _drained = self.drain();
        self.survey_bits()
    }

    fn survey_bits(&self) -> Survey {
        let mut survey = Survey {
            blocks: self.blocks(),
            ..Survey::default()
        };
        // Length of a run that continues across the border of two regions.
        let mut open = 0;
        for region in 0..survey.blocks.div_ceil(u64::from(REGION_BLOCKS)) {
            let (group, index) = self.place(region);
            self.with(group, |group| {
                let Some(bits) = group.regions.get(index) else {
                    return;
                };
                let mut end = 0;
                for run in bits.runs() {
                    if run.start > 0 {
                        survey.add_run(std::mem::take(&mut open), false);
                    }
                    open += u64::from(run.end - run.start);
                    end = run.end;
                }
                if end < bits.blocks() {
                    survey.add_run(std::mem::take(&mut open), false);
                }
            });
        }
        survey.add_run(open, true);
        survey
    }

    /// Panics unless all invariants hold. Only called while nobody allocates or frees.
    pub fn check_invariants(&self) {
        let mut free = 0;
        let mut units = 0;
        let mut blocks = 0;
        for index in 0..self.groups() {
            self.with(index, |group| {
                group.check();
                free += group.free;
                units += group.units;
                blocks += group
                    .regions
                    .iter()
                    .map(|region| u64::from(region.blocks()))
                    .sum::<u64>();
            });
        }
        assert_eq!(blocks, self.blocks(), "every block is in one region");
        assert_eq!(
            free,
            self.free_in_groups(),
            "the groups' counts are published"
        );
        assert_eq!(units, self.free_units(), "the groups' units are published");
        assert_eq!(
            free,
            self.ledger.available() + self.pending() + self.reserved(),
            "what is free is available or reserved"
        );
        self.check_ready();
        assert_eq!(free, self.survey_bits().free, "the counts equal the bits");
    }
}
