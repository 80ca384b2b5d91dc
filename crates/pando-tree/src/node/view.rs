//! Read access to a node through its words: header fields, entries, keys, values.
//!
//! The header is read once, and every count and length is clamped to the page, so that any content
//! can be read as a node. Whether it was one is decided by validation (of optimistic reads) or by
//! `check_page` (of loaded pages).

use std::ops::Range;

use pando_format::cast::{low_u8, low_u32};
use pando_format::page::{
    COUNT_BYTES, HEADER_WORDS, PageKind, WORD_HEAP, WORD_ID, WORD_KIND, WORD_LSN_MAX,
    WORD_MULTI_LSN, WORD_PREFIX,
};
use pando_format::weight::weight_of;
use pando_format::{Lsn, PageId, PageSize, TreeId};

use super::slot::{
    HEAD_BYTES, LENGTH_BYTES, RECORD_IN_COPY, Slot, inner_record_words, leaf_record_words,
};
use super::text;
use crate::word::{Store, Word, load};

/// Maximum level of an inner node: no tree is taller.
pub const LEVEL_MAX: u8 = 15;

/// A view of a node.
#[derive(Debug)]
pub struct Node<'a, W> {
    words: &'a [W],
    tags: u64,
    heap: u64,
    prefix: u64,
    stride_shift: u32,
    count: usize,
}

impl<W> Clone for Node<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Node<'_, W> {}

impl<'a, W: Word> Node<'a, W> {
    /// Reads the header of the node in `words`.
    #[inline]
    pub fn open(words: &'a [W]) -> Self {
        let (tags, heap, prefix) = header(words);
        let stride_shift = u32::from(kind_byte(tags) == PageKind::Inner.encode());
        Self::with_header(words, (tags, heap, prefix), stride_shift)
    }

    /// As [`Node::open`], for what can only be a leaf.
    #[inline]
    pub fn open_leaf(words: &'a [W]) -> Self {
        Self::with_header(words, header(words), 0)
    }

    /// As [`Node::open`], if the header says that this is a node of `tree` at `level`, and one with
    /// children unless it is a leaf.
    #[inline]
    pub fn open_of(words: &'a [W], tree: TreeId, level: u8) -> Option<Self> {
        let (tags, heap, prefix) = header(words);
        let (kind, stride_shift) = match level {
            0 => (PageKind::Leaf, 0),
            _ => (PageKind::Inner, 1),
        };
        let expected = u64::from(tree.0) | u64::from(kind.encode()) << 32 | u64::from(level) << 40;
        let node = Self::with_header(words, (tags, heap, prefix), stride_shift);
        // Codec and flags, in the upper two bytes, may be anything.
        let is_of = (tags ^ expected) << 16 == 0 && (level == 0 || node.count > 0);
        is_of.then_some(node)
    }

    /// Returns the same node, which is a leaf, such that the compiler knows it.
    #[inline]
    pub fn as_leaf(&self) -> Self {
        debug_assert_eq!(self.stride_shift, 0, "an inner node");
        let stride_shift = 0;
        Self {
            stride_shift,
            ..*self
        }
    }

    #[inline]
    fn with_header(
        words: &'a [W],
        (tags, heap, prefix): (u64, u64, u64),
        stride_shift: u32,
    ) -> Self {
        let room = words.len().saturating_sub(HEADER_WORDS) >> stride_shift;
        Self {
            words,
            tags,
            heap,
            prefix,
            stride_shift,
            count: ((heap & 0xFFFF) as usize).min(room),
        }
    }

