//! Blocks of the data file: they are reserved before they are used. When they run short, the file
//! grows (`growth`, decision 044); a compaction makes it shorter (`cutting`).
//!
//! available = free - blocks that dirty pages and images in flight will need - blocks reserved for
//! running commits - the reserve. A page needs an extent when its image is written, so a commit
//! with a reservation never leaves a page that cannot be written. Deletes and background work may
//! use the reserve.
//!
//! Blocks are reserved in units of a page, and only blocks in free runs of a whole page count as
//! free: a compressed image takes fewer blocks, and leaves pieces that are too short for an
//! uncompressed one. See `pando_space`.

use std::task::Waker;

use pando_device::AnyFile;
use pando_format::Extent;
use pando_space::{LowCursor, Space, Survey};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, Rank, WaitList};

use crate::error::{Error, Result};
use crate::space::discards::Discards;
use crate::space::id_turns::{IdNeed, IdTurns, IdWait};
use crate::space::reservations::{BlockReservation, IdReservation, Reservations};
use crate::space::urgency::Urgency;

/// Bytes that only deletes and background work may use.
const RESERVE_BYTES: u64 = 1 << 20;

/// The allocator, its file, and the reservations.
#[derive(Debug)]
pub(crate) struct SpaceKeeper {
    space: Space,
    file: AnyFile,
    block_bytes: u64,
    /// Blocks that only deletes and background work may use.
    reserve_blocks: u64,
    reservations: Reservations,
    /// Who may reserve page ids while some wait for them.
    id_turns: IdTurns,
    /// The last attempt to grow the file found the disk full. A hint.
    pub(super) full: AtomicBool,
    /// That was for its length, which files may not have. A hint.
    pub(super) is_too_long: AtomicBool,
    /// It cannot grow, and a checkpoint is to make room.
    pub(super) awaits_room: AtomicBool,
    /// Number of reservations for deletes that found room when puts would not have.
    deletes_served: AtomicU64,
    /// Blocks that somebody waits for; 0 if nobody does.
    pub(super) wanted: AtomicU64,
    /// Length of a run of blocks that somebody waits for, regardless of how many blocks are free.
    pub(super) run_wanted: AtomicU64,
    /// Operations that wait for blocks.
    waiters: WaitList,
    /// Where the engine thread that grows the file waits.
    pub(crate) growth: WaitList,
    statistics: Arc<Statistics>,
    /// Searches that ended at their limit and are in the statistics.
    bounded: AtomicU64,
    /// Everything is allocated at the lowest place, because the file is being made shorter.
    pub(super) low: AtomicBool,
    /// Where such allocations search; used only while `low` is set.
    pub(super) low_cursor: Mutex<LowCursor>,
    /// Held while the length of the file changes.
    pub(super) sizing: Mutex<()>,
    /// Blocks that nobody can reserve, because they are about to be cut off.
    pub(super) withheld: AtomicU64,
    /// Blocks that were given back to the file system; the allocator sees them as allocated.
    pub(crate) discards: Discards,
    /// The least that was spare when a checkpoint was about to free blocks, since somebody asked;
    /// `u64::MAX` if there was no checkpoint.
    pub(super) trough: AtomicU64,
    /// The result of the last survey of all free blocks.
    pieces: Mutex<Survey>,
}

impl SpaceKeeper {
    /// Returns the keeper of `file`, whose blocks `space` allocates.
    pub(crate) fn new(
        space: Space,
        file: AnyFile,
        block_bytes: u64,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self {
            space,
            file,
            block_bytes,
            reserve_blocks: RESERVE_BYTES / block_bytes,
            reservations: Reservations::default(),
            id_turns: IdTurns::default(),
            full: AtomicBool::new(false),
            is_too_long: AtomicBool::new(false),
            awaits_room: AtomicBool::new(false),
            deletes_served: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            run_wanted: AtomicU64::new(0),
            waiters: WaitList::new(),
            growth: WaitList::new(),
            statistics,
            bounded: AtomicU64::new(0),
            low: AtomicBool::new(false),
            low_cursor: Mutex::new(Rank::LowCursor, LowCursor::default()),
            sizing: Mutex::new(Rank::FileLength, ()),
            withheld: AtomicU64::new(0),
            discards: Discards::default(),
            trough: AtomicU64::new(u64::MAX),
            pieces: Mutex::default(),
        }
    }

