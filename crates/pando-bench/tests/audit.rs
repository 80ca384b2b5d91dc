//! The ablations of cached reads under the coherence audit: built with `--cfg pando_audit`, run by
//! `cargo xtask audit --ablations`.
//!
//! Simulated cores take turns, one get each, with the readers of the benchmark. Cache lines that
//! move between them are counted for each get, by variant and by structure. What the product does
//! moves none on any number of cores; the variants that write to what others read do, which shows
//! that the audit would see it.

#![cfg(pando_audit)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;

use pando_bench::Ablation;
use pando_bench::ablation::cached::{CachedReads, Reader};
use pando_sync::audit;

const CORES: [u32; 4] = [1, 8, 24, 64];
/// A tree of three levels.
const SIZE_BYTES: u64 = 4 << 20;
const GETS: u64 = 300;
/// Times that each core has read everything before transfers are counted.
const WARM_ROUNDS: u32 = 3;

/// Transfers for each get by structure, at one number of cores.
type Moved = BTreeMap<&'static str, f64>;

/// Each core reads the same keys, one after the other.
fn round(readers: &mut [Reader<'_>], num: u64) -> Moved {
    audit::take_transfers();
    for number in 0..GETS {
        for (core, reader) in (0..).zip(readers.iter_mut()) {
            audit::enter_core(core);
            reader.read(number * 2_654_435_761 % num).unwrap();
            audit::leave_core();
        }
    }
    let gets = (GETS * readers.len() as u64) as f64;
    let moved = audit::take_transfers().into_iter();
    moved
        .map(|(name, count)| (name, count as f64 / gets))
        .collect()
}

fn transfers(reads: &CachedReads, variant: &str, cores: u32) -> Moved {
    let mut readers: Vec<_> = (0..cores).map(|_| reads.reader(variant)).collect();
    for _ in 0..WARM_ROUNDS {
        round(&mut readers, reads.num());
    }
    round(&mut readers, reads.num())
}

fn sum(moved: &Moved) -> f64 {
    moved.values().fold(0.0, |sum, count| sum + count)
}

/// Runs all variants on all numbers of cores, and prints a table. By variant, in order.
fn audited(ablation: Ablation) -> Vec<(&'static str, Vec<Moved>)> {
    let reads = CachedReads::new(ablation, SIZE_BYTES, 4096, 1).unwrap();
    let of = |variant: &str| {
        CORES
            .map(|cores| transfers(&reads, variant, cores))
            .to_vec()
    };
    let variants = reads.variants();
    let all: Vec<_> = variants.iter().map(|name| (*name, of(name))).collect();
    println!("\n{}: line transfers for each get\n", ablation.name());
    println!(
        "| variant | {} | at {} |",
        CORES.map(|n| n.to_string()).join(" | "),
        CORES[3]
    );
    println!("|---|{}", "---|".repeat(CORES.len() + 1));
    for (name, found) in &all {
        let cells: Vec<_> = found
            .iter()
            .map(|moved| format!("{:.2}", sum(moved)))
            .collect();
        let structures = found[CORES.len() - 1].iter();
        let structures: Vec<_> = structures
            .map(|(name, count)| format!("{name} {count:.2}"))
            .collect();
        println!(
            "| {name} | {} | {} |",
            cells.join(" | "),
            structures.join(", ")
        );
    }
    all
}

/// `moving`: variants that move at least so many lines of such a structure once there are several
/// cores.
fn check(ablation: Ablation, moving: &[(&str, &str, f64)]) {
    for (variant, found) in audited(ablation) {
        let expected = moving.iter().find(|(name, ..)| *name == variant);
        for (cores, moved) in CORES.iter().zip(&found) {
            match expected {
                Some((_, structure, least)) if *cores > 1 => {
                    let count = moved.get(structure).copied().unwrap_or(0.0);
                    assert!(count >= *least, "{variant}, {cores} cores: {moved:?}");
                }
                _ => assert!(moved.is_empty(), "{variant}, {cores} cores: {moved:?}"),
            }
        }
    }
}

/// One test: the model of cache lines is one for the whole process.
#[test]
fn variants_that_write_what_others_read_move_lines_and_the_product_moves_none() {
    let headers = "frame headers";
    // At each level the header is looked at, which another core has written, and then written.
    check(
        Ablation::Descent,
        &[
            ("latched", headers, 6.0),
            ("snapshot-latched", headers, 4.0),
        ],
    );
    check(Ablation::Cursor, &[("shared", "cursor list", 1.0)]);
}