    /// Returns the words.
    #[inline]
    pub fn words(&self) -> &'a [W] {
        self.words
    }

    /// Returns the page id in the header.
    pub fn page(&self) -> PageId {
        PageId((load(self.words, WORD_ID) >> 32) as u32)
    }

    /// Returns the tree that the page belongs to.
    #[inline]
    pub fn tree(&self) -> TreeId {
        TreeId(low_u32(self.tags))
    }

    /// Returns whether the node belongs to a counted tree.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.tree().is_counted()
    }

    /// Returns the kind of the page, None if it is unknown.
    pub fn kind(&self) -> Option<PageKind> {
        PageKind::decode(kind_byte(self.tags))
    }

    /// Returns whether this is an inner node.
    #[inline]
    pub fn is_inner(&self) -> bool {
        self.stride_shift == 1
    }

    /// Returns whether this is a leaf.
    #[inline]
    pub fn is_leaf(&self) -> bool {
        kind_byte(self.tags) == PageKind::Leaf.encode()
    }

    /// Returns the level, 0 for a leaf.
    #[inline]
    pub fn level(&self) -> u8 {
        low_u8(self.tags >> 40)
    }

    /// Returns the LSN of the newest batch that changed the page.
    #[inline]
    pub fn lsn_max(&self) -> Lsn {
        Lsn(load(self.words, WORD_LSN_MAX))
    }

    /// Returns the LSN of the newest batch of two or more writes that changed it.
    #[inline]
    pub fn multi_lsn(&self) -> Lsn {
        Lsn(load(self.words, WORD_MULTI_LSN))
    }

    /// Returns the number of entries, clamped to what the page has room for.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the binary logarithm of the number of words of an entry (slot, and child word).
    #[inline]
    pub fn stride_shift(&self) -> u32 {
        self.stride_shift
    }

    /// First word of the heap.
    #[inline]
    pub fn heap_start(&self) -> usize {
        ((self.heap >> 32 & 0xFFFF) as usize).min(self.words.len())
    }

    /// Returns the number of heap words that belong to no record.
    #[inline]
    pub fn dead_words(&self) -> usize {
        (self.heap >> 48) as usize
    }

    /// Returns the first word after the slots.
    #[inline]
    pub fn slots_end(&self) -> usize {
        HEADER_WORDS + (self.count << self.stride_shift)
    }

    /// Returns the number of words between slots and heap.
    #[inline]
    pub fn gap_words(&self) -> usize {
        self.heap_start().saturating_sub(self.slots_end())
    }

    /// Returns the number of bytes that are free after compaction.
    pub fn free_bytes(&self) -> usize {
        (self.gap_words() + self.dead_words().min(self.words.len())) * 8
    }

    /// Returns the number of bytes in use, including the header.
    pub fn used_bytes(&self) -> usize {
        (self.words.len() * 8).saturating_sub(self.free_bytes())
    }

    /// Returns whether less than a quarter of the page is in use, so that it may be merged with a
    /// neighbour.
    #[inline]
    pub fn is_underfull(&self) -> bool {
        self.free_bytes() > self.words.len() * 6
    }

    /// Returns the first word of the common prefix.
    #[inline]
    pub fn prefix_offset(&self) -> usize {
        (self.prefix & 0xFFFF) as usize
    }

    /// Returns the length of the common prefix in bytes.
    #[inline]
    pub fn prefix_bytes(&self) -> usize {
        (self.prefix >> 16 & 0xFFFF) as usize
    }

    /// Returns the slot of entry `index`.
    #[inline]
    pub fn slot(&self, index: usize) -> Slot {
        Slot(load(self.words, self.slot_word(index)))
    }

    /// Returns the word of the page at which the slot of entry `index` lies.
    #[inline]
    pub fn slot_word(&self, index: usize) -> usize {
        HEADER_WORDS + (index << self.stride_shift)
    }

    /// Returns the child word of entry `index` of an inner node.
    #[inline]
    pub fn child(&self, index: usize) -> ChildWord {
        ChildWord(load(self.words, Self::child_word(index)))
    }

    /// Returns the word of the page at which that child word lies.
    #[inline]
    pub fn child_word(index: usize) -> usize {
        HEADER_WORDS + 2 * index + 1
    }

    /// Returns the number of records below entry `index` of an inner node of a counted tree. Here
    /// and in what follows, each record of a weighted tree counts as often as its weight says.
    #[inline]
    pub fn records_below(&self, index: usize) -> u64 {
        load(self.words, self.slot(index).value_start())
    }

    /// Returns what the record of `slot` of a leaf of a counted tree counts for: 1, or its weight.
    #[inline]
    pub fn weight(&self, slot: Slot) -> u64 {
        if !self.tree().is_weighted() {
            return 1;
        }
        let is_empty = self.value_bytes(slot) == 0;
        let first = (!is_empty).then(|| low_u8(load(self.words, slot.value_start())));
        weight_of(slot.flags(), first)
    }

    /// Returns the number of records in, or below, entry `index` of a node of a counted tree.
    #[inline]
    pub fn records_at(&self, index: usize) -> u64 {
        match self.is_inner() {
            true => self.records_below(index),
            false => self.weight(self.slot(index)),
        }
    }

    /// Returns the number of records in, or below, the first `entries` entries of a node of a
    /// counted tree.
    #[inline]
    pub fn records_before(&self, entries: usize) -> u64 {
        self.records_within(0, entries)
    }

    /// Returns the number of records in, or below, the entries `from .. to` of a node of a counted
    /// tree.
    #[inline]
    pub fn records_within(&self, from: usize, to: usize) -> u64 {
        match (self.is_inner(), self.tree().is_weighted()) {
            (true, _) => self.records_below_all(from, to),
            (false, false) => (to - from) as u64,
            (false, true) => self.weights_within(from, to),
        }
    }

    /// Returns what the records of the entries `from .. to` of a leaf of a weighted tree count for.
    fn weights_within(&self, from: usize, to: usize) -> u64 {
        let slots = self.words.get(HEADER_WORDS..).unwrap_or(&[]);
        let slots = slots.get(from..to.min(self.count)).unwrap_or(&[]);
        slots.iter().fold(0, |sum: u64, slot| {
            let slot = Slot(slot.get());
            let weight = match self.value_bytes_in_leaf(slot) {
                // No other word of it is looked at.
                0 => weight_of(slot.flags(), None),
                _ => {
                    let first = low_u8(load(self.words, slot.value_start()));
                    weight_of(slot.flags(), Some(first))
                }
            };
            sum.wrapping_add(weight)
        })
    }

    /// As [`Node::value_bytes`], of a leaf.
    #[inline]
    fn value_bytes_in_leaf(&self, slot: Slot) -> usize {
        (load(self.words, slot.offset()) & 0xFFFF) as usize
    }

    /// Returns the number of records below the entries `from .. to` of an inner node.
    fn records_below_all(&self, from: usize, to: usize) -> u64 {
        debug_assert_eq!(self.stride_shift, 1, "a leaf");
        let entries = self.words.get(HEADER_WORDS..).unwrap_or(&[]);
        let (pairs, _) = entries.as_chunks::<2>();
        let pairs = pairs.get(from..to.min(self.count)).unwrap_or(&[]);
        pairs.iter().fold(0, |sum: u64, [slot, _]| {
            sum.wrapping_add(load(self.words, Slot(slot.get()).value_start()))
        })
    }

    /// Returns what [`Node::records_before`] does, given the number of all records in, or below,
    /// the node: the shorter part is added up.
    pub fn records_before_of(&self, entries: usize, all: u64) -> u64 {
        match 2 * entries > self.count {
            true => all.wrapping_sub(self.records_within(entries, self.count)),
            false => self.records_within(0, entries),
        }
    }

    /// Returns the number of all records in, or below, a node of a counted tree.
    pub fn records(&self) -> u64 {
        self.records_within(0, self.count)
    }

    /// Returns the length in bytes of the value of `slot` (of its overflow header, if it
    /// overflows).
    #[inline]
    pub fn value_bytes(&self, slot: Slot) -> usize {
        if self.is_inner() && !self.is_counted() {
            return 0;
        }
        self.value_bytes_in_leaf(slot)
    }

    /// Returns the number of words of the record of `slot`.
    pub fn record_words(&self, slot: Slot) -> usize {
        if self.is_inner() && !self.is_counted() {
            inner_record_words(slot.suffix_bytes())
        } else {
            leaf_record_words(slot.suffix_bytes(), self.value_bytes(slot))
        }
    }

    /// Appends the value of `slot`.
    #[inline]
    pub fn append_value(&self, slot: Slot, out: &mut Vec<u8>) {
        text::append_words(self.words, slot.value_start(), self.value_bytes(slot), out);
    }

    /// Copies suffix and value of `slot` of a leaf to the front of `out`, in one copy of the words
    /// of the record. Returns the start of the value, and where the words are; the bytes between
    /// suffix and value have no meaning. Returns None if the record does not lie in the page,
    /// because `slot` is torn, or not in `out`.
    #[inline]
    pub fn copy_record(&self, slot: Slot, out: &mut [u8]) -> Option<(usize, Range<usize>)> {
        let words = leaf_record_words(slot.suffix_bytes(), self.value_bytes(slot));
        let record = self.words.get(slot.offset()..)?.get(..words)?;
        let place = RECORD_IN_COPY..RECORD_IN_COPY + 8 * words;
        let (chunks, _) = out.get_mut(place.clone())?.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(record) {
            *chunk = word.get().to_le_bytes();
        }
        // The record begins with the value's length, which the end of the head overwrites.
        *out.first_chunk_mut()? = slot.head().to_be_bytes();
        let value = place.start + 8 * (slot.value_start() - slot.offset());
        Some((value, place))
    }

    /// Appends the suffix of `slot`.
    pub fn append_suffix(&self, slot: Slot, out: &mut Vec<u8>) {
        let head = slot.head().to_be_bytes();
        out.extend_from_slice(&head[..slot.suffix_bytes().min(head.len())]);
        text::append(self.words, slot.rest_start(), slot.rest_bytes(), out);
    }

    /// Appends the common prefix.
    pub fn append_prefix(&self, out: &mut Vec<u8>) {
        text::append_words(self.words, self.prefix_offset(), self.prefix_bytes(), out);
    }

    /// Replaces `out` by the key of entry `index`; empty for the first entry of an inner node.
    pub fn copy_key(&self, index: usize, out: &mut Vec<u8>) {
        out.clear();
        if index > 0 || !self.is_inner() {
            self.append_prefix(out);
            self.append_suffix(self.slot(index), out);
        }
    }

    /// Returns false if the key of entry `index` does not begin with the first `len` bytes of
    /// `key`, as far as the common prefix and the slot say.
    #[inline]
    pub fn may_begin_alike(&self, index: usize, key: &[u8], len: usize) -> bool {
        let suffix = key.get(self.prefix_bytes()..).unwrap_or(&[]);
        len < self.prefix_bytes() + HEAD_BYTES || self.slot(index).head() == text::head_of(suffix)
    }

    /// Returns whether `key` begins with the common prefix.
    pub fn shares_prefix(&self, key: &[u8]) -> bool {
        let bytes = self.prefix_bytes();
        key.get(..bytes)
            .is_some_and(|head| text::compare(self.words, self.prefix_offset() * 8, head).is_eq())
    }

    /// Returns the first entry with a key: 1 for an inner node, whose first entry stands for
    /// everything smaller, 0 for a leaf.
    #[inline]
    pub fn first_key(&self) -> usize {
        usize::from(self.is_inner())
    }
}

