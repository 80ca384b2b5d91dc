//! Search for a key in a node: first the prefix, then the heads without branches, then the rest of
//! the key.
//!
//! The search is total: it takes at most two times log2(entries) steps, whatever the words contain.

use std::cmp::Ordering;

use pando_format::page::HEADER_WORDS;

use super::slot::{HEAD_BYTES, Slot};
use super::text;
use super::view::Node;
use crate::word::{Word, load};

/// The first entry that is not smaller than the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its index, or the number of entries if all are smaller.
    pub index: usize,
    /// True when it is equal to the key.
    pub exact: bool,
}

/// Returns the first of the entries `from .. to` whose head is not below `head`. Has no branches
/// that depend on the words.
#[inline]
fn first_head<W: Word, const SHIFT: u32>(words: &[W], from: usize, to: usize, head: u32) -> usize {
    let entries = words.get(HEADER_WORDS + (from << SHIFT)..HEADER_WORDS + (to << SHIFT));
    let entries = entries.unwrap_or(&[]);
    let is_below = |word: &W| ((word.get() >> 32) as u32) < head;
    let below = if SHIFT == 0 {
        entries.partition_point(is_below)
    } else {
        let (pairs, _) = entries.as_chunks::<2>();
        pairs.partition_point(|[slot, _]| is_below(slot))
    };
    from + below
}

/// Returns the part of `key` after the prefix of a node, or, if the key does not begin with that
/// prefix, whether it sorts before or after all keys that do.
#[inline]
fn behind_prefix<'k, W: Word>(node: &Node<'_, W>, key: &'k [u8]) -> Result<&'k [u8], Ordering> {
    let bytes = node.prefix_bytes();
    if bytes == 0 {
        return Ok(key);
    }
    let (shared, suffix) = key.split_at(key.len().min(bytes));
    match text::compare(node.words(), node.prefix_offset() * 8, shared) {
        Ordering::Equal if shared.len() == bytes => Ok(suffix),
        Ordering::Less => Err(Ordering::Less),
        _ => Err(Ordering::Greater),
    }
}

#[inline]
fn search<W: Word, const SHIFT: u32>(node: &Node<'_, W>, key: &[u8]) -> Spot {
    let (words, from, to) = (node.words(), SHIFT as usize, node.count());
    let miss = |index| Spot {
        index,
        exact: false,
    };
    let suffix = match behind_prefix(node, key) {
        Ok(suffix) => suffix,
        Err(Ordering::Less) => return miss(to),
        Err(_) => return miss(from),
    };
    let head = text::head_of(suffix);
    let low = first_head::<W, SHIFT>(words, from, to, head);
    if low >= to || slot_at::<W, SHIFT>(words, low).head() != head {
        return miss(low);
    }
    search_equal::<W, SHIFT>(words, low, to, suffix)
}

#[inline]
fn slot_at<W: Word, const SHIFT: u32>(words: &[W], index: usize) -> Slot {
    Slot(load(words, HEADER_WORDS + (index << SHIFT)))
}

/// Searches among the entries from `low` on whose heads equal that of `suffix`. `low` is the first
/// of them.
#[inline]
fn search_equal<W: Word, const SHIFT: u32>(
    words: &[W],
    mut low: usize,
    to: usize,
    suffix: &[u8],
) -> Spot {
    let head = text::head_of(suffix);
    let mut high = low + 1;
    if high < to && slot_at::<W, SHIFT>(words, high).head() == head {
        high = match head.checked_add(1) {
            Some(next) => first_head::<W, SHIFT>(words, low, to, next),
            None => to,
        };
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match compare_behind_head(words, slot_at::<W, SHIFT>(words, middle), suffix) {
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
    Spot {
        index: low,
        exact: false,
    }
}

/// Compares the slot's suffix with `suffix`, given that their heads are equal.
#[inline]
fn compare_behind_head<W: Word>(words: &[W], slot: Slot, suffix: &[u8]) -> Ordering {
    let lengths = slot.suffix_bytes().cmp(&suffix.len());
    let rest = suffix.get(HEAD_BYTES..).unwrap_or(&[]);
    let both = rest.len().min(slot.rest_bytes());
    // If one side has at most four bytes and the heads are equal, it is a prefix of the other.
    text::compare(words, slot.rest_start(), &rest[..both]).then(lengths)
}

/// Compares the suffixes of two slots of a node.
pub fn compare_slots<W: Word>(words: &[W], left: Slot, right: Slot) -> Ordering {
    let both = left.rest_bytes().min(right.rest_bytes());
    let rests = || text::compare_within(words, left.rest_start(), right.rest_start(), both);
    // If one side has at most four bytes and the heads are equal, it is a prefix of the other.
    left.head()
        .cmp(&right.head())
        .then_with(rests)
        .then(left.suffix_bytes().cmp(&right.suffix_bytes()))
}

impl<W: Word> Node<'_, W> {
    /// Returns the first entry that is not smaller than `key`. In an inner node, the first entry is
    /// skipped.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Spot {
        if self.is_inner() {
            search::<W, 1>(self, key)
        } else {
            search::<W, 0>(self, key)
        }
    }

    /// Like [`Node::find`], for a leaf.
    #[inline]
    pub fn find_in_leaf(&self, key: &[u8]) -> Spot {
        search::<W, 0>(self, key)
    }

    /// Returns the first entry of a leaf whose head is not below that of `key`: the entry of `key`,
    /// unless heads are equal or the prefix differs. Reads no record.
    #[inline]
    pub fn candidate(&self, key: &[u8]) -> usize {
        let suffix = key.get(self.prefix_bytes()..).unwrap_or(&[]);
        first_head::<W, 0>(self.words(), 0, self.count(), text::head_of(suffix))
    }

    /// Like [`Node::find_in_leaf`], given the result of [`Node::candidate`] for `key`.
    #[inline]
    pub fn find_at(&self, candidate: usize, key: &[u8]) -> Spot {
        let (words, to) = (self.words(), self.count());
        match behind_prefix(self, key) {
            Ok(suffix)
                if candidate < to
                    && slot_at::<W, 0>(words, candidate).head() == text::head_of(suffix) =>
            {
                search_equal::<W, 0>(words, candidate, to, suffix)
            }
            Ok(_) => Spot {
                index: candidate,
                exact: false,
            },
            Err(_) => self.find_in_leaf(key),
        }
    }

    /// Returns the index of the child that covers `key`.
    #[inline]
    pub fn child_for(&self, key: &[u8]) -> usize {
        let spot = search::<W, 1>(self, key);
        spot.index.saturating_sub(usize::from(!spot.exact))
    }

    /// Returns the index of the child that covers the keys just below `key`.
    pub fn child_below(&self, key: &[u8]) -> usize {
        search::<W, 1>(self, key).index.saturating_sub(1)
    }
}
