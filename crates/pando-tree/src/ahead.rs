//! The leaves that a scan or a look-up will read next, found from their parents, in memory or not.

use std::ops::Bound;

use pando_format::PageId;
use pando_pool::{Attempt, Pool, Restart};

use crate::access::OptimisticAccess;
use crate::descent::Path;
use crate::leaf_copy::{Direction, ScanBound};
use crate::node::view::Node;
use crate::scan::{bound_behind, child_towards};
use crate::tree::Tree;

/// Selects the leaves that [`Tree::try_list_ahead`] lists.
#[derive(Debug, Clone, Copy)]
pub struct Ahead<'a> {
    /// Where the scan continues. The listed leaves come after the leaf of this bound.
    pub from: ScanBound<'a>,
    /// Where the scan ends.
    pub until: ScanBound<'a>,
    /// Direction of the scan.
    pub direction: Direction,
    /// Number of leaves to skip.
    pub skip: usize,
    /// Maximum number of leaves to list after these.
    pub most: usize,
}

/// What was listed of the leaves of one parent.
struct Listed {
    /// Number of leaves that were skipped.
    skipped: usize,
    /// Number of leaves that were listed.
    leaves: usize,
    /// Leaves of another parent come next.
    goes_on: bool,
}

impl Tree {
    /// Calls `each` with the leaves that a scan will read next. A parent that is not in memory ends
    /// the list: `each` is called with it, too. Returns the number of leaves. All are only a hint.
    /// `bound` is working memory.
    ///
    /// # Errors
    /// [`pando_pool::Restart`] if the parent of the first leaf is missing or being changed; the
    /// pages of which `each` was told have no meaning then.
    pub fn try_list_ahead(
        &self,
        pool: &Pool,
        ahead: Ahead<'_>,
        bound: &mut Vec<u8>,
        mut each: impl FnMut(PageId),
    ) -> Attempt<usize> {
        // The leaf where the scan is comes first.
        let mut skip = ahead.skip + 1;
        let mut listed = self.list_siblings(pool, Ahead { skip, ..ahead }, bound, &mut each)?;
        let (mut leaves, mut from) = (listed.leaves, Vec::new());
        while listed.goes_on && leaves < ahead.most {
            skip -= listed.skipped;
            std::mem::swap(&mut from, bound);
            let next = Ahead {
                from: match ahead.direction {
                    Direction::Forward => Bound::Included(&from[..]),
                    Direction::Backward => Bound::Excluded(&from[..]),
                },
                skip,
                most: ahead.most - leaves,
                ..ahead
            };
            match self.list_siblings(pool, next, bound, &mut each) {
                Ok(more) => listed = more,
                Err(Restart::Fault(page) | Restart::Damaged(page, _)) => {
                    each(page);
                    break;
                }
                Err(_) => break,
            }
            leaves += listed.leaves;
        }
        Ok(leaves)
    }

    /// Returns the leaf where `key` is, or would be. It is only a hint, and the leaf is not looked
    /// at: this does not count as a use of it.
    ///
    /// # Errors
    /// [`pando_pool::Restart`] if a page above the leaf is missing or being changed.
    pub fn try_leaf_of(&self, pool: &Pool, key: &[u8]) -> Attempt<PageId> {
        let mut path = Path::new();
        let to_parent = (1, &mut path);
        let parent = self.descend_with_path_to(pool, &mut OptimisticAccess, to_parent, |node| {
            node.child_for(key)
        })?;
        let node = Node::open(parent.words().slice());
        let leaf = match node.is_inner() {
            true => node.child(node.child_for(key)).page(),
            // The root is the only leaf.
            false => parent.page(),
        };
        parent.validate()?;
        path.steps().try_for_each(|step| step.node.validate())?;
        Ok(leaf)
    }

    /// Calls `each` with leaves from that of `ahead.from` on, after those to be skipped, as far as
    /// they have one parent. `bound` becomes where the leaves of the next parent begin.
    fn list_siblings(
        &self,
        pool: &Pool,
        ahead: Ahead<'_>,
        bound: &mut Vec<u8>,
        each: &mut impl FnMut(PageId),
    ) -> Attempt<Listed> {
        let Ahead {
            from,
            until,
            direction,
            skip,
            most,
        } = ahead;
        let mut next = None;
        let access = &mut OptimisticAccess;
        let mut path = Path::new();
        let parent = self.descend_with_path_to(pool, access, (1, &mut path), |node| {
            let index = child_towards(node, from, direction);
            next = bound_behind(node, index, direction).or(next);
            index
        })?;
        bound.clear();
        if let Some((node, separator)) = next {
            node.copy_key(separator, bound);
        }
        let node = Node::open(parent.words().slice());
        let mut listed = Listed {
            skipped: 0,
            leaves: 0,
            goes_on: next.is_some() && is_before(bound, until, direction),
        };
        // The root may be a leaf.
        if node.level() == 1 {
            let here = child_towards(&node, from, direction);
            let end = child_towards(&node, until, direction.opposite());
            let left = match direction {
                Direction::Forward => (end + 1).saturating_sub(here),
                Direction::Backward => (here + 1).saturating_sub(end),
            };
            listed.skipped = left.min(skip);
            listed.leaves = (left - listed.skipped).min(most);
            for step in skip..skip + listed.leaves {
                let index = match direction {
                    Direction::Forward => here + step,
                    Direction::Backward => here - step,
                };
                each(node.child(index).page());
            }
        }
        parent.validate()?;
        path.steps().try_for_each(|step| step.node.validate())?;
        Ok(listed)
    }
}

/// Returns whether leaves beyond `bound`, in `direction`, may have entries before `until`.
fn is_before(bound: &[u8], until: ScanBound<'_>, direction: Direction) -> bool {
    match (until, direction) {
        (Bound::Unbounded, _) => true,
        (Bound::Included(until), Direction::Forward) => bound <= until,
        (Bound::Excluded(until), Direction::Forward) => bound < until,
        (Bound::Included(until) | Bound::Excluded(until), Direction::Backward) => bound > until,
    }
}
