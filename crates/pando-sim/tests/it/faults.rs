//! Every operation of the device fails once, or from some point on, and disks are full.

use pando_device::faulty::{Operation, Random};
use pando_sim::faults::{FaultCase, FaultCounts, STAGES};
use pando_sim::full::{self, fill_disk};
use pando_sim::full_close;
use pando_sim::full_deletes;
use pando_sim::full_together;
use pando_sim::store::Shape;
use pando_sync::thread;

use crate::number;

fn run(case: FaultCase, counts: &mut FaultCounts) {
    match case.run() {
        Ok(done) => counts.add(done),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn the_first_operations_of_each_kind_fail_at_every_stage() {
    let mut counts = FaultCounts::default();
    for (_, stage) in STAGES {
        for operation in [
            Operation::Read,
            Operation::Write,
            Operation::Sync,
            Operation::Allocate,
            Operation::SetLen,
            Operation::Punch,
            Operation::Channel,
        ] {
            for nth in [1, 2, 3, 5, 8, 13] {
                let full = nth % 2 == 0 && operation != Operation::Read;
                let sticky = nth % 3 == 0;
                run(
                    FaultCase {
                        seed: nth,
                        stage,
                        operation,
                        full,
                        sticky,
                        nth,
                    },
                    &mut counts,
                );
            }
        }
    }
    assert!(counts.struck > 40 && counts.poisoned > 5, "{counts:?}");
}

#[test]
fn what_fails_is_told_and_the_rest_is_served() {
    let mut counts = FaultCounts::default();
    // An opening on a full disk reports the full disk, and does not ask to open the store again.
    run(
        "241805:recover:write:full:once:3".parse().unwrap(),
        &mut counts,
    );
    // A poisoned store can be read.
    for seed in 2..8 {
        for what in ["sync:io:once:3", "write:io:once:5"] {
            run(format!("{seed}:work:{what}").parse().unwrap(), &mut counts);
        }
    }
    assert!(counts.poisoned > 3, "{counts:?}");
}

#[test]
fn operations_fail_at_random() {
    let mut counts = FaultCounts::default();
    for seed in 0..number("PANDO_SEEDS", 60) {
        run(FaultCase::choose(&mut Random::new(seed)), &mut counts);
    }
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    for seed in 0..number("PANDO_SEEDS", 2).min(50) {
        match fill_disk(seed) {
            Ok(counts) => assert!(counts.refused > 0, "{counts:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn a_full_disk_in_pieces_refuses_and_loses_nothing() {
    for shape in [Shape::Large, Shape::Small, Shape::Changing] {
        for seed in 0..number("PANDO_SEEDS", 1).min(50) {
            match fill_disk(shape.seed(seed)) {
                Ok(counts) => assert!(counts.refused > 0, "{counts:?}"),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

/// Makes the disk full at every Nth write, with one history for each. `PANDO_FULL_STEP` sets N.
#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing_and_passes() {
    for (index, shape) in Shape::ALL.into_iter().enumerate() {
        let seeds = number("PANDO_SEEDS", 1).min(5);
        for seed in 0..seeds {
            let step = number("PANDO_FULL_STEP", 7);
            match full::sweep(shape.seed(seed + index as u64), step) {
                Ok(counts) => assert!(counts.struck > 4, "{counts:?}"),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

#[test]
fn a_store_whose_frames_are_all_dirty_on_a_full_disk_reads_deletes_and_goes_on() {
    for shape in Shape::ALL {
        for seed in 0..number("PANDO_SEEDS", 1).min(20) {
            match full::fill_frames(shape.seed(seed)) {
                Ok(counts) => assert!(counts.refused > 0, "{counts:?}"),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}

#[test]
fn threads_that_find_a_disk_full_at_once_are_all_refused_and_all_go_on() {
    for seed in 0..number("PANDO_SEEDS", 2).min(20) {
        match full_together::meet(seed) {
            Ok(counts) => assert!(counts.struck >= counts.cases, "{counts:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn everything_on_a_full_disk_can_be_deleted_at_once() {
    for shape in Shape::ALL {
        for seed in 0..number("PANDO_SEEDS", 2).min(20) {
            if let Err(failure) = full_deletes::empty(shape.seed(seed)) {
                panic!("{failure}");
            }
        }
    }
}

/// A close that gets no room waits until it gives up, so all cases run at the same time.
#[test]
fn a_store_that_is_closed_on_a_full_disk_says_so_and_loses_nothing() {
    thread::scope(|scope| {
        for (seed, file) in full_close::FILES.into_iter().enumerate() {
            for room_comes in [false, true] {
                scope.spawn(move || {
                    if let Err(failure) = full_close::close(seed as u64, file, room_comes) {
                        panic!("{failure}");
                    }
                });
            }
        }
    });
}

#[test]
fn the_text_of_a_case_says_all_of_it() {
    for seed in 0..50 {
        let case = FaultCase::choose(&mut Random::new(seed));
        assert_eq!(case.to_string().parse::<FaultCase>().unwrap(), case);
    }
}
