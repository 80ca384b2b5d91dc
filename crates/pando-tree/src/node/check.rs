//! Checks of a page that was read from the device, before a descent goes through it, and the
//! preparation of an image that is about to be written.

use pando_format::chunks::BlobRef;
use pando_format::page::{
    COUNT_BYTES, HEADER_BYTES, HEADER_WORDS, PageKind, SLOT_CHUNKED, SLOT_GHOST, SLOT_OVERFLOW,
    WORD_KIND, WORD_PAYLOAD,
};
use pando_format::{PageId, PageSize};
use pando_pool::ImageFacts;

use super::search::compare_slots;
use super::slot::Slot;
use super::view::{LEVEL_MAX, Node};
use crate::overflow::OverflowHeader;
use crate::word::{Word, load};

/// Number of bitmap words with one bit for each word of the largest page.
const BITMAP_WORDS: usize = PageSize::MAX / 8 / 64;

/// Checks the whole structure of a page image.
///
/// # Errors
/// A message that tells what is wrong with it.
pub fn check_page(image: &[u8]) -> Result<(), &'static str> {
    let page_size = PageSize::new(image.len()).ok_or("is not a page long")?;
    let words = image.as_chunks::<8>().0;
    let node = Node::open(words);
    let tags = load(words, WORD_KIND);
    if tags >> 48 != 0 {
        return Err("uses flags or a compression that this version does not know");
    }
    let payload = (load(words, WORD_PAYLOAD) & 0xFFFF_FFFF) as usize;
    match node.kind() {
        None => Err("is of an unknown kind"),
        Some(PageKind::Chunk) => Err("is a chunk, which never has a frame"),
        Some(PageKind::Overflow | PageKind::OverflowIndex) => {
            if payload > image.len() - HEADER_BYTES {
                return Err("has a longer payload than it can hold");
            }
            if node.level() != 0 {
                return Err("is no node, but has a level");
            }
            Ok(())
        }
        Some(PageKind::Leaf) if node.level() != 0 => Err("is a leaf above level 0"),
        Some(PageKind::Inner) if !(1..=LEVEL_MAX).contains(&node.level()) => {
            Err("is an inner node of an impossible level")
        }
        Some(PageKind::Leaf | PageKind::Inner) => check_node(&node, page_size),
    }
}

