//! The entries of a node as a list outside the node, for rebuilds and splits. Buffers are reused.
//!
//! Keys are stored as one common prefix and a suffix each, so that a list is never much longer than
//! its page, however long the prefix is. The first entry of an inner node has no key.

use pando_format::TreeId;
use pando_format::page::{COUNT_BYTES, HEADER_WORDS, WORD_HEAP, WORD_PREFIX};
use pando_format::weight::weight_of;

use super::search::Spot;
use super::slot::{
    HEAD_BYTES, RECORD_IN_COPY, Slot, copy_record, inner_record_words, leaf_record_words,
    write_record,
};
use super::text::{self, common_prefix};
use super::view::{ChildWord, HeapWord, Node};
use crate::word::{Store, Word};

/// An entry to be put into a node.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its whole key.
    pub key: &'a [u8],
    /// Its value, blob reference or overflow header; in inner nodes the [`Count`].
    pub value: &'a [u8],
    /// Flags of the slot.
    pub flags: u64,
    /// The child; only in inner nodes.
    pub child: ChildWord,
}

impl<'a> Record<'a> {
    /// Makes the record of a separator and the child to its right.
    pub fn separator(key: &'a [u8], child: ChildWord, count: &'a Count) -> Self {
        Self {
            key,
            value: count.bytes(),
            flags: 0,
            child,
        }
    }

    /// Returns the number of words of its record, if `prefix_bytes` bytes of its key lie in the
    /// prefix.
    pub fn record_words(&self, inner: bool, prefix_bytes: usize) -> usize {
        let suffix_bytes = self.key.len() - prefix_bytes;
        record_words(inner, suffix_bytes, self.value.len())
    }

    /// Returns what it counts for in a leaf of a counted tree.
    #[inline]
    pub fn weight(&self, tree: TreeId) -> u64 {
        match tree.is_weighted() {
            true => weight_of(self.flags, self.value.first().copied()),
            false => 1,
        }
    }

    /// Returns by how much the nodes above `leaf`, of a counted tree, count more once it is at
    /// `spot`.
    #[inline]
    pub fn adds<W: Word>(&self, leaf: &Node<'_, W>, spot: Spot) -> i64 {
        let new = self.weight(leaf.tree()).cast_signed();
        match spot.exact {
            true => new - leaf.weight(leaf.slot(spot.index)).cast_signed(),
            false => new,
        }
    }
}

/// Returns the number of words of a record; that of an inner node has a value in counted trees.
#[inline]
fn record_words(inner: bool, suffix_bytes: usize, value_bytes: usize) -> usize {
    if inner && value_bytes == 0 {
        inner_record_words(suffix_bytes)
    } else {
        leaf_record_words(suffix_bytes, value_bytes)
    }
}

/// What an inner entry tells of the number of records below it: in a tree that is not counted,
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(Option<[u8; COUNT_BYTES]>);

impl Count {
    /// The entry of a tree that is not counted.
    pub const NONE: Self = Self(None);

    /// Counts `records` if `tree` is counted.
    pub fn of(tree: TreeId, records: u64) -> Self {
        Self(tree.is_counted().then(|| records.to_le_bytes()))
    }

    /// Returns the number of records, if they are counted.
    pub fn records(&self) -> Option<u64> {
        self.0.map(u64::from_le_bytes)
    }

    /// Returns the value of the entry.
    fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| &bytes[..])
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    suffix_start: usize,
    suffix_bytes: usize,
    value_start: usize,
    value_bytes: usize,
    /// Words of its record with this suffix.
    words: usize,
    /// Its bytes are those of its record in a leaf, as [`Node::copy_record`] has copied them.
    is_copy: bool,
    flags: u64,
    child: ChildWord,
}

/// The entries of one node, in order.
#[derive(Debug, Default)]
pub struct RecordList {
    inner: bool,
    page_words: usize,
    prefix: Vec<u8>,
    bytes: Vec<u8>,
    items: Vec<Item>,
}

