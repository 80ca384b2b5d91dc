//! Merges of underfull nodes with a neighbour under the same parent (decision 019).
//!
//! ```text
//!   parent   .. | k1 A | k2 B | ..          .. | k1 A | ..
//!                   |      |         ->            |
//!                [left] [right]              [left right]     page of B is free
//! ```
//! The left page takes all entries, so the parent loses one entry and no key changes. A node is
//! underfull when less than a quarter of its page is used, and two nodes are merged only if the
//! result leaves a quarter free: about a quarter of a page must be written before the result is
//! split again, or removed before it is underfull again. Parent, left and right are latched
//! together, and none is released before all are changed, as in a split. Readers of the right page
//! find its version changed and start again.

use pando_pool::{ApplyToken, Attempt, Marks, Optimistic, Pool};
use pando_stats::Ticker;

use crate::access::OptimisticAccess;
use crate::descent::step_down;
use crate::node::edit;
use crate::node::view::{self, Node};
use crate::postcondition::{assert_inherits, assert_whole};
use crate::scratch::{Scratch, Work};
use crate::tree::{FrameNode, Tree, counted, damaged, free, marks_of, opened, stamp};

/// Result of a try to merge the node of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The node was merged with a neighbour.
    Merged,
    /// The node stays: it is not underfull, or no neighbour has room for it.
    Kept,
    /// The root is not above this level.
    Top,
}

/// Two neighbours below one parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'p> {
    /// The inner node that has both as children.
    pub(crate) parent: Optimistic<'p>,
    /// Index of `right` in the parent.
    pub(crate) index: usize,
    /// The child whose keys are smaller, at `index` - 1.
    pub(crate) left: Optimistic<'p>,
    /// The child whose keys are greater.
    pub(crate) right: Optimistic<'p>,
}

impl Tree {
    /// Merges the leaf that covers `key`, and the nodes above it, with neighbours as long as they
    /// are underfull and fit. A root with one child takes over its content. Returns the number of
    /// freed pages.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; nodes merged before it stay merged, and the tree is intact.
    pub fn try_merge(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<u32> {
        let attempt = self.merge(pool, token, marks, key, &mut scratch.work);
        counted(pool, attempt)
    }

    fn merge(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        work: &mut Work,
    ) -> Attempt<u32> {
        let (mut level, mut merged) = (0, 0);
        loop {
            match self.merge_level(pool, token, marks, key, level, work)? {
                Look::Merged => {
                    merged += 1;
                    // The nodes below have new neighbours.
                    level = level.saturating_sub(1);
                }
                Look::Kept => level += 1,
                Look::Top => break,
            }
        }
        while self.collapse_root(pool, token)? {
            merged += 1;
        }
        Ok(merged)
    }

    fn merge_level(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        level: u8,
        work: &mut Work,
    ) -> Attempt<Look> {
        let mut parent = None;
        let here = self.descend(pool, &mut OptimisticAccess, level, |here, node| {
            let index = node.child_for(key);
            parent = Some((here, index));
            index
        })?;
        let Some((parent, index)) = parent else {
            here.validate()?;
            return Ok(Look::Top);
        };
        let underfull = Node::open(here.words().slice()).is_underfull();
        here.validate()?;
        if !underfull {
            return Ok(Look::Kept);
        }
        let node = Node::open(parent.words().slice());
        for right in [index, index + 1] {
            if right == 0 || right >= node.count() {
                continue;
            }
            let pair = Pair {
                parent,
                index: right,
                left: self.child(pool, parent, &node, right - 1)?,
                right: self.child(pool, parent, &node, right)?,
            };
            let words_max = pool.page_size().words() / 4 * 3;
            if pair.merge_within(pool, token, marks, work, words_max)? {
                return Ok(Look::Merged);
            }
        }
        parent.validate()?;
        Ok(Look::Kept)
    }

    /// Returns child `index` of `here`, and checks that it is a node of this tree and of the level
    /// below.
    pub(crate) fn child<'p>(
        &self,
        pool: &'p Pool,
        here: Optimistic<'p>,
        node: &FrameNode<'p>,
        index: usize,
    ) -> Attempt<Optimistic<'p>> {
        let level = node.level().saturating_sub(1);
        let child = step_down(pool, &mut OptimisticAccess, here, node, index)?;
        self.node_at(child, Some(level))?;
        Ok(child)
    }
}

