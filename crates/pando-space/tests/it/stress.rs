//! Many threads allocate and free at the same time. An oracle knows the owner of every block.

use fastrand::Rng;
use pando_format::Extent;
use pando_space::{REGION_BLOCKS, Space, SpaceOptions, Urgency};
use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::thread;

const FREE: u32 = 0;

/// The owner of each block.
struct Oracle(Vec<AtomicU32>);

impl Oracle {
    fn new(blocks: u32) -> Self {
        Self((0..blocks).map(|_| AtomicU32::new(FREE)).collect())
    }

    fn change(&self, extent: Extent, from: u32, to: u32) {
        for block in extent.block..extent.block + extent.blocks {
            // AcqRel: the oracle must not be weaker than the space that it judges.
            let owner = self.0[block as usize].swap(to, Ordering::AcqRel);
            assert_eq!(owner, from, "block {block} changes hands to {to}");
        }
    }
}

fn work(space: &Space, oracle: &Oracle, me: u32, steps: u32) {
    let mut random = Rng::with_seed(u64::from(me));
    let mut held: Vec<Extent> = Vec::new();
    let mut batch = Vec::new();
    for _ in 0..steps {
        let count = random.u32(1..=40);
        match random.u32(..10) {
            0..4 => {
                let hint = (random.u32(..4) == 0).then(|| random.u32(..oracle.0.len() as u32));
                if let Some(extent) = space.allocate(count, hint) {
                    oracle.change(extent, FREE, me);
                    held.push(extent);
                }
            }
            4 => {
                if space.reserve(u64::from(count), Urgency::Normal) {
                    match space.allocate_reserved(count, None) {
                        Some(extent) => {
                            oracle.change(extent, FREE, me);
                            held.push(extent);
                        }
                        None => space.release(u64::from(count)),
                    }
                }
            }
            5 if space.allocate_batch(count * 4, 4, &mut batch) => {
                batch.iter().for_each(|run| oracle.change(*run, FREE, me));
                held.append(&mut batch);
            }
            _ => {
                if !held.is_empty() {
                    let extent = held.swap_remove(random.usize(..held.len()));
                    oracle.change(extent, me, FREE);
                    space.free(extent);
                }
            }
        }
        assert!(space.free_blocks() <= 2 * oracle.0.len() as u64);
    }
    for extent in held {
        oracle.change(extent, me, FREE);
        space.free(extent);
    }
}

fn check(blocks: u32, groups: usize, threads: u32, steps: u32) {
    let space = Space::new(
        u64::from(blocks),
        SpaceOptions {
            groups,
            delete_reserve: 50,
            ..SpaceOptions::default()
        },
    );
    let oracle = Oracle::new(blocks);
    thread::scope(|scope| {
        for me in 1..=threads {
            let (space, oracle) = (&space, &oracle);
            scope.spawn(move || work(space, oracle, me, steps));
        }
    });
    space.check_invariants();
    assert_eq!(space.free_blocks(), u64::from(blocks), "nothing is lost");
    assert_eq!(space.reserved(), 0);
    assert_eq!(space.largest_run(), u64::from(blocks));
}

#[test]
fn no_block_has_two_owners_with_room() {
    check(20 * REGION_BLOCKS, 0, 16, 10_000);
}

#[test]
fn no_block_has_two_owners_without_room() {
    check(2 * REGION_BLOCKS + 333, 3, 8, 20_000);
    check(700, 2, 8, 20_000);
}

/// Single blocks come from magazines, and at the end they are taken back from there.
#[test]
fn no_block_is_lost_or_owned_twice_on_magazines() {
    let blocks = 5 * REGION_BLOCKS + 77;
    let space = Space::new(u64::from(blocks), SpaceOptions::default());
    let oracle = Oracle::new(blocks);
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for me in 1..=16 {
            let (space, oracle, refused) = (&space, &oracle, &refused);
            scope.spawn(move || {
                let mut random = Rng::with_seed(u64::from(me));
                let mut held = Vec::new();
                while refused.load(Ordering::Relaxed) < 5000 {
                    // All threads together want more blocks than there are.
                    let keep = (blocks / 15) as usize;
                    let count = random.u32(1..=2);
                    match space.allocate(count, None) {
                        Some(extent) => {
                            oracle.change(extent, FREE, me);
                            held.push(extent);
                        }
                        None => {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if held.len() > keep || !held.is_empty() && random.u32(..4) == 0 {
                        let extent = held.swap_remove(random.usize(..held.len()));
                        oracle.change(extent, me, FREE);
                        space.free(extent);
                    }
                }
                for extent in held {
                    oracle.change(extent, me, FREE);
                    space.free(extent);
                }
            });
        }
    });
    space.check_invariants();
    assert_eq!(space.free_blocks(), u64::from(blocks));
    assert_eq!(space.largest_run(), u64::from(blocks));
}

