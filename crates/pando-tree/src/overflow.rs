//! Values that are too long for their leaf: their overflow header in the leaf, and how they are
//! written.
//!
//! ```text
//! in the leaf, as value of a slot with the overflow flag:
//!   0..4  bytes of the value
//!   4..8  number of overflow pages
//!   8..   up to 12 pages: their ids (u32 each); more: ids of the index pages that hold them
//! ```
//! All overflow pages except the last are full; the payload starts at byte 64. Pages are written
//! before the leaf names them and never changed afterwards, so a reader that finds the leaf
//! unchanged after its reads has read the value.

use pando_format::cast::{low_u32, u32_of_len};
use pando_format::page::{HEADER_BYTES, HEADER_WORDS, PageKind, WORD_PAYLOAD};
use pando_format::{PageId, PageSize, TreeId};
use pando_pool::{ApplyToken, Attempt, Pool, Restart};

use crate::node::slot::Slot;
use crate::node::text;
use crate::node::view::{self, Node};
use crate::word::{Store, Word, load};

/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of ids in an overflow header.
const IDS_MAX: usize = 12;

/// Returns the number of bytes of a value that an overflow page holds.
pub fn payload_bytes_max(page_size: PageSize) -> usize {
    page_size.bytes() - HEADER_BYTES
}

/// Returns the number of ids that an index page holds.
pub(crate) fn ids_per_index(page_size: PageSize) -> usize {
    payload_bytes_max(page_size) / 4
}

/// The overflow header: what a leaf stores for a value in overflow pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverflowHeader {
    /// Length of the value in bytes.
    pub value_bytes: usize,
    /// Number of overflow pages.
    pub pages: usize,
    ids: [PageId; IDS_MAX],
    ids_count: usize,
}

impl OverflowHeader {
    /// Reads the overflow header in the record of `slot`. Returns `None` if it is not valid.
    pub fn read<W: Word>(node: &Node<'_, W>, slot: Slot) -> Option<Self> {
        let words = node.words();
        let page_size = PageSize::new(words.len() * 8)?;
        let start = slot.value_start();
        let word = |index| load(words, start + index);
        Self::of_words(page_size, node.value_bytes(slot), word)
    }

    /// Reads the overflow header in `bytes`, which a leaf of pages of `page_size` had. Returns
    /// `None` if it is not valid.
    pub fn decode(page_size: PageSize, bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let mut word = [0; 8];
            let bytes = bytes.get(8 * index..).unwrap_or(&[]);
            let len = bytes.len().min(word.len());
            word[..len].copy_from_slice(&bytes[..len]);
            u64::from_le_bytes(word)
        };
        Self::of_words(page_size, bytes.len(), word)
    }

    /// Reads the header of `bytes` bytes, whose words `word` returns.
    fn of_words(page_size: PageSize, bytes: usize, word: impl Fn(usize) -> u64) -> Option<Self> {
        let sizes = word(0);
        let value_bytes = (sizes & 0xFFFF_FFFF) as usize;
        let pages = (sizes >> 32) as usize;
        let whole = pages == value_bytes.div_ceil(payload_bytes_max(page_size));
        if pages == 0 || value_bytes > VALUE_BYTES_MAX || !whole {
            return None;
        }
        let ids_count = if pages <= IDS_MAX {
            pages
        } else {
            pages.div_ceil(ids_per_index(page_size))
        };
        if ids_count > IDS_MAX || bytes != 8 + 4 * ids_count {
            return None;
        }
        let ids = std::array::from_fn(|index| {
            let word = word(1 + index / 2);
            PageId(low_u32(word >> (32 * (index % 2))))
        });
        Some(Self {
            value_bytes,
            pages,
            ids,
            ids_count,
        })
    }

    /// Returns the ids that the leaf names, of overflow pages or of index pages.
    pub fn ids(&self) -> &[PageId] {
        &self.ids[..self.ids_count]
    }

    /// Returns whether [`Self::ids`] are those of index pages.
    pub fn is_indexed(&self) -> bool {
        self.pages > IDS_MAX
    }
}