    /// Surveys all free blocks: takes a few milliseconds per TiB of data file.
    pub(crate) fn look_at_pieces(&self) {
        let survey = self.space.survey();
        *self.pieces.lock() = survey;
    }

    /// Returns the result of the last survey.
    pub(crate) fn pieces(&self) -> Survey {
        *self.pieces.lock()
    }

    /// The data file.
    pub(crate) fn file(&self) -> &AnyFile {
        &self.file
    }

    /// The allocator.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Operations that wait for blocks; woken when blocks are freed or the file has grown.
    pub(crate) fn waiters(&self) -> &WaitList {
        &self.waiters
    }

    /// Number of blocks of the file.
    pub(crate) fn blocks(&self) -> u64 {
        self.space.blocks()
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the number of free blocks in runs of a whole page. If they are fewer than `wanted`,
    /// the blocks that cores keep ready are returned to the allocator and counted, too.
    pub(super) fn free_for_pages(&self, wanted: u64) -> u64 {
        let free = || self.space.free_units() * u64::from(self.space.unit());
        match free() {
            few if few < wanted => {
                self.space.drain_ready();
                free()
            }
            enough => enough,
        }
    }

    /// Blocks of the reserve that are not for callers of this urgency.
    pub(super) fn delete_reserve(&self, urgency: Urgency) -> u64 {
        urgency.leaves(self.reserve_blocks)
    }

    /// True if `blocks` more can be reserved when dirty pages need `committed` blocks.
    pub(super) fn has_available(&self, blocks: u64, committed: u64) -> bool {
        self.missing(blocks, committed) == 0
    }

    /// Returns how many blocks are missing before `blocks` more can be reserved when dirty pages
    /// need `committed` blocks.
    pub(super) fn missing(&self, blocks: u64, committed: u64) -> u64 {
        let taken = self.taken(|| committed, Urgency::No) + blocks;
        taken.saturating_sub(self.free_for_pages(taken))
    }

    /// Returns the number of blocks that cannot be reserved; `committed` returns how many of them
    /// dirty pages need.
    ///
    /// Counts in the order in which blocks move: from a reservation to dirty pages and images, and
    /// from there to extents, which are not free. So a caller that reads the number of free blocks
    /// after this misses none of them, whatever ends meanwhile; some may be counted twice.
    pub(super) fn taken(&self, committed: impl FnOnce() -> u64, urgency: Urgency) -> u64 {
        let reserved = self.reservations.blocks();
        // SeqCst: a thread that cuts the file withholds first, and reads what is reserved
        // afterwards.
        let withheld = self.withheld.load(Ordering::SeqCst);
        reserved + committed() + withheld + self.delete_reserve(urgency)
    }

    /// Reserves `blocks`; an urgent caller (a delete) may use the reserve as well. `committed`
    /// returns how many blocks dirty pages need. Returns None if too few are free.
    pub(crate) fn try_reserve(
        &self,
        blocks: u64,
        committed: impl FnOnce() -> u64,
        urgency: Urgency,
    ) -> Option<BlockReservation<'_>> {
        let reservation = self.reservations.reserve(blocks);
        let taken = self.taken(committed, urgency);
        let free = self.free_for_pages(taken);
        let has_room = taken <= free;
        let low = self.low_water();
        let reservation = has_room.then_some(reservation);
        if free < taken + low {
            // After the refused reservation has ended: it would count besides what it asks for.
            // And who has found room for a long batch does not need as much once more.
            self.want(if has_room { blocks.min(low) } else { blocks });
        }
        let takes_last = || self.is_full() || free - taken < self.reserve_blocks;
        if has_room && urgency.is_urgent() && takes_last() {
            // Relaxed: a counter that orders nothing.
            self.deletes_served.fetch_add(1, Ordering::Relaxed);
        }
        reservation
    }

    /// Number of deletes that found room when there was none for puts.
    pub(crate) fn deletes_served(&self) -> u64 {
        self.deletes_served.load(Ordering::Relaxed)
    }