impl<'a> Node<'a, [u8; 8]> {
    /// Returns the common prefix, where it lies; nothing if it does not lie in the page.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        let behind = self.words.get(self.prefix_offset()..).unwrap_or(&[]);
        let prefix = behind.as_flattened().get(..self.prefix_bytes());
        prefix.unwrap_or(&[])
    }

    /// Returns what the record of `slot` of a leaf has of the suffix, and its value, where they
    /// lie; None if they do not lie in the page.
    #[inline]
    pub fn record(&self, slot: Slot) -> Option<(&'a [u8], &'a [u8])> {
        let record = self.words.get(slot.offset()..)?.as_flattened();
        let (length, suffix) = record.split_first_chunk::<LENGTH_BYTES>()?;
        let rest = suffix.get(..slot.rest_bytes())?;
        let value = record.get(8 * (slot.value_start() - slot.offset())..)?;
        let value = value.get(..usize::from(u16::from_le_bytes(*length)))?;
        Some((rest, value))
    }
}

/// Returns the words of the header that tell what the node is, and where its parts are.
#[inline]
fn header<W: Word>(words: &[W]) -> (u64, u64, u64) {
    // One check of the length for all three.
    match words.first_chunk::<HEADER_WORDS>() {
        Some(header) => (
            header[WORD_KIND].get(),
            header[WORD_HEAP].get(),
            header[WORD_PREFIX].get(),
        ),
        None => (0, 0, 0),
    }
}

