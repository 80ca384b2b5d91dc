//! Searches of a node. All find what `Node::find` finds, which is the product's: a binary search
//! over the heads in the slots, without branches, and then over what follows equal heads.

use std::cmp::Ordering;
use std::hint::black_box;

use pando_format::PageId;
use pando_format::page::HEADER_WORDS;
use pando_pool::{Attempt, Optimistic, Pool};
use pando_sync::atomic::AtomicU64;
use pando_tree::Approach;
use pando_tree::node::search::{Spot, compare_behind_head};
use pando_tree::node::slot::Slot;
use pando_tree::node::text;
use pando_tree::node::view::Node;
use pando_tree::word::{Word, load};

use super::hint_lines::HintLines;

/// Heads that are compared at once.
pub(super) const WIDE: usize = 32;

/// A way to search.
pub(super) trait Kernel {
    /// Asks for what a search in the frame of `hint` reads beside the page.
    #[inline]
    fn prefetch(&self, hint: u32) {
        let _ = hint;
    }

    /// The first entry that is not smaller than `key`, as `Node::find`; the node lies in the frame
    /// of `hint`, and its entries have `1 << SHIFT` words, as leaves (0) and inner nodes (1) have.
    fn find<W: Word, const SHIFT: u32>(&self, hint: u32, node: &Node<'_, W>, key: &[u8]) -> Spot;
}

/// Compares whole keys, at each step: prefix, head, and what the record holds.
#[derive(Debug)]
pub(super) struct Plain;

impl Kernel for Plain {
    #[inline]
    fn find<W: Word, const SHIFT: u32>(&self, _hint: u32, node: &Node<'_, W>, key: &[u8]) -> Spot {
        let (mut low, mut high) = (SHIFT as usize, node.count());
        while low < high {
            let index = low + (high - low) / 2;
            match compare_whole::<W, SHIFT>(node, index, key) {
                Ordering::Less => low = index + 1,
                Ordering::Equal => return Spot { index, exact: true },
                Ordering::Greater => high = index,
            }
        }
        Spot {
            index: low,
            exact: false,
        }
    }
}

#[inline]
fn compare_whole<W: Word, const SHIFT: u32>(
    node: &Node<'_, W>,
    index: usize,
    key: &[u8],
) -> Ordering {
    let (words, prefix_bytes) = (node.words(), node.prefix_bytes());
    let (shared, suffix) = key.split_at(key.len().min(prefix_bytes));
    let mut prefixes = text::compare(words, node.prefix_offset() * 8, shared);
    if shared.len() < prefix_bytes {
        prefixes = prefixes.then(Ordering::Greater);
    }
    let slot = slot_at::<W, SHIFT>(words, index);
    // Read whatever the heads say: a key that lies in one piece is read from its beginning. Of a
    // short one the head is all there is.
    black_box(load(words, slot.rest_start() / 8));
    let behind = black_box(compare_behind_head(words, slot, suffix));
    let heads = slot.head().cmp(&text::head_of(suffix));
    prefixes.then(heads).then(behind)
}

/// Narrows the search by a line of hints, which is on its way with the page.
#[derive(Debug)]
pub(super) struct Hinted<'a>(pub(super) &'a HintLines);

impl Kernel for Hinted<'_> {
    #[inline]
    fn prefetch(&self, hint: u32) {
        self.0.prefetch(hint);
    }

    #[inline]
    fn find<W: Word, const SHIFT: u32>(&self, hint: u32, node: &Node<'_, W>, key: &[u8]) -> Spot {
        by_heads::<W, SHIFT>(node, key, |from, to, head| {
            let (low, high) = self.0.narrow(hint, from, to, head);
            first_head::<W, SHIFT>(node.words(), low, high, head)
        })
    }
}

/// Narrows the search by halves to [`WIDE`] heads, copies them, and compares them all at once.
#[derive(Debug)]
pub(super) struct Wide;