impl RecordList {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether the entries belong to an inner node.
    pub fn is_inner(&self) -> bool {
        self.inner
    }

    /// Replaces the list by the entries of `node`. Returns false when the node is torn: its records
    /// are longer than the page.
    #[must_use]
    pub fn load<W: Word>(&mut self, node: &Node<'_, W>) -> bool {
        self.inner = node.is_inner();
        self.page_words = node.words().len();
        self.clear();
        node.append_prefix(&mut self.prefix);
        if !self.inner {
            return self.load_leaf(node);
        }
        let bytes_max = self.page_words * 16;
        for index in 0..node.count() {
            let item = self.append_inner(node, index);
            if self.bytes.len() > bytes_max {
                return false;
            }
            self.items.push(item);
        }
        true
    }

    /// Copies the entries of a leaf. Returns false when it is torn.
    fn load_leaf<W: Word>(&mut self, node: &Node<'_, W>) -> bool {
        // Records that do not overlap need no more.
        let bytes_max = 8 * self.page_words + node.count() * HEAD_BYTES;
        self.bytes.resize(bytes_max, 0);
        let mut at = 0;
        for index in 0..node.count() {
            let slot = node.slot(index);
            let Some((value, record)) = node.copy_record(slot, &mut self.bytes[at..]) else {
                return false;
            };
            let (suffix_bytes, value_bytes) = (slot.suffix_bytes(), node.value_bytes(slot));
            // The length is read twice. If both agree, suffix and value lie within the record.
            let words = record.len() / 8;
            if words != leaf_record_words(suffix_bytes, value_bytes) {
                return false;
            }
            self.items.push(Item {
                suffix_start: at,
                suffix_bytes,
                value_start: at + value,
                value_bytes,
                words,
                is_copy: true,
                flags: slot.flags(),
                child: ChildWord(0),
            });
            at += record.end;
        }
        self.bytes.truncate(at);
        true
    }

    /// Copies entry `index` of an inner node.
    fn append_inner<W: Word>(&mut self, node: &Node<'_, W>, index: usize) -> Item {
        let slot = node.slot(index);
        let suffix_start = self.bytes.len();
        node.append_suffix(slot, &mut self.bytes);
        let value_start = self.bytes.len();
        if node.is_counted() {
            self.bytes
                .extend_from_slice(&node.records_below(index).to_le_bytes());
        }
        let (suffix_bytes, value_bytes) =
            (value_start - suffix_start, self.bytes.len() - value_start);
        Item {
            suffix_start,
            suffix_bytes,
            value_start,
            value_bytes,
            words: record_words(true, suffix_bytes, value_bytes),
            is_copy: false,
            flags: slot.flags(),
            child: node.child(index),
        }
    }

    /// Makes the list an empty list of a leaf.
    pub fn begin_leaf(&mut self, page_words: usize) {
        self.inner = false;
        self.page_words = page_words;
        self.clear();
    }

    /// Appends `record`, whose key is greater than all others, to a list without a prefix.
    pub fn push_last(&mut self, record: &Record<'_>) {
        debug_assert!(self.prefix.is_empty());
        debug_assert!(
            self.is_empty() || self.suffix(self.len() - 1) < record.key,
            "keys out of order"
        );
        let item = self.append(record);
        self.items.push(item);
    }

    /// Returns the key of entry `index` of a list without a prefix.
    pub fn whole_key(&self, index: usize) -> &[u8] {
        debug_assert!(self.prefix.is_empty());
        self.suffix(index)
    }

    /// Replaces the list by `record` alone.
    pub fn load_one(&mut self, record: &Record<'_>, inner: bool, page_words: usize) {
        self.inner = inner;
        self.page_words = page_words;
        self.clear();
        let item = self.append(record);
        self.items.push(item);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.prefix.clear();
        self.bytes.clear();
        self.items.clear();
    }

