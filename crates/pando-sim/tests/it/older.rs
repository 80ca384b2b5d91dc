//! Files of an earlier moment beside newer ones.

use pando_sim::older::{self, OlderCounts};
use pando_sim::store::Shape;

use crate::number;

#[test]
fn a_store_with_older_files_is_of_one_moment_or_damaged() {
    let mut counts = OlderCounts::default();
    let from = number("PANDO_SEED", 1);
    let enough = from + number("PANDO_SEEDS", 6);
    // Damage that is met first when a page is read is rare, one store in some 150: more lives are
    // tried until one has it.
    let (mut seed, most) = (from, enough + 60);
    while seed < enough || counts.met == 0 && seed < most {
        for shape in Shape::ALL {
            match older::run(shape.seed(seed), 12) {
                Ok(done) => counts.add(done),
                Err(failure) => panic!("{failure}"),
            }
        }
        seed += 1;
    }
    assert!(counts.refused > 0 && counts.met > 0, "{counts:?}");
    assert!(counts.newest > 0 && counts.earlier > 0, "{counts:?}");
    if std::env::var_os("PANDO_SEEDS").is_some() {
        println!("{counts:?}");
    }
}
