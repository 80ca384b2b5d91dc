//! The allocator compared with a vector of bits.

use pando_format::Extent;
use pando_space::{Error, REGION_BLOCKS, Space, SpaceOptions, Urgency};
use proptest::prelude::*;

/// The bit of a block is true if the block is free.
struct Twin {
    bits: Vec<bool>,
    reserved: u64,
}

impl Twin {
    fn range(extent: Extent) -> std::ops::Range<usize> {
        extent.block as usize..extent.block as usize + extent.blocks as usize
    }

    fn free(&self) -> u64 {
        self.bits.iter().filter(|bit| **bit).count() as u64
    }

    fn available(&self) -> u64 {
        self.free() - self.reserved
    }

    fn has_run(&self, count: u32) -> bool {
        self.runs().any(|run| run.len() >= count as usize)
    }

    fn runs(&self) -> impl Iterator<Item = &[bool]> {
        self.bits
            .chunk_by(|one, two| one == two)
            .filter(|chunk| chunk[0])
    }

    fn take(&mut self, extent: Extent) {
        let bits = &mut self.bits[Self::range(extent)];
        assert!(bits.iter().all(|bit| *bit), "{extent:?} was not free");
        bits.fill(false);
    }

    fn give(&mut self, extent: Extent) {
        let bits = &mut self.bits[Self::range(extent)];
        assert!(bits.iter().all(|bit| !*bit));
        bits.fill(true);
    }

    fn free_tail(&self) -> u64 {
        self.bits.iter().rev().take_while(|bit| **bit).count() as u64
    }
}

#[derive(Debug, Clone)]
enum Step {
    Allocate {
        count: u32,
        hint: Option<u32>,
    },
    AllocateReserved {
        count: u32,
        hint: Option<u32>,
    },
    Batch {
        units: u32,
        unit: u32,
        reserved: bool,
    },
    Free {
        which: usize,
        cut: u32,
    },
    FreeMany {
        every: usize,
    },
    Mark {
        block: u32,
        blocks: u32,
    },
    Reservation {
        blocks: u64,
        urgent: bool,
    },
    Release {
        blocks: u64,
    },
    Grow {
        by: u64,
    },
    Shrink {
        by: u64,
    },
}

const BLOCKS: u32 = 2 * REGION_BLOCKS + 1700;

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1u32..=16, 2 => 17u32..=130, 1 => 131u32..=256]
}

fn step() -> impl Strategy<Value = Step> {
    let hint = || proptest::option::weighted(0.3, 0..BLOCKS * 2);
    prop_oneof![
        8 => (count(), hint()).prop_map(|(count, hint)| Step::Allocate { count, hint }),
        4 => (count(), hint()).prop_map(|(count, hint)| Step::AllocateReserved { count, hint }),
        3 => (1u32..60, 1u32..=32, any::<bool>())
            .prop_map(|(units, unit, reserved)| Step::Batch { units, unit, reserved }),
        1 => (200u32..4000, 1u32..=2, Just(false))
            .prop_map(|(units, unit, reserved)| Step::Batch { units, unit, reserved }),
        6 => (any::<usize>(), 0u32..300).prop_map(|(which, cut)| Step::Free { which, cut }),
        1 => (2usize..5).prop_map(|every| Step::FreeMany { every }),
        2 => (0..BLOCKS + 100, 0u32..300)
            .prop_map(|(block, blocks)| Step::Mark { block, blocks }),
        2 => (0u64..2000, any::<bool>())
            .prop_map(|(blocks, urgent)| Step::Reservation { blocks, urgent }),
        1 => (0u64..2000).prop_map(|blocks| Step::Release { blocks }),
        1 => (0u64..6000).prop_map(|by| Step::Grow { by }),
        1 => (0u64..6000).prop_map(|by| Step::Shrink { by }),
    ]
}

struct Run {
    space: Space,
    twin: Twin,
    held: Vec<Extent>,
}