    fn append(&mut self, record: &Record<'_>) -> Item {
        let suffix_start = self.bytes.len();
        self.bytes
            .extend_from_slice(&record.key[self.prefix.len()..]);
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(record.value);
        let (suffix_bytes, value_bytes) = (value_start - suffix_start, record.value.len());
        Item {
            suffix_start,
            suffix_bytes,
            value_start,
            value_bytes,
            words: record_words(self.inner, suffix_bytes, value_bytes),
            is_copy: false,
            flags: record.flags,
            child: record.child,
        }
    }

    /// Puts `record` at `spot`. Returns false, without a change, if the key does not share the
    /// prefix and there is no room for all keys with a shorter one.
    #[must_use]
    pub fn put(&mut self, spot: Spot, record: &Record<'_>) -> bool {
        let shared = common_prefix(&self.prefix, record.key);
        if shared < self.prefix.len() && !self.shorten_prefix(shared, record) {
            return false;
        }
        let item = self.append(record);
        debug_assert!(spot.index <= self.items.len(), "behind the end");
        if spot.exact {
            self.items[spot.index] = item;
        } else {
            self.items.insert(spot.index, item);
        }
        true
    }

    fn shorten_prefix(&mut self, shared: usize, record: &Record<'_>) -> bool {
        let longer = self.prefix.len() - shared;
        let first_key = usize::from(self.inner);
        let mut words = (1 << first_key) + record.record_words(self.inner, shared);
        for (index, item) in self.items.iter().enumerate() {
            let added = if index < first_key { 0 } else { longer };
            words += self.entry_words(item, item.suffix_bytes + added);
        }
        if HEADER_WORDS + shared.div_ceil(8) + words > self.page_words {
            return false;
        }
        self.lengthen_suffixes(shared);
        true
    }

