//! Magazines: extents that a core keeps ready, to be taken without a lock and without a count
//! (decision 031).
//!
//! A place contains the first block of an extent, or nothing. Only the holder of `filling` puts
//! extents into places. Any thread takes an extent out with a swap, so each is handed out once,
//! even if a thread moves to another core in between. Extents in a magazine are allocated in the
//! bitmap and count as free.
//!
//! | transition        | function       | under                             |
//! |-------------------|----------------|-----------------------------------|
//! | nothing -> extent | `Magazine::fill`  | `filling`, the lock of the group  |
//! | extent -> nothing | `Magazine::pop`   | nothing                           |
//! | extent -> nothing | `Magazine::clear` | `filling`                         |

use std::ops::RangeInclusive;

use pando_format::Extent;
use pando_format::cast::u32_of_len;
use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::{Mutex, Rank};

/// Maximum length in blocks of extents that are kept ready.
#[cfg(not(any(pando_loom, pando_shuttle)))]
pub(crate) const READY_BLOCKS_MAX: usize = 16;
/// Small, so that models reach its end.
#[cfg(any(pando_loom, pando_shuttle))]
pub(crate) const READY_BLOCKS_MAX: usize = 2;

/// Maximum number of extents of one length that are kept ready.
#[cfg(not(any(pando_loom, pando_shuttle)))]
pub(crate) const PLACES: usize = 64;
/// Small, so that models reach its end.
#[cfg(any(pando_loom, pando_shuttle))]
pub(crate) const PLACES: usize = 2;

/// Content of an empty place. The last possible block is never kept ready.
const NOTHING: u32 = u32::MAX;

/// The extents of one core.
#[derive(Debug)]
pub(crate) struct Magazine {
    /// Rows by length, beginning with 1.
    rows: [Row; READY_BLOCKS_MAX],
    /// One bit for each row, set if it may contain extents. Changed under `filling`.
    used: AtomicU32,
    /// True if a row may contain extents.
    pub(crate) filling: Mutex<bool>,
}

const _: () = assert!(READY_BLOCKS_MAX <= 32, "a bit for each row");

/// Result of an attempt to fill a magazine.
#[derive(Debug)]
#[must_use]
pub(crate) enum Filled {
    /// The magazine was filled, and this extent is for the caller.
    Served(Extent),
    /// A bounded search found no such extent.
    Searched,
    /// Nothing was searched.
    NotTried,
}

/// Extents of one length. Those at the front are taken first.
#[derive(Debug)]
#[repr(align(64))]
struct Row {
    places: [AtomicU32; PLACES],
    /// The place to try first. A hint, which is too high for a moment when several threads take
    /// extents at the same time.
    next: AtomicU32,
    /// No extent begins before this block. Changed by `fill`.
    low: AtomicU32,
    /// No extent begins after this block. Changed by `fill`.
    high: AtomicU32,
}

impl Row {
    fn new() -> Self {
        Self {
            places: [const { NOTHING }; PLACES].map(AtomicU32::new),
            next: AtomicU32::new(u32_of_len(PLACES)),
            low: AtomicU32::new(NOTHING),
            high: AtomicU32::new(0),
        }
    }

    /// Returns the first blocks in its places, as of some moment.
    fn blocks(&self) -> impl Iterator<Item = u32> {
        // Relaxed: a caller that must not miss an extent holds the lock under which it was put
        // there.
        let blocks = self
            .places
            .iter()
            .map(|place| place.load(Ordering::Relaxed));
        blocks.filter(|block| *block != NOTHING)
    }
}

impl Magazine {
    /// Makes an empty magazine.
    pub(crate) fn new() -> Self {
        Self {
            rows: std::array::from_fn(|_| Row::new()),
            used: AtomicU32::new(0),
            filling: Mutex::new(Rank::MagazineFilling, false),
        }
    }

    /// Takes an extent of `count` blocks and returns its first block.
    #[inline]
    pub(crate) fn pop(&self, count: u32) -> Option<u32> {
        let row = self.rows.get((count as usize).wrapping_sub(1))?;
        // Relaxed: a hint.
        let mut at = row.next.load(Ordering::Relaxed) as usize;
        while let Some(place) = row.places.get(at) {
            at += 1;
            // Acquire: pairs with the Release in `fill`. The previous owner used the blocks before
            // the lock of their group was taken, and that was before `fill`.
            let block = place.swap(NOTHING, Ordering::Acquire);
            if block != NOTHING {
                row.next.store(u32_of_len(at), Ordering::Relaxed);
                return Some(block);
            }
        }
        None
    }

    /// Returns the number of empty places for extents of `count` blocks. Under `filling` it does
    /// not decrease.
    pub(crate) fn room(&self, count: u32) -> usize {
        PLACES - self.rows[count as usize - 1].blocks().count()
    }

    /// Puts extents of `count` blocks into places, in their order. The caller holds `filling` and
    /// the lock of their group, and has checked the room.
    pub(crate) fn fill(&self, count: u32, blocks: &[u32]) {
        let row = &self.rows[count as usize - 1];
        // Relaxed: readers hold the lock of a group under which `fill` was called.
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used | 1 << (count - 1), Ordering::Relaxed);
        // Stored before the extents, so that a reader that must not miss one finds it within the
        // bounds. Relaxed, like `used`; each of two bounds of different calls covers the extents
        // that were there before both calls.
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
        row.next.store(u32_of_len(first), Ordering::Relaxed);
    }

    /// Takes out all extents. The caller holds `filling`.
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

    /// Returns all its extents, as of some moment.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        // Relaxed: see `fill`.
        let used = self.used.load(Ordering::Relaxed);
        let rows = self.rows.iter().zip(1..);
        rows.filter(move |(_, blocks)| used >> (blocks - 1) & 1 == 1)
            .flat_map(|(row, blocks)| row.blocks().map(move |block| Extent { block, blocks }))
    }

    /// Returns the first block of `wanted` that it contains, and whether it may contain any block
    /// of `region`, in which `wanted` lies. The caller holds the lock under which blocks of the
    /// region were put there.
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
