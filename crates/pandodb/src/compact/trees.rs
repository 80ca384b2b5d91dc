//! Packing of all trees, level by level; each node in an apply section of its own.
//!
//! Inner levels come first, from the top, so that many leaves have the same parent; and once more
//! after the leaves, from the bottom, because inner nodes have fewer children then. Leaves are read
//! ahead, those of one parent at a time.

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

/// Largest number of leaves that are read ahead at a time.
const AHEAD_MAX: usize = 32;

/// Leaves that will be packed soon.
#[derive(Debug, Default)]
struct Ahead {
    pages: VecDeque<PageId>,
    /// Where the leaves after `pages` begin; `None` if there are none.
    behind: Option<Vec<u8>>,
    /// Steps until more are read.
    steps: usize,
}

/// Position of the packing of a level.
struct PackPosition {
    tree: Tree,
    level: u8,
    /// A key of the next node to pack.
    key: Vec<u8>,
    /// Buffer for the key after it.
    next: Vec<u8>,
}

impl<'a, P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'a, P> {
    /// Packs every tree, as the part from `from` to `to` of the whole compaction.
    pub(super) fn pack_trees(&mut self, from: f64, to: f64) -> Part<()> {
        let mut scratch = Scratch::of_background();
        let of_tables = self.engine.store.tables.trees();
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

    /// Packs one tree. `done` counts the steps of all trees, of about `pages`.
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
            let mut place = PackPosition {
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

    /// Packs one node at `place`; None if the tree does not exist.
    fn pack_node(
        &mut self,
        place: &mut PackPosition,
        scratch: &mut Scratch,
    ) -> Part<Option<Packed>> {
        let _reservation = self.room_to_change()?;
        let PackPosition {
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

    /// Replaces a root that has one child by that child.
    fn collapse(&mut self, tree: Tree, scratch: &mut Scratch) -> Part<()> {
        let _reservation = self.room_to_change()?;
        self.engine.in_gate(MERGE_PAGES, |engine, token| {
            let marks = engine.background_marks();
            let merged = tree.try_merge(&engine.store.pool, token, marks, b"", scratch);
            unless_gone(tree, merged)
        })?;
        Ok(())
    }

    /// Starts reads of the next leaves.
    fn read_ahead(&self, ahead: &mut Ahead, place: &PackPosition) -> Part<()> {
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
            // Read twice as many: whether a leaf is worth packing depends on the ones after it.
            count *= 2;
        }
        let group: Vec<PageId> = ahead
            .pages
            .drain(..count.min(ahead.pages.len()))
            .filter(|page| engine.store.pool.is_on_disk(*page))
            .collect();
        // A page that cannot be read ahead is read when it is needed, where the error is reported.
        let _late = engine.fetch_many(&group);
        Ok(())
    }

    /// Waits until one step has room among dirty pages and blocks, and reserves the blocks.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if there is no room on the disk: it may never come.
    pub(super) fn room_to_change(&mut self) -> Part<BlockReservation<'a>> {
        let engine = self.engine;
        let mut turns = 0;
        loop {
            if let Some(reservation) = engine.room_to_merge() {
                return Ok(reservation);
            }
            self.keep_waiting()?;
            if engine.store.space.is_full() {
                return Err(engine.store.space.full_error().into());
            }
            // The cleaner waits, too, and for as long as the disk is full.
            if engine.store.life.is_short() {
                return Err(engine.store.shortage_error().into());
            }
            engine.store.pool.work().notify_all();
            pause(&mut turns);
        }
    }
}

/// Turns the error of a tree that was dropped and freed meanwhile into `None`.
fn unless_gone<T>(tree: Tree, attempt: Attempt<T>) -> Attempt<Option<T>> {
    match attempt {
        Err(Restart::Damaged(page, _)) if page == tree.root => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use pando_sync::thread;

    use crate::background::maintenance::tests::{ShortStore, wait_until};
    use crate::{CompactPhase, CompactProgress, CompactReport, Error};

    /// Compacts a store whose pages wait for room.
    fn compact(
        short: ShortStore,
        progress: impl FnMut(CompactProgress) -> ControlFlow<()> + Send + 'static,
    ) -> crate::Result<CompactReport> {
        let db = short.db.clone();
        let compacting = thread::spawn(move || db.compact(progress));
        wait_until("the compaction ends", || compacting.is_finished());
        assert!(short.db.engine().store.life.is_short());
        short.end();
        compacting.join().unwrap()
    }

    #[test]
    fn a_compaction_does_not_wait_for_pages_that_wait_for_room() {
        let refused = compact(
            ShortStore::with_dirty_pages(),
            |_| ControlFlow::Continue(()),
        );
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    }

    /// Its steps have room, and are done.
    #[test]
    fn a_compaction_does_not_wait_for_a_checkpoint_that_waits_for_room() {
        let refused = compact(ShortStore::new(), |_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    }

    #[test]
    fn a_compaction_is_told_to_stop_while_a_step_waits() {
        let mut calls = 0;
        let report = compact(ShortStore::with_dirty_pages(), move |progress| {
            calls += u32::from(progress.phase == CompactPhase::Pack);
            // The first one is the begin of the phase.
            match calls < 2 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        assert!(!report.unwrap().finished);
    }
}
