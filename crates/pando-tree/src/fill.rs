//! Filling a tree that nobody reads yet from sorted entries (decision 051). Leaves are laid out in
//! private memory, one after the other and as full as possible, and the caller writes them. The
//! inner nodes above them form an ordinary tree in the pool.
//!
//! A leaf is attached to the tree in the apply section in which the pool adopts its page, and this
//! module never changes it afterwards. So at every checkpoint in between the tree is intact; it
//! only ends earlier.

use pando_format::page::{HEADER_WORDS, PageKind, SLOT_CHUNKED, SLOT_OVERFLOW};
use pando_format::{PageId, PageSize, TreeId};
use pando_pool::{ApplyToken, Attempt, Pool, Restart};

use crate::access::OptimisticAccess;
use crate::descent::Path;
use crate::node::course::Course;
use crate::node::cut::is_inline;
use crate::node::edit::{self, Fit};
use crate::node::list::{Count, Record, RecordList};
use crate::node::search::Spot;
use crate::node::slot::leaf_record_words;
use crate::node::text;
use crate::node::view::{self, ChildWord, Node};
use crate::scratch::{Scratch, Work};
use crate::tree::{Tree, counted, damaged, opened};

/// Number of parents that are split for one leaf before its caller starts again.
const ROUNDS_MAX: usize = 64;