/// Checks heap, slots and keys of a node whose kind and level are known to be right.
pub fn check_node<W: Word>(node: &Node<'_, W>, page_size: PageSize) -> Result<(), &'static str> {
    let header = load(node.words(), pando_format::page::WORD_HEAP);
    if header & 0xFFFF != node.count() as u64 || header >> 16 & 0xFFFF != 0 {
        return Err("has more entries than room, or ghosts");
    }
    if header >> 32 & 0xFFFF != node.heap_start() as u64 || node.heap_start() < node.slots_end() {
        return Err("has a heap that overlaps its slots");
    }
    if node.prefix_bytes() > page_size.key_bytes_max() {
        return Err("has a prefix longer than a key may be");
    }
    let mut heap = HeapMap::new(node.heap_start(), node.words().len());
    heap.take(node.prefix_offset(), node.prefix_bytes().div_ceil(8))?;
    if node.is_inner() {
        check_first_entry(node)?;
    } else if node.count() == 0 && node.prefix_bytes() != 0 {
        return Err("has a prefix, but no keys");
    }
    check_entries(node, page_size, &mut heap)?;
    if heap.used + node.dead_words() != node.words().len() - node.heap_start() {
        return Err("has a heap whose dead words are counted wrongly");
    }
    Ok(())
}

fn check_first_entry<W: Word>(node: &Node<'_, W>) -> Result<(), &'static str> {
    if node.count() == 0 {
        return Err("is an inner node without children");
    }
    let slot = node.slot(0);
    let has_key = match node.is_counted() {
        true => slot != Slot::new(&[], slot.offset(), 0),
        false => slot.0 != 0,
    };
    if has_key {
        return Err("is an inner node whose first entry has a key");
    }
    Ok(())
}

fn check_entries<W: Word>(
    node: &Node<'_, W>,
    page_size: PageSize,
    heap: &mut HeapMap,
) -> Result<(), &'static str> {
    let mut last = None;
    for index in 0..node.count() {
        if node.is_inner() && [node.page(), PageId::NONE].contains(&node.child(index).page()) {
            return Err("is an inner node with an impossible child");
        }
        let slot = node.slot(index);
        if node.is_inner() && node.is_counted() && node.value_bytes(slot) != COUNT_BYTES {
            return Err("has an entry that does not count its records");
        }
        if index < node.first_key() {
            heap.take(slot.offset(), node.record_words(slot))?;
            continue;
        }
        if node.prefix_bytes() + slot.suffix_bytes() > page_size.key_bytes_max() {
            return Err("has a key that is too long");
        }
        if slot.flags() & SLOT_GHOST != 0 || (node.is_inner() && !slot.is_plain()) {
            return Err("has an entry with reserved flags");
        }
        if slot.suffix_bytes() < 4 && slot.head() << (8 * slot.suffix_bytes()) != 0 {
            return Err("has a slot with bytes behind its key");
        }
        heap.take(slot.offset(), node.record_words(slot))?;
        if last.is_some_and(|last| compare_slots(node.words(), last, slot).is_ge()) {
            return Err("has keys out of order");
        }
        last = Some(slot);
        if slot.is_overflow() && OverflowHeader::read(node, slot).is_none() {
            return Err("has an impossible overflow header");
        }
        if slot.is_chunked() && !slot.is_overflow() {
            check_list(node, slot)?;
        }
    }
    Ok(())
}

/// Checks a blob reference that lies in the leaf.
#[cold]
fn check_list<W: Word>(node: &Node<'_, W>, slot: Slot) -> Result<(), &'static str> {
    let mut list = Vec::new();
    node.append_value(slot, &mut list);
    match BlobRef::decode(&list) {
        Ok(_) => Ok(()),
        Err(_) => Err("has an impossible list of chunks"),
    }
}

/// Marks the words of the heap that belong to a record or the prefix.
struct HeapMap {
    start: usize,
    end: usize,
    used: usize,
    taken: [u64; BITMAP_WORDS],
}

impl HeapMap {
    fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end,
            used: 0,
            taken: [0; BITMAP_WORDS],
        }
    }

    fn take(&mut self, offset: usize, words: usize) -> Result<(), &'static str> {
        if words == 0 {
            return Ok(());
        }
        if offset < self.start || offset + words > self.end {
            return Err("has a record outside its heap");
        }
        let (mut word, end) = (offset, offset + words);
        while word < end {
            let at = word / 64;
            let next = end.min(64 * (at + 1));
            let mask = (u64::MAX >> (64 - (next - word))) << (word % 64);
            if self.taken[at] & mask != 0 {
                return Err("has records that overlap");
            }
            self.taken[at] |= mask;
            word = next;
        }
        self.used += words;
        Ok(())
    }
}

/// Prepares a private copy of a page for the device: zeroes the frame hints, which are valid only
/// while this process runs.
pub fn prepare_image(image: &mut [u8]) -> ImageFacts {
    let mut names_pages = false;
    let (words, _) = image.as_chunks_mut::<8>();
    let node = Node::open(words);
    let (inner, leaf, count) = (node.is_inner(), node.is_leaf(), node.count());
    if inner {
        for index in 0..count {
            if let Some(word) = words.get_mut(HEADER_WORDS + 2 * index + 1) {
                word[4..].fill(0);
            }
        }
    } else if leaf {
        let naming = SLOT_OVERFLOW | SLOT_CHUNKED;
        names_pages = (0..count).any(|index| node.slot(index).0 & naming != 0);
    }
    ImageFacts { names_pages }
}
