//! The tree: its identity, its creation, and what every operation does to its pages.

use pando_format::page::PageKind;
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, Optimistic, Pool, Restart};
use pando_stats::Ticker;
use pando_sync::atomic::AtomicU64;

use crate::node::view::{self, LEVEL_MAX, Node};
use crate::word::Store;

/// A node in a frame.
pub(crate) type FrameNode<'p> = Node<'p, AtomicU64>;

/// A B+tree. The root keeps its page id for the life of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Id of the tree, which every page of it carries.
    pub id: TreeId,
    /// Page id of the root.
    pub root: PageId,
}

impl Tree {
    /// Creates a tree that consists of an empty leaf.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn create(pool: &Pool, token: &ApplyToken<'_>, id: TreeId) -> Attempt<Self> {
        let mut root = pool.allocate(token, id, PageKind::Leaf, 0)?;
        match root.modify(token) {
            Ok(mut page) => view::clear(&mut page),
            Err(restart) => {
                root.free(token);
                return Err(restart);
            }
        }
        Ok(Self {
            id,
            root: root.page(),
        })
    }

    /// Returns the node at `here`, and checks that it belongs to this tree and, if `level` is
    /// known, to that level.
    #[inline]
    pub(crate) fn node_at<'p>(
        &self,
        here: Optimistic<'p>,
        level: Option<u8>,
    ) -> Attempt<FrameNode<'p>> {
        let words = here.words().slice();
        let node = match level {
            Some(level) => Node::open_of(words, self.id, level),
            None => Some(Node::open(words)).filter(|node| self.owns(node)),
        };
        match node {
            Some(node) => Ok(node),
            None => not_of_tree(here),
        }
    }

    /// Returns whether `node` is a node of this tree, by its header.
    #[inline]
    fn owns(&self, node: &FrameNode<'_>) -> bool {
        let level = node.level();
        let kind = if level == 0 {
            node.is_leaf()
        } else {
            node.is_inner() && level <= LEVEL_MAX && node.count() > 0
        };
        kind && node.tree() == self.id
    }
}

/// Counts a conflict in the statistics.
#[inline]
pub(crate) fn counted<T>(pool: &Pool, attempt: Attempt<T>) -> Attempt<T> {
    if matches!(attempt, Err(Restart::Conflict)) {
        pool.statistics().tick(Ticker::Restarts, 1);
    }
    attempt
}

/// Returns why `node` cannot be used, whose header is not what its parent says. Takes a copy: of a
/// reference, every descent would write what it refers to into memory, for nothing.
#[cold]
pub(crate) fn not_of_tree<T>(node: Optimistic<'_>) -> Attempt<T> {
    damaged(&node, "is no node of its tree and level")
}

/// Returns why `node` cannot be used: it changed meanwhile, or it is damaged.
#[cold]
pub(crate) fn damaged<T>(node: &Optimistic<'_>, what: &'static str) -> Attempt<T> {
    node.validate()?;
    Err(Restart::Damaged(node.page(), what))
}

/// Allocates a page of `tree`, ready to be written.
pub(crate) fn allocate<'p>(
    pool: &'p Pool,
    token: &ApplyToken<'_>,
    tree: TreeId,
    kind: PageKind,
    level: u8,
) -> Attempt<Exclusive<'p>> {
    assert_eq!(
        kind == PageKind::Leaf,
        level == 0,
        "a kind on no level of it"
    );
    assert!(level <= LEVEL_MAX, "a node that lies too high");
    let mut latch = pool.allocate(token, tree, kind, level)?;
    match latch.modify(token) {
        Ok(mut page) => view::clear(&mut page),
        Err(restart) => {
            latch.free(token);
            return Err(restart);
        }
    }
    Ok(latch)
}

/// Frees a page of the tree that nothing names any longer.
pub(crate) fn free(latch: Exclusive<'_>, token: &ApplyToken<'_>) {
    latch.unwire();
    latch.free(token);
}

/// Returns the node of a latched page.
pub(crate) fn opened<'a>(latch: &'a Exclusive<'_>) -> FrameNode<'a> {
    Node::open(latch.words().slice())
}

/// Raises the marks of a leaf that a change touches.
pub(crate) fn stamp<P: Store + ?Sized>(page: &mut P, marks: Marks) {
    debug_assert!(
        Node::open(page.words()).is_leaf(),
        "leaves alone have marks"
    );
    view::raise_marks(page, marks.lsn, marks.multi_lsn);
}

/// Returns both marks of a leaf, so that another leaf can inherit them.
pub(crate) fn marks_of(node: &FrameNode<'_>) -> (Lsn, Lsn) {
    (node.lsn_max(), node.multi_lsn())
}
