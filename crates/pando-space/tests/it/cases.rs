//! Cases that other allocators got wrong, and the edges of the interface.

use pando_format::Extent;
use pando_space::{Error, REGION_BLOCKS, Space, SpaceOptions, Urgency};

fn space(blocks: u64, groups: usize) -> Space {
    Space::new(
        blocks,
        SpaceOptions {
            groups,
            ..SpaceOptions::default()
        },
    )
}

fn extent(block: u32, blocks: u32) -> Extent {
    Extent { block, blocks }
}

#[test]
#[should_panic(expected = "block 7 of Extent { block: 5, blocks: 4 } is freed")]
fn a_double_free_is_caught() {
    let space = space(100, 1);
    space.mark_allocated(extent(0, 100)).unwrap();
    space.free(extent(7, 1));
    space.free(extent(5, 4));
}

#[test]
#[should_panic(expected = "block 0 of Extent { block: 0, blocks: 1 } is freed")]
fn a_free_of_what_was_never_allocated_is_caught() {
    space(100, 1).free(extent(0, 1));
}

#[test]
#[should_panic(expected = "block 5 of Extent { block: 4, blocks: 3 } is freed")]
fn a_free_of_what_is_kept_ready_is_caught() {
    let space = space(100_000, 1);
    for block in 0..5 {
        assert_eq!(space.allocate(1, None), Some(extent(block, 1)));
    }
    assert!(space.ready_blocks() > 1);
    space.free(extent(4, 3));
}

/// Blocks in magazines are free, so freeing one of them is a double free.
#[test]
fn no_block_of_what_is_kept_ready_can_be_freed() {
    for count in [1, 3, 16] {
        let space = space(100_000, 1);
        let own = space.allocate(count, None).unwrap();
        let ready = space.ready_blocks() as u32;
        assert!(own.block == 0 && ready >= count);
        for block in count..count + ready {
            let free = || space.free(extent(block, 1));
            let freed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(free));
            assert!(freed.is_err(), "block {block} of extents of {count}");
        }
        space.check_invariants();
        space.free(own);
    }
}

#[test]
fn what_was_kept_ready_and_taken_may_be_freed() {
    let space = space(100_000, 1);
    let mut held = Vec::new();
    for count in [1, 3, 1, 16, 1, 3, 2] {
        held.push(space.allocate(count, None).unwrap());
        assert!(space.ready_blocks() > 0);
        space.check_invariants();
    }
    for extent in held {
        space.free(extent);
        space.check_invariants();
    }
    assert_eq!(space.free_blocks(), 100_000);
    assert!(
        space.ready_blocks() > 0,
        "counting does not drain magazines"
    );
    assert_eq!(space.largest_run(), 100_000);
    assert_eq!(space.ready_blocks(), 0);
}

/// Blocks in magazines are available to every call that needs them.
#[test]
fn what_is_kept_ready_is_free_to_all_who_need_it() {
    let blocks = 10 * u64::from(REGION_BLOCKS) + 5;
    let ready = || {
        let space = space(blocks, 1);
        let one = space.allocate(1, None).unwrap();
        assert!(space.ready_blocks() > 0);
        (space, blocks - 1, one.block)
    };
    let (space, left, _) = ready();
    assert_eq!(space.available(), left);
    assert!(space.reserve(left, Urgency::Normal));
    let (space, left, _) = ready();
    let mut out = Vec::new();
    assert!(space.allocate_batch(left as u32, 1, &mut out));
    let (space, left, _) = ready();
    let lengths = vec![1; left as usize];
    assert!(space.allocate_mixed(&lengths, &mut out));
    let (space, _, one) = ready();
    let next = extent(one + 1, 3);
    space.mark_allocated(next).unwrap();
    assert_eq!(space.ready_blocks(), 0);
    let (space, left, one) = ready();
    assert_eq!(one, 0);
    assert_eq!(space.free_tail(), left);
    assert_eq!(space.allocate(1, None), Some(extent(1, 1)));
    assert_eq!(space.allocate(1, None), Some(extent(2, 1)));
    space.free(extent(1, 1));
    space.shrink_to(3).unwrap();
    assert_eq!(space.allocate(1, None), Some(extent(1, 1)));
    assert_eq!(space.allocate(1, None), None);
    space.check_invariants();
}

