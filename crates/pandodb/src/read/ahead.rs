//! Read-ahead of scans: the leaves that come next are asked for while the scan uses this one.
//!
//! A scan that faults on two leaves in a row asks for the next two, then for more and more, up to a
//! bound; it asks again when half of them are used. It stops where all that it looks at is in
//! memory, so a cached scan does none of this. Read requests whose reads have not begun when the
//! scan ends are dropped. It looks no further than the parent of the leaf, and not behind the
//! scan's end.
//!
//! A scan that overtakes the read thread comes to leaves whose reads have not begun, and reads them
//! itself. Then all its read requests are dropped, and it begins anew: they would be served when
//! the scan has long passed, and what it left has made room for others, whom the reads would drive
//! out.

use std::ops::Bound;

use pando_format::PageId;
use pando_tree::{Ahead, Direction};

use crate::engine::Engine;
use crate::state::read_requests::ScanTicket;
use crate::tables::state::TableState;

/// Leaves that are asked for first.
const WINDOW_MIN: usize = 2;
/// Most leaves that are asked for and not used yet.
const WINDOW_MAX: usize = 32;

/// The read-ahead of one end of an iterator.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Leaves to be ahead; 0 while there is no need.
    window: usize,
    /// Leaves that were asked for and not reached yet.
    asked: usize,
    /// The leaf before was the scan's, too.
    is_under_way: bool,
    scan: Option<ScanTicket>,
    pages: Vec<PageId>,
}

/// Where a scan is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position<'a> {
    pub(crate) state: &'a TableState,
    pub(crate) from: &'a Bound<Vec<u8>>,
    pub(crate) until: &'a Bound<Vec<u8>>,
    pub(crate) direction: Direction,
}

impl ReadAhead {
    /// The page that comes next is missing, and about to be read; or its read has not ended.
    pub(crate) fn missed(&mut self, engine: &Engine, at: Position<'_>, page: PageId) {
        if self.asked > 0 && engine.store.pool.is_on_disk(page) {
            self.drop_requests(engine);
        } else if self.is_under_way && self.asked == 0 {
            self.grow(engine, at);
            // The leaf itself will be taken off.
            self.asked += 1;
        }
    }

    /// The leaf at the position was loaded.
    pub(crate) fn loaded(&mut self, engine: &Engine, at: Position<'_>) {
        self.is_under_way = true;
        self.asked = self.asked.saturating_sub(1);
        if self.window > 0 && self.asked <= self.window / 2 {
            self.grow(engine, at);
        }
    }

    fn grow(&mut self, engine: &Engine, at: Position<'_>) {
        let most = WINDOW_MAX
            .min(engine.store.pool.frames() / 16)
            .max(WINDOW_MIN);
        self.window = (self.window * 2).clamp(WINDOW_MIN, most);
        let Some(tree) = at.state.tree() else {
            return;
        };
        let ahead = Ahead {
            from: at.from.as_ref().map(|key| &key[..]),
            until: at.until.as_ref().map(|key| &key[..]),
            direction: at.direction,
            skip: self.asked,
            most: self.window.saturating_sub(self.asked),
        };
        self.pages.clear();
        // A parent that is missing, too, ends the look: the scan itself is going to read it.
        let looked = tree.try_list_ahead(&engine.store.pool, ahead, &mut self.pages);
        let looked = looked.unwrap_or(0);
        if self.pages.is_empty() {
            // All in memory; or the end of the parent, behind which it goes on as it was.
            if looked > 0 {
                self.window = 0;
            }
            return;
        }
        let scan = *self.scan.get_or_insert_with(|| engine.reads.begin_scan());
        for page in self.pages.drain(..) {
            engine.reads.request_for(scan, page);
        }
        self.asked += looked;
    }

    /// The scan has ended.
    pub(crate) fn end(&mut self, engine: &Engine) {
        self.drop_requests(engine);
    }

    fn drop_requests(&mut self, engine: &Engine) {
        if let Some(scan) = self.scan.take() {
            engine.reads.end_scan(scan);
        }
        self.asked = 0;
        self.window = 0;
    }
}
