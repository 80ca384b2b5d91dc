//! Removing an empty leaf from its tree.
//!
//! The lowest ancestor with at least two children, the *branching ancestor*, loses the child that
//! leads to the leaf, together with all inner nodes between. The key range goes to the left
//! neighbour below the ancestor, or to the right one for the first child. The leaf of that
//! neighbour next to the range, the *absorbing leaf*, is latched too and inherits the marks, so
//! that later readers of the range learn that something was there. Readers that had passed the
//! ancestor find the version of a freed page changed.

use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, Optimistic, Pool, Restart};
use pando_stats::Ticker;

use pando_format::page::{HEADER_WORDS, PageKind, WORD_HEAP, WORD_PREFIX};

use crate::access::OptimisticAccess;
use crate::descent::{Path, Start, Step, step_down};
use crate::node::edit;
use crate::node::view::{self, LEVEL_MAX, Node};
use crate::postcondition::assert_inherits;
use crate::tree::{FrameNode, Tree, counted, free, marks_of, opened, stamp};
use crate::word::{Store, load};

/// Exclusive latches of the pages between an ancestor and its leaf, and of the leaf.
pub(crate) struct Chain<'p> {
    latches: [Option<Exclusive<'p>>; LEVEL_MAX as usize + 1],
}

impl<'p> Chain<'p> {
    /// Latches all nodes of `path` below `depth` and the leaf, and makes sure that a running
    /// checkpoint gets their images before they are freed.
    pub(crate) fn latch(
        path: &Path<'p>,
        depth: usize,
        leaf: Optimistic<'p>,
        token: &ApplyToken<'_>,
    ) -> Attempt<Self> {
        let mut latches = std::array::from_fn(|_| None);
        let nodes = path.steps().map(|step| step.node).chain([leaf]).skip(depth);
        for (place, node) in latches.iter_mut().zip(nodes) {
            place.insert(node.upgrade()?).modify(token)?;
        }
        Ok(Self { latches })
    }

    /// Frees the pages and returns their number: 0 if the lost page is a child of the ancestor
    /// itself.
    pub(crate) fn free(self, pool: &Pool, token: &ApplyToken<'_>) -> u32 {
        let mut count = 0;
        for latch in self.latches.into_iter().flatten() {
            free(latch, token);
            count += 1;
        }
        pool.statistics()
            .tick(Ticker::PagesRemoved, u64::from(count));
        count
    }
}

impl Tree {
    /// Removes the leaf that covers `key` from the tree if it is empty and not the root. Returns
    /// false if it is not, or no longer.
    ///
    /// # Errors
    /// [`Restart`]; nothing has changed then.
    pub fn try_remove_empty(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
    ) -> Attempt<bool> {
        let attempt = self.remove_empty(pool, token, marks, key);
        counted(pool, attempt)
    }

    fn remove_empty(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
    ) -> Attempt<bool> {
        let mut path = Path::new();
        let leaf = self.descend_with_path(pool, &mut OptimisticAccess, &mut path, |node| {
            node.child_for(key)
        })?;
        let node = Node::open(leaf.words().slice());
        let empty = node.count() == 0;
        leaf.validate()?;
        if !empty || path.steps().next().is_none() {
            return Ok(false);
        }
        let Some((depth, ancestor)) = path.branching_ancestor() else {
            // Every node has one child: the root replaces the leaf.
            while self.collapse_root(pool, token)? {}
            return Ok(true);
        };
        self.give_range_away(pool, token, marks, &path, (depth, ancestor), leaf)?;
        if depth == 0 {
            // The tree is intact either way. A root with one child only costs one more step.
            while let Ok(true) = self.collapse_root(pool, token) {}
        }
        Ok(true)
    }

