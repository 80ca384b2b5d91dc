//! A copy of one leaf, whose entries are decoded when they are asked for.
//!
//! A step of a scan copies the words of a leaf, and validates them before it looks at them. What a
//! copy shows has been found to be from one state, so no torn entry can be seen.

use std::array::from_fn;
use std::ops::{Bound, Range};

use pando_format::page::{HEADER_WORDS, SLOT_CHUNKED, SLOT_OVERFLOW};
use pando_format::{Lsn, PageSize};
use pando_pool::Marks;
use pando_sync::atomic::AtomicU64;

use crate::node::slot::{HEAD_BYTES, Slot};
use crate::node::view::Node;
use crate::overflow::OverflowHeader;
use crate::tree::FrameNode;
use crate::word::{Word, load};

/// Number of words that are copied at once: those of a cache line.
const LINE: usize = 8;
/// A step ends early where the prefixes of its keys would take more than this many bytes: who keeps
/// its records copies keys whole.
const PREFIX_BYTES_MAX: usize = 1 << 20;

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

impl Direction {
    /// Returns the other direction.
    #[inline]
    pub fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// The value of a scanned record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanValue<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value lies in overflow pages or chunks: [`crate::Tree::try_get`] reads it.
    Long,
}

/// What a step copied: records in scan order, and where to continue. Buffers are reused.
#[derive(Debug)]
pub struct LeafCopy {
    /// The words of the leaf.
    lines: Vec<[[u8; 8]; LINE]>,
    direction: Direction,
    /// The entries of the leaf that belong to the step.
    entries: Range<usize>,
    /// One of them has a value that is not in the leaf.
    has_long: bool,
    /// The common prefix, and behind it the rest of the key that was asked for last; longer than a
    /// key may be.
    key: Vec<u8>,
    prefix_bytes: usize,
    /// Where the next step starts, if `goes_on`.
    next_key: Vec<u8>,
    goes_on: bool,
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
            lines: Vec::new(),
            direction: Direction::Forward,
            entries: 0..0,
            has_long: false,
            key: Vec::new(),
            prefix_bytes: 0,
            next_key: Vec::new(),
            goes_on: false,
        }
    }

    /// Returns the number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the step found no records. The scan may still continue.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a key that the leaf covers, if it has no records and is not the last one of its tree
    /// in the direction of the scan, which started at `from`.
    #[inline]
    pub fn passed_over<'k>(&'k self, from: ScanBound<'k>) -> Option<&'k [u8]> {
        if !self.is_empty() || self.node().count() > 0 {
            return None;
        }
        let next = self.next_key()?;
        Some(match (self.direction, from) {
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => key,
            (Direction::Forward, Bound::Unbounded) => &[],
            (Direction::Backward, _) => next,
        })
    }

    /// Returns record `index` in scan order. Its key is put together in a buffer that all records
    /// share; an inline value is shown where it lies.
    ///
    /// # Panics
    /// When `index` is not below [`LeafCopy::len`].
    #[inline]
    pub fn entry(&mut self, index: usize) -> (&[u8], ScanValue<'_>) {
        let slot = self.slot(index);
        let node = Node::open(self.lines.as_flattened());
        // None of this is None: a page is checked when it is read (`node/check.rs`), so its records
        // lie in it, and the buffer is longer than a key may be.
        let (rest, value) = node.record(slot).unwrap_or_default();
        let begin = self.prefix_bytes;
        if let Some((head, behind)) = self.key[begin..].split_first_chunk_mut::<HEAD_BYTES>()
            && let Some(behind) = behind.get_mut(..rest.len())
        {
            // All bytes of the head, of which a short suffix has less.
            *head = slot.head().to_be_bytes();
            behind.copy_from_slice(rest);
        }
        let key = self.key.get(..begin + slot.suffix_bytes());
        let value = match slot.is_plain() {
            true => ScanValue::Inline(value),
            false => ScanValue::Long,
        };
        (key.unwrap_or_default(), value)
    }

    /// Returns whether the value of record `index` is [`ScanValue::Long`].
    ///
    /// # Panics
    /// As [`LeafCopy::entry`].
    #[inline]
    pub fn is_long(&self, index: usize) -> bool {
        self.has_long && !self.slot(index).is_plain()
    }

    /// Returns the slot of record `index` in scan order.
    #[inline]
    fn slot(&self, index: usize) -> Slot {
        assert!(index < self.entries.len(), "a record that is not there");
        let index = match self.direction {
            Direction::Forward => self.entries.start + index,
            Direction::Backward => self.entries.end - 1 - index,
        };
        Slot(load(self.lines.as_flattened(), HEADER_WORDS + index))
    }

    /// The leaf.
    #[inline]
    fn node(&self) -> Node<'_, [u8; 8]> {
        Node::open(self.lines.as_flattened())
    }

    /// Returns the number of records before `until`, at which a scan in this direction ends.
    pub fn count_until(&self, until: ScanBound<'_>) -> usize {
        let edge = edge_in_leaf(&self.node(), until, self.direction.opposite());
        let Range { start, end } = self.entries;
        match self.direction {
            Direction::Forward => edge.min(end).saturating_sub(start),
            Direction::Backward => end.saturating_sub(edge.max(start)),
        }
    }

    /// Returns the key at which the next step starts, `None` at the end of the tree. The key itself
    /// belongs to the next step of a forward scan, and to this one of a backward scan.
    pub fn next_key(&self) -> Option<&[u8]> {
        self.goes_on.then_some(&self.next_key[..])
    }

    /// Returns the bound at which the next step starts, `None` at the end of the tree.
    pub fn next_bound(&self) -> Option<ScanBound<'_>> {
        let key = self.next_key()?;
        Some(match self.direction {
            Direction::Forward => Bound::Included(key),
            Direction::Backward => Bound::Excluded(key),
        })
    }

    /// Returns the LSN of the newest batch that changed the leaf.
    pub fn lsn_max(&self) -> Lsn {
        self.node().lsn_max()
    }

    /// Returns both marks of the leaf.
    pub fn marks(&self) -> Marks {
        Marks {
            lsn: self.lsn_max(),
            multi_lsn: self.node().multi_lsn(),
        }
    }

    /// Forgets all records.
    pub(crate) fn clear(&mut self) {
        self.entries = 0..0;
        self.goes_on = false;
    }

    /// Copies the words of `leaf`, without those between slots and heap. They have no meaning
    /// before they are validated.
    pub(crate) fn copy(&mut self, leaf: &FrameNode<'_>) {
        let (from, _) = leaf.words().as_chunks::<LINE>();
        let slots_end = leaf.slots_end().div_ceil(LINE).min(from.len());
        let heap_start = (leaf.heap_start() / LINE).max(slots_end);
        let copied = |line: &[AtomicU64; LINE]| from_fn(|at| line[at].get().to_le_bytes());
        self.lines.clear();
        self.lines.reserve(from.len());
        self.lines.extend(from[..slots_end].iter().map(copied));
        self.lines.resize(heap_start, [[0; 8]; LINE]);
        self.lines.extend(from[heap_start..].iter().map(copied));
    }

    /// Copies key `separator` of `node`, the one at which the next step starts.
    pub(crate) fn continue_at(&mut self, node: &FrameNode<'_>, separator: usize) {
        node.copy_key(separator, &mut self.next_key);
        self.goes_on = true;
    }

    /// Shows the entries beyond `bound` of the leaf that was copied. Returns false if one of them
    /// describes no overflow pages.
    pub(crate) fn show(&mut self, bound: ScanBound<'_>, direction: Direction) -> bool {
        let words = self.lines.as_flattened();
        let node = Node::open(words);
        let edge = edge_in_leaf(&node, bound, direction);
        self.direction = direction;
        self.entries = match direction {
            Direction::Forward => edge..node.count(),
            Direction::Backward => 0..edge,
        };
        let prefix = node.prefix();
        let key_bytes_max = PageSize::new(words.len() * 8).map_or(0, PageSize::key_bytes_max);
        let room = HEAD_BYTES + prefix.len().max(key_bytes_max);
        if self.key.len() < room {
            self.key.resize(room, 0);
        }
        self.key[..prefix.len()].copy_from_slice(prefix);
        self.prefix_bytes = prefix.len();
        if self.entries.len() * self.prefix_bytes > PREFIX_BYTES_MAX {
            self.end_early();
        }
        let words = self.lines.as_flattened();
        let node = Node::open(words);
        let Range { start, end } = self.entries;
        let slots = words.get(HEADER_WORDS + start..HEADER_WORDS + end);
        let slots = slots.unwrap_or(&[]).iter().map(|slot| Slot(slot.get()));
        let flags = slots.clone().fold(0, |flags, slot| flags | slot.flags());
        self.has_long = flags & (SLOT_OVERFLOW | SLOT_CHUNKED) != 0;
        let describes = |slot: Slot| OverflowHeader::read(&node, slot).is_some();
        !self.has_long || slots.filter(|slot| slot.is_overflow()).all(describes)
    }

    /// Leaves entries with long keys to the next step.
    #[cold]
    fn end_early(&mut self) {
        let most = (PREFIX_BYTES_MAX / self.prefix_bytes).max(1);
        let Range { start, end } = self.entries;
        let next = match self.direction {
            Direction::Forward => {
                self.entries.end = end.min(start + most);
                self.entries.end
            }
            // A backward step starts below the last key of this one.
            Direction::Backward => {
                self.entries.start = start.max(end - end.min(most));
                self.entries.start
            }
        };
        let node = Node::open(self.lines.as_flattened());
        node.copy_key(next, &mut self.next_key);
        self.goes_on = true;
    }

    /// Returns whether the records are in scan order and beyond `bound`, and the next step starts
    /// after all of them.
    pub(crate) fn goes_on_from(&mut self, bound: ScanBound<'_>) -> bool {
        let direction = self.direction;
        let is_beyond = |key: &[u8], last: &Bound<Vec<u8>>| match (direction, last) {
            (_, Bound::Unbounded) => true,
            (Direction::Forward, Bound::Included(last)) => key >= &last[..],
            (Direction::Forward, Bound::Excluded(last)) => key > &last[..],
            (Direction::Backward, Bound::Included(last)) => key <= &last[..],
            (Direction::Backward, Bound::Excluded(last)) => key < &last[..],
        };
        let mut last = bound.map(<[u8]>::to_vec);
        for index in 0..self.len() {
            let (key, _) = self.entry(index);
            if !is_beyond(key, &last) {
                return false;
            }
            last = Bound::Excluded(key.to_vec());
        }
        if let (Direction::Backward, Bound::Excluded(key)) = (direction, &last) {
            // A backward step starts below a key that this one may have copied.
            last = Bound::Included(key.clone());
        }
        self.next_key().is_none_or(|next| is_beyond(next, &last))
    }
}

