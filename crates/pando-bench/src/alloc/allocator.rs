//! The allocators that are measured: the product's, and those that an ablation compares with it.

use pando_format::Extent;
use pando_space::{Space, SpaceOptions};

use crate::error::{Error, Result};

/// Name of the workload in records and errors.
pub(crate) const WORKLOAD: &str = "alloc";

/// Gives out single blocks to all threads.
pub(crate) trait Allocator: Sync {
    /// Returns a free block, which is allocated now; `None` if there is none.
    fn allocate(&self) -> Option<u32>;

    /// Frees a block.
    fn free(&self, block: u32);

    /// Allocates exactly the `count` blocks from `start` on; used to build a state.
    ///
    /// # Errors
    /// One of them is allocated already.
    fn mark(&self, start: u32, count: u32) -> Result<()>;

    /// Returns the number of searches that were ended by their bound, if the allocator counts them.
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

/// Returns the product's allocator, over `blocks` blocks.
pub(crate) fn ours(blocks: u64) -> Space {
    Space::new(blocks, SpaceOptions::default())
}

/// Returns the error for something that an allocator must not do.
pub(crate) fn wrong(what: String) -> Error {
    Error::Wrong {
        workload: WORKLOAD,
        what,
    }
}
