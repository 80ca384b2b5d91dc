//! Reading a value in overflow pages, or the beginning of one, piece by piece, across restarts.
//!
//! The parts that were copied stay valid as long as the leaf is unchanged: same page, frame and
//! version, same overflow header. The leaf is validated last.

use pando_format::page::{HEADER_WORDS, PageKind, WORD_PAYLOAD};
use pando_format::{PageId, TreeId};
use pando_pool::{Attempt, Optimistic, Pool, Restart};

use crate::node::text;
use crate::node::view::Node;
use crate::overflow::{OverflowHeader, ids_per_index, payload_bytes_max, read_index};
use crate::tree::Tree;
use crate::word::load;

/// Maximum number of pages that are requested at once.
const WANTED_MAX: usize = 64;

/// Progress and buffers of one read at a time, reused for any number of reads.
#[derive(Debug, Default)]
pub struct ValueReader {
    /// After a fault: pages to fetch before the next attempt, the faulting one first. Empty when
    /// only the faulting page is known.
    pub wanted: Vec<PageId>,
    source: Option<Source>,
    ids: Vec<PageId>,
    pages_copied: usize,
    buffer: Vec<u8>,
}

/// Identifies the value that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    leaf: PageId,
    frame_hint: u32,
    version: u64,
    header: OverflowHeader,
    /// Bytes that are read: all, or the first ones.
    bytes: usize,
}

impl Source {
    fn of_leaf(leaf: &Optimistic<'_>, header: &OverflowHeader, bytes: usize) -> Self {
        Self {
            leaf: leaf.page(),
            frame_hint: leaf.hint(),
            version: leaf.version(),
            header: *header,
            bytes,
        }
    }

    fn of_no_leaf(header: &OverflowHeader) -> Self {
        Self {
            leaf: PageId::NONE,
            frame_hint: 0,
            version: 0,
            header: *header,
            bytes: header.value_bytes,
        }
    }
}

impl Tree {
    /// Replaces `out` by the value in overflow pages that `header` describes, which a leaf of this
    /// tree has had: see [`Tree::try_get_stored`]. The caller keeps the pages from being freed, and
    /// begins with a new `reader`.
    ///
    /// # Errors
    /// As [`Tree::try_get`].
    pub fn try_get_kept(
        &self,
        pool: &Pool,
        header: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        let decoded = OverflowHeader::decode(pool.page_size(), header);
        let Some(header) = decoded else {
            return Err(Restart::Damaged(self.root, "has had no such long value"));
        };
        reader.read_kept(pool, self.id, &header, out)
    }
}

impl ValueReader {
    /// Makes a reader without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives its buffer back if that is longer than `kept_bytes`, and with it a read that has not
    /// ended.
    #[inline]
    pub fn shorten(&mut self, kept_bytes: usize) {
        if self.buffer.capacity() > kept_bytes {
            *self = Self::default();
        }
    }

    /// Replaces `out` by the value that `header`, read from `leaf`, describes.
    pub(crate) fn read(
        &mut self,
        pool: &Pool,
        tree: TreeId,
        leaf: &Optimistic<'_>,
        header: &OverflowHeader,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        let whole = Source::of_leaf(leaf, header, header.value_bytes);
        self.read_source(pool, tree, leaf, whole, out)
    }

    /// Replaces `out` by the first `bytes_max` bytes of the value that `header`, read from `leaf`,
    /// describes.
    pub(crate) fn read_head(
        &mut self,
        pool: &Pool,
        tree: TreeId,
        leaf: &Optimistic<'_>,
        (header, bytes_max): (&OverflowHeader, usize),
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        let head = Source::of_leaf(leaf, header, header.value_bytes.min(bytes_max));
        self.read_source(pool, tree, leaf, head, out)
    }

    fn read_source(
        &mut self,
        pool: &Pool,
        tree: TreeId,
        leaf: &Optimistic<'_>,
        source: Source,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        self.begin(Some(leaf), source)?;
        let result = self
            .read_ids(pool, tree, &source)
            .and_then(|()| self.copy_pages(pool, tree, &source));
        // An error counts only if the leaf still names these pages.
        leaf.validate()?;
        result?;
        self.end(&source, out);
        Ok(())
    }

