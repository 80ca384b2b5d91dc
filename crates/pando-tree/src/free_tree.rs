//! Freeing a dropped tree leaf by leaf from the left, so that it stays an intact, smaller tree for
//! readers in flight and after a crash.

use pando_format::PageId;
use pando_format::cast::u32_of_len;
use pando_pool::{ApplyToken, Attempt, Optimistic, Pool};

use crate::access::OptimisticAccess;
use crate::descent::Path;
use crate::leaf::{Leaf, LeafChange};
use crate::node::edit;
use crate::node::search::Spot;
use crate::node::view::Node;
use crate::remove_empty::Chain;
use crate::scratch::Scratch;
use crate::tree::{Tree, counted};

/// Result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreedStep {
    /// Number of pages freed, including overflow pages.
    pub pages_freed: u32,
    /// True when nothing is left, not even the root.
    pub done: bool,
}

impl Tree {
    /// Frees the leftmost leaf, the pages that it names, and inner nodes that lose their last
    /// child. The root goes with the last leaf. Nobody else changes the tree. As after every
    /// change, [`Scratch::try_finish`] ends the apply section.
    ///
    /// If the leaf has values in chunks, the step removes one of them instead:
    /// [`Scratch::take_blob_ref`] returns its chunks.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; nothing was freed then.
    pub fn try_free_leftmost(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        scratch: &mut Scratch,
    ) -> Attempt<FreedStep> {
        let attempt = self.free_leftmost(pool, token, scratch);
        counted(pool, attempt)
    }

    fn free_leftmost(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        scratch: &mut Scratch,
    ) -> Attempt<FreedStep> {
        let mut path = Path::new();
        let leaf = self.descend_with_path(pool, &mut OptimisticAccess, &mut path, |_| 0)?;
        let seen = Leaf::at(leaf);
        scratch.old.clear();
        let mut slots = 0..seen.count();
        if let Some(index) = slots.find(|index| seen.node.slot(*index).is_chunked()) {
            return self.remove_chunked(pool, token, seen, index, scratch);
        }
        for index in 0..seen.count() {
            let spot = Spot { index, exact: true };
            self.collect_old(pool, &seen, spot, &mut scratch.old)?;
        }
        let ancestor = path.branching_ancestor();
        let freed = if let Some((depth, ancestor)) = ancestor {
            let mut ancestor_latch = ancestor.node.upgrade()?;
            let chain = Chain::latch(&path, depth + 1, leaf, token)?;
            let mut ancestor_page = ancestor_latch.modify(token)?;
            edit::remove(&mut ancestor_page, ancestor.index);
            chain.free(pool, token)
        } else {
            Chain::latch(&path, 0, leaf, token)?.free(pool, token)
        };
        let pages_freed = freed + u32_of_len(scratch.old.to_free.len());
        scratch.free_old(pool, token);
        Ok(FreedStep {
            pages_freed,
            done: ancestor.is_none(),
        })
    }

    /// Does a step of [`Tree::try_free_leftmost`] that could not read `lost`, which is the root or
    /// the leftmost child of a node on the path to the leftmost leaf: frees it unread. Pages that
    /// only `lost` names are leaked. If `lost` is neither any longer, no page is freed and `done`
    /// is false.
    ///
    /// # Errors
    /// As [`Tree::try_free_leftmost`].
    pub fn try_free_lost(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        lost: PageId,
        scratch: &mut Scratch,
    ) -> Attempt<FreedStep> {
        let attempt = self.free_lost(pool, token, lost, scratch);
        counted(pool, attempt)
    }

    fn free_lost(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        lost: PageId,
        scratch: &mut Scratch,
    ) -> Attempt<FreedStep> {
        let mut freed = 1;
        let mut done = true;
        if lost != self.root {
            let Some((path, parent)) = self.find_lost(pool, lost)? else {
                return Ok(FreedStep {
                    pages_freed: 0,
                    done: false,
                });
            };
            let count = Node::open(parent.words().slice()).count();
            parent.validate()?;
            let depth = path.steps().count();
            let ancestor = match count {
                1 => path
                    .branching_ancestor()
                    .map(|(depth, ancestor)| (depth, ancestor.node)),
                _ => Some((depth, parent)),
            };
            done = ancestor.is_none();
            freed += match ancestor {
                Some((depth, ancestor)) => {
                    let mut ancestor_latch = ancestor.upgrade()?;
                    let chain = Chain::latch(&path, depth + 1, parent, token)?;
                    let mut ancestor_page = ancestor_latch.modify(token)?;
                    edit::remove(&mut ancestor_page, 0);
                    chain.free(pool, token)
                }
                None => Chain::latch(&path, 0, parent, token)?.free(pool, token),
            };
        }
        scratch.leaks += 1;
        scratch.pending_frees.push(lost);
        // The caller's try_finish frees what has to wait.
        let _later = scratch.try_finish(pool, token);
        Ok(FreedStep {
            pages_freed: freed,
            done,
        })
    }

    /// Finds the node on the leftmost path whose first child is `lost`, and the nodes above it.
    fn find_lost<'p>(
        &self,
        pool: &'p Pool,
        lost: PageId,
    ) -> Attempt<Option<(Path<'p>, Optimistic<'p>)>> {
        let levels = self.try_height(pool)?;
        for level in (1..levels).rev() {
            let mut path = Path::new();
            let to_level = (level, &mut path);
            let node = self.descend_with_path_to(pool, &mut OptimisticAccess, to_level, |_| 0)?;
            let first = Node::open(node.words().slice()).child(0).page();
            node.validate()?;
            if first == lost {
                return Ok(Some((path, node)));
            }
        }
        Ok(None)
    }

    /// Removes a value in chunks from a leaf.
    fn remove_chunked(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        leaf: Leaf<'_>,
        index: usize,
        scratch: &mut Scratch,
    ) -> Attempt<FreedStep> {
        let spot = Spot { index, exact: true };
        self.collect_old(pool, &leaf, spot, &mut scratch.old)?;
        // Nobody reads this tree: its leaves need no marks.
        LeafChange::begin(&mut leaf.latch()?, token)?.remove(spot);
        let pages_freed = u32_of_len(scratch.old.to_free.len());
        scratch.free_old(pool, token);
        Ok(FreedStep {
            pages_freed,
            done: false,
        })
    }
}
