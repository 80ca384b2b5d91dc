//! Packing of all trees, level by level, a node in an apply section of its own.
//!
//! Inner levels come first, from the top, so that leaves that have the same parent are many; and
//! once more behind the leaves, from the bottom, since they have fewer children then. Leaves are
//! read ahead, those of one parent at a time.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use pando_format::PageId;
use pando_pool::{Attempt, Restart};
use pando_tree::{Packed, Scratch, Tree};

use crate::background::maintenance::MERGE_PAGES;
use crate::compact::progress::{CompactPhase, CompactProgress};
use crate::compact::run::{Compaction, Part};
use crate::pages::store::pause;
use crate::space::reservations::BlockReservation;
use crate::tables::state::{CATALOGUE, GARBAGE};

/// Leaves that are read ahead at a time, at most.
const AHEAD_MAX: usize = 32;

/// Leaves that will be looked at soon.
#[derive(Debug, Default)]
struct Ahead {
    pages: VecDeque<PageId>,
    /// Where the leaves behind `pages` begin; `None` when there are none.
    behind: Option<Vec<u8>>,
    /// Steps until more are read.
    steps: usize,
}

/// Where a packing of a level is.
struct Place {
    tree: Tree,
    level: u8,
    key: Vec<u8>,
    next: Vec<u8>,
}

impl<'a, P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'a, P> {
    /// Packs every tree; that is the part from `from` to `to` of the whole.
    pub(super) fn pack_trees(&mut self, from: f64, to: f64) -> Part<()> {
        let mut scratch = Scratch::new();
        let tables = self.engine.store.tables.all();
        let of_tables = tables.iter().filter_map(|table| table.tree());
        let trees: Vec<Tree> = [CATALOGUE, GARBAGE].into_iter().chain(of_tables).collect();
        let ids = self.engine.store.pool.page_ids();
        let unused = u64::from(u32::MAX).min(ids.available());
        let pages = (self.engine.budget.page_ids_max as u64).saturating_sub(unused);
        let mut done = 0;
        for tree in trees {
            self.pack_tree(tree, &mut scratch, (from, to), &mut done, pages.max(1))?;
        }
        Ok(())
    }

    fn pack_tree(
        &mut self,
        tree: Tree,
        scratch: &mut Scratch,
        part: (f64, f64),
        done: &mut u64,
        pages: u64,
    ) -> Part<()> {
        let engine = self.engine;
        let top = engine
            .store
            .drive(|| unless_gone(tree, tree.try_root_level(&engine.store.pool)))?;
        let Some(top) = top else {
            return Ok(());
        };
        for level in (0..top).rev().chain(1..top) {
            let mut place = Place {
                tree,
                level,
                key: Vec::new(),
                next: Vec::new(),
            };
            let mut ahead = Ahead {
                behind: Some(Vec::new()),
                ..Ahead::default()
            };
            loop {
                *done += 1;
                self.step(CompactPhase::Pack, part, *done as f64 / pages as f64)?;
                if level == 0 {
                    self.read_ahead(&mut ahead, &place)?;
                }
                match self.pack_node(&mut place, scratch)? {
                    Some(Packed::Merged) => {}
                    Some(Packed::Next) => {
                        assert!(place.next > place.key, "packing goes forward");
                        std::mem::swap(&mut place.key, &mut place.next);
                    }
                    Some(Packed::Last | Packed::Top) => break,
                    // The table was dropped.
                    None => return Ok(()),
                }
            }
        }
        self.collapse(tree, scratch)
    }

    fn pack_node(&mut self, place: &mut Place, scratch: &mut Scratch) -> Part<Option<Packed>> {
        let _reservation = self.room_to_change()?;
        let Place {
            tree,
            level,
            key,
            next,
        } = place;
        Ok(self.engine.in_gate(MERGE_PAGES, |engine, token| {
            let marks = engine.background_marks();
            let packed =
                tree.try_pack(&engine.store.pool, token, marks, key, *level, next, scratch);
            unless_gone(*tree, packed)
        })?)
    }

    /// A root with one child takes its place.
    fn collapse(&mut self, tree: Tree, scratch: &mut Scratch) -> Part<()> {
        let _reservation = self.room_to_change()?;
        self.engine.in_gate(MERGE_PAGES, |engine, token| {
            let marks = engine.background_marks();
            let merged = tree.try_merge(&engine.store.pool, token, marks, b"", scratch);
            unless_gone(tree, merged)
        })?;
        Ok(())
    }

    /// Starts reads of the leaves that come next.
    fn read_ahead(&self, ahead: &mut Ahead, place: &Place) -> Part<()> {
        let engine = self.engine;
        if let Some(left) = ahead.steps.checked_sub(1) {
            ahead.steps = left;
            return Ok(());
        }
        let reached = |behind: &Vec<u8>| place.key >= *behind;
        let mut count = AHEAD_MAX.min(engine.store.pool.frames() / 16);
        ahead.steps = count.saturating_sub(1);
        if ahead.pages.is_empty() && ahead.behind.as_ref().is_some_and(reached) {
            let (mut next, mut pages) = (Vec::new(), Vec::new());
            let looked = engine.store.drive(|| {
                let (pool, key) = (&engine.store.pool, &place.key);
                let looked = place.tree.try_leaves(pool, key, &mut next, &mut pages);
                unless_gone(place.tree, looked)
            })?;
            ahead.behind = (looked.is_some() && !next.is_empty()).then_some(next);
            ahead.pages = pages.into();
            // Whether a leaf is worth packing depends on those behind it.
            count *= 2;
        }
        let group: Vec<PageId> = ahead
            .pages
            .drain(..count.min(ahead.pages.len()))
            .filter(|page| engine.store.pool.is_on_disk(*page))
            .collect();
        // What cannot be read ahead is read when it is needed, and tells its error then.
        let _late = engine.fetch_many(&group);
        Ok(())
    }

    /// Waits for room among dirty pages and blocks for one step.
    pub(super) fn room_to_change(&self) -> Part<BlockReservation<'a>> {
        let engine = self.engine;
        let mut turns = 0;
        loop {
            if let Some(reservation) = engine.room_to_merge() {
                return Ok(reservation);
            }
            self.check()?;
            if engine.store.space.is_full() {
                return Err(engine.store.space.full_error().into());
            }
            engine.store.pool.work().notify_all();
            pause(&mut turns);
        }
    }
}

/// `None` when the tree was dropped and taken apart meanwhile.
fn unless_gone<T>(tree: Tree, attempt: Attempt<T>) -> Attempt<Option<T>> {
    match attempt {
        Err(Restart::Damaged(page, _)) if page == tree.root => Ok(None),
        other => other.map(Some),
    }
}
