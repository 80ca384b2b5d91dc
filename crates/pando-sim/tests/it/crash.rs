//! A store crashes at every sync point and at sampled writes, and recovers.

use pando_sim::crash::{CrashCase, CrashCounts, CrashPoint};
use pando_sim::random::Random;
use pando_sync::time::{self, Duration};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}

fn run(seed: u64, point: CrashPoint, lives: u32) -> CrashCounts {
    let case = CrashCase { seed, point, steps: 240, lives };
    match case.run() {
        Ok(counts) => counts,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_crash_at_the_end_of_a_workload_loses_nothing_that_was_promised() {
    for seed in 1..=number("PANDO_SEEDS", 6) {
        run(seed, CrashPoint::End, 1);
    }
}
