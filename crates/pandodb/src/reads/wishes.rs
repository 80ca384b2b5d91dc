//! The queue of wishes, and how it is asked and closed.
//!
//! Whoever pushes a wish looks afterwards whether the queue is closed; whoever ends the queue says
//! so first and empties it afterwards. Both have a SeqCst fence in between, so that no wish stays
//! behind unseen by both.

use std::task::Waker;

use pando_format::PageId;
use pando_pool::LoadWait;
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::{SignalQueue, WaitList, audit};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::store::Store;

/// Wishes that may wait for the read thread.
const WISHES_MAX: usize = 1 << 14;

/// Scans that have turns of their own.
const SCANS: usize = 1024;

/// Wishes, and what the read thread is doing.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Page ids.
    pub(super) wishes: SignalQueue,
    /// Those who found the queue full.
    pub(super) crowded: WaitList,
    closed: AtomicBool,
    /// Where the next scan has its turns.
    next_scan: AtomicU64,
    /// For each place, how often a scan has ended there: wishes of other turns are dropped.
    turns: Box<[AtomicU64]>,
    /// Reads in flight, and the wish that waits for a frame. Written by the read thread.
    pub(super) busy: AtomicUsize,
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

    pub(super) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in close.
        self.closed.load(Ordering::Acquire)
    }

    /// The page of a wish; None if its scan has ended.
    pub(super) fn page_of(&self, wish: u64) -> Option<PageId> {
        let (page, place, turn) = (wish as u32, (wish >> 32) as u16, wish >> 48);
        let is_over = place > 0
            && self.turns[usize::from(place) - 1].load(Ordering::Relaxed) & 0xFFFF != turn;
        (!is_over).then_some(PageId(page))
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

impl Store {
    /// Ends a wish that leads to no read.
    pub(super) fn end_wish(&self, page: PageId, error: Option<Error>) {
        if let Some(error) = error {
            let waiting = self.pool.waiting_for_load(page);
            self.failed_reads.post(page, error, waiting);
        }
        self.pool.end_load_wait(page);
    }
}

impl Engine {
    /// Has `page` read for an operation that does not wait for it; `waker` is woken when trying
    /// again makes sense. True if that is now. Never blocks.
    ///
    /// # Errors
    /// [`Error::Closed`]; that of the device in a forked child, which has no read thread.
    pub(crate) fn request_page(&self, page: PageId, waker: &Waker) -> Result<bool> {
        self.check_process()?;
        match self.pool.await_load(page, waker) {
            // Whoever reads it wakes.
            LoadWait::Loading => return Ok(false),
            LoadWait::Over => return Ok(true),
            LoadWait::OnDisk => {}
        }
        if !self.reads.wishes.push(u64::from(page.0)) {
            self.reads.crowded.register(waker);
            // Room that came before the registration has told nobody.
            return Ok(self.reads.wishes.len() < self.reads.wishes.capacity());
        }
        if self.reads.is_closed() {
            return Err(Error::Closed);
        }
        Ok(false)
    }

    /// Has `page` read if there is room; nobody waits for it.
    pub(crate) fn wish_page(&self, page: PageId) -> bool {
        !self.reads.is_closed() && self.reads.wishes.push(u64::from(page.0))
    }

    /// As [`Engine::wish_page`], unless the scan has ended before the read begins.
    pub(crate) fn wish_page_for(&self, scan: ScanTicket, page: PageId) -> bool {
        !self.reads.is_closed() && self.reads.wishes.push(scan.wish(page))
    }

    /// A ticket for the wishes of one scan.
    pub(crate) fn begin_scan(&self) -> ScanTicket {
        // Relaxed: places are shared out, and may be shared: whoever ends first makes the others
        // read without wishes, once.
        let next = self.reads.next_scan.fetch_add(1, Ordering::Relaxed);
        let slot = next as usize % SCANS;
        let turn = self.reads.turns[slot].load(Ordering::Relaxed) as u16;
        ScanTicket {
            slot: slot as u16,
            turn,
        }
    }

    /// Drops the wishes of a scan whose reads have not begun.
    pub(crate) fn end_scan(&self, scan: ScanTicket) {
        // Relaxed: a wish that is served all the same does no harm.
        let turn = u64::from(scan.turn.wrapping_add(1));
        self.reads.turns[usize::from(scan.slot)].store(turn, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn wishes_of_a_scan_that_has_ended_are_dropped_and_no_others() {
        let db = crate::Db::builder()
            .max_memory(16 << 20)
            .open_in_memory()
            .unwrap();
        let engine = db.engine();
        let page = PageId(u32::MAX - 5);
        assert_eq!(engine.reads.page_of(u64::from(page.0)), Some(page));
        for _ in 0..3 * SCANS {
            let (one, other) = (engine.begin_scan(), engine.begin_scan());
            assert_eq!(engine.reads.page_of(one.wish(page)), Some(page));
            engine.end_scan(one);
            assert_eq!(engine.reads.page_of(one.wish(page)), None);
            assert_eq!(engine.reads.page_of(other.wish(page)), Some(page));
        }
    }
}