#[test]
fn a_run_on_a_magazine_is_found_when_there_is_no_other() {
    let space = space(100_000, 1);
    assert_eq!(space.allocate(1, None), Some(extent(0, 1)));
    let ready = space.ready_blocks() as u32;
    assert!(ready > 20);
    let mut rest = Vec::new();
    assert!(space.allocate_batch(99_999 - ready, 1, &mut rest));
    assert_eq!(u64::from(ready), space.free_blocks());
    // There are enough free blocks, but no two of them are adjacent.
    (0..300).for_each(|block| space.free(extent(50_000 + 2 * block, 1)));
    assert_eq!(space.allocate(20, None), Some(extent(1, 20)));
    space.check_invariants();
}

/// The number of blocks in magazines is bounded by a share of the free blocks.
#[test]
fn few_blocks_are_kept_ready_when_few_are_free() {
    let space = space(100_000, 1);
    let mut most = 0;
    while space.allocate(1, None).is_some() {
        let ready = space.ready_blocks();
        most = most.max(ready);
        assert!(ready <= 100 + space.free_blocks() / 256, "{ready}");
        if space.free_blocks() < 256 {
            assert!(ready <= 100);
        }
    }
    assert!(most > 10);
    assert_eq!(space.free_blocks(), 0);
}

/// Magazines take no blocks that a reservation needs.
#[test]
fn a_reservation_is_kept_from_what_is_kept_ready() {
    let space = space(100_000, 1);
    assert!(space.reserve(2, Urgency::Normal));
    assert!(space.allocate(1, None).is_some());
    assert!(space.allocate_reserved(1, None).is_some());
    assert_eq!((space.reserved(), space.available()), (1, 100_000 - 3));
    assert!(space.allocate_reserved(1, Some(5)).is_some());
    assert_eq!((space.reserved(), space.available()), (0, 100_000 - 3));
    assert!(space.ready_blocks() > 0);
    space.check_invariants();
}

#[test]
fn the_last_block_that_can_be_named_is_allocated_like_others() {
    let blocks = 1 << 32;
    let space = space(blocks, 2);
    let last = extent(u32::MAX, 1);
    // All blocks except the last ones of the last region are in use.
    let wide = u32::MAX - 300;
    space.mark_allocated(extent(0, wide)).unwrap();
    assert_eq!(space.free_blocks(), 301);
    assert_eq!(space.allocate(1, Some(u32::MAX)), Some(last));
    space.free(last);
    let mut found: Vec<u32> = std::iter::from_fn(|| space.allocate(1, None))
        .map(|extent| extent.block)
        .collect();
    found.sort_unstable();
    assert!(found.iter().copied().eq(wide..=u32::MAX));
    found.iter().for_each(|block| space.free(extent(*block, 1)));
    assert_eq!(space.free_tail(), 301);
}

#[test]
#[should_panic(expected = "of 100 blocks")]
fn a_free_behind_the_end_is_caught() {
    space(100, 1).free(extent(99, 2));
}

#[test]
#[should_panic(expected = "an extent of no blocks")]
fn a_free_of_nothing_is_caught() {
    space(100, 1).free(extent(3, 0));
}

#[test]
#[should_panic(expected = "an extent of 257 blocks")]
fn an_extent_that_is_too_long_is_refused() {
    let _ = space(1000, 1).allocate(257, None);
}

#[test]
#[should_panic(expected = "on a reservation that was not made")]
fn an_allocation_without_its_reservation_is_caught() {
    let space = space(1000, 1);
    assert!(space.reserve(5, Urgency::Normal));
    let _ = space.allocate_reserved(6, None);
}

#[test]
#[should_panic(expected = "of 5 that were reserved")]
fn a_release_of_more_than_was_reserved_is_caught() {
    let space = space(1000, 1);
    assert!(space.reserve(5, Urgency::Normal));
    space.release(6);
}

#[test]
#[should_panic(expected = "cannot be named")]
fn a_space_of_more_than_32_bits_is_refused() {
    space(1000, 1).grow((1 << 32) + 1);
}

#[test]
fn a_run_over_the_border_of_regions_is_found() {
    for groups in [1, 2, 3] {
        let space = space(3 * u64::from(REGION_BLOCKS), groups);
        space.mark_allocated(extent(0, 3 * REGION_BLOCKS)).unwrap();
        let start = 2 * REGION_BLOCKS - 100;
        space.free(extent(start, 200));
        assert_eq!(space.allocate(201, None), None);
        let found = space.allocate(200, None).unwrap();
        assert_eq!(found, extent(start, 200));
        space.free(found);
        assert_eq!(space.survey().runs, 1);
        assert_eq!(space.largest_run(), 200);
        assert!(space.allocate(150, None).is_some());
        space.check_invariants();
    }
}

