//! Every kind of damage to every file is reported or has no effect.

use pando_sim::damage::{DamageCase, DamageCounts, FILES, HARMS};

use pando_sim::store::Shape;

use crate::number;

#[test]
fn damage_of_compressed_pages_is_reported_or_does_not_matter() {
    let mut counts = DamageCounts::default();
    for shape in [Shape::Large, Shape::Small] {
        for seed in 0..number("PANDO_SEEDS", 1) {
            for (_, harm) in HARMS {
                let case = DamageCase {
                    seed: shape.seed(seed),
                    file: "data",
                    harm,
                };
                match case.run(2) {
                    Ok(done) => counts.add(done),
                    Err(failure) => panic!("{failure}"),
                }
            }
        }
    }
    assert!(counts.met + counts.refused > 0, "{counts:?}");
}

#[test]
fn damage_is_reported_or_does_not_matter() {
    let mut counts = DamageCounts::default();
    for seed in 0..number("PANDO_SEEDS", 1) {
        for file in FILES {
            for (_, harm) in HARMS {
                match (DamageCase { seed, file, harm }).run(2) {
                    Ok(done) => counts.add(done),
                    Err(failure) => panic!("{failure}"),
                }
            }
        }
    }
    assert!(counts.refused > 20 && counts.met > 0, "{counts:?}");
    assert!(counts.harmless > 20, "{counts:?}");
}
