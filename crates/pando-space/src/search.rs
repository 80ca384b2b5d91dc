//! Finding room for an extent: near a hint, within a bounded part of each group, everywhere.

use pando_format::Extent;
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_sync::atomic::Ordering;

use crate::group::{Found, Group, Miss};
use crate::magazine::Filled;
use crate::region::REGION_BLOCKS;
use crate::space::{Fruitless, Space};

/// Number of words of a group that one search reads before it continues with the next group.
pub(crate) const SEARCH_WORDS_MAX: u32 = 1024;

impl Space {
    /// Allocates `count` contiguous blocks without a reservation, near `hint` if there is room.
    /// Leaves reserved blocks alone, but may use the delete reserve. A place near a hint may cost
    /// one unit more than another place.
    ///
    /// `None` means that no such run is left, or that the remaining blocks are reserved.
    ///
    /// # Panics
    /// Unless `count` is 1 to [`EXTENT_BLOCKS_MAX`].
    #[inline]
    pub fn allocate(&self, count: u32, hint: Option<u32>) -> Option<Extent> {
        if hint.is_none()
            && let Some(extent) = self.take_ready(count)
        {
            return Some(extent);
        }
        self.allocate_anew(count, hint)
    }

    /// Allocates blocks that are not ready in this core's magazine.
    fn allocate_anew(&self, count: u32, hint: Option<u32>) -> Option<Extent> {
        let filled = match hint {
            None => self.fill(count),
            Some(_) => Filled::NotTried,
        };
        if let Filled::Served(extent) = filled {
            return Some(extent);
        }
        if !self.withdraw(u64::from(count)) {
            return None;
        }
        let extent = match filled {
            Filled::Searched => self.allocate_anywhere(count),
            _ => self.allocate_run(count, hint),
        };
        if extent.is_none() {
            self.ledger.deposit(u64::from(count));
        }
        extent
    }

    /// Allocates `count` contiguous blocks on a reservation, and uses it up.
    ///
    /// `None` means that no run has that length, although there are enough blocks. The reservation
    /// then stays.
    ///
    /// # Panics
    /// Unless `count` is 1 to [`EXTENT_BLOCKS_MAX`], and when fewer blocks are reserved.
    pub fn allocate_reserved(&self, count: u32, hint: Option<u32>) -> Option<Extent> {
        assert!(
            self.ledger.reserved() >= u64::from(count),
            "{count} blocks are allocated on a reservation that was not made"
        );
        // Not from a magazine: neither the ready blocks nor the reserved ones are available, and
        // until one of the two was given back, another caller that asks for all the rest would be
        // refused.
        let extent = self.allocate_run(count, hint)?;
        self.ledger.use_reserved(u64::from(count));
        Some(extent)
    }

    /// Finds and takes bits. The caller updates the ledger.
    pub(crate) fn allocate_run(&self, count: u32, hint: Option<u32>) -> Option<Extent> {
        assert!(
            (1..=EXTENT_BLOCKS_MAX).contains(&count),
            "an extent of {count} blocks is asked for"
        );
        hint.and_then(|hint| self.allocate_near(count, hint))
            .or_else(|| self.allocate_within(count, SEARCH_WORDS_MAX))
            .or_else(|| self.allocate_anywhere(count))
    }

    /// Allocates at `hint`, or else in the same region. Ignores a hint past the end.
    fn allocate_near(&self, count: u32, hint: u32) -> Option<Extent> {
        let block = Extent {
            block: hint,
            blocks: 1,
        };
        let near = self.pieces(block).next()?;
        if self.free_of(near.group) < u64::from(count) {
            return None;
        }
        let found = self.with(near.group, |group| {
            let start = if group.is_free(near.region, near.start, count) {
                near.start
            } else {
                group.find_in(near.region, count)?
            };
            group.take(near.region, start, count);
            Some(Found {
                region: near.region,
                start,
            })
        })?;
        Some(self.extent(near.group, &found, count))
    }

    /// Allocates in any group, and reads about `words` words of each.
    fn allocate_within(&self, count: u32, words: u32) -> Option<Extent> {
        for index in self.groups_from_here() {
            if self.free_of(index) < u64::from(count) {
                continue;
            }
            match self.with(index, |group| group.allocate(count, words)) {
                Ok(found) => return Some(self.extent(index, &found, count)),
                Err(Miss::Nothing) => {}
                Err(Miss::Bounded) => self.count_bounded(),
            }
        }
        None
    }

    /// Counts a search of a group that ended at its bound.
    pub(crate) fn count_bounded(&self) {
        // Relaxed: a statistic.
        self.bounded_searches.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of searches of a group that ended at their bound.
    pub fn bounded_searches(&self) -> u64 {
        // Relaxed: a statistic.
        self.bounded_searches.load(Ordering::Relaxed)
    }

    /// Searches everywhere, also across the borders of regions and in magazines. A failed search is
    /// not repeated until something is freed.
    #[cold]
    fn allocate_anywhere(&self, count: u32) -> Option<Extent> {
        let is_known = |known: &Fruitless| known.count <= count && known.frees == self.frees();
        // Called without the lock, since it locks all groups.
        let fruitless = *self.fruitless.lock();
        if fruitless.as_ref().is_some_and(is_known) {
            return None;
        }
        let _drained = self.drain();
        // Read after the drain, which frees.
        let frees = self.frees();
        let extent = self
            .allocate_within(count, u32::MAX)
            .or_else(|| self.allocate_across(count));
        if extent.is_none() {
            *self.fruitless.lock() = Some(Fruitless { count, frees });
        }
        extent
    }

    /// Allocates the end of a region and the start of the next one.
    fn allocate_across(&self, count: u32) -> Option<Extent> {
        let regions = self.blocks().div_ceil(u64::from(REGION_BLOCKS));
        (1..regions).find_map(|region| {
            let (group, index) = self.place(region - 1);
            let (next_group, next_index) = self.place(region);
            let tail = self
                .with(group, |group| Some(group.regions.get(index)?.tail_run()))?
                .min(count - 1);
            let head = count - tail;
            let take_head = |group: &mut Group| {
                let free = group.is_free(next_index, 0, head);
                if free {
                    group.take(next_index, 0, head);
                }
                free
            };
            if tail == 0 || !self.with(next_group, take_head) {
                return None;
            }
            let start = REGION_BLOCKS - tail;
            let taken = self.with(group, |group| {
                let free = group.is_free(index, start, tail);
                if free {
                    group.take(index, start, tail);
                }
                free
            });
            if taken {
                let found = Found {
                    region: index,
                    start,
                };
                return Some(self.extent(group, &found, count));
            }
            self.with(next_group, |group| group.give(next_index, 0, head))
                .expect("blocks that were just taken are not free");
            self.ledger.freed(0);
            None
        })
    }
}
