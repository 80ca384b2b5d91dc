//! `alloc`: zones behind trait objects, the same zones called directly, and the product's bitmap:
//! alone, at each fill, in one piece and in many.

use super::options::AblationOptions;
use super::rounds::{self, Variant};
use super::zones::{boxed, called_directly};
use crate::alloc::allocator::{Allocator, ours};
use crate::alloc::options::AllocOptions;
use crate::alloc::run::run_one;
use crate::alloc::state::State;
use crate::counters::Counters;
use crate::error::Result;
use crate::phase::Observer;
use crate::record::Record;

/// Where the variants stand.
const BOXED: usize = 0;
const DIRECT: usize = 1;

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let variants = [
        Variant::other("boxed", "zones behind trait objects, under areas"),
        Variant::other("static", "the same zones, called directly"),
        Variant::ours("a bitmap with groups, and extents that each core keeps ready"),
    ];
    let alone = AllocOptions {
        size_bytes: options.size_bytes,
        num: options.num(),
        seed: options.seed,
        threads: options.thread_counts().to_vec(),
        ..AllocOptions::default()
    };
    alone.check()?;
    let blocks = alone.blocks();
    if let Some(line) = Counters::absent_here() {
        observer.note(&line);
    }
    for fragmented in &alone.fragmented {
        for fill_percent in &alone.fill_percent {
            let state = State {
                blocks,
                fill_percent: *fill_percent,
                fragmented: *fragmented,
                seed: options.seed,
            };
            let mut boxed = Built::new(boxed(blocks), &state)?;
            let mut direct = Built::new(called_directly(blocks), &state)?;
            let mut ours = Built::new(ours(blocks), &state)?;
            for threads in &alone.threads {
                let mut turn = |index: usize, _: &mut dyn Observer| match index {
                    BOXED => boxed.measure(&alone, &state, *threads),
                    DIRECT => direct.measure(&alone, &state, *threads),
                    _ => ours.measure(&alone, &state, *threads),
                };
                rounds::run(options, &variants, &mut turn, observer)?;
            }
        }
    }
    Ok(())
}

/// An allocator in a state, which each turn leaves as full as it was.
struct Built<A> {
    allocator: A,
    /// Blocks that a turn may free.
    sample: Vec<u32>,
}

impl<A: Allocator> Built<A> {
    fn new(allocator: A, state: &State) -> Result<Self> {
        let sample = state.build(&allocator)?;
        Ok(Self { allocator, sample })
    }

    fn measure(&mut self, options: &AllocOptions, state: &State, threads: usize) -> Result<Record> {
        run_one(options, state, &self.allocator, &mut self.sample, threads)
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::time::Duration;

    use super::*;
    use crate::ablation::Ablation;

    #[derive(Default)]
    struct Kept(Vec<Record>);

    impl Observer for Kept {
        fn progress(&mut self, _workload: &str, _share: f64, _ops_per_s: f64) {}
        fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}
        fn record(&mut self, record: &Record) -> Result<()> {
            self.0.push(record.clone());
            Ok(())
        }
    }

    #[test]
    fn each_variant_is_measured_in_each_state() {
        let options = AblationOptions {
            size_bytes: 8 << 30,
            num: Some(3000),
            rounds: 1,
            threads: vec![1, 2],
            ..AblationOptions::new(Ablation::Alloc)
        };
        let mut kept = Kept::default();
        run(&options, &mut kept).unwrap();
        assert_eq!(kept.0.len(), 2 * 4 * 2 * 3);
        for three in kept.0.chunks(3) {
            let names: Vec<_> = three.iter().map(|record| record.variant).collect();
            assert_eq!(names, ["boxed", "static", "ours"]);
            for record in three {
                assert_eq!(record.fill_percent, three[0].fill_percent);
                assert_eq!(record.fragmented, three[0].fragmented);
                assert!(record.p50_ns > Some(0.0) && record.p999_ns.is_some());
                assert!(record.ops_per_s > 0.0);
            }
            assert_eq!(three[2].speed_to_ours, Some(1.0));
        }
    }
}