impl Kernel for Wide {
    #[inline]
    fn find<W: Word, const SHIFT: u32>(&self, _hint: u32, node: &Node<'_, W>, key: &[u8]) -> Spot {
        by_heads::<W, SHIFT>(node, key, |from, to, head| {
            let entries = entries::<W, SHIFT>(node.words(), from, to);
            let head_of = |word: &W| (word.get() >> 32) as u32;
            let (mut base, mut size) = (0, entries.len() >> SHIFT);
            while size > WIDE {
                let half = size / 2;
                let last = &entries[(base + half - 1) << SHIFT];
                base += usize::from(head_of(last) < head) * half;
                size -= half;
            }
            // What is not there counts as not below.
            let mut heads = [u32::MAX; WIDE];
            let window = entries[base << SHIFT..].iter().step_by(1 << SHIFT);
            for (copy, word) in heads[..size].iter_mut().zip(window) {
                *copy = head_of(word);
            }
            from + base + count_below(&heads, head)
        })
    }
}

/// Straight over an array: the compiler makes vector instructions of it.
#[inline]
fn count_below(heads: &[u32; WIDE], head: u32) -> usize {
    let below: u32 = heads.iter().map(|one| u32::from(*one < head)).sum();
    below as usize
}

/// The words of the entries `from .. to`.
#[inline]
fn entries<W: Word, const SHIFT: u32>(words: &[W], from: usize, to: usize) -> &[W] {
    let entries = words.get(HEADER_WORDS + (from << SHIFT)..HEADER_WORDS + (to << SHIFT));
    entries.unwrap_or(&[])
}

#[inline]
fn slot_at<W: Word, const SHIFT: u32>(words: &[W], index: usize) -> Slot {
    Slot(load(words, HEADER_WORDS + (index << SHIFT)))
}

/// First of the entries `from .. to` whose head is not below `head`, as the product looks for it.
#[inline]
fn first_head<W: Word, const SHIFT: u32>(words: &[W], from: usize, to: usize, head: u32) -> usize {
    let entries = entries::<W, SHIFT>(words, from, to);
    let is_below = |word: &W| ((word.get() >> 32) as u32) < head;
    let below = if SHIFT == 0 {
        entries.partition_point(is_below)
    } else {
        let (pairs, _) = entries.as_chunks::<2>();
        pairs.partition_point(|[slot, _]| is_below(slot))
    };
    from + below
}

/// The search of the product, with another `first_head`: among entries `from .. to`, which are
/// some, the first whose head is not below.
#[inline]
fn by_heads<W: Word, const SHIFT: u32>(
    node: &Node<'_, W>,
    key: &[u8],
    first: impl Fn(usize, usize, u32) -> usize,
) -> Spot {
    let (words, from, to) = (node.words(), SHIFT as usize, node.count());
    let miss = |index| Spot {
        index,
        exact: false,
    };
    let prefix_bytes = node.prefix_bytes();
    let (shared, suffix) = key.split_at(key.len().min(prefix_bytes));
    if prefix_bytes > 0 {
        match text::compare(words, node.prefix_offset() * 8, shared) {
            Ordering::Less => return miss(to),
            Ordering::Equal if shared.len() == prefix_bytes => {}
            _ => return miss(from),
        }
    }
    if from >= to {
        return miss(from);
    }
    let head = text::head_of(suffix);
    let mut low = first(from, to, head);
    if low >= to || slot_at::<W, SHIFT>(words, low).head() != head {
        return miss(low);
    }
    let mut high = low + 1;
    if high < to && slot_at::<W, SHIFT>(words, high).head() == head {
        high = match head.checked_add(1) {
            Some(next) => first_head::<W, SHIFT>(words, low, to, next),
            None => to,
        };
    }
    while low < high {
        let index = low + (high - low) / 2;
        match compare_behind_head(words, slot_at::<W, SHIFT>(words, index), suffix) {
            Ordering::Less => low = index + 1,
            Ordering::Equal => return Spot { index, exact: true },
            Ordering::Greater => high = index,
        }
    }
    miss(low)
}

/// A read that searches nodes by a kernel.
#[derive(Debug)]
pub(super) struct Searching<K>(pub(super) K);

impl<'p, K: Kernel> Approach<'p> for Searching<K> {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        self.0.prefetch(hint);
        pool.optimistic(page, hint)
    }

    #[inline]
    fn child_for(&mut self, here: Optimistic<'p>, node: &Node<'p, AtomicU64>, key: &[u8]) -> usize {
        let spot = self.0.find::<_, 1>(here.hint(), node, key);
        spot.index.saturating_sub(usize::from(!spot.exact))
    }

    #[inline]
    fn find(&mut self, here: Optimistic<'p>, node: &Node<'p, AtomicU64>, key: &[u8]) -> Spot {
        self.0.find::<_, 0>(here.hint(), node, key)
    }
}