#[inline]
fn kind_byte(tags: u64) -> u8 {
    low_u8(tags >> 32)
}

/// A child's page id, and a hint for the frame in which it was last seen (decision 003).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildWord(pub u64);

impl ChildWord {
    /// Makes a child word. `hint` is frame index + 1, 0 for none.
    #[inline]
    pub fn new(page: PageId, hint: u32) -> Self {
        Self(u64::from(page.0) | u64::from(hint) << 32)
    }

    /// Returns the page id of the child.
    #[inline]
    pub fn page(self) -> PageId {
        PageId(low_u32(self.0))
    }

    /// Returns the hint: frame index + 1, 0 for none.
    #[inline]
    pub fn hint(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The header word of the heap.
#[derive(Debug, Clone, Copy)]
pub struct HeapWord {
    /// Number of entries.
    pub count: usize,
    /// First word of the heap.
    pub heap_start: usize,
    /// Number of heap words that belong to nothing.
    pub dead_words: usize,
}

impl HeapWord {
    /// Encodes the word as it is stored.
    pub fn pack(self) -> u64 {
        debug_assert!(self.heap_start <= PageSize::MAX / 8, "behind any page");
        debug_assert!(
            HEADER_WORDS + self.count <= self.heap_start,
            "more entries than room"
        );
        debug_assert!(self.dead_words <= PageSize::MAX / 8, "more dead than words");
        self.count as u64 | (self.heap_start as u64) << 32 | (self.dead_words as u64) << 48
    }
}

/// Writes the header of a page of `tree` without entries or payload to a page of zeros.
pub fn begin<P: Store + ?Sized>(page: &mut P, id: PageId, tree: TreeId, kind: PageKind, level: u8) {
    page.store(WORD_ID, u64::from(id.0) << 32);
    page.store(WORD_KIND, u64::from(tree.0));
    if matches!(kind, PageKind::Leaf | PageKind::Inner) {
        reset(page, kind, level);
    } else {
        let tags = u64::from(tree.0) | u64::from(kind.encode()) << 32;
        page.store(WORD_KIND, tags);
    }
}

/// Makes the page a node without entries. Page and tree id stay.
pub fn reset<P: Store + ?Sized>(page: &mut P, kind: PageKind, level: u8) {
    assert!(
        matches!(kind, PageKind::Leaf | PageKind::Inner),
        "{kind:?} is no node"
    );
    assert_eq!(
        kind == PageKind::Leaf,
        level == 0,
        "{kind:?} at level {level}"
    );
    assert!(level <= LEVEL_MAX, "a node that lies too high");
    let tree = load(page.words(), WORD_KIND) & 0xFFFF_FFFF;
    let tags = tree | u64::from(kind.encode()) << 32 | u64::from(level) << 40;
    page.store(WORD_KIND, tags);
    clear(page);
}

/// Removes all entries.
pub fn clear<P: Store + ?Sized>(page: &mut P) {
    let empty = HeapWord {
        count: 0,
        heap_start: page.words().len(),
        dead_words: 0,
    };
    page.store(WORD_HEAP, empty.pack());
    page.store(WORD_PREFIX, 0);
}

/// Sets the number of records below entry `index` of an inner node of a counted tree.
pub fn set_records_below<P: Store + ?Sized>(page: &mut P, index: usize, records: u64) {
    let node = Node::open(page.words());
    debug_assert!(
        node.is_inner() && node.is_counted(),
        "nothing is counted here"
    );
    let slot = node.slot(index);
    assert_eq!(
        node.value_bytes(slot),
        COUNT_BYTES,
        "an entry without a count"
    );
    let word = slot.value_start();
    page.store(word, records);
}

/// Raises the marks of a leaf to at least `lsn_max` and `multi_lsn`.
pub fn raise_marks<P: Store + ?Sized>(page: &mut P, lsn_max: Lsn, multi_lsn: Lsn) {
    debug_assert!(multi_lsn <= lsn_max, "a batch of many writes is a batch");
    for (word, mark) in [(WORD_LSN_MAX, lsn_max), (WORD_MULTI_LSN, multi_lsn)] {
        if load(page.words(), word) < mark.0 {
            page.store(word, mark.0);
        }
    }
}
