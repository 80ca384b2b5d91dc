//! Seeks: the record next to a bound, without a copy of its leaf.

use std::ops::Bound;

use pando_pool::{Attempt, Pool};

use crate::access::{Access, OptimisticAccess, retry_then_latch};
use crate::descent::Path;
use crate::leaf_copy::{Direction, ScanBound, edge_in_leaf};
use crate::node::view::Node;
use crate::scan::child_towards;
use crate::tree::Tree;

/// The record that a seek has found. Buffers are reused.
#[derive(Debug, Default)]
pub struct Sought {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, unless `is_long`.
    pub value: Vec<u8>,
    /// The value lies in overflow pages or chunks: [`Tree::try_get`] reads it.
    pub is_long: bool,
    /// The bound of the neighbour of the leaf.
    next_key: Vec<u8>,
}

/// How the seek in one leaf has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Found,
    /// The leaf has no record beyond the bound, but a neighbour that may have one.
    OutOfLeaf,
    OutOfTree,
}

impl Tree {
    /// Replaces `sought` by the first record beyond `bound` in `direction`. Returns false if there
    /// is none.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `sought` holds then has no meaning.
    pub fn try_seek(
        &self,
        pool: &Pool,
        bound: ScanBound<'_>,
        direction: Direction,
        sought: &mut Sought,
    ) -> Attempt<bool> {
        let mut ended = self.seek_in_leaf(pool, bound, direction, sought)?;
        // Ends: each leaf lies beyond the one before.
        while ended == Ended::OutOfLeaf {
            let next = std::mem::take(&mut sought.next_key);
            let bound = match direction {
                Direction::Forward => Bound::Included(&next[..]),
                Direction::Backward => Bound::Excluded(&next[..]),
            };
            ended = self.seek_in_leaf(pool, bound, direction, sought)?;
        }
        Ok(ended == Ended::Found)
    }

    fn seek_in_leaf(
        &self,
        pool: &Pool,
        bound: ScanBound<'_>,
        direction: Direction,
        sought: &mut Sought,
    ) -> Attempt<Ended> {
        retry_then_latch(pool, |latched| match latched {
            None => self.seek_once(pool, &mut OptimisticAccess, bound, direction, sought),
            Some(latched) => self.seek_once(pool, latched, bound, direction, sought),
        })
    }

    fn seek_once<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        bound: ScanBound<'_>,
        direction: Direction,
        sought: &mut Sought,
    ) -> Attempt<Ended> {
        let mut has_neighbour = false;
        let mut path = Path::new();
        let leaf = self.descend_with_path(pool, access, &mut path, |node| {
            let index = child_towards(node, bound, direction);
            let separator = match direction {
                Direction::Forward => Some(index + 1).filter(|next| *next < node.count()),
                Direction::Backward => Some(index).filter(|index| *index > 0),
            };
            if let Some(separator) = separator {
                node.copy_key(separator, &mut sought.next_key);
                has_neighbour = true;
            }
            index
        })?;
        let node = Node::open(leaf.words().slice());
        let edge = edge_in_leaf(&node, bound, direction);
        let index = match direction {
            Direction::Forward => Some(edge).filter(|index| *index < node.count()),
            Direction::Backward => edge.checked_sub(1),
        };
        let Some(index) = index else {
            leaf.validate()?;
            // The removal of a neighbour meanwhile would have moved the bound.
            path.steps().try_for_each(|step| step.node.validate())?;
            return Ok(match has_neighbour {
                true => Ended::OutOfLeaf,
                false => Ended::OutOfTree,
            });
        };
        let slot = node.slot(index);
        sought.key.clear();
        sought.value.clear();
        sought.is_long = !slot.is_plain();
        node.append_prefix(&mut sought.key);
        node.append_suffix(slot, &mut sought.key);
        if !sought.is_long {
            node.append_value(slot, &mut sought.value);
        }
        // An unchanged leaf still covers the bound, so nothing lies between that and the record.
        leaf.validate()?;
        Ok(Ended::Found)
    }
}
