//! Changes of one node: putting, replacing and removing an entry, in place where it fits.
//!
//! [`prepare`] reads words optimistically and returns with [`Fit`] how the entry can be put.
//! [`put`] does it under the latch, which has proved the words. Dead and used words of the heap
//! always add up to the whole heap.

use pando_format::page::{HEADER_WORDS, WORD_HEAP};

use super::list::{Count, Record, RecordList};
use super::search::{Spot, compare_slots};
use super::slot::{Slot, replace_value, write_record};
use super::view::{HeapWord, Node, clear};
use crate::word::{Store, Word};

/// How an entry can be put into a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// In place, within the free words.
    InPlace,
    /// By rebuilding the node from the list, which contains the new entry.
    Rebuild,
    /// By splitting the list, which contains the new entry.
    Split,
    /// Not in this node: its key does not share the prefix, and without it the other keys would get
    /// too long. The entry sorts before or after all others. The list contains the entries of the
    /// node without the new one.
    Alone,
    /// The node is torn.
    Torn,
}

/// Returns how `record` can be put at `spot`. Fills `list` unless it fits in place.
pub fn prepare<W: Word>(
    node: &Node<'_, W>,
    spot: Spot,
    record: &Record<'_>,
    list: &mut RecordList,
) -> Fit {
    match fits_in_place(node, spot, record) {
        true => Fit::InPlace,
        false => prepare_anew(node, spot, record, list),
    }
}

/// As [`prepare`], for a record that does not fit in place: fills `list`.
pub fn prepare_anew<W: Word>(
    node: &Node<'_, W>,
    spot: Spot,
    record: &Record<'_>,
    list: &mut RecordList,
) -> Fit {
    if !list.load(node) || spot.index > list.len() {
        return Fit::Torn;
    }
    if !list.put(spot, record) {
        return Fit::Alone;
    }
    match list.prefix_to_fit(0, list.len()) {
        Some(_) => Fit::Rebuild,
        None => Fit::Split,
    }
}

/// Returns whether `record`, which belongs after the last entry, does not fit into a leaf that has
/// no dead words to reclaim.
pub fn is_full<W: Word>(node: &Node<'_, W>, record: &Record<'_>) -> bool {
    let words = || record.record_words(node.is_inner(), node.prefix_bytes());
    node.count() > 0
        && node.dead_words() == 0
        && node.shares_prefix(record.key)
        && words() + (1 << node.stride_shift()) > node.gap_words()
}

/// Returns whether `record` can be put at `spot` within the free words.
pub fn fits_in_place<W: Word>(node: &Node<'_, W>, spot: Spot, record: &Record<'_>) -> bool {
    Room::find(node, spot, record).is_some()
}

/// Where a record goes that can be put within the free words, and what the node is then.
///
/// It is found before the latch is taken, and stays true if the latch is taken at the version at
/// which the node was read. Until then it may be made of torn words, and means nothing.
#[derive(Debug, Clone, Copy)]
pub enum Room {
    /// The value takes the words of the one that it replaces, in a leaf: the key, its slot and the
    /// heap stay as they are.
    OfValue {
        /// First word of the record.
        record: usize,
        /// First word of its value.
        value: usize,
    },
    /// The whole record is written.
    OfRecord(RecordRoom),
}

/// See [`Room::OfRecord`].
#[derive(Debug, Clone, Copy)]
pub struct RecordRoom {
    /// Number of bytes of the key that lie in the prefix of the node.
    prefix_bytes: usize,
    /// Words of an entry, without its record.
    stride: usize,
    slot_word: usize,
    /// First word behind the slots there are.
    slots_end: usize,
    /// The words of the record; the offset of an empty one is 0.
    offset: usize,
    words: usize,
    /// The node's heap with the record.
    heap: HeapWord,
}

impl Room {
    /// Returns the room for `record` at `spot`, None if it cannot be put in place.
    #[inline]
    pub fn find<W: Word>(node: &Node<'_, W>, spot: Spot, record: &Record<'_>) -> Option<Self> {
        if spot.exact && !node.is_inner() {
            let slot = node.slot(spot.index);
            let words = |bytes: usize| bytes.div_ceil(8);
            if slot.flags() == record.flags
                && words(node.value_bytes(slot)) == words(record.value.len())
            {
                let (record, value) = (slot.offset(), slot.value_start());
                return Some(Self::OfValue { record, value });
            }
        }
        RecordRoom::find(node, spot, record).map(Self::OfRecord)
    }

