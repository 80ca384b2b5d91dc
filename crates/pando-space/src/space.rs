//! The allocator: finding, freeing and marking extents.
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
use crate::group::{Found, Group, Miss};
use crate::ledger::{Ledger, Urgency};
use crate::magazine::{Filled, Magazine};
use crate::region::REGION_BLOCKS;

/// Maximum number of blocks of a space: block numbers have 32 bits.
pub const BLOCKS_MAX: u64 = 1 << 32;
/// Number of words of a group that one search reads before it continues with the next group.
pub(crate) const SEARCH_WORDS_MAX: u32 = 1024;

/// Maximum number of freed blocks of a group that the ledger does not count yet. Nothing is refused
/// before it counts them.
const PENDING_MAX: u64 = 256;

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
    bounded_searches: AtomicU64,
    /// The last search everywhere that found nothing.
    fruitless: Mutex<Option<Fruitless>>,
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
struct Fruitless {
    count: u32,
    /// Number of frees when it began.
    frees: u64,
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

    /// Takes blocks out of the available ones, and drains the magazines if necessary.
    pub(crate) fn withdraw(&self, blocks: u64) -> bool {
        if self.ledger.withdraw(blocks, 0) {
            return true;
        }
        let _drained = self.drain();
        self.ledger.withdraw(blocks, 0)
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
    fn frees(&self) -> u64 {
        let groups = (0..self.groups()).map(|group| self.with(group, |group| group.frees));
        self.ledger.frees() + groups.sum::<u64>()
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

    /// Returns the number of searches of a group that ended at their bound.
    pub fn bounded_searches(&self) -> u64 {
        // Relaxed: a statistic.
        self.bounded_searches.load(Ordering::Relaxed)
    }
}
