//! The queue of read requests: how requests are pushed, and how the queue is closed.
//!
//! An operation that waits checks after its push whether the queue is closed; the thread that ends
//! the queue first marks it as closed and then empties it. Both have a SeqCst fence in between, so
//! at least one of them sees every read request. (Requests that nobody waits for are checked before
//! the push only.)

use pando_format::PageId;
use pando_format::cast::{low_u16, low_u32, usize_of};
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{SignalQueue, WaitList, audit};

/// Largest number of read requests that wait for the read thread.
const REQUESTS_MAX: usize = 1 << 14;

/// Number of slots for scans.
const SCANS: usize = 1024;

const _: () = assert!(SCANS < u16::MAX as usize, "their slots have 16 bits");

/// Read requests, and the state of the read thread.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Page ids, and the slots and turns of scans; see [`ScanTicket`].
    pub(crate) requests: SignalQueue,
    /// Waiters that found the queue full.
    pub(crate) crowded: WaitList,
    /// No further read request is served.
    closed: AtomicBool,
    /// Number of scans so far; determines the slot of the next one.
    next_scan: AtomicU64,
    /// For each slot, how often a scan has ended there: read requests with another turn are
    /// dropped.
    turns: Box<[AtomicU64]>,
    /// Reads in flight, plus the read request that waits for a frame. Written only by the read
    /// thread.
    pub(crate) busy: AtomicUsize,
}

impl Reads {
    pub(crate) fn new() -> Self {
        let turns: Box<[_]> = (0..SCANS).map(|_| AtomicU64::new(0)).collect();
        audit::name("turns of scans", &*turns);
        Self {
            requests: SignalQueue::new(REQUESTS_MAX),
            crowded: WaitList::new(),
            closed: AtomicBool::new(false),
            next_scan: AtomicU64::new(0),
            turns,
            busy: AtomicUsize::new(0),
        }
    }

    /// Number of read requests and reads that have not ended: 0 at rest.
    pub(crate) fn pending(&self) -> usize {
        // Relaxed: the number is exact once everything is at rest.
        self.requests.len() + self.busy.load(Ordering::Relaxed)
    }

    /// True once no further read request is served.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in close.
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the page of a read request; None if its scan has ended.
    pub(crate) fn page_of(&self, request: u64) -> Option<PageId> {
        let (page, place, turn) = (low_u32(request), low_u16(request >> 32), request >> 48);
        let is_over = place > 0
            && self.turns[usize::from(place) - 1].load(Ordering::Relaxed) & 0xFFFF != turn;
        (!is_over).then_some(PageId(page))
    }

    /// Asks for `page`, for a caller that does not wait for it. Returns false if the queue is full
    /// or closed.
    pub(crate) fn request(&self, page: PageId) -> bool {
        !self.is_closed() && self.requests.push(u64::from(page.0))
    }

    /// As [`Reads::request`], but the request is dropped if the scan ends before the read begins.
    pub(crate) fn request_for(&self, scan: ScanTicket, page: PageId) -> bool {
        !self.is_closed() && self.requests.push(scan.request(page))
    }

    /// Returns a ticket for the read requests of one scan.
    pub(crate) fn begin_scan(&self) -> ScanTicket {
        // Relaxed: slots may be shared by several scans. The scan that ends first makes the others
        // go without read-ahead, once.
        let next = self.next_scan.fetch_add(1, Ordering::Relaxed);
        let slot = usize_of(next) % SCANS;
        let turn = low_u16(self.turns[slot].load(Ordering::Relaxed));
        ScanTicket {
            slot: low_u16(slot as u64),
            turn,
        }
    }

    /// Drops the read requests of a scan whose reads have not begun.
    pub(crate) fn end_scan(&self, scan: ScanTicket) {
        // Relaxed: a read request that is served nevertheless does no harm.
        let turn = u64::from(scan.turn.wrapping_add(1));
        self.turns[usize::from(scan.slot)].store(turn, Ordering::Relaxed);
    }

    /// Closes the queue: no further read request is served. The read thread ends once its reads
    /// have.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in is_closed.
        self.closed.store(true, Ordering::Release);
        self.requests.signal();
    }
}

/// Identifies a scan in its read requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanTicket {
    slot: u16,
    turn: u16,
}

impl ScanTicket {
    fn request(self, page: PageId) -> u64 {
        // Slot 0 stands for read requests of no scan.
        u64::from(page.0) | (u64::from(self.slot) + 1) << 32 | u64::from(self.turn) << 48
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_scan_that_has_ended_are_dropped_and_no_others() {
        let reads = Reads::new();
        let page = PageId(u32::MAX - 5);
        assert_eq!(reads.page_of(u64::from(page.0)), Some(page));
        for _ in 0..3 * SCANS {
            let (one, other) = (reads.begin_scan(), reads.begin_scan());
            assert_eq!(reads.page_of(one.request(page)), Some(page));
            reads.end_scan(one);
            assert_eq!(reads.page_of(one.request(page)), None);
            assert_eq!(reads.page_of(other.request(page)), Some(page));
        }
    }
}