    /// Reserves `blocks` that nobody will miss: enough blocks are kept ready without them.
    pub(crate) fn reserve_spare(
        &self,
        blocks: u64,
        committed: impl FnOnce() -> u64,
    ) -> Option<BlockReservation<'_>> {
        let reservation = self.reservations.reserve(blocks);
        let taken = self.taken(committed, Urgency::No) + 2 * self.low_water();
        (self.free_for_pages(taken) >= taken).then_some(reservation)
    }

    /// Reserves page ids for `chunks` chunks whose blocks are taken already, if enough are
    /// `available` for all of `need`: the blocks of its pages are reserved.
    #[inline]
    pub(crate) fn try_reserve_ids(
        &self,
        need: &IdNeed,
        chunks: u64,
        available: impl FnOnce() -> u64,
    ) -> Option<IdReservation<'_>> {
        let reservation = self.reservations.reserve_ids(chunks);
        // Counted in the order in which ids move, as in `taken`.
        let reserved = match self.reservations.blocks_unmarked() {
            Some(blocks) if need.number == 0 => self.ids_reserved_with(blocks),
            // Who may have the turn gives it back there, also when nobody waits any more.
            _ => return self.reserve_beside_waiters(need, reservation, available),
        };
        (available() >= reserved).then_some(reservation)
    }

    /// Returns whether somebody may wait for the end of a reservation.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.reservations.blocks_unmarked().is_none()
    }

    /// Number of page ids that are reserved, if `blocks` blocks are. To be read before the number
    /// of those that are left.
    #[inline]
    fn ids_reserved_with(&self, blocks: u64) -> u64 {
        // Each reserved block stands for a page that may be new.
        blocks / u64::from(self.space.unit()) + self.reservations.ids()
    }

    /// As [`SpaceKeeper::try_reserve_ids`], while somebody may wait for ids.
    #[cold]
    fn reserve_beside_waiters<'a>(
        &self,
        need: &IdNeed,
        reservation: IdReservation<'a>,
        available: impl FnOnce() -> u64,
    ) -> Option<IdReservation<'a>> {
        let reserved = self.ids_reserved_with(self.reservations.blocks());
        let others = reserved - need.ids;
        if available() < reserved || !self.id_turns.lets_in(need, others) {
            return None;
        }
        self.id_turns.entered(need);
        Some(reservation)
    }

    /// True if only the reservations of others keep a caller that has none from the ids that it
    /// needs: then one exists, and its end wakes who has registered before the call.
    pub(crate) fn awaits_ids(&self, need: &IdNeed, available: impl FnOnce() -> u64) -> bool {
        let others = self.ids_reserved_with(self.reservations.blocks());
        let available = available();
        let fits_beside = others + need.ids <= available && self.id_turns.lets_in(need, others);
        need.ids <= available && !fits_beside
    }

    /// Has `waker` woken when a reservation ends.
    pub(crate) fn register_for_ids(&self, waker: &Waker) {
        self.reservations.register(waker);
    }

    /// Notes that an operation was refused ids because of the reservations of others.
    pub(crate) fn refused_ids(&self, wait: &mut IdWait) {
        self.id_turns.refused(wait);
    }

    /// Number of blocks reserved for running commits.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reservations.blocks()
    }

    /// Takes a run of `blocks` blocks for a chunk, within what may be reserved. Returns `None` if
    /// too few are free, `Some(None)` if no run is long enough.
    pub(crate) fn try_take_run(
        &self,
        blocks: u32,
        committed: impl FnOnce() -> u64,
    ) -> Option<Option<Extent>> {
        let _reservation = self.reserve_run(blocks, committed)?;
        Some(
            self.take_lowest(blocks)
                .or_else(|| self.space.allocate(blocks, None)),
        )
    }

    pub(super) fn reserve_run(
        &self,
        blocks: u32,
        committed: impl FnOnce() -> u64,
    ) -> Option<BlockReservation<'_>> {
        // A run may break up a unit at each of its ends.
        let unit = u64::from(self.space.unit());
        let units = u64::from(blocks).next_multiple_of(unit) + 2 * unit;
        self.try_reserve(units, committed, Urgency::No)
    }

    /// True if [`SpaceKeeper::try_reserve`] would succeed, or cannot succeed because the disk is
    /// full.
    pub(crate) fn could_reserve(&self, blocks: u64, committed: u64) -> bool {
        self.is_full() || self.has_available(blocks, committed)
    }

    /// Allocates an extent for each of `lengths`, at most a page long, contiguous if possible.
    ///
    /// # Errors
    /// If there are none: a reservation was broken.
    pub(crate) fn allocate(&self, lengths: &[u32]) -> Result<Vec<Extent>> {
        let asked = lengths;
        let mut extents = Vec::with_capacity(lengths.len());
        let low = lengths.iter().map_while(|length| self.take_lowest(*length));
        extents.extend(low);
        let lengths = &lengths[extents.len()..];
        if !self.space.allocate_mixed(lengths, &mut extents) {
            return Err(Error::Poisoned {
                cause: format!(
                    "no blocks for {} pages for which they were reserved",
                    lengths.len()
                ),
            });
        }
        let got = extents.iter().map(|extent| extent.blocks);
        assert!(
            got.eq(asked.iter().copied()),
            "an extent for each, of its length"
        );
        self.count_allocated(&extents);
        Ok(extents)
    }

    /// Counts allocations of `extents` in the statistics.
    pub(crate) fn count_allocated(&self, extents: &[Extent]) {
        let blocks = extents.iter().map(|extent| u64::from(extent.blocks));
        let count = extents.len() as u64;
        self.statistics.tick(Ticker::ExtentsAllocated, count);
        self.statistics.tick(Ticker::BlocksAllocated, blocks.sum());
        let now = self.space.bounded_searches();
        // Relaxed: of the threads that raise this, exactly one counts each step.
        let before = self.bounded.fetch_max(now, Ordering::Relaxed);
        let more = now.saturating_sub(before);
        self.statistics.tick(Ticker::SearchesBounded, more);
    }

    /// Returns extents to the allocator that nobody has written to.
    pub(crate) fn free_unused(&self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.space.free(extent);
            if self.is_low() {
                self.low_cursor.lock().freed(extent);
            }
        }
    }

    /// Counts discarded blocks in the statistics.
    pub(crate) fn count_discarded(&self, blocks: u64) {
        self.statistics.tick(Ticker::BlocksDiscarded, blocks);
    }

    /// Returns extents to the allocator that nothing durable refers to.
    pub(crate) fn free_all(&self, extents: impl IntoIterator<Item = Extent>) {
        let mut blocks = 0;
        for extent in extents {
            self.space.free(extent);
            blocks += u64::from(extent.blocks);
            if self.low.load(Ordering::Relaxed) {
                self.low_cursor.lock().freed(extent);
            }
        }
        if blocks > 0 {
            self.statistics.tick(Ticker::BlocksFreed, blocks);
            self.set_full(false);
            self.waiters.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::space::growth::MadeRoom;
    use pando_device::{AnyDevice, Create, Device, MemoryDevice, OpenOptions};
    use pando_space::SpaceOptions;

    /// The need of an operation of so many new chunks.
    fn chunks(ids: u64) -> IdNeed {
        IdWait::default().need(ids, false)
    }

    fn keeper_of(blocks: u64) -> SpaceKeeper {
        let device = AnyDevice::from(MemoryDevice::new(1 << 24));
        let file = device.open("data", OpenOptions::create(Create::New));
        let options = SpaceOptions {
            groups: 1,
            unit: 1,
            delete_reserve: 0,
        };
        let space = Space::new(blocks, options);
        SpaceKeeper::new(space, file.unwrap(), 512, Arc::default())
    }

    /// The file grows by what is missing for a long batch, and not by as much again once it has it.
    #[test]
    fn a_long_batch_has_its_blocks_once() {
        const BLOCKS: u64 = 16_384;
        const BATCH: u64 = 20_000;
        let keeper = keeper_of(BLOCKS);
        let reserve = || keeper.try_reserve(BATCH, || 0, Urgency::No);
        let grow = || {
            keeper.grow_if_wanted(0, |_| MadeRoom::None);
            keeper.blocks()
        };
        assert!(reserve().is_none());
        let kept_back = keeper.delete_reserve(Urgency::No);
        let needed = BATCH + kept_back + keeper.low_water();
        assert_eq!(grow(), needed);
        let reserved = reserve();
        assert!(reserved.is_some());
        // What is kept ready of a longer file is a little more.
        let most = needed + 4 * keeper.low_water();
        let blocks = grow();
        assert!(blocks <= most, "{blocks} of {most}");
    }

    /// A commit ends while another thread counts the needs of dirty pages: its blocks move from its
    /// reservation to its pages.
    #[test]
    fn a_commit_that_ends_meanwhile_is_counted() {
        const BLOCKS: u64 = 16384;
        let keeper = keeper_of(BLOCKS);
        let ends = |other: &mut Option<BlockReservation<'_>>| {
            // The count is that from before its pages became dirty.
            drop(other.take());
            0
        };
        let mut other = keeper.try_reserve(1000, || 0, Urgency::Deletes);
        assert!(other.is_some());
        let all = keeper.try_reserve(BLOCKS, || ends(&mut other), Urgency::Deletes);
        assert!(
            all.is_none(),
            "a thousand blocks belong to the other commit"
        );
        let mut other = keeper.try_reserve(BLOCKS, || 0, Urgency::Deletes);
        assert_eq!(keeper.cut_tail(0, || ends(&mut other)), 0);
    }

    /// The same holds for ids, which move from reservations to chunks.
    #[test]
    fn an_id_is_reserved_until_it_is_taken() {
        let keeper = keeper_of(16);
        let free = Cell::new(10);
        let other = keeper
            .try_reserve_ids(&chunks(6), 6, || free.get())
            .unwrap();
        assert!(
            keeper
                .try_reserve_ids(&chunks(5), 5, || free.get())
                .is_none()
        );
        // The ids are taken one by one while the batch is applied.
        for left in (6..10).rev() {
            free.set(left);
            other.taken();
            assert!(
                keeper
                    .try_reserve_ids(&chunks(4), 4, || free.get())
                    .is_some()
            );
            assert!(
                keeper
                    .try_reserve_ids(&chunks(5), 5, || free.get())
                    .is_none()
            );
        }
        drop(other);
        let ends = |other: IdReservation<'_>| {
            // The count is that from before they were taken.
            drop(other);
            6
        };
        let other = keeper.try_reserve_ids(&chunks(3), 3, || 6).unwrap();
        assert!(
            keeper
                .try_reserve_ids(&chunks(6), 6, || ends(other))
                .is_none()
        );
        let pages = keeper.reservations.reserve(2);
        assert!(keeper.try_reserve_ids(&chunks(5), 5, || 6).is_none());
        assert!(keeper.try_reserve_ids(&chunks(4), 4, || 6).is_some());
        drop(pages);
        assert!(keeper.try_reserve_ids(&chunks(6), 6, || 6).is_some());
    }

    /// Reserves ids for so many new chunks, of ten that are left. As an operation does, it waits
    /// for others after a refusal.
    fn reserve<'a>(
        keeper: &'a SpaceKeeper,
        chunks: u64,
        wait: &mut IdWait,
    ) -> Option<IdReservation<'a>> {
        let reservation = keeper.try_reserve_ids(&wait.need(chunks, false), chunks, || 10);
        if reservation.is_none() {
            keeper.refused_ids(wait);
            keeper.register_for_ids(&pando_sync::thread_waker());
        }
        reservation
    }

    /// Of the small ones there is always one that has ids when the large one tries.
    #[test]
    fn a_large_need_is_overtaken_a_bounded_number_of_times() {
        let keeper = keeper_of(16);
        let mut wait = IdWait::default();
        let mut held = reserve(&keeper, 3, &mut IdWait::default());
        let tries = (1..100).find(|_| {
            let is_in = reserve(&keeper, 8, &mut wait).is_some();
            let next = reserve(&keeper, 3, &mut IdWait::default());
            held = next;
            is_in
        });
        assert!(tries.is_some_and(|tries| tries < 20), "it took {tries:?}");
        drop(held.take());
        // The turn is over.
        let two = [(); 2].map(|()| reserve(&keeper, 3, &mut IdWait::default()));
        assert!(two.iter().all(Option::is_some));
    }

    #[test]
    fn a_turn_ends_when_its_owner_has_gone() {
        let keeper = keeper_of(16);
        let mut gone = IdWait::default();
        let first = reserve(&keeper, 3, &mut IdWait::default());
        (0..20).for_each(|_| assert!(reserve(&keeper, 8, &mut gone).is_none()));
        drop(first);
        let mut alone = 0;
        loop {
            // Somebody else waits.
            keeper.register_for_ids(&pando_sync::thread_waker());
            let one = reserve(&keeper, 3, &mut IdWait::default());
            assert!(one.is_some(), "nobody waits for who has gone");
            if reserve(&keeper, 3, &mut IdWait::default()).is_some() {
                break;
            }
            let need = IdWait::default().need(3, false);
            assert!(keeper.awaits_ids(&need, || 10), "the other one has some");
            drop(one);
            assert!(!keeper.awaits_ids(&need, || 10), "nobody has any");
            alone += 1;
            assert!(alone < 100, "the turn does not end");
        }
        assert!(alone > 10, "there was a turn: {alone}");
    }

    /// Who needs more than there is does not wait, whatever others have reserved.
    #[test]
    fn only_reservations_of_others_are_waited_for() {
        let keeper = keeper_of(1 << 14);
        let awaits = |ids| keeper.awaits_ids(&chunks(ids), || 10);
        assert!(!awaits(10) && !awaits(11));
        let blocks = keeper.try_reserve(1, || 0, Urgency::Deletes);
        assert!(awaits(10) && !awaits(9) && !awaits(11));
        drop(blocks);
        let ids = keeper.try_reserve_ids(&chunks(4), 4, || 10);
        assert!(awaits(7) && !awaits(6) && !awaits(11));
        drop(ids);
        assert!(!awaits(10));
    }

    #[test]
    fn the_end_of_each_reservation_wakes() {
        let keeper = keeper_of(1 << 14);
        let ids = keeper.try_reserve_ids(&chunks(2), 2, || 10).unwrap();
        let blocks = keeper.try_reserve(1, || 0, Urgency::Deletes);
        let ends: [Box<dyn FnOnce() + '_>; 3] = [
            Box::new(|| ids.taken()),
            Box::new(|| drop(blocks)),
            Box::new(|| drop(keeper.try_reserve_ids(&chunks(1), 1, || 10))),
        ];
        for (number, end) in ends.into_iter().enumerate() {
            keeper.register_for_ids(&pando_sync::thread_waker());
            let is_marked = || keeper.reservations.blocks_unmarked().is_none();
            assert!(is_marked(), "somebody waits");
            end();
            assert!(!is_marked(), "end {number} wakes nobody");
        }
    }

    #[test]
    fn pieces_that_no_page_fits_in_are_not_reserved() {
        const UNIT: u32 = 8;
        let device = AnyDevice::from(MemoryDevice::new(1 << 20));
        let file = device.open("data", OpenOptions::create(Create::New));
        let options = SpaceOptions {
            groups: 1,
            unit: UNIT,
            delete_reserve: 0,
        };
        let keeper = SpaceKeeper::new(
            Space::new(16384, options),
            file.unwrap(),
            512,
            Arc::default(),
        );
        let all: Vec<Extent> = (0..16384 / UNIT)
            .map(|_| keeper.allocate(&[UNIT]).unwrap()[0])
            .collect();
        // Half of each page is freed. So half of the file is free, but no page fits.
        for extent in &all {
            keeper.free_all([Extent {
                block: extent.block,
                blocks: UNIT / 2,
            }]);
        }
        assert_eq!(keeper.space().free_blocks(), 8192);
        assert!(
            keeper
                .try_reserve(u64::from(UNIT), || 0, Urgency::Deletes)
                .is_none()
        );
        keeper.free_all([Extent {
            block: all[0].block + UNIT / 2,
            blocks: UNIT / 2,
        }]);
        assert!(
            keeper
                .try_reserve(u64::from(UNIT), || 0, Urgency::Deletes)
                .is_some()
        );
        assert!(
            keeper
                .try_reserve(u64::from(UNIT) + 1, || 0, Urgency::Deletes)
                .is_none()
        );
    }
}