    /// Shortens the prefix to `shared` bytes, and adds the other bytes to every suffix.
    fn lengthen_suffixes(&mut self, shared: usize) {
        let longer = self.prefix.len() - shared;
        if longer == 0 {
            return;
        }
        for item in self.items.iter_mut().skip(usize::from(self.inner)) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&self.prefix[shared..]);
            let old = item.suffix_start..item.suffix_start + item.suffix_bytes;
            self.bytes.extend_from_within(old);
            item.suffix_start = start;
            item.suffix_bytes += longer;
            item.words = record_words(self.inner, item.suffix_bytes, item.value_bytes);
            item.is_copy = false;
        }
        self.prefix.truncate(shared);
    }

    /// Appends the entries of `right`, a node of the same kind. `separator` separates the two; in
    /// an inner node it becomes the key of the first entry of `right`. Returns false if, without
    /// the prefix of each side, the keys are much longer than a page; the list then has no meaning.
    #[must_use]
    pub fn join(&mut self, right: &Self, separator: &[u8]) -> bool {
        let mut shared = common_prefix(&self.prefix, &right.prefix);
        if self.inner {
            // A key between keys with a common prefix has the prefix, too, unless the words are
            // torn.
            shared = shared.min(common_prefix(&self.prefix, separator));
        }
        let longer =
            (self.prefix.len() - shared) * self.len() + (right.prefix.len() - shared) * right.len();
        if self.inner != right.inner || longer > self.page_words * 16 {
            return false;
        }
        self.lengthen_suffixes(shared);
        for (index, item) in right.items.iter().enumerate() {
            let suffix_start = self.bytes.len();
            if right.inner && index == 0 {
                self.bytes.extend_from_slice(&separator[shared..]);
            } else {
                self.bytes.extend_from_slice(&right.prefix[shared..]);
                self.bytes.extend_from_slice(right.suffix(index));
            }
            let value_start = self.bytes.len();
            let value = item.value_start..item.value_start + item.value_bytes;
            self.bytes.extend_from_slice(&right.bytes[value]);
            let suffix_bytes = value_start - suffix_start;
            self.items.push(Item {
                suffix_start,
                suffix_bytes,
                value_start,
                words: record_words(self.inner, suffix_bytes, item.value_bytes),
                is_copy: false,
                ..*item
            });
        }
        true
    }

    /// Returns whether the key of entry `index` is greater than that of the previous entry, or one
    /// of the two has no key.
    pub fn ascends_at(&self, index: usize) -> bool {
        let first_key = usize::from(self.inner);
        index <= first_key || index >= self.len() || self.suffix(index - 1) < self.suffix(index)
    }

    fn entry_words(&self, item: &Item, suffix_bytes: usize) -> usize {
        let stride = 1 << u32::from(self.inner);
        stride + record_words(self.inner, suffix_bytes, item.value_bytes)
    }

    /// Returns the number of records in, or below, the entries `from .. to`, which are of the
    /// counted tree `tree`. In a weighted tree each one counts as often as its weight says.
    pub fn records(&self, tree: TreeId, from: usize, to: usize) -> u64 {
        if !self.inner && !tree.is_weighted() {
            return (to - from) as u64;
        }
        if !self.inner {
            let weights = self.items[from..to].iter().map(|item| {
                let value = &self.bytes[item.value_start..][..item.value_bytes];
                weight_of(item.flags, value.first().copied())
            });
            return weights.sum();
        }
        let counts = self.items[from..to].iter().map(|item| {
            let count = self.bytes[item.value_start..].first_chunk();
            count.map_or(0, |count| u64::from_le_bytes(*count))
        });
        counts.fold(0, u64::wrapping_add)
    }

    /// Sets what entry `index` tells of the number of records below it.
    pub fn set_count(&mut self, index: usize, count: &Count) {
        let Item {
            value_start,
            value_bytes,
            ..
        } = self.items[index];
        debug_assert!(self.inner, "leaves count themselves");
        self.bytes[value_start..value_start + value_bytes].copy_from_slice(count.bytes());
    }

    /// Returns the number of words of entry `index`, slot and record.
    pub fn words_of(&self, index: usize) -> usize {
        let stride = 1 << u32::from(self.inner);
        stride + self.items[index].words
    }

    fn suffix(&self, index: usize) -> &[u8] {
        let item = &self.items[index];
        &self.bytes[item.suffix_start..item.suffix_start + item.suffix_bytes]
    }

    /// Replaces the child of entry `index`.
    pub fn set_child(&mut self, index: usize, child: ChildWord) {
        debug_assert!(self.inner, "leaves have no children");
        self.items[index].child = child;
    }

    /// Replaces `out` by the key of entry `index`.
    pub fn copy_key(&self, index: usize, out: &mut Vec<u8>) {
        out.clear();
        if index > 0 || !self.inner {
            out.extend_from_slice(&self.prefix);
            out.extend_from_slice(self.suffix(index));
        }
    }

    /// Replaces `out` by the shortest key that is greater than the key of the entry before `index`
    /// and not greater than the key of `index`. In an inner node: by the key of `index`.
    pub fn copy_separator(&self, index: usize, out: &mut Vec<u8>) {
        self.copy_key(index, out);
        if !self.inner {
            let common = common_prefix(self.suffix(index - 1), self.suffix(index));
            out.truncate(self.prefix.len() + common + 1);
        }
    }

    /// Returns the length of a prefix with which the entries `from .. to` fit into a page, `None`
    /// if they do not fit. The longest common prefix is preferred, since then heads distinguish
    /// most keys.
    pub fn prefix_to_fit(&self, from: usize, to: usize) -> Option<usize> {
        self.prefix_within(from, to, self.page_words)
    }

    /// Like [`Self::prefix_to_fit`], for `words` words of a page.
    pub fn prefix_within(&self, from: usize, to: usize, words: usize) -> Option<usize> {
        let first = from + usize::from(self.inner);
        let common = if first >= to {
            0
        } else {
            self.prefix.len() + common_prefix(self.suffix(first), self.suffix(to - 1))
        };
        let shorter = if first < to { self.prefix.len() } else { 0 };
        [common, shorter]
            .into_iter()
            .find(|prefix| self.words_with_prefix(from, to, *prefix) <= words)
    }

    /// Returns the number of words that the entries `from .. to` take in a page, if `prefix_bytes`
    /// bytes of their keys lie in the prefix.
    pub fn words_with_prefix(&self, from: usize, to: usize, prefix_bytes: usize) -> usize {
        let cut = prefix_bytes.saturating_sub(self.prefix.len());
        let fixed = HEADER_WORDS + prefix_bytes.div_ceil(8);
        let items = &self.items[from..to];
        if cut == 0 && !self.inner {
            let records: usize = items.iter().map(|item| item.words).sum();
            return fixed + items.len() + records;
        }
        items
            .iter()
            .enumerate()
            .fold(fixed, |words, (index, item)| {
                let keyless = self.inner && index == 0;
                let suffix_bytes = if keyless {
                    0
                } else {
                    item.suffix_bytes.saturating_sub(cut)
                };
                words + self.entry_words(item, suffix_bytes)
            })
    }

    /// Replaces the entries of `page` by `from .. to`, with a prefix from [`Self::prefix_to_fit`].
    /// Kind, level and marks of the page stay.
    pub fn build<P: Store + ?Sized>(
        &self,
        page: &mut P,
        from: usize,
        to: usize,
        prefix_bytes: usize,
    ) {
        assert!(from <= to, "entries from {from} to {to}");
        assert!(
            to <= self.items.len(),
            "entries that the list does not have"
        );
        assert_eq!(
            page.words().len(),
            self.page_words,
            "a page of another size"
        );
        assert!(
            prefix_bytes == 0 || prefix_bytes >= self.prefix.len(),
            "a prefix that keys have lost"
        );
        let cut = prefix_bytes.saturating_sub(self.prefix.len());
        let mut heap = self.page_words - prefix_bytes.div_ceil(8);
        self.write_prefix(page, from, heap, prefix_bytes);
        let shift = u32::from(self.inner);
        for index in from..to {
            let item = &self.items[index];
            let keyless = self.inner && index == from;
            let suffix: &[u8] = if keyless {
                &[]
            } else {
                &self.suffix(index)[cut..]
            };
            let stride = 1 << shift;
            let words = self.entry_words(item, suffix.len()) - stride;
            let value = &self.bytes[item.value_start..item.value_start + item.value_bytes];
            let mut offset = 0;
            if words > 0 {
                debug_assert!(heap >= words, "records longer than a page");
                heap -= words;
                offset = heap;
                match item.is_copy && cut == 0 {
                    true => {
                        let record = item.suffix_start + RECORD_IN_COPY;
                        let record = &self.bytes[record..record + 8 * words];
                        copy_record(page, offset, record, value.len());
                    }
                    false => write_record(page, offset, suffix, value),
                }
            }
            let slot_word = HEADER_WORDS + ((index - from) << shift);
            page.store(slot_word, Slot::new(suffix, offset, item.flags).0);
            if self.inner {
                page.store(slot_word + 1, item.child.0);
            }
        }
        assert!(
            HEADER_WORDS + ((to - from) << shift) <= heap,
            "slots that overlap the heap"
        );
        debug_assert_eq!(
            HEADER_WORDS + ((to - from) << shift) + self.page_words - heap,
            self.words_with_prefix(from, to, prefix_bytes),
            "words that were not counted"
        );
        let header = HeapWord {
            count: to - from,
            heap_start: heap,
            dead_words: 0,
        };
        page.store(WORD_HEAP, header.pack());
    }

    fn write_prefix<P: Store + ?Sized>(
        &self,
        page: &mut P,
        from: usize,
        at: usize,
        prefix_bytes: usize,
    ) {
        if prefix_bytes == 0 {
            page.store(WORD_PREFIX, 0);
            return;
        }
        let mut prefix = self.prefix.clone();
        let more = prefix_bytes - prefix.len();
        let first = from + usize::from(self.inner);
        prefix.extend_from_slice(&self.suffix(first)[..more]);
        text::write(page, at, &prefix);
        page.store(WORD_PREFIX, at as u64 | (prefix_bytes as u64) << 16);
    }
}