#[test]
fn what_is_reserved_is_there_whatever_others_do() {
    let blocks = 2 * REGION_BLOCKS;
    let space = Space::new(
        u64::from(blocks),
        SpaceOptions {
            groups: 2,
            delete_reserve: 0,
            ..SpaceOptions::default()
        },
    );
    let served = AtomicU32::new(0);
    thread::scope(|scope| {
        for me in 0..8u64 {
            let (space, served) = (&space, &served);
            scope.spawn(move || {
                let mut random = Rng::with_seed(me);
                let mut held = Vec::new();
                for _ in 0..3000 {
                    let count = random.u64(1..=200);
                    if space.reserve(count, Urgency::Normal) {
                        // An allocation of single blocks needs no run.
                        for _ in 0..count {
                            held.push(space.allocate_reserved(1, None).unwrap());
                        }
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                    if random.u32(..3) == 0 {
                        let keep = random.usize(..=held.len());
                        held.drain(keep..).for_each(|extent| space.free(extent));
                    }
                }
                held.into_iter().for_each(|extent| space.free(extent));
            });
        }
    });
    assert!(served.load(Ordering::Relaxed) > 100);
    space.check_invariants();
    assert_eq!(space.free_blocks(), u64::from(blocks));
}

#[test]
fn the_space_grows_and_shrinks_under_load() {
    let blocks = 2 * REGION_BLOCKS;
    let space = Space::new(
        u64::from(blocks),
        SpaceOptions {
            groups: 2,
            delete_reserve: 0,
            ..SpaceOptions::default()
        },
    );
    let oracle = Oracle::new(8 * REGION_BLOCKS);
    thread::scope(|scope| {
        for me in 1..=4 {
            let (space, oracle) = (&space, &oracle);
            scope.spawn(move || work(space, oracle, me, 10_000));
        }
        let mut random = Rng::with_seed(77);
        for _ in 0..2000 {
            let now = space.blocks();
            if random.bool() {
                let most = 8 * u64::from(REGION_BLOCKS);
                space.grow(most.min(now + random.u64(..5000)));
            } else {
                let tail = space.free_tail().min(random.u64(..9000));
                let _ = space.shrink_to(now - tail);
            }
        }
    });
    space.check_invariants();
    assert_eq!(space.free_blocks(), space.blocks());
}

/// Stops the other threads when a thread ends, also by a panic.
struct Ended<'a>(&'a AtomicU32);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(2, Ordering::Relaxed);
    }
}

#[test]
fn a_run_over_the_border_of_regions_has_one_owner() {
    let blocks = 2 * REGION_BLOCKS;
    let options = SpaceOptions {
        groups: 2,
        delete_reserve: 0,
        ..SpaceOptions::default()
    };
    let space = Space::new(u64::from(blocks), options);
    let oracle = Oracle::new(blocks);
    let all = Extent { block: 0, blocks };
    space.mark_allocated(all).unwrap();
    space.free(Extent {
        block: REGION_BLOCKS - 100,
        blocks: 200,
    });
    let finished = AtomicU32::new(0);
    thread::scope(|scope| {
        for me in 1..=4 {
            let (space, oracle, finished) = (&space, &oracle, &finished);
            scope.spawn(move || {
                let mut random = Rng::with_seed(u64::from(me));
                let mut across = 0;
                let _ended = Ended(finished);
                while finished.load(Ordering::Relaxed) < 2 {
                    let wide = me % 2 == 0;
                    let count = if wide { 150 } else { random.u32(1..=20) };
                    let Some(extent) = space.allocate(count, None) else {
                        thread::yield_now();
                        continue;
                    };
                    oracle.change(extent, FREE, me);
                    thread::yield_now();
                    oracle.change(extent, me, FREE);
                    space.free(extent);
                    across += u32::from(wide);
                    if across == 3000 {
                        finished.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    space.check_invariants();
    assert_eq!(space.free_blocks(), 200);
}
