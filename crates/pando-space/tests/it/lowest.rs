//! Allocation at the lowest place.

use pando_format::Extent;
use pando_space::{LowCursor, REGION_BLOCKS, Space, SpaceOptions};

fn full(blocks: u64) -> Space {
    let options = SpaceOptions {
        groups: 3,
        ..SpaceOptions::default()
    };
    let space = Space::new(blocks, options);
    let mut left = blocks;
    while left > 0 {
        let count = left.min(256) as u32;
        space.allocate(count, None).unwrap();
        left -= u64::from(count);
    }
    space
}

fn extent(block: u32, blocks: u32) -> Extent {
    Extent { block, blocks }
}

#[test]
fn the_lowest_run_is_taken_whatever_the_group_of_the_thread() {
    let space = full(5 * u64::from(REGION_BLOCKS));
    let mut cursor = LowCursor::default();
    let free = [3 * REGION_BLOCKS + 9, REGION_BLOCKS + 7, 4 * REGION_BLOCKS];
    for block in free {
        space.free(extent(block, 2));
        cursor.freed(extent(block, 2));
    }
    let lowest = |count, cursor: &mut LowCursor| space.allocate_lowest(count, cursor);
    assert_eq!(lowest(3, &mut cursor), None);
    assert_eq!(lowest(2, &mut cursor), Some(extent(REGION_BLOCKS + 7, 2)));
    let next = 3 * REGION_BLOCKS + 9;
    assert_eq!(lowest(1, &mut cursor), Some(extent(next, 1)));
    assert_eq!(lowest(2, &mut cursor), Some(extent(4 * REGION_BLOCKS, 2)));
    assert_eq!(lowest(1, &mut cursor), Some(extent(next + 1, 1)));
    assert_eq!(lowest(1, &mut cursor), None);
    // A free block below the cursor is found only after the cursor is told of it.
    space.free(extent(5, 1));
    assert_eq!(lowest(1, &mut cursor), None);
    cursor.freed(extent(5, 1));
    assert_eq!(lowest(1, &mut cursor), Some(extent(5, 1)));
    assert_eq!(space.free_blocks(), 0);
    space.check_invariants();
}

#[test]
fn what_is_reserved_is_left_alone() {
    let space = Space::new(10, SpaceOptions::default());
    assert!(space.reserve(9, pando_space::Urgency::Normal));
    let mut cursor = LowCursor::default();
    assert_eq!(space.allocate_lowest(2, &mut cursor), None);
    assert_eq!(space.allocate_lowest(1, &mut cursor), Some(extent(0, 1)));
    space.check_invariants();
}
