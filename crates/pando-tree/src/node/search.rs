//! Search for a key in a node: first the prefix, then the heads without branches, then the rest of
//! the key.
//!
//! The search is total: it takes at most two times log2(entries) steps, whatever the words contain.

use std::cmp::Ordering;

use pando_format::page::HEADER_WORDS;

use super::slot::{HEAD_BYTES, LENGTH_BYTES, Slot};
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
    let entries = words.get(HEADER_WORDS..).unwrap_or(&[]);
    let is_below = |word: &W| word.get() < u64::from(head) << 32;
    let below = if SHIFT == 0 {
        let entries = entries.get(from..to).unwrap_or(&[]);
        entries.partition_point(is_below)
    } else {
        let (pairs, _) = entries.as_chunks::<2>();
        let pairs = pairs.get(from..to).unwrap_or(&[]);
        pairs.partition_point(|[slot, _]| is_below(slot))
    };
    from + below
}

/// Returns the part of `key` after the prefix of a node, or, if the key does not begin with that
/// prefix, whether it sorts before or after all keys that do.
#[inline]
fn behind_prefix<'k, W: Word>(node: &Node<'_, W>, key: &'k [u8]) -> Result<&'k [u8], Ordering> {
    let (at, bytes) = (node.prefix_offset(), node.prefix_bytes());
    if bytes == 0 {
        return Ok(key);
    }
    // A prefix within one word, which is the usual one, takes one comparison.
    if let Some((first, _)) = key.split_first_chunk::<8>()
        && let Some(suffix) = key.get(bytes..)
        && bytes <= 8
        && (load(node.words(), at) ^ u64::from_le_bytes(*first)) << (64 - 8 * bytes) == 0
    {
        return Ok(suffix);
    }
    // So does one within two words, as rows of one collection have it.
    if let Some((first, _)) = key.split_first_chunk::<16>()
        && let Some(suffix) = key.get(bytes..)
        && let 9..=16 = bytes
        && (two_words(node.words(), at) ^ u128::from_le_bytes(*first)) << (128 - 8 * bytes) == 0
    {
        return Ok(suffix);
    }
    compare_prefix(node.words(), (at, bytes), key)
}

/// Returns the words from `at` on as one number.
#[inline]
fn two_words<W: Word>(words: &[W], at: usize) -> u128 {
    u128::from(load(words, at)) | u128::from(load(words, at + 1)) << 64
}

/// Does the same for a prefix of any length, of `bytes` bytes from word `at` on.
#[inline(never)]
fn compare_prefix<'k, W: Word>(
    words: &[W],
    (at, bytes): (usize, usize),
    key: &'k [u8],
) -> Result<&'k [u8], Ordering> {
    let (shared, suffix) = key.split_at(key.len().min(bytes));
    // Nearly always the key begins with it: whole words are compared, without their order.
    let stored = words.get(at..).unwrap_or(&[]);
    if shared.len() == bytes && are_equal(stored, shared, shared.last_chunk()) {
        return Ok(suffix);
    }
    match text::compare(words, at * 8, shared) {
        Ordering::Equal if shared.len() == bytes => Ok(suffix),
        Ordering::Less => Err(Ordering::Less),
        _ => Err(Ordering::Greater),
    }
}

/// Returns true if `words` begin with `text`, whose last eight bytes, or those that end with it,
/// are `last`. False if there are not that many words, and without `last` for what is no whole
/// number of words.
#[inline]
fn are_equal<W: Word>(words: &[W], text: &[u8], last: Option<&[u8; 8]>) -> bool {
    let (whole, tail) = text.as_chunks::<8>();
    let Some((same, rest)) = words.split_at_checked(whole.len()) else {
        return false;
    };
    for (chunk, word) in whole.iter().zip(same) {
        if word.get() != u64::from_le_bytes(*chunk) {
            return false;
        }
    }
    if tail.is_empty() {
        return true;
    }
    let Some(last) = last else {
        return false;
    };
    // The tail is the end of `last`, and the beginning of the next word.
    let others = 64 - 8 * tail.len();
    load(rest, 0) << others == u64::from_le_bytes(*last) >> others << others
}

/// What prefix and heads say of the spot of a key; no record has been read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Candidate {
    /// The first entry that is not smaller than the key, unless its suffix is.
    index: usize,
    /// Its slot, if its head is that of the key, so that its suffix has to be compared.
    slot: Option<Slot>,
    /// Length of the prefix.
    prefix_bytes: usize,
}

impl Candidate {
    /// A spot that prefix and heads decide.
    #[inline]
    fn none(index: usize) -> Self {
        Self {
            index,
            slot: None,
            prefix_bytes: 0,
        }
    }

    /// Returns the first word of the record that has to be compared, if one has to.
    #[inline]
    pub fn record(&self) -> Option<usize> {
        self.slot.map(Slot::offset)
    }
}

