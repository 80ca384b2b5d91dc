//! Where a key is, or would be: prefix, then heads without branches, then what follows them.
//!
//! Total: at most two times log2(entries) steps, whatever the words hold.

use std::cmp::Ordering;

use pando_format::page::HEADER_WORDS;

use super::slot::{HEAD_BYTES, Slot};
use super::text;
use super::view::Node;
use crate::word::{Word, load};

/// The first entry that is not smaller than the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its index; the number of entries when all are smaller.
    pub index: usize,
    /// True when it is equal.
    pub exact: bool,
}

/// First of the entries `from .. to` whose head is not below `head`.
#[inline]
fn first_head<W: Word, const SHIFT: u32>(words: &[W], from: usize, to: usize, head: u32) -> usize {
    let below = |index: usize| {
        let word = load(words, HEADER_WORDS + (index << SHIFT));
        usize::from(((word >> 32) as u32) < head)
    };
    let mut base = from;
    let mut size = to.saturating_sub(from);
    if size == 0 {
        return from;
    }
    while size > 1 {
        let half = size / 2;
        base += below(base + half - 1) * half;
        size -= half;
    }
    base + below(base)
}

#[inline]
fn search<W: Word, const SHIFT: u32>(node: &Node<'_, W>, key: &[u8]) -> Spot {
    let (words, from, to) = (node.words(), SHIFT as usize, node.count());
    let miss = |index| Spot {
        index,
        exact: false,
    };
    let prefix_bytes = node.prefix_bytes();
    let (shared, suffix) = key.split_at(key.len().min(prefix_bytes));
    match text::compare(words, node.prefix_offset() * 8, shared) {
        Ordering::Less => return miss(to),
        Ordering::Greater => return miss(from),
        Ordering::Equal if shared.len() < prefix_bytes => return miss(from),
        Ordering::Equal => {}
    }
    let head = text::head_of(suffix);
    let head_at = |index: usize| Slot(load(words, HEADER_WORDS + (index << SHIFT))).head();
    let mut low = first_head::<W, SHIFT>(words, from, to, head);
    if low >= to || head_at(low) != head {
        return miss(low);
    }
    let mut high = low + 1;
    if high < to && head_at(high) == head {
        high = match head.checked_add(1) {
            Some(next) => first_head::<W, SHIFT>(words, low, to, next),
            None => to,
        };
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let slot = Slot(load(words, HEADER_WORDS + (middle << SHIFT)));
        match compare_behind_head(words, slot, suffix) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => {
                return Spot {
                    index: middle,
                    exact: true,
                };
            }
            Ordering::Greater => high = middle,
        }
    }
    miss(low)
}

/// Compares the slot's suffix with `suffix`, given that their heads are equal.
#[inline]
pub fn compare_behind_head<W: Word>(words: &[W], slot: Slot, suffix: &[u8]) -> Ordering {
    let lengths = slot.suffix_bytes().cmp(&suffix.len());
    let rest = suffix.get(HEAD_BYTES..).unwrap_or(&[]);
    let both = rest.len().min(slot.rest_bytes());
    // With at most four bytes on one side, equal heads make it a prefix of the other.
    text::compare(words, slot.rest_start(), &rest[..both]).then(lengths)
}

/// Compares the suffixes of two slots of a node.
pub fn compare_slots<W: Word>(words: &[W], left: Slot, right: Slot) -> Ordering {
    let both = left.rest_bytes().min(right.rest_bytes());
    let rests = || text::compare_within(words, left.rest_start(), right.rest_start(), both);
    // With at most four bytes on one side, equal heads make it a prefix of the other.
    left.head()
        .cmp(&right.head())
        .then_with(rests)
        .then(left.suffix_bytes().cmp(&right.suffix_bytes()))
}

impl<W: Word> Node<'_, W> {
    /// The first entry that is not smaller than `key` (of an inner node: behind its first).
    #[inline]
    pub fn find(&self, key: &[u8]) -> Spot {
        if self.is_inner() {
            search::<W, 1>(self, key)
        } else {
            search::<W, 0>(self, key)
        }
    }

    /// Index of the child that covers `key`.
    #[inline]
    pub fn child_for(&self, key: &[u8]) -> usize {
        let spot = search::<W, 1>(self, key);
        spot.index.saturating_sub(usize::from(!spot.exact))
    }

    /// Index of the child that covers the keys just below `key`.
    pub fn child_below(&self, key: &[u8]) -> usize {
        search::<W, 1>(self, key).index.saturating_sub(1)
    }
}
