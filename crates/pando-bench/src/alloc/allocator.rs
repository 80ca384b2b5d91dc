//! What is measured: the product's allocator, and whatever stands beside it in an ablation.

use pando_format::Extent;
use pando_space::{Space, SpaceOptions};

use crate::error::{Error, Result};

/// Name in records and errors.
pub(crate) const WORKLOAD: &str = "alloc";

/// Hands out single blocks to all threads.
pub(crate) trait Allocator: Sync {
    /// A free block; None: there is none.
    fn allocate(&self) -> Option<u32>;

    /// Gives a block back.
    fn free(&self, block: u32);

    /// Allocates the very blocks from `start` on; for building a state.
    ///
    /// # Errors
    /// One of them is allocated already.
    fn mark(&self, start: u32, count: u32) -> Result<()>;

    /// Searches that ended because they had looked at enough, where that is counted.
    fn searches_bounded(&self) -> Option<u64> {
        None
    }
}

impl Allocator for Space {
    #[inline]
    fn allocate(&self) -> Option<u32> {
        Space::allocate(self, 1, None).map(|extent| extent.block)
    }

    #[inline]
    fn free(&self, block: u32) {
        Space::free(self, Extent { block, blocks: 1 });
    }

    fn mark(&self, block: u32, blocks: u32) -> Result<()> {
        let marked = self.mark_allocated(Extent { block, blocks });
        marked.map_err(|error| wrong(error.to_string()))
    }

    fn searches_bounded(&self) -> Option<u64> {
        Some(self.bounded_searches())
    }
}

/// The product's allocator over so many blocks.
pub(crate) fn ours(blocks: u64) -> Space {
    Space::new(blocks, SpaceOptions::default())
}

/// The allocator did something that it must not.
pub(crate) fn wrong(what: String) -> Error {
    Error::Wrong {
        workload: WORKLOAD,
        what,
    }
}
