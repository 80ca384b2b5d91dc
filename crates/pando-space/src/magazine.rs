//! Extents that a core keeps ready, to be taken without a lock and without a tally.
//!
//! A place holds the first block of an extent, or nothing. Only who holds `filling` puts something
//! into one; anybody takes it out with a swap, so that each is handed out once, whoever is moved to
//! another core in between. What lies here is allocated in the bitmap and counts as free.
//!
//! | transition        | function       | under                             |
//! |-------------------|----------------|-----------------------------------|
//! | nothing -> extent | `Magazine::fill`  | `filling`, the lock of the group  |
//! | extent -> nothing | `Magazine::pop`   | nothing                           |
//! | extent -> nothing | `Magazine::clear` | `filling`                         |

use std::ops::RangeInclusive;

use pando_format::Extent;
use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::{Mutex, Rank};

/// Longest extents that are kept ready.
#[cfg(not(any(pando_loom, pando_shuttle)))]
pub(crate) const READY_BLOCKS_MAX: usize = 16;
#[cfg(any(pando_loom, pando_shuttle))]
pub(crate) const READY_BLOCKS_MAX: usize = 2;

/// Extents of one length that are kept ready.
#[cfg(not(any(pando_loom, pando_shuttle)))]
pub(crate) const PLACES: usize = 64;
#[cfg(any(pando_loom, pando_shuttle))]
pub(crate) const PLACES: usize = 2;

/// No extent. The last block that can be named is never kept ready.
const NOTHING: u32 = u32::MAX;

/// The extents of one core.
#[derive(Debug)]
pub(crate) struct Magazine {
    /// By length, from 1.
    rows: [Row; READY_BLOCKS_MAX],
    /// One bit for each row: it may hold something. Changed under `filling`.
    used: AtomicU32,
    /// True if a row may hold something.
    pub(crate) filling: Mutex<bool>,
}

const _: () = assert!(READY_BLOCKS_MAX <= 32, "a bit for each row");

/// What came of an attempt to fill a magazine.
#[derive(Debug)]
#[must_use]
pub(crate) enum Filled {
    /// It was filled, and this is for the caller.
    Served(Extent),
    /// There was no such extent within the bound of a search.
    Searched,
    /// Nothing was looked for.
    NotTried,
}

/// Extents of one length, those to be taken first at the front.
#[derive(Debug)]
#[repr(align(64))]
struct Row {
    places: [AtomicU32; PLACES],
    /// Where to look first: a hint, which is too high for a moment when several take at once.
    next: AtomicU32,
    /// No extent begins before this block. Changed by `fill`.
    low: AtomicU32,
    /// Nor behind this one.
    high: AtomicU32,
}

impl Row {
    fn new() -> Self {
        Self {
            places: [const { NOTHING }; PLACES].map(AtomicU32::new),
            next: AtomicU32::new(PLACES as u32),
            low: AtomicU32::new(NOTHING),
            high: AtomicU32::new(0),
        }
    }

    /// What its places hold, as of some moment.
    fn blocks(&self) -> impl Iterator<Item = u32> {
        // Relaxed: whoever must not miss one holds the lock that it was put there under.
        let blocks = self
            .places
            .iter()
            .map(|place| place.load(Ordering::Relaxed));
        blocks.filter(|block| *block != NOTHING)
    }
}

impl Magazine {
    pub(crate) fn new() -> Self {
        Self {
            rows: std::array::from_fn(|_| Row::new()),
            used: AtomicU32::new(0),
            filling: Mutex::new(Rank::MagazineFilling, false),
        }
    }

    /// Takes an extent of `count` blocks; its first block.
    #[inline]
    pub(crate) fn pop(&self, count: u32) -> Option<u32> {
        let row = self.rows.get((count as usize).wrapping_sub(1))?;
        // Relaxed: a hint.
        let mut at = row.next.load(Ordering::Relaxed) as usize;
        while let Some(place) = row.places.get(at) {
            at += 1;
            // Acquire: pairs with the Release in `fill`. What the owner before did with the blocks
            // lies before the lock of their group, and that before `fill`.
            let block = place.swap(NOTHING, Ordering::Acquire);
            if block != NOTHING {
                row.next.store(at as u32, Ordering::Relaxed);
                return Some(block);
            }
        }
        None
    }