/// Returns the first entry to copy for a forward scan, the one after the last for a backward scan.
pub(crate) fn edge_in_leaf<W: Word>(
    node: &Node<'_, W>,
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

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use fastrand::Rng;
    use pando_format::page::{WORD_KIND, WORD_PREFIX};

    use super::*;

    #[test]
    fn any_words_can_be_shown() {
        let mut random = Rng::with_seed(1);
        let mut copy = LeafCopy::new();
        for _ in 0..1000 {
            let page = PageSize::MIN << random.u32(..3);
            let mut any = || from_fn(|_| random.u64(..).to_le_bytes());
            copy.lines = (0..page / 8 / LINE).map(|_| any()).collect();
            let words = copy.lines.as_flattened_mut();
            words[WORD_KIND] = [0; 8];
            if random.bool() {
                let prefix = random.u64(..600) | random.u64(..300) << 16;
                words[WORD_PREFIX] = prefix.to_le_bytes();
            }
            let direction = [Direction::Forward, Direction::Backward][random.usize(..2)];
            let bound = [random.u8(..); 5];
            let _describes = copy.show(Bound::Included(&bound), direction);
            assert!(copy.count_until(Bound::Excluded(&bound)) <= copy.len());
            for index in 0..copy.len() {
                let is_long = copy.is_long(index);
                let (_, value) = copy.entry(index);
                assert_eq!(is_long, value == ScanValue::Long);
            }
        }
    }
}
