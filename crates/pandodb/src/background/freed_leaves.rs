//! Leaves of a dropped tree are read together before they are freed: what they name is freed with
//! them, so each has to be in memory once.

use pando_format::PageId;
use pando_tree::Tree;

use crate::engine::Engine;
use crate::pages::place_order::order_by_place;

/// Most leaves, or roots of trees, that are read at a time.
pub(super) const READ_MAX: usize = 32;

/// The leaves that come next, of the tree that is being freed.
#[derive(Debug, Default)]
pub(crate) struct FreedLeaves {
    /// Leaves that are freed before the next ones are looked up.
    left: usize,
    /// Working memory: the pages to read, where they lie, and where leaves of another parent begin.
    pages: Vec<PageId>,
    places: Vec<(u32, PageId)>,
    behind: Vec<u8>,
}

impl FreedLeaves {
    /// The leftmost leaf of `tree` is about to be freed: reads it, and those behind it, if they
    /// are not in memory. What cannot be read is met again by whoever frees it. Blocks.
    pub(crate) fn read_ahead(&mut self, engine: &Engine, tree: Tree) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return;
        }
        let pool = &engine.store.pool;
        let (pages, behind) = (&mut self.pages, &mut self.behind);
        // Of the first parent only: the next one may have to be read, too.
        let listed = engine
            .store
            .drive(|| tree.try_leaves(pool, b"", behind, pages));
        if listed.is_err() {
            return;
        }
        pages.truncate(READ_MAX.min(pool.frames() / 16));
        self.left = pages.len().saturating_sub(1);
        pages.retain(|page| pool.is_on_disk(*page));
        order_by_place(pool, pages, &mut self.places);
        engine.fetch_some(pages);
    }
}