#[expect(
    clippy::inline_always,
    reason = "else what it takes and returns goes through memory, at each node"
)]
#[inline(always)]
fn candidate<W: Word, const SHIFT: u32>(node: &Node<'_, W>, key: &[u8]) -> Candidate {
    let (words, from, to) = (node.words(), SHIFT as usize, node.count());
    let suffix = match behind_prefix(node, key) {
        Ok(suffix) => suffix,
        Err(Ordering::Less) => return Candidate::none(to),
        Err(_) => return Candidate::none(from),
    };
    let head = text::head_of(suffix);
    let index = first_head::<W, SHIFT>(words, from, to, head);
    if index >= to {
        return Candidate::none(index);
    }
    let slot = slot_at::<W, SHIFT>(words, index);
    Candidate {
        index,
        slot: (slot.head() == head).then_some(slot),
        prefix_bytes: key.len() - suffix.len(),
    }
}

/// Returns the spot of `key`, given what [`candidate`] has said of it.
#[inline]
fn spot_of<W: Word, const SHIFT: u32>(
    node: &Node<'_, W>,
    candidate: Candidate,
    key: &[u8],
) -> Spot {
    let (words, index) = (node.words(), candidate.index);
    let Some(slot) = candidate.slot else {
        return Spot {
            index,
            exact: false,
        };
    };
    let suffix = key.get(candidate.prefix_bytes..).unwrap_or(&[]);
    if is_equal(words, slot, suffix) {
        return Spot { index, exact: true };
    }
    search_equal::<W, SHIFT>(words, index, node.count(), suffix)
}

#[inline]
fn search<W: Word, const SHIFT: u32>(node: &Node<'_, W>, key: &[u8]) -> Spot {
    spot_of::<W, SHIFT>(node, candidate::<W, SHIFT>(node, key), key)
}

#[inline]
fn slot_at<W: Word, const SHIFT: u32>(words: &[W], index: usize) -> Slot {
    Slot(load(words, HEADER_WORDS + (index << SHIFT)))
}

/// Returns true if the slot's suffix is `suffix`, given that their heads are equal. Compares whole
/// words, and is false for lengths for which that is not possible.
#[inline]
fn is_equal<W: Word>(words: &[W], slot: Slot, suffix: &[u8]) -> bool {
    if slot.suffix_bytes() != suffix.len() {
        return false;
    }
    if suffix.len() <= HEAD_BYTES {
        return true;
    }
    // The record begins with the length of the value. The end of the head stands in its place.
    let text = suffix.get(HEAD_BYTES - LENGTH_BYTES..).unwrap_or(&[]);
    let record = words.get(slot.offset()..).unwrap_or(&[]);
    let (Some((first, text)), Some((word, words))) =
        (text.split_first_chunk::<8>(), record.split_first())
    else {
        return false;
    };
    if (word.get() ^ u64::from_le_bytes(*first)) >> (8 * LENGTH_BYTES) != 0 {
        return false;
    }
    are_equal(words, text, suffix.last_chunk())
}

/// Searches among the entries from `low` on whose heads equal that of `suffix`. `low` is the first
/// of them.
///
/// Where keys of several kinds lie together, nodes have no prefix that tells them apart, and many
/// heads are the same. The bytes behind them decide as one number then.
#[inline(never)]
fn search_equal<W: Word, const SHIFT: u32>(
    words: &[W],
    mut low: usize,
    to: usize,
    suffix: &[u8],
) -> Spot {
    let (head, near) = (text::head_of(suffix), near_bytes(suffix));
    let mut high = low + 1;
    if high < to && slot_at::<W, SHIFT>(words, high).head() == head {
        high = to;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let slot = slot_at::<W, SHIFT>(words, middle);
        let order = match slot.head() == head {
            true => near_stored(words, slot).cmp(&near),
            false => slot.head().cmp(&head),
        };
        let order = match order {
            Ordering::Equal => compare_behind_head(words, slot, suffix),
            order => order,
        };
        match order {
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

/// Number of bytes behind the head that the first two words of a record have.
const NEAR_BYTES: usize = 16 - LENGTH_BYTES;

/// Returns the first [`NEAR_BYTES`] bytes of `suffix` behind its head, padded with zeros, as a
/// number. Where two of them differ, the suffixes are in the same order, if their heads are equal.
#[inline]
fn near_bytes(suffix: &[u8]) -> u128 {
    let rest = suffix.get(HEAD_BYTES..).unwrap_or(&[]);
    let rest = &rest[..rest.len().min(NEAR_BYTES)];
    let (first, second) = rest.split_at(rest.len().min(8));
    let near = u128::from(text::word_of(first)) | u128::from(text::word_of(second)) << 64;
    near.swap_bytes()
}

/// Returns the same of the slot's suffix.
#[inline]
fn near_stored<W: Word>(words: &[W], slot: Slot) -> u128 {
    let near = two_words(words, slot.offset()) >> (8 * LENGTH_BYTES);
    // What follows a shorter one is its value, or another record.
    let near = match slot.rest_bytes() {
        NEAR_BYTES.. => near,
        bytes => near & !(u128::MAX << (8 * bytes)),
    };
    near.swap_bytes()
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

    /// Returns what prefix and heads of a leaf say of the spot of `key`. Reads no record.
    #[inline]
    pub fn candidate(&self, key: &[u8]) -> Candidate {
        candidate::<W, 0>(self, key)
    }

    /// Like [`Node::find_in_leaf`], given the result of [`Node::candidate`] for `key`.
    #[inline]
    pub fn find_at(&self, candidate: Candidate, key: &[u8]) -> Spot {
        spot_of::<W, 0>(self, candidate, key)
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
