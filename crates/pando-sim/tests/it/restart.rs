//! Processes end one after the other while the kernel keeps running. Then the power is cut.

use pando_sim::restart::{RestartCase, RestartCounts};
use pando_sim::store::Shape;

use crate::number;

#[test]
fn processes_that_end_one_after_the_other_leave_a_store_that_survives_a_power_cut() {
    let mut counts = RestartCounts::default();
    for (seed, shape) in (1..=number("PANDO_SEEDS", 8)).zip(Shape::ALL.into_iter().cycle()) {
        let case = RestartCase {
            seed: shape.seed(seed),
            cuts: 20,
            steps: 150,
        };
        match case.run() {
            Ok(done) => counts.add(done),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(counts.processes > counts.cuts, "{counts:?}");
    assert!(counts.openings > 2 && counts.struck > 2, "{counts:?}");
}
