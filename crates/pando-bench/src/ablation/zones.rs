//! `alloc`, the slow variants: a bitmap of zones under areas, as allocators of object stores had it
//! (ceph/ceph#14348). A search passes over exhausted zones by an atomic count, without their locks,
//! then locks one and looks again. All that differs between the two variants is how the methods of
//! a zone are called: through a table, or directly.

use pando_format::cast::{u32_of, u32_of_len, usize_of};
use pando_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{CachePadded, Mutex, MutexGuard, Rank, core_count, core_id};

use crate::alloc::allocator::{Allocator, wrong};
use crate::error::Result;

const ZONE_WORDS: usize = 16;
/// Blocks of a zone.
const ZONE_BLOCKS: u32 = u32_of_len(ZONE_WORDS) * u64::BITS;
/// Zones of an area.
const AREA_ZONES: usize = 1024;

type Words = [u64; ZONE_WORDS];

/// What a search calls for each zone that it passes.
pub(super) trait Zone: Send + Sync {
    /// True if no block is free, as of some moment.
    fn is_exhausted(&self) -> bool;

    /// The lock of its bits.
    fn lock(&self) -> MutexGuard<'_, Words>;

    /// Takes the lowest free block; None: there is none.
    fn take(&self, words: &mut Words) -> Option<u32>;

    /// Takes so many blocks from `start` on; false: one of them is not free.
    fn take_run(&self, words: &mut Words, start: u32, count: u32) -> bool;

    /// Makes a block free; false: it is.
    fn give(&self, words: &mut Words, position: u32) -> bool;
}

/// A bitmap of a zone.
pub(super) struct BitmapZone {
    /// Blocks that are free: a copy for those who do not hold the lock.
    free: AtomicU32,
    words: Mutex<Words>,
}

impl BitmapZone {
    /// So many free blocks.
    fn new(blocks: u32) -> Self {
        let mut words = [0; ZONE_WORDS];
        for position in 0..blocks {
            words[(position / u64::BITS) as usize] |= 1 << (position % u64::BITS);
        }
        Self {
            free: AtomicU32::new(blocks),
            words: Mutex::new(Rank::Leaf, words),
        }
    }

    fn count(&self, change: impl Fn(u32) -> u32) {
        // Relaxed: written under the lock; a hint for those without it, who look again under it.
        let free = self.free.load(Ordering::Relaxed);
        self.free.store(change(free), Ordering::Relaxed);
    }
}

impl Zone for BitmapZone {
    #[inline]
    fn is_exhausted(&self) -> bool {
        // Relaxed: see `count`.
        self.free.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Words> {
        self.words.lock()
    }

    #[inline]
    fn take(&self, words: &mut Words) -> Option<u32> {
        let index = words.iter().position(|word| *word != 0)?;
        let bit = words[index].trailing_zeros();
        words[index] &= words[index] - 1;
        self.count(|free| free - 1);
        Some(u32_of_len(index) * u64::BITS + bit)
    }

    fn take_run(&self, words: &mut Words, start: u32, count: u32) -> bool {
        for position in start..start + count {
            let (word, bit) = ((position / u64::BITS) as usize, position % u64::BITS);
            if words[word] >> bit & 1 == 0 {
                return false;
            }
            words[word] &= !(1 << bit);
        }
        self.count(|free| free - count);
        true
    }

    #[inline]
    fn give(&self, words: &mut Words, position: u32) -> bool {
        let (word, bit) = ((position / u64::BITS) as usize, position % u64::BITS);
        if words[word] >> bit & 1 == 1 {
            return false;
        }
        words[word] |= 1 << bit;
        self.count(|free| free + 1);
        true
    }
}

struct Area<Z: ?Sized> {
    /// Blocks that are free in all of its zones.
    free: AtomicU64,
    /// Where the last search ended. A hint.
    cursor: AtomicUsize,
    /// Each by itself in memory in both variants.
    zones: Box<[Box<Z>]>,
}

/// All blocks.
pub(super) struct Zones<Z: ?Sized> {
    areas: Box<[Area<Z>]>,
    /// For each core, the area that served it last. Hints.
    cursors: Box<[CachePadded<AtomicUsize>]>,
}

impl<Z: Zone + ?Sized> Zones<Z> {
    /// So many free blocks, in zones that `boxed` makes.
    pub(super) fn new(blocks: u64, boxed: impl Fn(BitmapZone) -> Box<Z>) -> Self {
        let zone_blocks = u64::from(ZONE_BLOCKS);
        let area_blocks = AREA_ZONES as u64 * zone_blocks;
        let area = |first: u64| {
            let free = area_blocks.min(blocks - first);
            let zone = |start: u64| boxed(BitmapZone::new(u32_of(zone_blocks.min(free - start))));
            Area {
                free: AtomicU64::new(free),
                cursor: AtomicUsize::new(0),
                zones: (0..free).step_by(ZONE_BLOCKS as usize).map(zone).collect(),
            }
        };
        let areas: Box<[_]> = (0..blocks)
            .step_by(usize_of(area_blocks))
            .map(area)
            .collect();
        let cores = core_count();
        let cursor = |core| CachePadded(AtomicUsize::new(core * areas.len() / cores));
        let cursors = (0..cores).map(cursor).collect();
        Self { areas, cursors }
    }