impl Pair<'_> {
    /// Moves the entries of the right node to the left one and frees the right page, if all fit
    /// into `words_max` words of a page. Otherwise `work.list` holds the entries of both, or none
    /// if they are too many.
    pub(crate) fn merge_within(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        work: &mut Work,
        words_max: usize,
    ) -> Attempt<bool> {
        let Some(prefix_bytes) = self.join(work, words_max)? else {
            return Ok(false);
        };
        let mut parent = self.parent.upgrade()?;
        let mut left = self.left.upgrade()?;
        let mut right = self.right.upgrade()?;
        let mut parent_page = parent.rebuild(token)?;
        let mut left_page = left.rebuild(token)?;
        // Before the page is freed, a running checkpoint gets its image.
        right.modify(token)?;
        let list = &work.list;
        let inherited =
            [self.left, self.right].map(|side| marks_of(&Node::open(side.words().slice())));
        let children = Node::open(self.parent.words().slice()).count();
        list.build(&mut left_page, 0, list.len(), prefix_bytes);
        if !list.is_inner() {
            let (lsn_max, multi_lsn) = inherited[1];
            view::raise_marks(&mut left_page, lsn_max, multi_lsn);
            stamp(&mut left_page, marks);
            for marks in inherited {
                assert_inherits(&opened(&left), marks);
            }
        }
        edit::remove(&mut parent_page, self.index);
        if opened(&left).is_counted() {
            let records = list.records(opened(&left).tree(), 0, list.len());
            view::set_records_below(&mut parent_page, self.index - 1, records);
        }
        assert_whole(&opened(&left));
        assert_eq!(
            opened(&left).count(),
            list.len(),
            "entries are lost, or there twice"
        );
        let node = opened(&parent);
        assert_eq!(node.count() + 1, children, "a merge takes one child");
        let child = node.child(self.index - 1).page();
        assert_eq!(child, left.page(), "the child that was left is another");
        free(right, token);
        pool.statistics().tick(Ticker::PagesMerged, 1);
        Ok(true)
    }

    /// Puts the entries of both into `work.list`. Returns the length of the prefix with which they
    /// take at most `words_max` words, `None` if they take more.
    fn join(&self, work: &mut Work, words_max: usize) -> Attempt<Option<usize>> {
        let left = Node::open(self.left.words().slice());
        let right = Node::open(self.right.words().slice());
        let parent = Node::open(self.parent.words().slice());
        if !work.list.load(&left) {
            return damaged(&self.left, "holds records longer than a page");
        }
        if !work.right.load(&right) {
            return damaged(&self.right, "holds records longer than a page");
        }
        parent.copy_key(self.index, &mut work.separator);
        let list = &mut work.list;
        let seam = list.len();
        let fits = list.join(&work.right, &work.separator);
        if fits && !list.ascends_at(seam) {
            self.validate()?;
            return damaged(
                &self.right,
                "has keys that are not behind those to its left",
            );
        }
        if !fits {
            list.clear();
        }
        let prefix_bytes = fits
            .then(|| list.prefix_within(0, list.len(), words_max))
            .flatten();
        if prefix_bytes.is_none() {
            // If the entries do not fit, they may be torn, so validate. If they fit, taking the
            // latches proves that they were not.
            self.validate()?;
        }
        Ok(prefix_bytes)
    }

    /// Checks that none of the three nodes has changed since it was looked up.
    pub(crate) fn validate(&self) -> Attempt<()> {
        self.parent.validate()?;
        self.left.validate()?;
        self.right.validate()
    }
}
