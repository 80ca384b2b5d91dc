//! Scans, leaf by leaf: each step copies one leaf, and the bound at which to continue (decision
//! 002).
//!
//! The bound comes from the separators above the leaf. All nodes on the path are validated once
//! more after the copy, so leaf and bound are from one state. If a leaf is split, emptied or
//! removed between two steps, its records move to where the next step looks for them.

use std::ops::Bound;

use pando_format::{Lsn, PageId};
use pando_pool::{Attempt, Marks, Pool};

use crate::access::{Access, OptimisticAccess, retry_then_latch};
use crate::node::view::Node;
use crate::overflow::OverflowHeader;
use crate::tree::{FrameNode, Tree, damaged};

/// A step ends early after this many bytes, since keys are copied whole, however long their prefix
/// is.
const COPY_BYTES_MAX: usize = 1 << 20;

/// Where a step starts: the first key for a forward scan, the last for a backward one.
pub type ScanBound<'a> = Bound<&'a [u8]>;

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards greater keys.
    Forward,
    /// Towards smaller keys.
    Backward,
}

/// The value of a scanned record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanValue<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value lies in overflow pages or chunks: [`Tree::try_get`] reads it.
    Long,
}

#[derive(Debug, Clone, Copy)]
struct Copied {
    key_start: usize,
    key_end: usize,
    value_start: usize,
    end: usize,
    is_long: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    From,
    Behind,
}

/// What a step copied: records in scan order, and where to continue. Buffers are reused.
#[derive(Debug)]
pub struct LeafCopy {
    bytes: Vec<u8>,
    records: Vec<Copied>,
    next_key: Vec<u8>,
    next: Next,
    leaf: PageId,
    lsn_max: Lsn,
    multi_lsn: Lsn,
}

impl Default for LeafCopy {
    fn default() -> Self {
        Self::new()
    }
}

impl LeafCopy {
    /// Makes an empty copy.
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            records: Vec::new(),
            next_key: Vec::new(),
            next: Next::Nothing,
            leaf: PageId::NONE,
            lsn_max: Lsn(0),
            multi_lsn: Lsn(0),
        }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether the step found no records. The scan may still continue.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns record `index` in scan order.
    ///
    /// # Panics
    /// When `index` is not below [`LeafCopy::len`].
    pub fn get(&self, index: usize) -> (&[u8], ScanValue<'_>) {
        let record = &self.records[index];
        let value = match record.is_long {
            true => ScanValue::Long,
            false => ScanValue::Inline(&self.bytes[record.value_start..record.end]),
        };
        (&self.bytes[record.key_start..record.key_end], value)
    }

    /// Returns the records in scan order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], ScanValue<'_>)> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns the bound at which the next step starts, `None` at the end of the tree.
    pub fn next_bound(&self) -> Option<ScanBound<'_>> {
        match self.next {
            Next::Nothing => None,
            Next::From => Some(Bound::Included(&self.next_key)),
            Next::Behind => Some(Bound::Excluded(&self.next_key)),
        }
    }

    /// Returns the leaf that was copied.
    pub fn leaf(&self) -> PageId {
        self.leaf
    }

    /// Returns the LSN of the newest batch that changed the leaf.
    pub fn lsn_max(&self) -> Lsn {
        self.lsn_max
    }

    /// Returns both marks of the leaf.
    pub fn marks(&self) -> Marks {
        Marks {
            lsn: self.lsn_max,
            multi_lsn: self.multi_lsn,
        }
    }

    /// Returns the LSN of the newest batch of two or more writes that changed the leaf.
    pub fn multi_lsn(&self) -> Lsn {
        self.multi_lsn
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.next_key.clear();
        self.next = Next::Nothing;
    }

    /// Returns whether the records are in scan order and beyond `bound`, and the next step starts
    /// after all of them.
    fn goes_on_from(&self, bound: ScanBound<'_>, direction: Direction) -> bool {
        let ascends = |one: &[u8], next: &[u8]| match direction {
            Direction::Forward => one < next,
            Direction::Backward => one > next,
        };
        let keys = || self.iter().map(|(key, _)| key);
        let is_beyond = |key: &[u8]| match bound {
            Bound::Unbounded => true,
            Bound::Included(bound) => key == bound || ascends(bound, key),
            Bound::Excluded(bound) => ascends(bound, key),
        };
        let goes_on = match self.next {
            Next::Nothing => true,
            // A forward step starts at a key that is in no copied record.
            Next::From => {
                is_beyond(&self.next_key) && keys().all(|key| ascends(key, &self.next_key))
            }
            Next::Behind => keys().all(|key| key == self.next_key || ascends(key, &self.next_key)),
        };
        goes_on && keys().all(is_beyond) && keys().is_sorted_by(|one, next| ascends(one, next))
    }

    /// Copies entry `index`. Returns `None` when the node is torn.
    fn push(&mut self, node: &FrameNode<'_>, index: usize) -> Option<()> {
        let slot = node.slot(index);
        let key_start = self.bytes.len();
        node.append_prefix(&mut self.bytes);
        let suffix_start = self.bytes.len();
        let (key_end, value_start, end) = if slot.is_plain() {
            let value_at = node.append_record(slot, &mut self.bytes)?;
            let end = value_at + node.value_bytes(slot);
            (suffix_start + slot.suffix_bytes(), value_at, end)
        } else {
            if slot.is_overflow() {
                // A torn header is noticed here, not by the reader of the value.
                OverflowHeader::read(node, slot)?;
            }
            node.append_suffix(slot, &mut self.bytes);
            let end = self.bytes.len();
            (end, end, end)
        };
        // Fails for a torn length, which was read twice.
        (key_end <= value_start && end <= self.bytes.len()).then_some(())?;
        self.records.push(Copied {
            key_start,
            key_end,
            value_start,
            end,
            is_long: !slot.is_plain(),
        });
        Some(())
    }

    /// Copies the entries of `indices` until the step is long enough.
    fn fill(
        &mut self,
        node: &FrameNode<'_>,
        indices: impl ExactSizeIterator<Item = usize>,
    ) -> Option<()> {
        let last = indices.len().saturating_sub(1);
        self.records.reserve(indices.len());
        self.bytes.reserve(8 * node.words().len());
        for (position, index) in indices.enumerate() {
            self.push(node, index)?;
            if self.bytes.len() > COPY_BYTES_MAX && position < last {
                node.copy_key(index, &mut self.next_key);
                self.next = Next::Behind;
                break;
            }
        }
        Some(())
    }
}

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
        let (path, leaf) = self.descend_with_path(pool, access, |node| {
            let index = child_towards(node, bound, direction);
            match direction {
                Direction::Forward if index + 1 < node.count() => {
                    node.copy_key(index + 1, &mut page.next_key);
                    page.next = Next::From;
                }
                Direction::Backward if index > 0 => {
                    node.copy_key(index, &mut page.next_key);
                    page.next = Next::Behind;
                }
                _ => {}
            }
            index
        })?;
        let node = Node::open(leaf.words().slice());
        page.leaf = leaf.page();
        page.lsn_max = node.lsn_max();
        page.multi_lsn = node.multi_lsn();
        let edge = edge_in_leaf(&node, bound, direction);
        let filled = match direction {
            Direction::Forward => page.fill(&node, edge..node.count()),
            Direction::Backward => page.fill(&node, (0..edge).rev()),
        };
        if filled.is_none() {
            return damaged(&leaf, "describes no overflow pages");
        }
        leaf.validate()?;
        // The removal of a neighbour meanwhile would have moved the bound.
        path.steps().try_for_each(|step| step.node.validate())?;
        debug_assert!(page.goes_on_from(bound, direction), "a scan that goes back");
        Ok(())
    }
}

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
    /// Maximum number of leaves to check after these.
    pub most: usize,
}