    fn zone_of(&self, block: u32) -> (&Area<Z>, &Z, u32) {
        let zone = (block / ZONE_BLOCKS) as usize;
        let area = &self.areas[zone / AREA_ZONES];
        (area, &area.zones[zone % AREA_ZONES], block % ZONE_BLOCKS)
    }

    fn allocate_in(&self, index: usize) -> Option<u32> {
        let area = &self.areas[index];
        // Relaxed here and below: counts and hints; each zone's lock decides.
        if area.free.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let first = area.cursor.load(Ordering::Relaxed);
        let count = area.zones.len();
        for at in (first..count).chain(0..first) {
            let zone = &area.zones[at];
            if zone.is_exhausted() {
                continue;
            }
            let taken = zone.take(&mut zone.lock());
            if let Some(position) = taken {
                area.free.fetch_sub(1, Ordering::Relaxed);
                if at != first {
                    area.cursor.store(at, Ordering::Relaxed);
                }
                let zone = u32_of_len(index * AREA_ZONES + at);
                return Some(zone * ZONE_BLOCKS + position);
            }
        }
        None
    }
}

impl<Z: Zone + ?Sized> Allocator for Zones<Z> {
    #[inline]
    fn allocate(&self) -> Option<u32> {
        let cursor = &self.cursors[core_id() % self.cursors.len()];
        let first = cursor.load(Ordering::Relaxed);
        let count = self.areas.len();
        for index in (first..count).chain(0..first) {
            if let Some(block) = self.allocate_in(index) {
                if index != first {
                    cursor.store(index, Ordering::Relaxed);
                }
                return Some(block);
            }
        }
        None
    }

    fn free(&self, block: u32) {
        let (area, zone, position) = self.zone_of(block);
        let given = zone.give(&mut zone.lock(), position);
        assert!(given, "block {block} is freed though it is not allocated");
        area.free.fetch_add(1, Ordering::Relaxed);
    }

    fn mark(&self, start: u32, count: u32) -> Result<()> {
        let (mut block, mut left) = (start, count);
        while left > 0 {
            let (area, zone, position) = self.zone_of(block);
            let here = left.min(ZONE_BLOCKS - position);
            if !zone.take_run(&mut zone.lock(), position, here) {
                return Err(wrong(format!(
                    "{count} blocks from {start} on are not free"
                )));
            }
            area.free.fetch_sub(here.into(), Ordering::Relaxed);
            block = block.wrapping_add(here);
            left -= here;
        }
        Ok(())
    }
}

/// Methods of zones are called through a table.
pub(super) fn boxed(blocks: u64) -> Zones<dyn Zone> {
    Zones::new(blocks, |zone| -> Box<dyn Zone> { Box::new(zone) })
}

/// They are called directly.
pub(super) fn called_directly(blocks: u64) -> Zones<BitmapZone> {
    Zones::new(blocks, Box::new)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(zones: &impl Allocator, blocks: u32) {
        zones.mark(5, 3000).unwrap();
        assert!(zones.mark(3004, 2).is_err());
        let mut all = BTreeSet::new();
        while let Some(block) = zones.allocate() {
            assert!(block < blocks && !(5..3005).contains(&block));
            assert!(all.insert(block), "{block} is handed out twice");
        }
        // Blocks that the failed mark has taken stay taken.
        assert!(all.len() as u32 >= blocks - 3002);
        for block in [7, blocks - 1] {
            zones.free(block);
            assert_eq!(zones.allocate(), Some(block));
        }
    }

    #[test]
    fn zones_hand_each_block_out_once_to_the_last() {
        let blocks = AREA_ZONES as u32 * ZONE_BLOCKS + 1500;
        check(&boxed(blocks.into()), blocks);
        check(&called_directly(blocks.into()), blocks);
    }

    #[test]
    #[should_panic(expected = "freed though it is not allocated")]
    fn zones_notice_a_double_free() {
        boxed(5000).free(4999);
    }
}
