//! Growing and shrinking the space.
//!
//! Both happen under one lock, concurrently with allocations and frees: a region appears in its
//! group with its blocks free, and is removed only when it is entirely free. The number of blocks
//! is never less than the number of existing ones, so that a free of a block that was just
//! allocated does not find that it does not exist.

use pando_format::cast::u32_of;
use pando_sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::group::Before;
use crate::region::REGION_BLOCKS;
use crate::space::Space;

const REGION: u64 = REGION_BLOCKS as u64;

impl Space {
    /// Adds free blocks up to `blocks` in total.
    ///
    /// # Panics
    /// When there are more blocks already, or `blocks` exceeds [`BLOCKS_MAX`](crate::BLOCKS_MAX).
    pub fn grow(&self, blocks: u64) {
        let _resizing = self.resizing.lock();
        let before = self.blocks();
        assert!(blocks >= before, "a space of {before} grows to {blocks}");
        Self::check_blocks(blocks);
        self.extend(before, blocks);
        self.ledger.freed(blocks - before);
    }

    /// Adds the free bits `from .. to`.
    fn extend(&self, from: u64, to: u64) {
        // Stored before the bits exist, which a thread could take, and give back at once. Relaxed:
        // a thread takes a bit after taking the group's lock, and so sees this store.
        self.blocks.store(to, Ordering::Relaxed);
        let mut position = from;
        while position < to {
            let (region, start) = (position / REGION, position % REGION);
            let end = to.min((region + 1) * REGION);
            let blocks = u32_of(end - region * REGION);
            let (group, index) = self.place(region);
            self.with(group, |group| {
                if start == 0 {
                    assert_eq!(group.regions.len(), index, "regions come in turn");
                    group.push(blocks);
                } else {
                    let before = Before::of(&group.regions[index]);
                    group.regions[index].grow(blocks);
                    group.update(index, before);
                }
            });
            position = end;
        }
    }

    /// Cuts off the blocks from `blocks` on.
    ///
    /// # Errors
    /// `InUse` when one of them is allocated, `Reserved` when the reservations need them; nothing
    /// changes then.
    ///
    /// # Panics
    /// When there are fewer blocks already.
    pub fn shrink_to(&self, blocks: u64) -> Result<()> {
        let _resizing = self.resizing.lock();
        let before = self.blocks();
        assert!(blocks <= before, "a space of {before} shrinks to {blocks}");
        let count = before - blocks;
        let _drained = self.drain();
        if !self.ledger.withdraw(count, 0) {
            let available = self.ledger.available();
            return Err(Error::Reserved { available });
        }
        let mut end = before;
        while end > blocks {
            match self.cut(end, blocks) {
                Ok(cut) => end = cut,
                Err(error) => {
                    self.extend(end, before);
                    self.ledger.freed(count);
                    return Err(error);
                }
            }
            // Stored after the bits are removed, so the number is at most too large. Relaxed: a
            // limit for checks; the groups' locks decide which blocks exist.
            self.blocks.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Cuts the last region, at most down to `limit`, and returns the new end.
    fn cut(&self, end: u64, limit: u64) -> Result<u64> {
        let region = (end - 1) / REGION;
        let start = (region * REGION).max(limit);
        let (group, index) = self.place(region);
        let in_use = |position: u32| Error::InUse {
            block: u32_of(region * REGION) + position,
        };
        self.with(group, |group| {
            let bits = &mut group.regions[index];
            let before = Before::of(bits);
            if start == region * REGION {
                if let Some(position) = bits.first_allocated(0, bits.blocks()) {
                    return Err(in_use(position));
                }
                group.pop();
            } else {
                bits.shrink(u32_of(start - region * REGION))
                    .map_err(in_use)?;
                group.update(index, before);
            }
            Ok(start)
        })
    }

    /// Returns the number of free blocks at the end, which [`Space::shrink_to`] could cut off.
    pub fn free_tail(&self) -> u64 {
        let _resizing = self.resizing.lock();
        let _drained = self.drain();
        let blocks = self.blocks();
        let mut tail = 0;
        for region in (0..blocks.div_ceil(REGION)).rev() {
            let (group, index) = self.place(region);
            let (run, all) = self.with(group, |group| {
                let bits = &group.regions[index];
                (bits.tail_run(), bits.is_all_free())
            });
            tail += u64::from(run);
            if !all {
                break;
            }
        }
        tail
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-space --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use pando_sync::{Arc, thread};

    use crate::space::{Space, SpaceOptions};

    /// A block that is allocated while the space grows can be freed at once.
    #[test]
    fn a_block_that_can_be_taken_exists() {
        loom::model(|| {
            let options = SpaceOptions {
                groups: 1,
                ..SpaceOptions::default()
            };
            let space = Arc::new(Space::new(0, options));
            let grower = thread::spawn({
                let space = space.clone();
                move || space.grow(1)
            });
            if let Some(extent) = space.allocate(1, None) {
                space.free(extent);
            }
            grower.join().unwrap();
            assert_eq!(space.free_blocks(), 1);
        });
    }
}