impl Run {
    fn allocated(&mut self, extent: Option<Extent>, count: u32, may: bool) {
        match extent {
            Some(extent) => {
                assert!(may, "{extent:?} was reserved to others");
                assert_eq!(extent.blocks, count);
                self.twin.take(extent);
                self.held.push(extent);
            }
            None => assert!(
                !may || !self.twin.has_run(count),
                "there was a run of {count}"
            ),
        }
    }

    fn batch(&mut self, total: u32, unit: u32, reserved: bool) {
        let may = if reserved {
            self.twin.reserved >= u64::from(total)
        } else {
            self.twin.available() >= u64::from(total)
        };
        if reserved && !may {
            return;
        }
        let mut out = vec![Extent {
            block: 0,
            blocks: 0,
        }];
        let done = if reserved {
            self.space.allocate_batch_reserved(total, unit, &mut out)
        } else {
            self.space.allocate_batch(total, unit, &mut out)
        };
        let runs = &out[1..];
        if !done {
            assert!(runs.is_empty());
            // Runs are used up from their start, region by region.
            let units: usize = self
                .twin
                .bits
                .chunks(REGION_BLOCKS as usize)
                .flat_map(|region| region.chunk_by(|one, two| one == two))
                .filter(|run| run[0])
                .map(|run| run.len() / unit as usize)
                .sum();
            assert!(
                !may || units < (total / unit) as usize,
                "there were {units} units"
            );
            return;
        }
        assert!(may);
        assert_eq!(runs.iter().map(|run| run.blocks).sum::<u32>(), total);
        for run in runs {
            assert!(run.blocks > 0 && run.blocks.is_multiple_of(unit));
            self.twin.take(*run);
        }
        self.held.extend(runs);
        self.twin.reserved -= if reserved { u64::from(total) } else { 0 };
    }

    fn free(&mut self, index: usize, cut: u32) {
        let extent = self.held.swap_remove(index);
        let cut = cut.min(extent.blocks);
        for part in [
            Extent {
                block: extent.block + cut,
                blocks: extent.blocks - cut,
            },
            Extent {
                block: extent.block,
                blocks: cut,
            },
        ] {
            if part.blocks > 0 {
                self.space.free(part);
                self.twin.give(part);
            }
        }
    }

    fn mark(&mut self, extent: Extent) {
        let blocks = self.twin.bits.len() as u64;
        let result = self.space.mark_allocated(extent);
        if extent.blocks == 0 || u64::from(extent.block) + u64::from(extent.blocks) > blocks {
            assert_eq!(result, Err(Error::Beyond { extent, blocks }));
            return;
        }
        let bits = &self.twin.bits[Twin::range(extent)];
        match bits.iter().position(|bit| !*bit) {
            Some(position) => {
                let block = extent.block + position as u32;
                assert_eq!(result, Err(Error::Overlap { extent, block }));
            }
            None => {
                result.unwrap();
                self.twin.take(extent);
                self.held.push(extent);
            }
        }
    }

    fn shrink(&mut self, by: u64) {
        let before = self.twin.bits.len() as u64;
        let after = before.saturating_sub(by);
        let result = self.space.shrink_to(after);
        if self.twin.available() < before - after {
            assert!(matches!(result, Err(Error::Reserved { .. })));
        } else if self.twin.free_tail() < before - after {
            let Err(Error::InUse { block }) = result else {
                panic!("{result:?}");
            };
            assert!(u64::from(block) >= after && !self.twin.bits[block as usize]);
        } else {
            result.unwrap();
            self.twin.bits.truncate(after as usize);
        }
    }