/// What lies together at the front is not fragmented, however short the free rest is, and a few
/// free blocks in a full space are not much.
#[test]
fn fragmentation_is_the_share_of_the_space_that_is_free_and_scattered() {
    for blocks in [1000, REGION_BLOCKS, REGION_BLOCKS + 100, 3 * REGION_BLOCKS] {
        let space = space(u64::from(blocks), 2);
        space.mark_allocated(extent(0, blocks - 90)).unwrap();
        let survey = space.survey();
        assert_eq!((survey.runs, survey.free), (1, 90));
        assert_eq!((survey.scattered, survey.fragmentation()), (0, 0.0));
        space.free(extent(10, 30));
        let survey = space.survey();
        assert_eq!((survey.runs, survey.free), (2, 120));
        assert_eq!(survey.fragmentation(), 30.0 / f64::from(blocks));
        space.free(extent(100, 256));
        assert_eq!(
            space.survey().scattered,
            30,
            "the longest extent fits there"
        );
        space.mark_allocated(extent(blocks - 1, 1)).unwrap();
        assert_eq!(space.survey().scattered, 30 + 89, "not the end any more");
    }
}

#[test]
fn every_second_block_free_gives_single_blocks_to_the_last() {
    let blocks = 4 * REGION_BLOCKS + 77;
    let space = space(u64::from(blocks), 2);
    space.mark_allocated(extent(0, blocks)).unwrap();
    let singles: Vec<u32> = (0..blocks).step_by(2).collect();
    singles
        .iter()
        .for_each(|block| space.free(extent(*block, 1)));
    // The last block is free, too: it is the end, which a cut removes.
    let scattered = (singles.len() - 1) as f64 / f64::from(blocks);
    assert_eq!(space.survey().fragmentation(), scattered);
    assert_eq!(space.allocate(2, None), None);
    let mut found: Vec<u32> = (0..singles.len())
        .map(|_| space.allocate(1, None).unwrap().block)
        .collect();
    found.sort_unstable();
    assert_eq!(found, singles);
    assert_eq!(space.allocate(1, None), None);
    assert_eq!(space.free_blocks(), 0);
    space.check_invariants();
}

#[test]
fn a_space_that_is_99_percent_full_serves_what_it_has() {
    let blocks = 40 * REGION_BLOCKS;
    let space = space(u64::from(blocks), 2);
    space.mark_allocated(extent(0, blocks)).unwrap();
    let mut runs = Vec::new();
    for region in 0..40 {
        for part in 0..5 {
            runs.push(region * REGION_BLOCKS + part * 800 + 3);
        }
    }
    runs.iter().for_each(|block| space.free(extent(*block, 8)));
    for _ in 0..1000 {
        assert_eq!(space.allocate(9, None), None);
    }
    for left in (0..runs.len()).rev() {
        assert!(space.allocate(8, None).is_some());
        assert_eq!(space.free_blocks(), left as u64 * 8);
    }
    space.check_invariants();
}

#[test]
fn a_search_is_bounded_and_still_finds_what_is_far() {
    let blocks = 200 * REGION_BLOCKS;
    let space = space(u64::from(blocks), 1);
    let far = extent(blocks - 50, 20);
    // Marking blocks does not tell the space how long the remaining free runs are.
    for block in (0..far.block).step_by(3) {
        space.mark_allocated(extent(block, 1)).unwrap();
    }
    space.mark_allocated(extent(far.block - 2, 2)).unwrap();
    space.mark_allocated(extent(blocks - 30, 30)).unwrap();
    assert_eq!(space.allocate(20, None), Some(far));
    assert!(space.bounded_searches() > 0);
    let before = space.bounded_searches();
    assert_eq!(space.allocate(20, None), None);
    space.free(far);
    assert_eq!(space.allocate(20, None), Some(far));
    assert!(space.bounded_searches() <= before + 2);
    space.check_invariants();
}

#[test]
fn sizes_that_are_no_multiple_of_anything_work_to_the_last_block() {
    for blocks in [
        1,
        63,
        64,
        65,
        511,
        513,
        REGION_BLOCKS - 1,
        REGION_BLOCKS + 1,
        9999,
    ] {
        let space = space(u64::from(blocks), 2);
        let mut taken = 0;
        while let Some(found) = space.allocate(7, None) {
            assert!(found.block + found.blocks <= blocks);
            taken += 7;
        }
        while let Some(found) = space.allocate(1, None) {
            assert!(found.block < blocks);
            taken += 1;
        }
        assert_eq!(taken, blocks);
        space.check_invariants();
        space.free(extent(blocks - 1, 1));
        assert_eq!(space.allocate(1, None), Some(extent(blocks - 1, 1)));
    }
}

