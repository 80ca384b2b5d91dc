//! Scans, leaf by leaf: each step copies one leaf, and the bound at which to continue (decision
//! 002).
//!
//! The bound comes from the separators above the leaf. All nodes on the path are validated once
//! more after the copy, so leaf and bound are from one state. If a leaf is split, emptied or
//! removed between two steps, its records move to where the next step looks for them.

use std::ops::Bound;

use pando_pool::{Attempt, Pool};

use crate::access::{Access, OptimisticAccess, retry_then_latch};
use crate::descent::Path;
use crate::leaf_copy::{Direction, LeafCopy, ScanBound};
use crate::node::view::Node;
use crate::tree::{FrameNode, Tree, damaged};

impl Tree {
    /// Replaces `page` by the records of one leaf beyond `bound`, in `direction`.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `page` holds then has no meaning.
    pub fn try_scan_leaf(
        &self,
        pool: &Pool,
        bound: ScanBound<'_>,
        direction: Direction,
        page: &mut LeafCopy,
    ) -> Attempt<()> {
        retry_then_latch(pool, |latched| match latched {
            None => self.scan_leaf(pool, &mut OptimisticAccess, bound, direction, page),
            Some(latched) => self.scan_leaf(pool, latched, bound, direction, page),
        })
    }

    /// As [`Tree::try_scan_leaf`], but reads each node by `access`.
    pub(crate) fn scan_leaf<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        bound: ScanBound<'_>,
        direction: Direction,
        page: &mut LeafCopy,
    ) -> Attempt<()> {
        page.clear();
        let mut next = None;
        let mut path = Path::new();
        let leaf = self.descend_with_path(pool, access, &mut path, |node| {
            let index = child_towards(node, bound, direction);
            next = bound_behind(node, index, direction).or(next);
            index
        })?;
        if let Some((node, separator)) = next {
            page.continue_at(&node, separator);
        }
        page.copy(&Node::open(leaf.words().slice()));
        leaf.validate()?;
        // The removal of a neighbour meanwhile would have moved the bound.
        path.steps().try_for_each(|step| step.node.validate())?;
        if !page.show(bound, direction) {
            page.clear();
            return damaged(&leaf, "describes no overflow pages");
        }
        debug_assert!(page.goes_on_from(bound), "a scan that goes back");
        Ok(())
    }
}

/// Returns the separator of `node` at which a scan goes on that leaves child `index`, if `node` has
/// another child there.
pub(crate) fn bound_behind<'p>(
    node: &FrameNode<'p>,
    index: usize,
    direction: Direction,
) -> Option<(FrameNode<'p>, usize)> {
    match direction {
        Direction::Forward => (index + 1 < node.count()).then_some((*node, index + 1)),
        Direction::Backward => (index > 0).then_some((*node, index)),
    }
}

/// Returns the child of `node` that a scan from `bound` reads first.
pub(crate) fn child_towards(
    node: &FrameNode<'_>,
    bound: ScanBound<'_>,
    direction: Direction,
) -> usize {
    match (bound, direction) {
        (Bound::Unbounded, Direction::Forward) => 0,
        (Bound::Unbounded, Direction::Backward) => node.count().saturating_sub(1),
        (Bound::Excluded(key), Direction::Backward) => node.child_below(key),
        (Bound::Included(key) | Bound::Excluded(key), _) => node.child_for(key),
    }
}
