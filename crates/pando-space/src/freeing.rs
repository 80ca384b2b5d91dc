//! Freeing extents. What is freed is counted in the group first, and in the ledger a little later.

use pando_format::Extent;

use crate::group::Group;
use crate::region::REGION_BLOCKS;
use crate::space::{Piece, Space};

/// Maximum number of freed blocks of a group that the ledger does not count yet. Nothing is refused
/// before it counts them.
const PENDING_MAX: u64 = 256;

impl Space {
    /// Frees an extent, a part of one, or a run of adjacent ones.
    ///
    /// # Panics
    /// When any of its blocks is free already or does not exist.
    pub fn free(&self, extent: Extent) {
        self.give_back(extent, true);
    }

    /// Gives bits back. The caller updates the ledger.
    pub(crate) fn free_run(&self, extent: Extent) {
        self.give_back(extent, false);
    }

    /// Gives bits back. If they are `counted`, the groups collect the number of freed blocks until
    /// it is worth an update of the ledger.
    fn give_back(&self, extent: Extent, counted: bool) {
        assert!(extent.blocks > 0, "an extent of no blocks is freed");
        let end = u64::from(extent.block) + u64::from(extent.blocks);
        assert!(
            end <= self.blocks(),
            "{extent:?} is freed, of {} blocks",
            self.blocks()
        );
        for piece in self.pieces(extent) {
            let Piece { start, count, .. } = piece;
            let given = self.with(piece.group, |group| {
                let in_magazines = &mut group.regions[piece.region].in_magazines;
                if *in_magazines != 0
                    && let Some(block) = self.find_ready(&piece, in_magazines)
                {
                    return Err(block % REGION_BLOCKS);
                }
                group.give(piece.region, start, count)?;
                group.frees += 1;
                if counted {
                    group.pending += u64::from(count);
                    if group.pending >= PENDING_MAX {
                        self.deposit_pending(group);
                    }
                }
                Ok(())
            });
            if let Err(free) = given {
                let block = self.block(piece.group, piece.region, free);
                panic!("block {block} of {extent:?} is freed though it is not allocated");
            }
        }
    }

    /// Moves the pending blocks of a group to the ledger, under the group's lock, so that nobody
    /// misses them in both places.
    fn deposit_pending(&self, group: &mut Group) {
        self.ledger.deposit(std::mem::take(&mut group.pending));
    }

    /// Returns the number of freed blocks that the ledger does not count yet.
    pub(crate) fn pending(&self) -> u64 {
        (0..self.groups())
            .map(|group| self.with(group, |group| group.pending))
            .sum()
    }

    /// Moves all pending blocks to the ledger.
    pub(crate) fn collect(&self) {
        for index in 0..self.groups() {
            self.with(index, |group| self.deposit_pending(group));
        }
    }

    /// Returns the number of frees so far: the result of a search that found nothing stays true
    /// until this changes.
    pub(crate) fn frees(&self) -> u64 {
        let groups = (0..self.groups()).map(|group| self.with(group, |group| group.frees));
        self.ledger.frees() + groups.sum::<u64>()
    }
}