/// What a leaf stores for a value.
#[derive(Debug, Clone, Copy)]
pub enum Filling<'a> {
    /// The value itself: see [`LeafFiller::takes`].
    Value(&'a [u8]),
    /// Its overflow header, from [`crate::overflow::lay_out`].
    Overflow(&'a [u8]),
    /// Its blob reference, which lists its chunks.
    Chunks(&'a [u8]),
    /// The overflow header of its blob reference, which lies in overflow pages.
    OverflowChunks(&'a [u8]),
}

impl<'a> Filling<'a> {
    fn parts(self) -> (&'a [u8], u64) {
        match self {
            Self::Value(bytes) => (bytes, 0),
            Self::Overflow(bytes) => (bytes, SLOT_OVERFLOW),
            Self::Chunks(bytes) => (bytes, SLOT_CHUNKED),
            Self::OverflowChunks(bytes) => (bytes, SLOT_OVERFLOW | SLOT_CHUNKED),
        }
    }
}

/// Fills one leaf after the other.
#[derive(Debug)]
pub struct LeafFiller {
    page_size: PageSize,
    /// The entries, with whole keys: the common prefix gets shorter with further keys.
    list: RecordList,
    /// Length in bytes of the prefix that all keys share.
    prefix_bytes: usize,
    /// Number of words of a page that the entries take with this prefix.
    words: usize,
    /// The last key of the previous leaf.
    before: Vec<u8>,
}

impl LeafFiller {
    /// Begins the first leaf of a tree.
    pub fn new(page_size: PageSize) -> Self {
        let mut list = RecordList::default();
        list.begin_leaf(page_size.words());
        Self {
            page_size,
            list,
            prefix_bytes: 0,
            words: 0,
            before: Vec::new(),
        }
    }

    /// Returns whether the leaf has no entries.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether a value, or a blob reference, of `value_bytes` bytes is stored in the leaf
    /// itself.
    pub fn takes(&self, key_bytes: usize, value_bytes: usize) -> bool {
        is_inline(self.page_size, key_bytes, value_bytes)
    }

    /// Returns the length of the prefix in bytes, and the number of words in use, with one more
    /// entry.
    #[inline]
    fn fit(&self, key: &[u8], value_bytes: usize) -> (usize, usize) {
        if self.list.is_empty() {
            let record_words = leaf_record_words(0, value_bytes);
            let prefix_words = key.len().div_ceil(8);
            return (key.len(), HEADER_WORDS + prefix_words + 1 + record_words);
        }
        let first = self.list.whole_key(0);
        let shared = match key.get(..self.prefix_bytes) {
            Some(head) if *head == first[..self.prefix_bytes] => self.prefix_bytes,
            _ => text::common_prefix(first, key),
        };
        let words = match shared == self.prefix_bytes {
            true => self.words,
            false => self.list.words_with_prefix(0, self.list.len(), shared),
        };
        let record_words = leaf_record_words(key.len() - shared, value_bytes);
        (shared, words + 1 + record_words)
    }

    /// Returns whether the leaf has room for one more entry, after all others, whose value or
    /// header has `value_bytes` bytes.
    pub fn has_room(&self, key: &[u8], value_bytes: usize) -> bool {
        self.fit(key, value_bytes).1 <= self.page_size.words()
    }

    /// Appends an entry after all others. Returns false, without a change, if there is no room.
    ///
    /// # Panics
    /// When the key is longer than a quarter of a page.
    #[inline]
    #[must_use]
    pub fn try_push(&mut self, key: &[u8], filling: Filling<'_>) -> bool {
        assert!(key.len() <= self.page_size.key_bytes_max(), "key length");
        let (value, flags) = filling.parts();
        let (prefix_bytes, words) = self.fit(key, value.len());
        if words > self.page_size.words() {
            return false;
        }
        self.list.push_last(&Record {
            key,
            value,
            flags,
            child: ChildWord(0),
        });
        (self.prefix_bytes, self.words) = (prefix_bytes, words);
        true
    }

    /// Writes the leaf to `page`, which is all zeros, and begins the next one. `separator` receives
    /// the key that separates the leaf from the previous one. Returns the number of its records; in
    /// a weighted tree, the sum of their weights.
    ///
    /// # Panics
    /// When the leaf is empty.
    pub fn finish(
        &mut self,
        page: &mut [[u8; 8]],
        id: PageId,
        tree: TreeId,
        separator: &mut Vec<u8>,
    ) -> u64 {
        let count = self.list.len();
        assert!(count > 0, "an empty leaf");
        debug_assert!(self.words > HEADER_WORDS);
        assert!(
            self.before.is_empty() || self.before[..] < *self.list.whole_key(0),
            "leaves out of order"
        );
        text::separate(&self.before, self.list.whole_key(0), separator);
        self.before.clear();
        self.before
            .extend_from_slice(self.list.whole_key(count - 1));
        view::begin(page, id, tree, PageKind::Leaf, 0);
        self.list.build(page, 0, count, self.prefix_bytes);
        let node = Node::open(&*page);
        assert_eq!(node.count(), count, "entries are lost");
        assert_eq!(
            node.used_bytes(),
            self.words * 8,
            "words that were not counted"
        );
        let records = self.list.records(tree, 0, count);
        assert_eq!(node.records(), records, "what the leaf counts for is lost");
        self.list.begin_leaf(self.page_size.words());
        records
    }
}

impl Tree {
    /// Attaches the leaf `page`, which has so many `records` as [`LeafFiller::finish`] has
    /// returned, to the tree, after all others; its keys begin at `separator`. The tree was created
    /// empty, all its leaves were attached in this way, and nobody else changes it. The caller
    /// makes the pool adopt the page in the same apply section.
    ///
    /// # Errors
    /// [`Restart`]; the leaf is not attached then.
    pub fn try_append_leaf(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        separator: &[u8],
        (page, records): (PageId, u64),
        scratch: &mut Scratch,
    ) -> Attempt<()> {
        let leaf = (page, records);
        let attempt = self.append_leaf(pool, token, separator, leaf, &mut scratch.work);
        counted(pool, attempt)
    }

    fn append_leaf(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        separator: &[u8],
        (page, records): (PageId, u64),
        work: &mut Work,
    ) -> Attempt<()> {
        let child = ChildWord::new(page, 0);
        let count = Count::of(self.id, records);
        let mut path = Path::new();
        for _ in 0..ROUNDS_MAX {
            let to_parent = (1, &mut path);
            let parent =
                self.descend_with_path_to(pool, &mut OptimisticAccess, to_parent, |node| {
                    node.count() - 1
                })?;
            let node = Node::open(parent.words().slice());
            if node.is_leaf() {
                if node.count() > 0 {
                    return damaged(&parent, "has entries, but no leaves to append to");
                }
                let mut latch = parent.upgrade()?;
                let mut root = latch.modify(token)?;
                view::reset(&mut root, PageKind::Inner, 1);
                let only = Record::separator(&[], child, &count);
                work.list.load_one(&only, true, pool.page_size().words());
                work.list.build(&mut root, 0, 1, 0);
                return Ok(());
            }
            let spot = Spot {
                index: node.count(),
                exact: false,
            };
            let record = Record::separator(separator, child, &count);
            let fit = edit::prepare(&node, spot, &record, &mut work.list);
            match fit {
                Fit::InPlace | Fit::Rebuild => {
                    let add = || {
                        let mut latch = parent.upgrade()?;
                        let mut page = latch.modify(token)?;
                        edit::put(&mut page, fit, spot, &record, &work.list);
                        let last = opened(&latch);
                        assert_eq!(last.count(), spot.index + 1, "a leaf is lost");
                        assert_eq!(last.child(spot.index).page(), child.page(), "another leaf");
                        Ok(records.cast_signed())
                    };
                    if self.id.is_counted() {
                        path.count_above(0, token, add)?;
                    } else {
                        add()?;
                    }
                    return Ok(());
                }
                Fit::Split | Fit::Alone => {
                    parent.validate()?;
                    work.pending.clear();
                    work.pending.extend_from_slice(separator);
                    self.make_room(pool, token, 1, Some(Course::Up), work)?;
                }
                Fit::Torn => return damaged(&parent, "holds records longer than a page"),
            }
        }
        Err(Restart::Conflict)
    }
}
