//! The blocks of a data file: the groups and regions that they lie in, reservations, and marking
//! what a file names.
//!
//! Lock order: the resize lock, then the `filling` lock of one magazine at a time, then one group
//! at a time; under a group's lock no other lock is taken, and no two groups are ever locked
//! together.

use pando_format::Extent;
use pando_format::cast::{u32_of, usize_of};
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{CachePadded, CoreLocal, Mutex, Rank, core_count, core_id};

use crate::error::{Error, Result};
use crate::group::{Found, Group};
use crate::ledger::{Ledger, Urgency};
use crate::magazine::Magazine;
use crate::region::REGION_BLOCKS;

/// Maximum number of blocks of a space: block numbers have 32 bits.
pub const BLOCKS_MAX: u64 = 1 << 32;

/// Options of a space.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceOptions {
    /// Number of groups, each with a lock; 0 means one for each core.
    pub groups: usize,
    /// Number of blocks that only urgent reservations may use.
    pub delete_reserve: u64,
    /// Length of a unit in blocks: the longest extent that [`Space::allocate_mixed`] is asked for,
    /// a power of two that divides [`REGION_BLOCKS`]; 0 means 1. Free space is also counted in
    /// units.
    pub unit: u32,
}

/// The blocks of a data file.
#[derive(Debug)]
pub struct Space {
    groups: Box<[CachePadded<Slot>]>,
    /// Length of a unit in blocks. Constant.
    pub(crate) unit: u32,
    /// Counts of free and reserved blocks, which need no lock.
    pub(crate) ledger: Ledger,
    /// Number of blocks. Changed only under `resizing`.
    pub(crate) blocks: AtomicU64,
    /// Held while the number of blocks changes, and while a caller relies on it.
    pub(crate) resizing: Mutex<()>,
    /// Extents that each core keeps ready.
    pub(crate) magazines: CoreLocal<Magazine>,
    /// Number of guards that forbid putting extents into magazines.
    pub(crate) drains: AtomicU64,
    /// Number of searches of a group that ended at their bound.
    pub(crate) bounded_searches: AtomicU64,
    /// The last search everywhere that found nothing.
    pub(crate) fruitless: Mutex<Option<Fruitless>>,
}

#[derive(Debug)]
struct Slot {
    /// Copy of `Group::free`, for threads without the lock.
    free: AtomicU64,
    /// Copy of `Group::units`.
    units: AtomicU64,
    group: Mutex<Group>,
}

/// A search everywhere that found nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fruitless {
    pub(crate) count: u32,
    /// Number of frees when it began.
    pub(crate) frees: u64,
}

/// A piece of an extent within one region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Index of the group.
    pub(crate) group: usize,
    /// Index of the region in the group.
    pub(crate) region: usize,
    /// First block, relative to the region.
    pub(crate) start: u32,
    /// Number of blocks.
    pub(crate) count: u32,
}

impl Space {
    /// Makes a space of `blocks` free blocks.
    ///
    /// # Panics
    /// When `blocks` exceeds [`BLOCKS_MAX`], or the unit is not valid.
    pub fn new(blocks: u64, options: SpaceOptions) -> Self {
        let count = match options.groups {
            0 => core_count(),
            count => count,
        };
        let unit = options.unit.max(1);
        assert!(
            unit.is_power_of_two() && unit <= EXTENT_BLOCKS_MAX,
            "a unit of {unit} blocks"
        );
        let groups: Box<[_]> = (0..count)
            .map(|_| {
                CachePadded(Slot {
                    free: AtomicU64::new(0),
                    units: AtomicU64::new(0),
                    group: Mutex::new(Rank::BlockGroup, Group::new(unit)),
                })
            })
            .collect();
        pando_sync::audit::name("space groups", &*groups);
        let space = Self {
            groups,
            unit,
            ledger: Ledger::new(0, options.delete_reserve),
            blocks: AtomicU64::new(0),
            resizing: Mutex::new(Rank::SpaceResizing, ()),
            magazines: CoreLocal::new("space magazines", |_| Magazine::new()),
            drains: AtomicU64::new(0),
            bounded_searches: AtomicU64::new(0),
            fruitless: Mutex::new(Rank::Leaf, None),
        };
        space.grow(blocks);
        space
    }

    /// Returns the length of a unit in blocks.
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of blocks, free or not.
    pub fn blocks(&self) -> u64 {
        // Relaxed: a limit for checks; the groups' locks decide which blocks exist.
        self.blocks.load(Ordering::Relaxed)
    }

    /// Panics if a space cannot have `blocks` blocks.
    pub(crate) fn check_blocks(blocks: u64) {
        assert!(
            blocks <= BLOCKS_MAX,
            "{blocks} blocks cannot be named by 32 bits"
        );
    }

    /// Calls `action` under the lock of a group, and publishes the group's counts.
    pub(crate) fn with<R>(&self, group: usize, action: impl FnOnce(&mut Group) -> R) -> R {
        let slot = &self.groups[group];
        let mut held = slot.group.lock();
        let result = action(&mut held);
        // Relaxed: a hint for threads without the lock, which verify it under the lock.
        slot.free.store(held.free, Ordering::Relaxed);
        slot.units.store(held.units, Ordering::Relaxed);
        result
    }

    /// Returns the number of free blocks of a group as last published.
    pub(crate) fn free_of(&self, group: usize) -> u64 {
        // Relaxed: see `with`.
        self.groups[group].free.load(Ordering::Relaxed)
    }

