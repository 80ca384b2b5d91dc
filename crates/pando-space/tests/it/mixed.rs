//! Extents of various lengths: as long as there are as many units as extents, all of them find
//! room.

use fastrand::Rng;
use pando_format::Extent;
use pando_space::{REGION_BLOCKS, Space, SpaceOptions};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use proptest::prelude::*;

fn space(blocks: u64, groups: usize, unit: u32) -> Space {
    let options = SpaceOptions {
        groups,
        unit,
        ..SpaceOptions::default()
    };
    Space::new(blocks, options)
}

/// Returns the number of units in a vector of bits, counted region by region.
fn units(bits: &[bool], unit: u32) -> u64 {
    bits.chunks(REGION_BLOCKS as usize)
        .flat_map(|region| region.chunk_by(|one, two| one == two))
        .filter(|run| run[0])
        .map(|run| run.len() as u64 / u64::from(unit))
        .sum()
}

fn set(bits: &mut [bool], extent: Extent, free: bool) {
    let range = extent.block as usize..(extent.block + extent.blocks) as usize;
    assert!(
        bits[range.clone()].iter().all(|bit| *bit != free),
        "{extent:?}"
    );
    bits[range].fill(free);
}

fn check(blocks: u64, groups: usize, unit: u32, seed: u64) {
    let space = space(blocks, groups, unit);
    let mut bits = vec![true; blocks as usize];
    let mut held: Vec<Extent> = Vec::new();
    let mut random = Rng::with_seed(seed);
    for step in 0..400 {
        let count = random.u64(1..=20);
        let lengths: Vec<u32> = (0..count).map(|_| random.u32(1..=unit)).collect();
        space.drain_ready();
        let before = space.free_units();
        assert_eq!(before, units(&bits, unit));
        let kept = held.len();
        if space.allocate_mixed(&lengths, &mut held) {
            let got: Vec<u32> = held[kept..].iter().map(|extent| extent.blocks).collect();
            assert_eq!(got, lengths);
            for extent in &held[kept..] {
                set(&mut bits, *extent, false);
            }
            space.drain_ready();
            let after = space.free_units();
            assert!(
                after + count >= before,
                "{count} extents of {before} left {after}"
            );
        } else {
            assert!(before < count, "{lengths:?} did not fit in {before}");
            assert_eq!(held.len(), kept);
            assert_eq!(space.free_units(), before);
        }
        // The fuller the space is, the more is freed.
        let frees = if before < count { 12 } else { step % 9 };
        for _ in 0..frees.min(held.len()) {
            let index = random.usize(..held.len());
            let extent = held.swap_remove(index);
            space.free(extent);
            set(&mut bits, extent, true);
        }
    }
    space.check_invariants();
    for extent in held {
        space.free(extent);
    }
    assert_eq!(
        space.free_units(),
        units(&vec![true; blocks as usize], unit)
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    })]

    #[test]
    fn as_many_extents_as_units_find_room(
        blocks in 100u64..9000,
        groups in 1usize..4,
        unit in 0u32..8,
        seed in any::<u64>(),
    ) {
        check(blocks, groups, 1 << unit, seed);
    }
}

#[test]
fn a_batch_lies_in_a_row_when_there_is_room() {
    let space = space(10_000, 2, 8);
    let lengths: Vec<u32> = (0..64).map(|index| 1 + index % 8).collect();
    let mut out = Vec::new();
    for _ in 0..5 {
        out.clear();
        assert!(space.allocate_mixed(&lengths, &mut out));
        let breaks = out
            .windows(2)
            .filter(|pair| pair[0].block + pair[0].blocks != pair[1].block)
            .count();
        assert!(breaks <= 1, "{breaks}");
    }
}

#[test]
fn a_search_in_a_fragmented_space_is_bounded() {
    // Every other block is in use, except for one run in the last region.
    let blocks = 64 * u64::from(REGION_BLOCKS);
    let space = space(blocks, 1, 8);
    for block in (0..blocks as u32 - 16).step_by(2) {
        space.mark_allocated(Extent { block, blocks: 1 }).unwrap();
    }
    let mut out = Vec::new();
    assert_eq!(space.free_units(), 2);
    assert!(space.allocate_mixed(&[3, 5], &mut out));
    assert!(
        !space.allocate_mixed(&[8, 8], &mut out),
        "only one unit is left"
    );
    assert!(space.allocate_mixed(&[8], &mut out));
    assert!(space.allocate_mixed(&[1; 100], &mut out));
    assert_eq!(out.len(), 103);
    space.check_invariants();
}

#[test]
fn what_threads_were_reserved_they_get() {
    let unit = 8;
    let blocks = 5000;
    let space = space(blocks, 2, unit);
    let reserved = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (space, reserved, refused) = (&space, &reserved, &refused);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                let mut held: Vec<Extent> = Vec::new();
                for _ in 0..3000 {
                    let count = random.u64(1..=24);
                    let lengths: Vec<u32> = (0..count).map(|_| random.u32(1..=unit)).collect();
                    // SeqCst: of two threads that reserve at the same time, at least one sees the
                    // count of the other.
                    let wanted = reserved.fetch_add(count, Ordering::SeqCst) + count;
                    let free = space.free_units();
                    if wanted <= free {
                        assert!(space.allocate_mixed(&lengths, &mut held), "{lengths:?}");
                    } else {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    reserved.fetch_sub(count, Ordering::SeqCst);
                    let tight = wanted > free;
                    let keep = if tight { held.len() / 2 } else { 900 };
                    while held.len() > keep {
                        let index = random.usize(..held.len());
                        space.free(held.swap_remove(index));
                    }
                }
                for extent in held {
                    space.free(extent);
                }
            });
        }
    });
    assert!(
        refused.load(Ordering::Relaxed) > 0,
        "the space was never short"
    );
    space.check_invariants();
    space.drain_ready();
    assert_eq!(space.free_units(), blocks / u64::from(unit));
}

#[test]
fn an_extent_of_runs_that_grew_is_taken_from_an_end() {
    let space = space(64, 1, 8);
    let extent = |block, blocks| Extent { block, blocks };
    space.mark_allocated(extent(0, 64)).unwrap();
    // There are two free runs of two units each. The middle of the second run was freed first.
    space.free(extent(0, 16));
    for (block, blocks) in [(36, 7), (31, 5), (43, 4)] {
        space.free(extent(block, blocks));
    }
    assert_eq!(space.free_units(), 4);
    let mut out = Vec::new();
    assert!(space.allocate_mixed(&[7, 7, 7], &mut out));
    assert_eq!(
        space.free_units(),
        1,
        "the last extent lies at an end: {out:?}"
    );
    assert!(space.allocate_mixed(&[8], &mut out));
    space.check_invariants();
}
