//! Allocation at the lowest free place, used while the end of the space is to become free (decision
//! 033).
//!
//! This is slower than other allocations, which search where blocks were free a moment ago: it
//! walks over the regions from the front, where all cores contend. A cursor of the caller remembers
//! the region below which nothing is free.

use pando_format::Extent;
use pando_format::extent::EXTENT_BLOCKS_MAX;

use crate::group::Found;
use crate::region::REGION_BLOCKS;
use crate::space::Space;

/// The region below which nothing is free. Callers report to it each extent that they free.
#[derive(Debug, Clone, Copy, Default)]
pub struct LowCursor {
    region: u64,
}

impl LowCursor {
    /// Notes that an extent is free again.
    pub fn freed(&mut self, extent: Extent) {
        let region = u64::from(extent.block) / u64::from(REGION_BLOCKS);
        self.region = self.region.min(region);
    }
}

impl Space {
    /// Allocates the lowest `count` contiguous blocks within one region, without a reservation.
    /// Leaves reserved blocks alone, but may use the delete reserve.
    ///
    /// `None` means that no region has such a run, or that the remaining blocks are reserved.
    ///
    /// # Panics
    /// Unless `count` is 1 to [`EXTENT_BLOCKS_MAX`].
    pub fn allocate_lowest(&self, count: u32, cursor: &mut LowCursor) -> Option<Extent> {
        assert!(
            (1..=EXTENT_BLOCKS_MAX).contains(&count),
            "an extent of {count} blocks is asked for"
        );
        if !self.withdraw(u64::from(count)) {
            return None;
        }
        let found = self.find_lowest(count, cursor);
        if found.is_none() {
            self.ledger.deposit(u64::from(count));
        }
        found
    }

    fn find_lowest(&self, count: u32, cursor: &mut LowCursor) -> Option<Extent> {
        let regions = self.blocks().div_ceil(u64::from(REGION_BLOCKS));
        let mut full_below = true;
        for region in cursor.region..regions {
            let (group, index) = self.place(region);
            let found = self.with(group, |group| {
                full_below &= group.regions.get(index)?.free() == 0;
                let start = group.find_in(index, count)?;
                group.take(index, start, count);
                Some(Found {
                    region: index,
                    start,
                })
            });
            if let Some(found) = found {
                return Some(self.extent(group, &found, count));
            }
            if full_below {
                cursor.region = region + 1;
            }
        }
        None
    }
}