/// Appends the ids in the index page `page`, which must belong to `tree`, to `out`.
///
/// # Errors
/// As [`Pool::optimistic`], and [`Restart::Damaged`] when it is not an index page. The latter is a
/// mere conflict as long as the leaf has not been validated.
pub fn read_index(pool: &Pool, tree: TreeId, page: PageId, out: &mut Vec<PageId>) -> Attempt<()> {
    let seen = pool.optimistic(page, 0)?;
    let words = seen.words().slice();
    let node = Node::open(words);
    let payload = (load(words, WORD_PAYLOAD) & 0xFFFF_FFFF) as usize;
    let valid = node.kind() == Some(PageKind::OverflowIndex)
        && node.tree() == tree
        && payload <= payload_bytes_max(pool.page_size());
    if !valid {
        seen.validate()?;
        return Err(Restart::Damaged(page, "is no index page of this tree"));
    }
    let before = out.len();
    for index in 0..payload / 4 {
        let word = load(words, HEADER_WORDS + index / 2);
        out.push(PageId(low_u32(word >> (32 * (index % 2)))));
    }
    seen.touch();
    seen.validate().inspect_err(|_| out.truncate(before))
}

/// Appends the ids of all pages of a value, including index pages.
///
/// # Errors
/// As [`read_index`].
pub fn collect_ids(
    pool: &Pool,
    tree: TreeId,
    header: &OverflowHeader,
    out: &mut Vec<PageId>,
) -> Attempt<()> {
    out.extend_from_slice(header.ids());
    if header.is_indexed() {
        let before = out.len();
        for index in header.ids() {
            read_index(pool, tree, *index, out)?;
        }
        if out.len() - before != header.pages {
            let page = header.ids()[0];
            return Err(Restart::Damaged(page, "indexes too few or too many pages"));
        }
    }
    Ok(())
}

/// Pages of a value that no leaf names yet. They survive restarts of the insertion.
#[derive(Debug, Default)]
pub struct StagedPages {
    pages: Vec<PageId>,
    index: Vec<PageId>,
    header: Vec<u8>,
}

impl StagedPages {
    /// Writes the part of `value` that is not written yet. The value is the same in every call
    /// until [`Self::finish`] or [`Self::abandon`].
    ///
    /// # Errors
    /// As [`Pool::allocate`]. Pages written so far are kept.
    pub fn write(
        &mut self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        tree: TreeId,
        value: &[u8],
    ) -> Attempt<()> {
        let page_size = pool.page_size();
        let pieces = value.chunks(payload_bytes_max(page_size));
        assert!(
            self.pages.len() <= pieces.len(),
            "another value was begun and neither finished nor abandoned"
        );
        for piece in pieces.skip(self.pages.len()) {
            let page = write_page(pool, token, tree, PageKind::Overflow, piece)?;
            self.pages.push(page);
        }
        let per_index = ids_per_index(page_size);
        let index_pages = index_pages(self.pages.len(), per_index);
        while self.index.len() < index_pages {
            let from = self.index.len() * per_index;
            let to = self.pages.len().min(from + per_index);
            let ids = id_bytes(&self.pages[from..to]);
            let page = write_page(pool, token, tree, PageKind::OverflowIndex, &ids)?;
            self.index.push(page);
        }
        let Self {
            pages,
            index,
            header,
        } = self;
        assert_eq!(
            pages.len(),
            value.len().div_ceil(payload_bytes_max(page_size)),
            "pages of another value"
        );
        describe(value.len(), pages, index, header);
        assert_eq!(
            header.len(),
            overflow_header_bytes(page_size, value.len()),
            "an overflow header of another length"
        );
        Ok(())
    }

    /// Returns the overflow header for the leaf, once all pages are written; empty before.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Forgets the pages: a leaf names them now.
    pub fn finish(&mut self) {
        self.pages.clear();
        self.index.clear();
        self.header.clear();
    }