impl Tree {
    /// Calls `each` with the leaves that a scan will read next, if they have the same parent, in
    /// memory or not. Returns their number. They are only a hint.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; the leaves of which `each` was told have no meaning then.
    pub fn try_list_ahead(
        &self,
        pool: &Pool,
        ahead: Ahead<'_>,
        mut each: impl FnMut(PageId),
    ) -> Attempt<usize> {
        let Ahead {
            from,
            until,
            direction,
            skip,
            most,
        } = ahead;
        let parent = self.descend(pool, &mut OptimisticAccess, 1, |_, node| {
            child_towards(node, from, direction)
        })?;
        let node = Node::open(parent.words().slice());
        if node.level() != 1 {
            return Ok(0);
        }
        let here = child_towards(&node, from, direction);
        let opposite = match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        let end = child_towards(&node, until, opposite);
        let left = match direction {
            Direction::Forward => end.saturating_sub(here),
            Direction::Backward => here.saturating_sub(end),
        };
        let looked = left.saturating_sub(skip).min(most);
        for step in skip + 1..=skip + looked {
            let index = match direction {
                Direction::Forward => here + step,
                Direction::Backward => here - step,
            };
            each(node.child(index).page());
        }
        parent.validate()?;
        Ok(looked)
    }
}

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

/// Returns the first entry to copy for a forward scan, the one after the last for a backward scan.
pub(crate) fn edge_in_leaf(
    node: &FrameNode<'_>,
    bound: ScanBound<'_>,
    direction: Direction,
) -> usize {
    let forward = direction == Direction::Forward;
    let (key, beyond_equal) = match bound {
        Bound::Unbounded => return if forward { 0 } else { node.count() },
        Bound::Included(key) => (key, !forward),
        Bound::Excluded(key) => (key, forward),
    };
    let spot = node.find(key);
    spot.index + usize::from(spot.exact && beyond_equal)
}