#[test]
fn an_empty_space_has_nothing() {
    let space = space(0, 2);
    assert_eq!(space.allocate(1, Some(0)), None);
    assert!(!space.reserve(1, Urgency::Urgent));
    assert!(space.reserve(0, Urgency::Normal));
    assert_eq!(space.free_tail(), 0);
    assert_eq!(space.largest_run(), 0);
    assert_eq!(space.survey().fragmentation(), 0.0);
    assert_eq!(space.survey().fragmentation_percent(), 0);
    space.grow(10);
    assert_eq!(space.allocate(10, None), Some(extent(0, 10)));
}

#[test]
fn a_hint_is_met_or_harmless() {
    let space = space(2 * u64::from(REGION_BLOCKS), 2);
    let after = |extent: Extent| Some(extent.block + extent.blocks);
    let one = space.allocate(10, Some(5000)).unwrap();
    assert_eq!(one, extent(5000, 10));
    assert_eq!(space.allocate(20, after(one)), Some(extent(5010, 20)));
    let near = space.allocate(10, Some(5005)).unwrap();
    assert_eq!(near.block / REGION_BLOCKS, 1);
    for hint in [
        2 * REGION_BLOCKS,
        3 * REGION_BLOCKS,
        u32::MAX,
        2 * REGION_BLOCKS - 1,
    ] {
        let found = space.allocate(200, Some(hint)).unwrap();
        assert!(found.block + found.blocks <= 2 * REGION_BLOCKS);
    }
    space.check_invariants();
}

#[test]
fn a_hint_that_finds_nothing_leaves_all_counts_right() {
    let space = space(2 * u64::from(REGION_BLOCKS), 2);
    space.mark_allocated(extent(0, REGION_BLOCKS)).unwrap();
    space.free(extent(100, 20));
    space.mark_allocated(extent(105, 1)).unwrap();
    let elsewhere = space.allocate(18, Some(102)).unwrap();
    assert_eq!(elsewhere.block / REGION_BLOCKS, 1);
    space.check_invariants();
}

#[test]
fn allocations_in_a_row_lie_in_a_row() {
    let space = space(100_000, 1);
    for size in [1, 4, 16, 30] {
        let mut last = space.allocate(size, None).unwrap();
        let mut jumps = 0;
        for _ in 0..100 {
            let next = space.allocate(size, None).unwrap();
            jumps += u32::from(next.block != last.block + size);
            last = next;
        }
        assert!(jumps < 5, "{jumps} jumps with {size} blocks");
    }
}

#[test]
fn a_batch_comes_in_few_pieces() {
    let space = space(20 * u64::from(REGION_BLOCKS), 2);
    let mut out = Vec::new();
    assert!(space.allocate_batch(1024, 16, &mut out));
    assert_eq!(out.len(), 1);
    out.clear();
    assert!(space.allocate_batch(2 * REGION_BLOCKS, 1, &mut out));
    assert!(out.len() <= 2, "{out:?}");
    out.clear();
    assert!(space.allocate_batch(0, 1, &mut out));
    assert!(out.is_empty());
    assert!(!space.allocate_batch(21 * REGION_BLOCKS, 1, &mut out));
    assert!(out.is_empty());
    space.check_invariants();
}

#[test]
fn a_batch_takes_the_long_runs_first() {
    let space = space(u64::from(REGION_BLOCKS), 1);
    space.mark_allocated(extent(0, REGION_BLOCKS)).unwrap();
    for (block, blocks) in [(0, 5), (10, 5), (100, 20), (200, 3), (300, 11)] {
        space.free(extent(block, blocks));
    }
    let mut out = Vec::new();
    assert!(space.allocate_batch(30, 5, &mut out));
    assert_eq!(out, [extent(100, 20), extent(300, 10)]);
    out.clear();
    assert!(
        !space.allocate_batch(14, 7, &mut out),
        "no run of seven is left"
    );
    assert!(space.allocate_batch(14, 1, &mut out));
    assert_eq!(space.free_blocks(), 0);
    space.check_invariants();
}