    /// Replaces `out` by the value that `header` describes, which a leaf has had. Its pages are
    /// kept by the caller.
    fn read_kept(
        &mut self,
        pool: &Pool,
        tree: TreeId,
        header: &OverflowHeader,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        let source = Source::of_no_leaf(header);
        self.begin(None, source)?;
        self.read_ids(pool, tree, &source)?;
        self.copy_pages(pool, tree, &source)?;
        self.end(&source, out);
        Ok(())
    }

    fn end(&mut self, source: &Source, out: &mut Vec<u8>) {
        debug_assert_eq!(self.buffer.len(), source.bytes, "a value of another length");
        std::mem::swap(out, &mut self.buffer);
        self.source = None;
    }

    fn begin(&mut self, leaf: Option<&Optimistic<'_>>, source: Source) -> Attempt<()> {
        self.wanted.clear();
        if self.source != Some(source) {
            // Lengths are trusted from here on.
            leaf.map_or(Ok(()), Optimistic::validate)?;
            self.source = Some(source);
            self.ids.clear();
            self.pages_copied = 0;
            self.buffer.clear();
            self.buffer.reserve(source.bytes.next_multiple_of(8));
        }
        Ok(())
    }

    /// Finds out which pages have the bytes that are read.
    fn read_ids(&mut self, pool: &Pool, tree: TreeId, source: &Source) -> Attempt<()> {
        let Source { header, bytes, .. } = source;
        let pages = bytes.div_ceil(payload_bytes_max(pool.page_size()));
        if self.ids.len() >= pages {
            return Ok(());
        }
        self.ids.clear();
        if !header.is_indexed() {
            self.ids.extend_from_slice(header.ids());
            return Ok(());
        }
        let indexes = pages.div_ceil(ids_per_index(pool.page_size()));
        for page in &header.ids()[..indexes] {
            match read_index(pool, tree, *page, &mut self.ids) {
                Err(Restart::Fault(page)) => self.wanted.push(page),
                result => result?,
            }
        }
        self.fault()?;
        let ids = self.ids.len();
        let all_read = indexes == header.ids().len();
        if ids == header.pages || !all_read && (pages..header.pages).contains(&ids) {
            Ok(())
        } else {
            let page = header.ids()[0];
            Err(Restart::Damaged(page, "indexes too few or too many pages"))
        }
    }

    fn fault(&self) -> Attempt<()> {
        match self.wanted.first() {
            Some(page) => Err(Restart::Fault(*page)),
            None => Ok(()),
        }
    }

    fn copy_pages(&mut self, pool: &Pool, tree: TreeId, source: &Source) -> Attempt<()> {
        let Source { header, bytes, .. } = source;
        let capacity = payload_bytes_max(pool.page_size());
        let pages = bytes.div_ceil(capacity);
        while self.pages_copied < pages {
            let page = self.ids[self.pages_copied];
            let seen = match pool.optimistic(page, 0) {
                Err(Restart::Fault(page)) => {
                    self.list_missing(pool, page, pages);
                    return Err(Restart::Fault(page));
                }
                result => result?,
            };
            let begin = self.pages_copied * capacity;
            let expected = capacity.min(header.value_bytes - begin);
            let words = seen.words().slice();
            let node = Node::open(words);
            let payload = (load(words, WORD_PAYLOAD) & 0xFFFF_FFFF) as usize;
            let valid = node.kind() == Some(PageKind::Overflow)
                && node.tree() == tree
                && payload == expected;
            if !valid {
                seen.validate()?;
                return Err(Restart::Damaged(page, "is no such overflow page"));
            }
            self.buffer.truncate(begin);
            let asked = expected.min(bytes - begin);
            text::append_words(words, HEADER_WORDS, asked, &mut self.buffer);
            seen.validate()?;
            seen.touch();
            self.pages_copied += 1;
        }
        Ok(())
    }

    fn list_missing(&mut self, pool: &Pool, first: PageId, pages: usize) {
        self.wanted.push(first);
        for page in &self.ids[self.pages_copied + 1..pages] {
            if self.wanted.len() == WANTED_MAX {
                break;
            }
            if let Err(Restart::Fault(page)) = pool.optimistic(*page, 0) {
                self.wanted.push(page);
            }
        }
    }
}