    /// Forgets the pages and appends them to `to_free`: no leaf will name them.
    pub fn abandon(&mut self, to_free: &mut Vec<PageId>) {
        to_free.append(&mut self.pages);
        to_free.append(&mut self.index);
        self.header.clear();
    }
}

fn id_bytes(ids: &[PageId]) -> Vec<u8> {
    ids.iter().flat_map(|page| page.0.to_le_bytes()).collect()
}

/// Returns the number of index pages of a value with `pages` overflow pages.
fn index_pages(pages: usize, per_index: usize) -> usize {
    if pages <= IDS_MAX {
        0
    } else {
        pages.div_ceil(per_index)
    }
}

/// Replaces `header` by the overflow header of a value.
fn describe(value_bytes: usize, pages: &[PageId], index: &[PageId], header: &mut Vec<u8>) {
    let named = if index.is_empty() { pages } else { index };
    header.clear();
    for size in [value_bytes, pages.len()].map(u32_of_len) {
        header.extend_from_slice(&size.to_le_bytes());
    }
    header.extend_from_slice(&id_bytes(named));
}

fn put_payload<P: Store + ?Sized>(page: &mut P, payload: &[u8]) {
    assert!(
        HEADER_BYTES + payload.len() <= page.words().len() * 8,
        "a payload longer than a page"
    );
    text::write(page, HEADER_WORDS, payload);
    page.store(WORD_PAYLOAD, payload.len() as u64);
}

/// Returns the length in bytes of the overflow header of a value of `value_bytes` bytes.
pub fn overflow_header_bytes(page_size: PageSize, value_bytes: usize) -> usize {
    let pages = value_bytes.div_ceil(payload_bytes_max(page_size));
    let named = match index_pages(pages, ids_per_index(page_size)) {
        0 => pages,
        index => index,
    };
    8 + 4 * named
}

/// Lays out the pages of a value that are written outside a pool, and replaces `header` by the
/// overflow header for its leaf. `place` writes one page with the given payload and returns its id.
///
/// # Errors
/// The first error of `place`.
///
/// # Panics
/// When the value is longer than [`VALUE_BYTES_MAX`].
pub fn lay_out<E>(
    page_size: PageSize,
    value: &[u8],
    header: &mut Vec<u8>,
    mut place: impl FnMut(PageKind, &[u8]) -> Result<PageId, E>,
) -> Result<(), E> {
    assert!(value.len() <= VALUE_BYTES_MAX, "value length");
    let per_index = ids_per_index(page_size);
    let pieces = value.chunks(payload_bytes_max(page_size));
    let pages: Vec<PageId> = pieces
        .map(|piece| place(PageKind::Overflow, piece))
        .collect::<Result<_, E>>()?;
    let index: Vec<PageId> = match index_pages(pages.len(), per_index) {
        0 => Vec::new(),
        _ => pages
            .chunks(per_index)
            .map(|ids| place(PageKind::OverflowIndex, &id_bytes(ids)))
            .collect::<Result<_, E>>()?,
    };
    describe(value.len(), &pages, &index, header);
    assert_eq!(
        header.len(),
        overflow_header_bytes(page_size, value.len()),
        "an overflow header of another length"
    );
    Ok(())
}

/// Turns a page of zeros into a page that [`lay_out`] asks for.
pub fn fill_page(page: &mut [[u8; 8]], id: PageId, tree: TreeId, kind: PageKind, payload: &[u8]) {
    view::begin(page, id, tree, kind, 0);
    put_payload(page, payload);
}

fn write_page(
    pool: &Pool,
    token: &ApplyToken<'_>,
    tree: TreeId,
    kind: PageKind,
    payload: &[u8],
) -> Attempt<PageId> {
    let mut latch = pool.allocate(token, tree, kind, 0)?;
    let failed = match latch.modify(token) {
        Ok(mut page) => {
            put_payload(&mut page, payload);
            return Ok(latch.page());
        }
        Err(restart) => restart,
    };
    latch.free(token);
    Err(failed)
}
