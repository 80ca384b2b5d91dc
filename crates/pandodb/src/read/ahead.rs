//! Read-ahead of scans: the next leaves are requested while the scan uses this one.
//!
//! A scan that faults on two leaves in a row requests the next two, then more and more, up to a
//! bound; it requests more when half of them are used. It stops when all leaves that it checks are
//! in memory, so a cached scan does none of this. When the scan ends, its read requests are dropped
//! unless their reads have begun. Read-ahead does not look beyond the end of the scan. If the next
//! parent is not in memory, that is requested, and its leaves in a later turn.
//!
//! A scan that overtakes the read thread reaches leaves whose reads have not begun. Their requests
//! are dropped: they would be served long after the scan has passed, and would evict pages of
//! others from the frames that the scan has released. A scan that may block reads such leaves at
//! the same time, itself, while the read thread reads those behind them: so it sleeps once for many
//! leaves. For others, read-ahead starts anew.

use std::ops::Bound;

use pando_format::PageId;
use pando_tree::{Ahead, Direction};

use crate::engine::Engine;
use crate::pages::place_order::order_by_place;
use crate::state::read_requests::ScanTicket;
use crate::tables::state::TableState;

/// Number of leaves that are requested first.
const WINDOW_MIN: usize = 2;
/// Most scans are short: before this many leaves, nobody waits for a leaf that may not be needed.
const LEAVES_OF_SHORT: usize = 8;
/// Most leaves that are requested and not used yet, of those that the scan reads itself, and as
/// many behind them.
const WINDOW_MAX: usize = 64;

/// The read-ahead of one end of an iterator.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Number of leaves to be requested ahead; 0 while there is no need.
    window: usize,
    /// Leaves that were requested and not reached yet.
    asked: usize,
    /// Leaves that the scan has used.
    used: usize,
    /// Names the scan in its read requests.
    scan: Option<ScanTicket>,
    /// Working memory.
    pages: Vec<PageId>,
    /// The same pages, behind the blocks where they begin.
    places: Vec<(u32, PageId)>,
    bound: Vec<u8>,
}

/// Position of a scan: its table, the bounds of what is left, and its direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position<'a> {
    /// Its tree is read when the next leaves are looked up.
    pub(crate) state: &'a TableState,
    /// Where the scan continues.
    pub(crate) from: Bound<&'a [u8]>,
    /// Where it ends.
    pub(crate) until: Bound<&'a [u8]>,
    pub(crate) direction: Direction,
}

impl ReadAhead {
    /// The scan's next page is missing and about to be read, or its read has not ended.
    pub(crate) fn missed(&mut self, engine: &Engine, at: Position<'_>, page: PageId) {
        if self.asked > 0 && engine.store.pool.is_on_disk(page) {
            self.drop_requests(engine);
        } else if self.used > 0 && self.asked == 0 {
            self.grow(engine, at);
            // [`ReadAhead::loaded`] will subtract the leaf itself.
            self.asked += 1;
        }
    }

    /// As [`ReadAhead::missed`], for a scan that may block: once it is under way, reads the page,
    /// and the next leaves at the same time. What fails is met again when the scan comes there.
    pub(crate) fn read_on(&mut self, engine: &Engine, at: Position<'_>, page: PageId) {
        if self.asked == 0 || self.used < LEAVES_OF_SHORT {
            self.missed(engine, at, page);
            return;
        }
        if let Some(scan) = self.scan.take() {
            engine.reads.end_scan(scan);
        }
        // What it reads in vain is at most half of what it has used.
        let most = self.window.min(self.used / 2);
        self.asked = self.list(engine, at, (0, most));
        self.pages.push(page);
        self.order(engine);
        let pages = std::mem::take(&mut self.pages);
        self.widen(engine);
        if self.asked > WINDOW_MIN {
            let behind = (self.asked, self.window);
            self.request(engine, at, behind);
        }
        engine.fetch_some(&pages);
        self.pages = pages;
        // [`ReadAhead::loaded`] will subtract the leaf itself.
        self.asked += 1;
    }

    /// The leaf at the position was loaded.
    pub(crate) fn loaded(&mut self, engine: &Engine, at: Position<'_>) {
        self.used += 1;
        self.asked = self.asked.saturating_sub(1);
        if self.window > 0 && self.asked <= self.window / 2 {
            self.grow(engine, at);
        }
    }

    /// Makes the window twice as large.
    fn widen(&mut self, engine: &Engine) {
        let most = WINDOW_MAX
            .min(engine.store.pool.frames() / 32)
            .max(WINDOW_MIN);
        self.window = (self.window * 2).clamp(WINDOW_MIN, most);
    }

    /// Requests further leaves, with a window twice as large.
    fn grow(&mut self, engine: &Engine, at: Position<'_>) {
        self.widen(engine);
        let most = self.window.saturating_sub(self.asked);
        self.request(engine, at, (self.asked, most));
    }

    /// Finds the next leaves after the position, `most` of them after `skip`, and puts those that
    /// are not in memory into `pages`. Returns how many it has found.
    fn list(&mut self, engine: &Engine, at: Position<'_>, (skip, most): (usize, usize)) -> usize {
        self.pages.clear();
        let Some(tree) = at.state.tree() else {
            return 0;
        };
        let ahead = Ahead {
            from: at.from,
            until: at.until,
            direction: at.direction,
            skip,
            most,
        };
        let pool = &engine.store.pool;
        let looked = tree.try_list_ahead(pool, ahead, &mut self.bound, |page| {
            if pool.is_on_disk(page) {
                self.pages.push(page);
            }
        });
        looked.unwrap_or(0)
    }

    /// Requests the leaves that [`ReadAhead::list`] finds.
    fn request(&mut self, engine: &Engine, at: Position<'_>, which: (usize, usize)) {
        let looked = self.list(engine, at, which);
        if self.pages.is_empty() {
            // All are in memory; or, if it looked at none, this is the end, or a writer interfered.
            if looked > 0 {
                self.window = 0;
            }
            return;
        }
        self.order(engine);
        let scan = *self.scan.get_or_insert_with(|| engine.reads.begin_scan());
        for page in self.pages.drain(..) {
            engine.reads.request_for(scan, page);
        }
        self.asked += looked;
    }

    /// As [`order_by_place`], for the listed pages.
    fn order(&mut self, engine: &Engine) {
        order_by_place(&engine.store.pool, &mut self.pages, &mut self.places);
    }

    /// The scan has ended: drops its read requests.
    pub(crate) fn end(&mut self, engine: &Engine) {
        self.drop_requests(engine);
    }

    /// Drops the read requests whose reads have not begun, and closes the window.
    fn drop_requests(&mut self, engine: &Engine) {
        if let Some(scan) = self.scan.take() {
            engine.reads.end_scan(scan);
        }
        self.asked = 0;
        self.window = 0;
    }
}
