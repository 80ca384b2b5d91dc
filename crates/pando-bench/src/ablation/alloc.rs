//! `alloc`: zones behind trait objects, the same zones called directly, and the product's bitmap:
//! alone, at each fill, in one piece and in many; and under overwrites of a store.

use super::options::AblationOptions;
use super::overwrites::{Overwritten, WORKLOAD};
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

/// Indices of the variants in the report.
const BOXED: usize = 0;
const DIRECT: usize = 1;

/// The workload of the allocators alone.
const ALONE: &str = "alloc";
/// How full the space of a store is that is overwritten, in pieces and in one.
const OVERWRITTEN_FILL_PERCENT: u64 = 90;

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let alone = AllocOptions {
        size_bytes: options.size_bytes,
        num: options.num(),
        seed: options.seed,
        threads: options.thread_counts().to_vec(),
        ..AllocOptions::default()
    };
    alone.check()?;
    if let Some(line) = Counters::absent_here() {
        observer.note(&line);
    }
    let state = |fill_percent: u64, fragmented: bool| State {
        blocks: alone.blocks(),
        fill_percent,
        fragmented,
        seed: options.seed,
    };
    for fragmented in alone.fragmented.iter().filter(|_| options.wants(ALONE)) {
        for fill_percent in &alone.fill_percent {
            run_alone(
                options,
                &alone,
                &state(*fill_percent, *fragmented),
                observer,
            )?;
        }
    }
    for fragmented in alone.fragmented.iter().filter(|_| options.wants(WORKLOAD)) {
        let state = state(OVERWRITTEN_FILL_PERCENT, *fragmented);
        run_overwrites(options, &state, observer)?;
    }
    Ok(())
}

fn variants() -> [Variant; 3] {
    [
        Variant::other("boxed", "zones behind trait objects, under areas"),
        Variant::other("static", "the same zones, called directly"),
        Variant::ours("a bitmap with groups, and extents that each core keeps ready"),
    ]
}

fn run_alone(
    options: &AblationOptions,
    alone: &AllocOptions,
    state: &State,
    observer: &mut dyn Observer,
) -> Result<()> {
    let mut boxed = FilledAllocator::new(boxed(state.blocks), state)?;
    let mut direct = FilledAllocator::new(called_directly(state.blocks), state)?;
    let mut ours = FilledAllocator::new(ours(state.blocks), state)?;
    for threads in &alone.threads {
        let mut turn = |index: usize, _: &mut dyn Observer| match index {
            BOXED => boxed.measure(alone, state, *threads),
            DIRECT => direct.measure(alone, state, *threads),
            _ => ours.measure(alone, state, *threads),
        };
        rounds::run(options, &variants(), &mut turn, observer)?;
    }
    Ok(())
}

/// A store of each variant serves all numbers of threads.
fn run_overwrites(
    options: &AblationOptions,
    state: &State,
    observer: &mut dyn Observer,
) -> Result<()> {
    let boxed = Overwritten::new(options, state, boxed(state.blocks))?;
    let direct = Overwritten::new(options, state, called_directly(state.blocks))?;
    let ours = Overwritten::new(options, state, ours(state.blocks))?;
    for threads in options.thread_counts() {
        let mut turn = |index: usize, observer: &mut dyn Observer| match index {
            BOXED => boxed.measure(options, state, *threads, observer),
            DIRECT => direct.measure(options, state, *threads, observer),
            _ => ours.measure(options, state, *threads, observer),
        };
        rounds::run(options, &variants(), &mut turn, observer)?;
    }
    Ok(())
}

/// An allocator in a state, which each turn leaves as full as it was.
struct FilledAllocator<A> {
    allocator: A,
    /// Blocks that a turn may free.
    sample: Vec<u32>,
}

impl<A: Allocator> FilledAllocator<A> {
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
            max_memory: 1 << 20,
            num: Some(3000),
            rounds: 1,
            threads: vec![1, 2],
            ..AblationOptions::new(Ablation::Alloc)
        };
        let mut kept = Kept::default();
        run(&options, &mut kept).unwrap();
        let all = kept.0.len();
        let overwrites = kept.0.split_off(2 * 4 * 2 * 3);
        assert_eq!(overwrites.len(), 2 * 2 * 3, "of {all}");
        for three in overwrites.chunks(3) {
            let names: Vec<_> = three.iter().map(|record| record.variant).collect();
            assert_eq!(names, ["boxed", "static", "ours"]);
            for record in three {
                assert_eq!((record.workload, record.ops), ("overwrite", 3000));
                assert_eq!(record.fill_percent, Some(90));
            }
        }
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

    #[test]
    fn a_workload_can_be_chosen() {
        let options = AblationOptions {
            size_bytes: 8 << 30,
            max_memory: 1 << 20,
            num: Some(1000),
            rounds: 1,
            threads: vec![1],
            workloads: vec!["overwrite".to_owned()],
            ..AblationOptions::new(Ablation::Alloc)
        };
        let mut kept = Kept::default();
        run(&options, &mut kept).unwrap();
        assert!(kept.0.iter().all(|record| record.workload == "overwrite"));
        assert_eq!(kept.0.len(), 2 * 3);
        let other = AblationOptions {
            workloads: vec!["fillseq".to_owned()],
            ..options
        };
        assert!(crate::ablation::run(&other, &mut Kept::default()).is_err());
    }
}