    fn give_range_away(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        path: &Path<'_>,
        (depth, ancestor): (usize, Step<'_>),
        leaf: Optimistic<'_>,
    ) -> Attempt<()> {
        let absorber = self.absorbing_leaf(pool, &ancestor)?;
        let mut ancestor_latch = ancestor.node.upgrade()?;
        // Latches are only ever tried, so no order of them can deadlock.
        let (chain, mut absorber_latch) = if ancestor.index == 0 {
            let chain = Chain::latch(path, depth + 1, leaf, token)?;
            (chain, absorber.upgrade()?)
        } else {
            let absorber_latch = absorber.upgrade()?;
            (Chain::latch(path, depth + 1, leaf, token)?, absorber_latch)
        };
        let mut ancestor_page = ancestor_latch.rebuild(token)?;
        let mut absorber_page = absorber_latch.modify(token)?;
        let (lsn_max, multi_lsn) = marks_of(&Node::open(leaf.words().slice()));
        view::raise_marks(&mut absorber_page, lsn_max, multi_lsn);
        stamp(&mut absorber_page, marks);
        edit::remove(&mut ancestor_page, ancestor.index);
        assert_inherits(&opened(&absorber_latch), (lsn_max, multi_lsn));
        assert_eq!(
            Node::open(leaf.words().slice()).count(),
            0,
            "a leaf with records is taken out"
        );
        let left = opened(&ancestor_latch).count();
        assert!(left > 0, "an ancestor without children");
        assert_eq!(left + 1, ancestor.count, "an ancestor loses one child");
        let count = chain.free(pool, token);
        assert!(count > 0, "the leaf itself is taken out");
        Ok(())
    }

    /// Finds the leaf that will cover the range of the child that the ancestor loses.
    fn absorbing_leaf<'p>(&self, pool: &'p Pool, ancestor: &Step<'p>) -> Attempt<Optimistic<'p>> {
        let node = Node::open(ancestor.node.words().slice());
        let leftwards = ancestor.index > 0;
        let neighbour = if leftwards { ancestor.index - 1 } else { 1 };
        let child = step_down(pool, &mut OptimisticAccess, ancestor.node, &node, neighbour)?;
        let level = node.level().saturating_sub(1);
        let start = Start {
            node: child,
            level: Some(level),
        };
        let choose = |_, node: &FrameNode<'p>| match leftwards {
            true => node.count().saturating_sub(1),
            false => 0,
        };
        let (leaf, _) = self.descend_from(pool, &mut OptimisticAccess, start, 0, choose)?;
        Ok(leaf)
    }

    /// Moves the content of the root's only child into the root and frees the child. Returns false
    /// when the root does not have exactly one child, or the child is not in memory.
    pub(crate) fn collapse_root(&self, pool: &Pool, token: &ApplyToken<'_>) -> Attempt<bool> {
        let root = pool.optimistic(self.root, 0)?;
        let node = Node::open(root.words().slice());
        let single = node.is_inner() && node.count() == 1;
        root.validate()?;
        if !single {
            return Ok(false);
        }
        let child = match step_down(pool, &mut OptimisticAccess, root, &node, 0) {
            Err(Restart::Fault(_)) => return Ok(false),
            result => result?,
        };
        self.node_at(child, Some(node.level() - 1))?;
        let mut root_latch = root.upgrade()?;
        let mut child_latch = child.upgrade()?;
        child_latch.modify(token)?;
        let mut root_page = root_latch.rebuild(token)?;
        let words = child.words().slice();
        let child_node = Node::open(words);
        let kind = if child_node.is_inner() {
            PageKind::Inner
        } else {
            PageKind::Leaf
        };
        view::reset(&mut root_page, kind, child_node.level());
        let (lsn_max, multi_lsn) = marks_of(&child_node);
        view::raise_marks(&mut root_page, lsn_max, multi_lsn);
        for index in [WORD_HEAP, WORD_PREFIX]
            .into_iter()
            .chain(HEADER_WORDS..words.len())
        {
            Store::store(&mut root_page, index, load(words, index));
        }
        let root_node = opened(&root_latch);
        assert_eq!(root_node.count(), child_node.count(), "entries are lost");
        assert_eq!(
            root_node.level() + 1,
            node.level(),
            "a tree gets one level lower"
        );
        assert_inherits(&root_node, (lsn_max, multi_lsn));
        free(child_latch, token);
        pool.statistics().tick(Ticker::PagesRemoved, 1);
        Ok(true)
    }
}
