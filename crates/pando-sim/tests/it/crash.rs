//! A store crashes at every sync point and at some writes, and recovers.
//!
//! `PANDO_SEEDS` (workloads) and `PANDO_CRASH_POINTS` (points of each) set how many are tried.

use pando_device::FaultyDevice;
use pando_sim::crash::{self, CrashCase, CrashPoint};
use pando_sim::store::{self, Shape};

use crate::number;

fn check(seeds: std::ops::RangeInclusive<u64>, steps: usize, points: u64) {
    for seed in seeds {
        let case = CrashCase {
            seed,
            point: CrashPoint::End,
            steps,
            lives: 2,
        };
        if let Err(failure) = crash::sweep(case, points, |_| ()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn every_sync_point_of_a_workload_may_be_its_last() {
    check(
        1..=number("PANDO_SEEDS", 2),
        200,
        number("PANDO_CRASH_POINTS", 50),
    );
}

#[test]
fn compressed_pages_and_small_blocks_survive_crashes() {
    for shape in [Shape::Large, Shape::Small, Shape::Changing] {
        let seeds = number("PANDO_SEEDS", 1);
        check(
            shape.seed(1)..=shape.seed(seeds),
            200,
            number("PANDO_CRASH_POINTS", 8),
        );
    }
}

#[test]
fn many_workloads_crash_at_a_few_points() {
    let seeds = number("PANDO_SEEDS", 6);
    check(1001..=1000 + seeds, 300, number("PANDO_CRASH_POINTS", 8));
}

#[test]
fn some_stores_discard_what_is_free() {
    let discards = |seed: &u64| {
        let device = FaultyDevice::new(*seed);
        let db = store::open(*seed, &device).unwrap();
        // The second checkpoint follows when the first one has discarded blocks.
        (0..2).for_each(|_| db.checkpoint().unwrap());
        db.report().data_discarded_bytes > 0
    };
    let count = (1..=30).filter(discards).count();
    assert!((3..20).contains(&count), "{count} of 30");
}