    /// Returns whether `other` leads to the same words.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OfRecord(one), Self::OfRecord(other)) => {
                one.heap.pack() == other.heap.pack() && one.offset == other.offset
            }
            (Self::OfValue { value: one, .. }, Self::OfValue { value: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl RecordRoom {
    #[inline]
    fn find<W: Word>(node: &Node<'_, W>, spot: Spot, record: &Record<'_>) -> Option<Self> {
        let prefix_bytes = node.prefix_bytes();
        // The first key determines the prefix, so it is always put by a rebuild. A key that is
        // there has the prefix; but if the leaf has changed since the spot was found, the prefix
        // may even be longer than the key.
        let is_alike = node.count() > node.first_key()
            && record.key.len() >= prefix_bytes
            && (spot.exact || node.shares_prefix(record.key));
        if !is_alike {
            return None;
        }
        let (stride, slots_end) = (1 << node.stride_shift(), node.slots_end());
        let words = record.record_words(node.is_inner(), prefix_bytes);
        let mut heap = HeapWord {
            count: node.count(),
            heap_start: node.heap_start(),
            dead_words: node.dead_words(),
        };
        let gap = heap.heap_start.saturating_sub(slots_end);
        let new = heap.heap_start.saturating_sub(words);
        let mut offset = new;
        if spot.exact {
            let old = node.slot(spot.index);
            let old_words = node.record_words(old);
            if words <= old_words {
                offset = old.offset();
                heap.dead_words += old_words - words;
            } else if words <= gap {
                heap.heap_start = new;
                heap.dead_words += old_words;
            } else {
                return None;
            }
        } else if words + stride <= gap {
            heap.count += 1;
            heap.heap_start = new;
        } else {
            return None;
        }
        Some(Self {
            prefix_bytes,
            stride,
            slot_word: node.slot_word(spot.index),
            slots_end,
            offset: if words == 0 { 0 } else { offset },
            words,
            heap,
        })
    }
}

/// Puts `record` at `spot` as `fit` says, which is [`Fit::InPlace`] or [`Fit::Rebuild`].
pub fn put<P: Store + ?Sized>(
    page: &mut P,
    fit: Fit,
    spot: Spot,
    record: &Record<'_>,
    list: &RecordList,
) {
    debug_assert!(matches!(fit, Fit::InPlace | Fit::Rebuild));
    if fit == Fit::InPlace {
        let room = Room::find(&Node::open(page.words()), spot, record);
        let room = room.expect("what was to fit in place does");
        put_in_place(page, spot, &room, record);
    } else {
        let prefix_bytes = list
            .prefix_to_fit(0, list.len())
            .expect("what was to be built anew fits");
        list.build(page, 0, list.len(), prefix_bytes);
    }
}

/// Puts `record` at `spot`, in the room that was found for it in the page as it is.
pub fn put_in_place<P: Store + ?Sized>(page: &mut P, spot: Spot, room: &Room, record: &Record<'_>) {
    debug_assert!(
        spot.index + usize::from(spot.exact) <= Node::open(page.words()).count(),
        "no entry to replace, or a gap in front of the new one"
    );
    debug_assert!(
        Room::find(&Node::open(page.words()), spot, record).is_some_and(|now| now.is_like(room)),
        "the room of another record"
    );
    match room {
        Room::OfValue {
            record: offset,
            value,
        } => replace_value(page, (*offset, *value), record.value),
        Room::OfRecord(room) => put_record(page, spot, room, record),
    }
    debug_assert!(
        is_in_order(&Node::open(page.words()), spot.index),
        "a key out of order"
    );
}

/// Puts a whole record.
#[inline]
fn put_record<P: Store + ?Sized>(page: &mut P, spot: Spot, room: &RecordRoom, record: &Record<'_>) {
    let suffix = &record.key[room.prefix_bytes..];
    if !spot.exact {
        page.move_up(room.slot_word..room.slots_end, room.stride);
    }
    if room.words > 0 {
        write_record(page, room.offset, suffix, record.value);
    }
    page.store(
        room.slot_word,
        Slot::new(suffix, room.offset, record.flags).0,
    );
    if room.stride > 1 {
        page.store(room.slot_word + 1, record.child.0);
    }
    page.store(WORD_HEAP, room.heap.pack());
}

/// Returns whether the key of entry `index` is between those of its neighbours.
fn is_in_order<W: Word>(node: &Node<'_, W>, index: usize) -> bool {
    let ascends = |left: usize| {
        left < node.first_key()
            || left + 1 >= node.count()
            || compare_slots(node.words(), node.slot(left), node.slot(left + 1)).is_lt()
    };
    index.checked_sub(1).is_none_or(ascends) && ascends(index)
}

/// Removes entry `index`. If it is the first entry of an inner node, the next one loses its key.
pub fn remove<P: Store + ?Sized>(page: &mut P, index: usize) {
    let node = Node::open(page.words());
    let count = node.count();
    assert!(index < count, "no entry {index} of {count}");
    let (inner, shift) = (node.is_inner(), node.stride_shift());
    // The entry whose key is removed: an inner node always keeps an entry without a key.
    let keyless = inner && index == 0;
    let key_index = if keyless { 1 } else { index };
    if count <= key_index + 1 && count <= 1 + usize::from(inner) {
        remove_last_key(page, index, count, inner);
        return;
    }
    let slot = node.slot(key_index);
    let words = node.record_words(slot);
    let mut heap = HeapWord {
        count: count - 1,
        heap_start: node.heap_start(),
        dead_words: node.dead_words(),
    };
    if words > 0 && slot.offset() == heap.heap_start {
        heap.heap_start += words;
    } else {
        heap.dead_words += words;
    }
    let (from, slots_end, stride) = (node.slot_word(index), node.slots_end(), 1 << shift);
    let first = node.slot(0);
    let below = (keyless && node.is_counted()).then(|| node.records_below(key_index));
    page.move_down(from + stride..slots_end, stride);
    if keyless {
        // In a counted tree it keeps the record of the entry that goes, with its own count.
        page.store(from, first.0);
        if let Some(records) = below {
            page.store(first.value_start(), records);
        }
    }
    debug_assert!(
        heap.dead_words <= page.words().len() - heap.heap_start,
        "more dead words than the heap has"
    );
    page.store(WORD_HEAP, heap.pack());
    debug_assert!(
        index >= count - 1 || is_in_order(&Node::open(page.words()), index),
        "a key out of order"
    );
}

/// Removes the last key: a leaf has no entries then, an inner node one entry without a key, or
/// none.
fn remove_last_key<P: Store + ?Sized>(page: &mut P, index: usize, count: usize, inner: bool) {
    let node = Node::open(page.words());
    let survivor = (inner && count == 2).then(|| {
        let count = Count::of(node.tree(), node.records_below(1 - index));
        (node.child(1 - index), count)
    });
    clear(page);
    if let Some((child, count)) = survivor {
        let only = Record::separator(&[], child, &count);
        let words = only.record_words(inner, 0);
        let heap = HeapWord {
            count: 1,
            heap_start: page.words().len() - words,
            dead_words: 0,
        };
        let offset = if words == 0 { 0 } else { heap.heap_start };
        if words > 0 {
            write_record(page, offset, &[], only.value);
        }
        page.store(HEADER_WORDS, Slot::new(&[], offset, 0).0);
        page.store(HEADER_WORDS + 1, child.0);
        page.store(WORD_HEAP, heap.pack());
    }
}

/// Puts two children into an inner node that was just reset.
pub fn build_root<P: Store + ?Sized>(
    page: &mut P,
    left: &Record<'_>,
    right: &Record<'_>,
    list: &mut RecordList,
) {
    debug_assert!(left.key.is_empty(), "the first entry has no key");
    let page_words = page.words().len();
    list.load_one(left, true, page_words);
    let spot = Spot {
        index: 1,
        exact: false,
    };
    let fits = list.put(spot, right);
    assert!(fits, "a root has room for one separator");
    let prefix_bytes = list
        .prefix_to_fit(0, 2)
        .expect("a separator is no longer than a key");
    list.build(page, 0, 2, prefix_bytes);
}
