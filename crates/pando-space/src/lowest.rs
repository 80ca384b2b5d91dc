//! Allocation at the lowest place there is: for as long as the end of the space is to become free.
//!
//! Slower than the other ways, which look where something was free a moment ago: it goes over the
//! regions from the front, and all groups meet there. A cursor of the caller's remembers the region
//! below which nothing at all is free.

use pando_format::Extent;
use pando_format::extent::EXTENT_BLOCKS_MAX;

use crate::group::Found;
use crate::region::REGION_BLOCKS;
use crate::space::Space;

/// The region below which nothing is free. Whoever frees an extent tells it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LowCursor {
    region: u64,
}

impl LowCursor {
    /// An extent is free again.
    pub fn freed(&mut self, extent: Extent) {
        let region = u64::from(extent.block) / u64::from(REGION_BLOCKS);
        self.region = self.region.min(region);
    }
}

impl Space {
    /// Allocates the lowest `count` blocks in a row within one region, on nobody's reservation:
    /// what others were reserved is left alone, the reserve is not.
    ///
    /// `None` means that no region has such a run, or that what is left is reserved.
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