    fn perform(&mut self, step: &Step) {
        match *step {
            Step::Allocate { count, hint } => {
                let may = self.twin.available() >= u64::from(count);
                let extent = self.space.allocate(count, hint);
                self.allocated(extent, count, may);
            }
            Step::AllocateReserved { count, hint } => {
                if self.twin.reserved >= u64::from(count) {
                    let extent = self.space.allocate_reserved(count, hint);
                    self.twin.reserved -= extent.map_or(0, |_| u64::from(count));
                    self.allocated(extent, count, true);
                }
            }
            Step::Batch {
                units,
                unit,
                reserved,
            } => self.batch(units * unit, unit, reserved),
            Step::Free { which, cut } => {
                if !self.held.is_empty() {
                    self.free(which % self.held.len(), cut);
                }
            }
            Step::FreeMany { every } => {
                for index in (0..self.held.len()).rev().step_by(every) {
                    self.free(index, 1);
                }
            }
            Step::Mark { block, blocks } => {
                if self.twin.available() >= u64::from(blocks) {
                    self.mark(Extent { block, blocks });
                }
            }
            Step::Reservation { blocks, urgent } => {
                let (urgency, reserve) = if urgent {
                    (Urgency::Urgent, 0)
                } else {
                    (Urgency::Normal, self.space.delete_reserve())
                };
                let may = blocks == 0 || self.twin.available() >= blocks + reserve;
                assert_eq!(self.space.reserve(blocks, urgency), may);
                self.twin.reserved += if may { blocks } else { 0 };
            }
            Step::Release { blocks } => {
                let blocks = blocks.min(self.twin.reserved);
                self.space.release(blocks);
                self.twin.reserved -= blocks;
            }
            Step::Grow { by } => {
                let blocks = self.twin.bits.len() + by as usize;
                self.space.grow(blocks as u64);
                self.twin.bits.resize(blocks, true);
            }
            Step::Shrink { by } => self.shrink(by),
        }
    }

    fn compare(&self) {
        self.space.check_invariants();
        assert_eq!(self.space.blocks(), self.twin.bits.len() as u64);
        assert_eq!(self.space.free_blocks(), self.twin.free());
        assert_eq!(self.space.reserved(), self.twin.reserved);
        assert_eq!(self.space.available(), self.twin.available());
        assert_eq!(self.space.free_tail(), self.twin.free_tail());
        let runs: Vec<u64> = self.twin.runs().map(|run| run.len() as u64).collect();
        let survey = self.space.survey();
        assert_eq!(survey.runs, runs.len() as u64);
        assert_eq!(survey.largest_run, runs.iter().copied().max().unwrap_or(0));
        assert_eq!(survey.largest_run, self.space.largest_run());
        let inner = match self.twin.free_tail() {
            0 => &runs[..],
            _ => &runs[..runs.len() - 1],
        };
        let scattered: u64 = inner.iter().filter(|run| **run < 256).sum();
        assert_eq!(survey.scattered, scattered);
        assert_eq!(survey.blocks, self.space.blocks());
    }
}

fn check(groups: usize, blocks: u64, steps: &[Step]) {
    let options = SpaceOptions {
        groups,
        delete_reserve: 500,
        unit: 1 << (blocks % 8),
    };
    let mut run = Run {
        space: Space::new(blocks, options),
        twin: Twin {
            bits: vec![true; blocks as usize],
            reserved: 0,
        },
        held: Vec::new(),
    };
    for step in steps {
        run.perform(step);
    }
    run.compare();
    while !run.held.is_empty() {
        run.free(run.held.len() - 1, 0);
    }
    run.compare();
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(250)
    })]

    #[test]
    fn operations_equal_those_on_a_vector(
        groups in 1usize..4,
        blocks in 1u64..u64::from(BLOCKS),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        check(groups, blocks, &steps);
    }

    #[test]
    fn a_nearly_full_space_equals_a_vector(
        groups in 1usize..4,
        left in proptest::collection::btree_set(0..BLOCKS, 0..400),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let options = SpaceOptions { groups, delete_reserve: 10, unit: 16 };
        let space = Space::new(u64::from(BLOCKS), options);
        let mut run = Run {
            space,
            twin: Twin { bits: vec![true; BLOCKS as usize], reserved: 0 },
            held: Vec::new(),
        };
        run.mark(Extent { block: 0, blocks: BLOCKS });
        run.held.clear();
        for block in left {
            let blocks = (BLOCKS - block).min(1 + block % 40);
            let free = Extent { block, blocks };
            if run.twin.bits[Twin::range(free)].iter().all(|bit| !*bit) {
                run.space.free(free);
                run.twin.give(free);
            }
        }
        for step in &steps {
            run.perform(step);
        }
        run.compare();
    }
}
