//! The queue of wishes, and how it is asked and closed.
//!
//! Whoever pushes a wish looks afterwards whether the queue is closed; whoever ends the queue says
//! so first and empties it afterwards. Both have a SeqCst fence in between, so that no wish stays
//! behind unseen by both.

use pando_format::PageId;
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{SignalQueue, WaitList, audit};

/// Wishes that may wait for the read thread.
const WISHES_MAX: usize = 1 << 14;

/// Scans that have turns of their own.
const SCANS: usize = 1024;

/// Wishes, and what the read thread is doing.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Page ids.
    pub(crate) wishes: SignalQueue,
    /// Those who found the queue full.
    pub(crate) crowded: WaitList,
    closed: AtomicBool,
    /// Where the next scan has its turns.
    next_scan: AtomicU64,
    /// For each place, how often a scan has ended there: wishes of other turns are dropped.
    turns: Box<[AtomicU64]>,
    /// Reads in flight, and the wish that waits for a frame. Written by the read thread.
    pub(crate) busy: AtomicUsize,
}

impl Reads {
    pub(crate) fn new() -> Self {
        let turns: Box<[_]> = (0..SCANS).map(|_| AtomicU64::new(0)).collect();
        audit::name("turns of scans", &*turns);
        Self {
            wishes: SignalQueue::new(WISHES_MAX),
            crowded: WaitList::new(),
            closed: AtomicBool::new(false),
            next_scan: AtomicU64::new(0),
            turns,
            busy: AtomicUsize::new(0),
        }
    }

    /// Wishes and reads that have not ended: zero at rest.
    pub(crate) fn pending(&self) -> usize {
        // Relaxed: exact once everything is at rest.
        self.wishes.len() + self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in close.
        self.closed.load(Ordering::Acquire)
    }

    /// The page of a wish; None if its scan has ended.
    pub(crate) fn page_of(&self, wish: u64) -> Option<PageId> {
        let (page, place, turn) = (wish as u32, (wish >> 32) as u16, wish >> 48);
        let is_over = place > 0
            && self.turns[usize::from(place) - 1].load(Ordering::Relaxed) & 0xFFFF != turn;
        (!is_over).then_some(PageId(page))
    }

    /// Asks for `page` if there is room; nobody waits for it. False if it was not taken.
    pub(crate) fn wish(&self, page: PageId) -> bool {
        !self.is_closed() && self.wishes.push(u64::from(page.0))
    }

    /// As [`Reads::wish`], unless the scan has ended before the read begins.
    pub(crate) fn wish_for(&self, scan: ScanTicket, page: PageId) -> bool {
        !self.is_closed() && self.wishes.push(scan.wish(page))
    }

    /// A ticket for the wishes of one scan.
    pub(crate) fn begin_scan(&self) -> ScanTicket {
        // Relaxed: places are shared out, and may be shared: whoever ends first makes the others
        // read without wishes, once.
        let next = self.next_scan.fetch_add(1, Ordering::Relaxed);
        let slot = next as usize % SCANS;
        let turn = self.turns[slot].load(Ordering::Relaxed) as u16;
        ScanTicket {
            slot: slot as u16,
            turn,
        }
    }

    /// Drops the wishes of a scan whose reads have not begun.
    pub(crate) fn end_scan(&self, scan: ScanTicket) {
        // Relaxed: a wish that is served all the same does no harm.
        let turn = u64::from(scan.turn.wrapping_add(1));
        self.turns[usize::from(scan.slot)].store(turn, Ordering::Relaxed);
    }

    /// No wish is served any more. The read thread ends once its reads have.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in is_closed.
        self.closed.store(true, Ordering::Release);
        self.wishes.signal();
    }
}

/// Names a scan in its wishes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanTicket {
    slot: u16,
    turn: u16,
}

impl ScanTicket {
    fn wish(self, page: PageId) -> u64 {
        // A place of 0 is that of wishes of no scan.
        u64::from(page.0) | (u64::from(self.slot) + 1) << 32 | u64::from(self.turn) << 48
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn wishes_of_a_scan_that_has_ended_are_dropped_and_no_others() {
        let reads = Reads::new();
        let page = PageId(u32::MAX - 5);
        assert_eq!(reads.page_of(u64::from(page.0)), Some(page));
        for _ in 0..3 * SCANS {
            let (one, other) = (reads.begin_scan(), reads.begin_scan());
            assert_eq!(reads.page_of(one.wish(page)), Some(page));
            reads.end_scan(one);
            assert_eq!(reads.page_of(one.wish(page)), None);
            assert_eq!(reads.page_of(other.wish(page)), Some(page));
        }
    }
}