#[test]
fn an_overlap_is_named_and_changes_nothing() {
    let space = space(3 * u64::from(REGION_BLOCKS), 2);
    let used = extent(REGION_BLOCKS + 5, 1);
    space.mark_allocated(used).unwrap();
    let wide = extent(REGION_BLOCKS - 10, 100);
    assert_eq!(
        space.mark_allocated(wide),
        Err(Error::Overlap {
            extent: wide,
            block: used.block
        })
    );
    assert_eq!(space.free_blocks(), space.blocks() - 1);
    for bad in [
        extent(0, 0),
        extent(u32::MAX, 256),
        extent(3 * REGION_BLOCKS - 1, 2),
    ] {
        let error = space.mark_allocated(bad).unwrap_err();
        assert!(matches!(error, Error::Beyond { .. }), "{error}");
    }
    space.check_invariants();
}

#[test]
fn reservations_stop_at_the_reserve_and_urgent_ones_do_not() {
    let options = SpaceOptions {
        groups: 2,
        delete_reserve: 100,
        ..SpaceOptions::default()
    };
    let space = Space::new(1000, options);
    assert!(!space.reserve(901, Urgency::Normal));
    assert!(space.reserve(900, Urgency::Normal));
    assert!(!space.reserve(1, Urgency::Normal));
    assert!(space.reserve(60, Urgency::Urgent));
    assert!(!space.reserve(41, Urgency::Urgent));
    assert_eq!(space.allocate(41, None), None, "the rest is reserved");
    let own = space.allocate(40, None).unwrap();
    assert_eq!((space.available(), space.reserved()), (0, 960));
    assert!(space.allocate_reserved(200, None).is_some());
    assert_eq!((space.available(), space.reserved()), (0, 760));
    space.release(760);
    assert_eq!((space.available(), space.reserved()), (760, 0));
    space.free(own);
    space.set_delete_reserve(800);
    assert!(!space.reserve(1, Urgency::Normal));
    space.check_invariants();
}

#[test]
fn the_tail_is_cut_only_if_it_is_free_and_not_reserved() {
    let blocks = 3 * u64::from(REGION_BLOCKS) + 10;
    let space = space(blocks, 2);
    let used = extent(REGION_BLOCKS + 70, 1);
    space.mark_allocated(used).unwrap();
    let keep = u64::from(used.block) + 1;
    assert_eq!(space.free_tail(), blocks - keep);
    assert_eq!(
        space.shrink_to(keep - 1),
        Err(Error::InUse { block: used.block })
    );
    assert_eq!(space.blocks(), blocks);
    assert_eq!(
        space.shrink_to(100),
        Err(Error::InUse { block: used.block })
    );
    space.check_invariants();
    let most = space.available();
    assert!(space.reserve(most - 5, Urgency::Normal));
    assert_eq!(space.shrink_to(keep), Err(Error::Reserved { available: 5 }));
    space.shrink_to(blocks - 5).unwrap();
    space.release(most - 5);
    space.shrink_to(keep).unwrap();
    assert_eq!(space.free_tail(), 0);
    space.check_invariants();
    space.free(used);
    space.shrink_to(0).unwrap();
    assert_eq!((space.blocks(), space.free_blocks()), (0, 0));
    space.grow(blocks);
    space.check_invariants();
}

/// Returns a space with more regions than a bounded search visits, each with one free run of 17
/// blocks, and its number of blocks.
fn with_scattered_blocks() -> (Space, u32) {
    let blocks = 3000 * REGION_BLOCKS;
    let space = space(u64::from(blocks), 1);
    space.mark_allocated(extent(0, blocks)).unwrap();
    for region in 0..3000 {
        space.free(extent(region * REGION_BLOCKS, 17));
    }
    (space, blocks)
}

#[test]
fn a_search_that_failed_is_tried_again_after_a_free() {
    let (space, blocks) = with_scattered_blocks();
    assert_eq!(space.allocate(18, None), None);
    let bounded = space.bounded_searches();
    let far = extent(blocks - 50, 20);
    space.free(far);
    assert_eq!(space.allocate(18, None), Some(extent(far.block, 18)));
    assert!(
        space.bounded_searches() > bounded,
        "the search was not bounded"
    );
}

#[test]
fn a_search_that_failed_says_nothing_about_shorter_runs() {
    let (space, blocks) = with_scattered_blocks();
    let far = extent(blocks - 50, 20);
    space.free(far);
    assert_eq!(space.allocate(30, None), None);
    let bounded = space.bounded_searches();
    assert_eq!(space.allocate(18, None), Some(extent(far.block, 18)));
    assert!(
        space.bounded_searches() > bounded,
        "the search was not bounded"
    );
}
