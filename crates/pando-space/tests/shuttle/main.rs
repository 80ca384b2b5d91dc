//! Magazines under random schedules, with more threads and longer runs than the loom models have.
//! Build with `RUSTFLAGS="--cfg pando_shuttle"`. A failure prints the schedule that led to it.

#![cfg(pando_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use pando_format::Extent;
use pando_space::{Space, SpaceOptions, Urgency};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, thread};

const SCHEDULES: usize = 20_000;
const THREADS: u64 = 3;

/// A space of one group, and the owner of each of its blocks.
struct Rig {
    space: Space,
    owners: Vec<AtomicU64>,
}

impl Rig {
    fn new(blocks: u64) -> Arc<Self> {
        let options = SpaceOptions {
            groups: 1,
            ..SpaceOptions::default()
        };
        Arc::new(Self {
            space: Space::new(blocks, options),
            owners: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn owner(&self, block: u32) -> &AtomicU64 {
        &self.owners[block as usize]
    }

    /// Records that `extent` was handed out to `thread`.
    fn took(&self, extent: Extent, thread: u64) {
        for block in extent.block..extent.block + extent.blocks {
            let before = self.owner(block).swap(thread, Ordering::Relaxed);
            assert_eq!(before, 0, "block {block} is handed out twice");
        }
    }

    fn free(&self, extent: Extent, thread: u64) {
        for block in extent.block..extent.block + extent.blocks {
            let before = self.owner(block).swap(0, Ordering::Relaxed);
            assert_eq!(before, thread, "block {block} has another owner");
        }
        self.space.free(extent);
    }

    /// Checks that all blocks are free and can be allocated, and no others.
    fn end(&self) {
        self.space.check_invariants();
        let blocks = self.owners.len() as u64;
        assert_eq!(self.space.free_blocks(), blocks, "blocks are lost");
        assert_eq!(self.space.available(), blocks);
        for _ in 0..blocks {
            let extent = self.space.allocate(1, None);
            self.took(extent.expect("a block is lost"), 1);
        }
        assert_eq!(self.space.allocate(1, None), None);
        self.space.check_invariants();
    }
}

/// Runs `work` on several threads, numbered from 1. Returns what they return.
fn run<T: Send + 'static>(rig: &Arc<Rig>, work: fn(&Rig, u64) -> T) -> Vec<T> {
    let threads: Vec<_> = (1..=THREADS)
        .map(|thread| {
            let rig = rig.clone();
            thread::spawn(move || work(&rig, thread))
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

/// The threads never hold all blocks. So each single block that is asked for exists: on the
/// magazine of one of two cores, on its way to or from there, or in the bitmap.
#[test]
fn no_block_is_refused_while_one_is_left() {
    check(|| {
        let rig = Rig::new(2 * THREADS + 3);
        run(&rig, |rig, thread| {
            for _ in 0..3 {
                let pair = [(); 2].map(|()| rig.space.allocate(1, None));
                let pair = pair.map(|extent| extent.expect("a block is left"));
                pair.iter().for_each(|extent| rig.took(*extent, thread));
                pair.into_iter().for_each(|extent| rig.free(extent, thread));
            }
        });
        rig.end();
    });
}

/// Extents of two lengths are allocated; one of two blocks may find no run.
#[test]
fn extents_of_two_lengths_have_one_owner() {
    check(|| {
        let rig = Rig::new(16);
        run(&rig, |rig, thread| {
            for _ in 0..2 {
                let long = rig.space.allocate(2, None);
                long.into_iter().for_each(|extent| rig.took(extent, thread));
                let short = rig.space.allocate(1, None).expect("a block is left");
                rig.took(short, thread);
                long.into_iter().for_each(|extent| rig.free(extent, thread));
                rig.space.drain_ready();
                rig.free(short, thread);
            }
        });
        rig.end();
    });
}

/// An allocation fails only when all blocks are taken.
#[test]
fn all_blocks_are_taken_before_one_is_refused() {
    check(|| {
        let blocks = 2 * THREADS + 1;
        let rig = Rig::new(blocks);
        let taken = run(&rig, |rig, thread| {
            let take = || rig.space.allocate(1, None);
            let taken: Vec<Extent> = (0..3).map_while(|_| take()).collect();
            taken.iter().for_each(|extent| rig.took(*extent, thread));
            taken
        });
        let count: usize = taken.iter().map(Vec::len).sum();
        assert_eq!(count as u64, blocks, "one was refused too early");
        for (extents, thread) in taken.into_iter().zip(1..) {
            extents
                .into_iter()
                .for_each(|extent| rig.free(extent, thread));
        }
        rig.end();
    });
}

/// A reservation is kept although other threads fill magazines from the remaining blocks.
#[test]
fn what_is_reserved_is_there() {
    check(|| {
        let rig = Rig::new(4 * THREADS);
        run(&rig, |rig, thread| {
            let spare = rig.space.allocate(1, None).expect("not all are reserved");
            rig.took(spare, thread);
            assert!(rig.space.reserve(3, Urgency::Normal), "3 are left for each");
            let mine: Vec<Extent> = (0..3)
                .map(|_| {
                    rig.space
                        .allocate_reserved(1, None)
                        .expect("it was reserved")
                })
                .collect();
            mine.iter().for_each(|extent| rig.took(*extent, thread));
            rig.free(spare, thread);
            mine.into_iter().for_each(|extent| rig.free(extent, thread));
        });
        rig.end();
    });
}