    /// Returns the number of free units of a group as last published.
    pub(crate) fn units_of(&self, group: usize) -> u64 {
        // Relaxed: see `with`.
        self.groups[group].units.load(Ordering::Relaxed)
    }

    /// Returns the group of a region, and the region's index in it, by the region's number.
    pub(crate) fn place(&self, region: u64) -> (usize, usize) {
        let groups = self.groups.len() as u64;
        (usize_of(region % groups), usize_of(region / groups))
    }

    /// Returns the extent of a run in a group: the inverse of [`Space::place`].
    pub(crate) fn extent(&self, group: usize, found: &Found, blocks: u32) -> Extent {
        Extent {
            block: self.block(group, found.region, found.start),
            blocks,
        }
    }

    /// Returns the number of a block.
    pub(crate) fn block(&self, group: usize, region: usize, start: u32) -> u32 {
        let region = region as u64 * self.groups.len() as u64 + group as u64;
        let block = region * u64::from(REGION_BLOCKS) + u64::from(start);
        u32::try_from(block).expect("blocks that exist are named by 32 bits")
    }

    /// Cuts an extent at the borders of regions.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> {
        let end = u64::from(extent.block) + u64::from(extent.blocks);
        let mut position = u64::from(extent.block);
        std::iter::from_fn(move || {
            (position < end).then(|| {
                let size = u64::from(REGION_BLOCKS);
                let (group, region) = self.place(position / size);
                let start = u32_of(position % size);
                let count = u32_of((end - position).min(size - u64::from(start)));
                position += u64::from(count);
                Piece {
                    group,
                    region,
                    start,
                    count,
                }
            })
        })
    }

    /// Returns the group that the calling thread begins with.
    pub(crate) fn first_group(&self) -> usize {
        core_id() % self.groups.len()
    }

    /// Returns all groups, that of the calling thread first.
    pub(crate) fn groups_from_here(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.first_group(), self.groups.len());
        (0..count).map(move |step| (first + step) % count)
    }

    /// Takes blocks out of the available ones, and drains the magazines if necessary.
    pub(crate) fn withdraw(&self, blocks: u64) -> bool {
        if self.ledger.withdraw(blocks, 0) {
            return true;
        }
        let _drained = self.drain();
        self.ledger.withdraw(blocks, 0)
    }

    /// Allocates the given blocks of an extent that a file names. For recovery, before there are
    /// reservations.
    ///
    /// # Errors
    /// `Overlap` when a block is allocated already, `Beyond` when one does not exist. Nothing is
    /// marked then.
    pub fn mark_allocated(&self, extent: Extent) -> Result<()> {
        if self.try_mark(extent).is_ok() {
            return Ok(());
        }
        // Blocks in magazines are free.
        let _drained = self.drain();
        self.try_mark(extent)
    }

    fn try_mark(&self, extent: Extent) -> Result<()> {
        let end = u64::from(extent.block) + u64::from(extent.blocks);
        if extent.blocks == 0 || end > self.blocks() {
            return Err(Error::Beyond {
                extent,
                blocks: self.blocks(),
            });
        }
        let mut marked = 0;
        for piece in self.pieces(extent) {
            let Piece { start, count, .. } = piece;
            let clash = self.with(piece.group, |group| {
                let clash = group.regions[piece.region].first_allocated(start, count);
                if clash.is_none() {
                    group.take(piece.region, start, count);
                }
                clash
            });
            if let Some(position) = clash {
                if marked > 0 {
                    self.free_run(Extent {
                        block: extent.block,
                        blocks: marked,
                    });
                    self.ledger.freed(0);
                }
                let found = Found {
                    region: piece.region,
                    start: position,
                };
                let block = self.extent(piece.group, &found, 1).block;
                return Err(Error::Overlap { extent, block });
            }
            marked += count;
        }
        assert!(
            self.withdraw(u64::from(extent.blocks)),
            "{extent:?} is marked though what is left is reserved"
        );
        Ok(())
    }

    /// Reserves `blocks` blocks, so that [`Space::allocate_reserved`] finds this many in total
    /// free. Returns false, without a reservation, when too few are left.
    #[must_use]
    pub fn reserve(&self, blocks: u64, urgency: Urgency) -> bool {
        if self.ledger.reserve(blocks, urgency) {
            return true;
        }
        let _drained = self.drain();
        self.ledger.reserve(blocks, urgency)
    }

    /// Releases `blocks` reserved blocks that were not used.
    ///
    /// # Panics
    /// When fewer blocks are reserved.
    pub fn release(&self, blocks: u64) {
        self.ledger.release(blocks);
    }

    /// Returns the number of blocks that are reserved and not yet allocated.
    pub fn reserved(&self) -> u64 {
        self.ledger.reserved()
    }

    /// Returns the number of blocks that urgent callers can reserve. Other callers stop at the
    /// delete reserve.
    pub fn available(&self) -> u64 {
        self.ledger.available() + self.pending() + self.ready_blocks()
    }

    /// Returns the number of blocks that only urgent reservations may use.
    pub fn delete_reserve(&self) -> u64 {
        self.ledger.delete_reserve()
    }

    /// Sets the delete reserve, in blocks.
    pub fn set_delete_reserve(&self, blocks: u64) {
        self.ledger.set_delete_reserve(blocks);
    }
}
