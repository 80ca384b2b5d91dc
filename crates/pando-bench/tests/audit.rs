//! The ablations of cached reads under the coherence audit. Build with `--cfg pando_audit`; `cargo
//! xtask audit --ablations` runs it.
//!
//! Simulated cores take turns, with one get each, using the readers of the benchmark. The audit
//! counts the cache lines that move between cores for each get, by variant and by structure. The
//! product's way moves none on any number of cores. The variants that write to lines which others
//! read do move some, which shows that the audit detects it.

#![cfg(pando_audit)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;

use pando_bench::Ablation;
use pando_bench::ablation::cached::{CachedReads, Reader};
use pando_sync::audit;

const CORES: [u32; 4] = [1, 8, 24, 64];
/// Makes a tree of three levels.
const SIZE_BYTES: u64 = 4 << 20;
const GETS: u64 = 300;
/// Number of times that each core reads everything before transfers are counted.
const WARM_ROUNDS: u32 = 3;

/// Transfers for each get, by structure, on one number of cores.
type Moved = BTreeMap<&'static str, f64>;

/// Each core reads the same keys, one after the other. Returns the transfers for each get.
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

/// Runs all variants on all numbers of cores and prints a table. Returns the transfers of each
/// variant, in order.
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

/// Checks that `moving` lists all variants that move lines on several cores, with the structure and
/// the least number of its lines for each get.
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

/// This is one test because the whole process has one model of cache lines.
#[test]
fn variants_that_write_what_others_read_move_lines_and_the_product_moves_none() {
    let headers = "frame headers";
    // At each level a core reads and then writes a header that another core has written.
    check(
        Ablation::Descent,
        &[
            ("latched", headers, 6.0),
            ("snapshot-latched", headers, 4.0),
        ],
    );
    check(Ablation::Cursor, &[("shared", "cursor list", 1.0)]);
}