    /// Places for extents of `count` blocks that hold nothing. Under `filling` there are no fewer
    /// later.
    pub(crate) fn room(&self, count: u32) -> usize {
        PLACES - self.rows[count as usize - 1].blocks().count()
    }

    /// Puts extents of `count` blocks there, in their order; for who holds `filling` and the lock
    /// of their group, and has asked for the room.
    pub(crate) fn fill(&self, count: u32, blocks: &[u32]) {
        let row = &self.rows[count as usize - 1];
        // Relaxed: read under a lock of a group that `fill` was called under.
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used | 1 << (count - 1), Ordering::Relaxed);
        // Before the extents: whoever must not miss one finds it within. Relaxed, as `used`; of two
        // bounds of different calls each covers what was there before both.
        let all = || row.blocks().chain(blocks.iter().copied());
        row.low
            .store(all().min().unwrap_or(NOTHING), Ordering::Relaxed);
        row.high.store(all().max().unwrap_or(0), Ordering::Relaxed);
        let mut left = blocks.iter().rev();
        let mut first = PLACES;
        for (at, place) in row.places.iter().enumerate().rev() {
            if place.load(Ordering::Relaxed) != NOTHING {
                first = at;
                continue;
            }
            let Some(block) = left.next() else {
                continue;
            };
            assert!(*block != NOTHING, "the last block is not kept ready");
            // Release: pairs with the Acquire in `pop`.
            place.store(*block, Ordering::Release);
            first = at;
        }
        assert!(left.next().is_none(), "there is room for what is put there");
        row.next.store(first as u32, Ordering::Relaxed);
    }

    /// Takes all out; for who holds `filling`.
    pub(crate) fn clear(&self, mut each: impl FnMut(Extent)) {
        // Relaxed: changed under `filling` only.
        self.used.store(0, Ordering::Relaxed);
        for (row, blocks) in self.rows.iter().zip(1..) {
            for place in &row.places {
                // Acquire: as in `pop`.
                let block = place.swap(NOTHING, Ordering::Acquire);
                if block != NOTHING {
                    each(Extent { block, blocks });
                }
            }
        }
    }

    /// All that it holds, as of some moment.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        // Relaxed: see `fill`.
        let used = self.used.load(Ordering::Relaxed);
        let rows = self.rows.iter().zip(1..);
        rows.filter(move |(_, blocks)| used >> (blocks - 1) & 1 == 1)
            .flat_map(|(row, blocks)| row.blocks().map(move |block| Extent { block, blocks }))
    }

    /// The first block of `wanted` that it holds, and whether it may hold any of `region`, which
    /// `wanted` lies in; for who holds the lock that blocks of the region were put there under.
    pub(crate) fn look_for(
        &self,
        wanted: RangeInclusive<u32>,
        region: RangeInclusive<u32>,
    ) -> (Option<u32>, bool) {
        // Relaxed: see `fill`.
        let used = self.used.load(Ordering::Relaxed);
        let (mut first, mut any) = (None, false);
        let rows = self.rows.iter().zip(1_u32..);
        for (row, blocks) in rows.filter(|(_, blocks)| used >> (blocks - 1) & 1 == 1) {
            let low = row.low.load(Ordering::Relaxed);
            // The last block of an extent; none crosses the border of a region.
            let high = row.high.load(Ordering::Relaxed).saturating_add(blocks - 1);
            any |= low <= *region.end() && *region.start() <= high;
            if *wanted.end() < low || high < *wanted.start() {
                continue;
            }
            for block in row.blocks() {
                if block <= *wanted.end() && *wanted.start() <= block.saturating_add(blocks - 1) {
                    let block = block.max(*wanted.start());
                    first = Some(first.map_or(block, |before: u32| before.min(block)));
                }
            }
        }
        (first, any)
    }
}
