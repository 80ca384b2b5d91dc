//! The page: header, slots, records. Pages have the same layout of 64-bit words in memory and on
//! disk, except that stored images may be compressed, see `compression`.
//!
//! ```text
//! word  bytes
//!  0     0..4   checksum: CRC-32C of bytes 4.. to the end of the stored image (hints zero)
//!        4..8   page id
//!  1     8..12  tree id
//!       12      kind (see PageKind)
//!       13      level: 0 for a leaf, parents one above their children
//!       14      codec of a stored image: 0 none, 1 LZ4, 2 Zstandard, 3 Snappy; 0 in memory
//!       15      flags, reserved
//!  2    16..24  lsn_max: newest batch that changed the leaf
//!  3    24..32  multi_lsn: newest batch of two or more writes that changed it
//!  4    32..40  epoch of this image
//!  5    40..42  slot count
//!       42..44  ghost count (always 0 in version 1)
//!       44..46  heap start, in words from the start of the page
//!       46..48  dead words in the heap
//!  6    48..50  prefix offset, in words
//!       50..52  prefix length, in bytes
//!       52..56  reserved
//!  7    56..60  payload bytes of overflow pages
//!       60..64  bytes of the compressed body of a stored image; 0 in memory
//!  8..          slots, growing up; the heap of records grows down from the end
//! ```
//!
//! A leaf's slot is one word; an inner node's entry is two: slot, then child word.
//!
//! Bit 31 of the tree id is set in *counted* trees (format version 2): each inner entry, the first
//! one too, has a record, and its value is the number of records in the leaves below (u64). With
//! bit 30, too, the tree is *weighted* (version 3): that value is the sum of the weights of these
//! records (see `weight`).
//!
//! ```text
//! slot:  bit 63       32 31     19 18  17  16 15          0
//!            +-----------+---------+---+---+---+------------+
//!            |   head    | offset  | C | O | G | suffix len |
//!            +-----------+---------+---+---+---+------------+
//! head: first 4 bytes of the suffix, big-endian, zero-padded; offset: word of the record;
//! C: the value is a blob reference; O: the value lies in overflow pages; G: ghost.
//!
//! child word: bits 0..32 page id, bits 32..64 frame hint + 1 (0: none; always 0 in images).
//!
//! record: u16 value length, the suffix from its 5th byte on, padding to a word, the value.
//! ```
//! The suffix is the key without the page's prefix, whose bytes lie in the heap. The first entry of
//! an inner node has neither key nor record: it stands for everything smaller than the second. An
//! inner entry whose suffix has at most 4 bytes has no record either (offset 0). Each word of the
//! heap belongs to the prefix or to one record, or is counted as dead.
//!
//! The value of a slot with O: u32 length, u32 number of overflow pages, then u32 page ids: of the
//! overflow pages themselves if they are 12 or fewer, otherwise of the index pages that list them.
//! Overflow and index pages hold payload from byte 64 on; only the last ones of a value are not
//! full.

use crate::bytes::u64_at;
use crate::cast::u32_of_len;
use crate::checksum::crc32c;
use crate::{Damage, Lsn};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 64;
/// Length of the header in words: the index of the first slot.
pub const HEADER_WORDS: usize = HEADER_BYTES / 8;

/// Word of checksum and page id.
pub const WORD_ID: usize = 0;
/// Word of tree id, kind, level, compression, flags.
pub const WORD_KIND: usize = 1;
/// Word of `lsn_max`.
pub const WORD_LSN_MAX: usize = 2;
/// Word of `multi_lsn`.
pub const WORD_MULTI_LSN: usize = 3;
/// Word of the epoch.
pub const WORD_EPOCH: usize = 4;
/// Word of slot count, ghost count, heap start, dead words.
pub const WORD_HEAP: usize = 5;
/// Word of the prefix.
pub const WORD_PREFIX: usize = 6;
/// Word of the payload length.
pub const WORD_PAYLOAD: usize = 7;

/// Size of a page: a power of two from 4 KiB to 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageSize(u32);

impl PageSize {
    /// Minimum size in bytes.
    pub const MIN: usize = 4096;
    /// Maximum size in bytes.
    pub const MAX: usize = 65536;

    /// Makes a page size of `bytes` bytes, if that is a power of two in range.
    pub fn new(bytes: usize) -> Option<Self> {
        let valid = bytes.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&bytes);
        valid.then(|| Self(u32_of_len(bytes)))
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the size in words.
    #[inline]
    pub fn words(self) -> usize {
        self.0 as usize / 8
    }

    /// Returns the maximum length of a key in bytes: a quarter of a page.
    #[inline]
    pub fn key_bytes_max(self) -> usize {
        self.bytes() / 4
    }
}

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Keys with their values.
    Leaf,
    /// Separators with their children.
    Inner,
    /// A piece of a value that is too long for its leaf.
    Overflow,
    /// Page ids (u32 each) of the overflow pages of one value.
    OverflowIndex,
    /// Reserved: chunks of very large values have no header.
    Chunk,
}

impl PageKind {
    /// Returns its byte.
    pub fn encode(self) -> u8 {
        match self {
            Self::Leaf => 1,
            Self::Inner => 2,
            Self::Overflow => 3,
            Self::OverflowIndex => 4,
            Self::Chunk => 5,
        }
    }

    /// Reads the byte.
    pub fn decode(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Leaf),
            2 => Some(Self::Inner),
            3 => Some(Self::Overflow),
            4 => Some(Self::OverflowIndex),
            5 => Some(Self::Chunk),
            _ => None,
        }
    }
}

/// Length in bytes of the value of an inner entry of a counted tree.
pub const COUNT_BYTES: usize = 8;
/// Slot flag (reserved): the record is deleted but kept for old readers.
pub const SLOT_GHOST: u64 = 1 << 16;
/// Slot flag: the record's value is an overflow header.
pub const SLOT_OVERFLOW: u64 = 1 << 17;
/// Slot flag: the record's value is a blob reference; with [`SLOT_OVERFLOW`], one that lies in
/// overflow pages.
pub const SLOT_CHUNKED: u64 = 1 << 18;

/// Returns the checksum of a stored page image, without bytes 0..4, where it is stored.
pub fn checksum(image: &[u8]) -> u32 {
    crc32c(&image[4..])
}

/// Checks the checksum, the page id and the tag of an image that was read from the device.
///
/// # Errors
/// [`Damage`] with expected and actual values.
pub fn verify_image(image: &[u8], page: crate::PageId, tag: u32) -> Result<(), Damage> {
    let stored = crate::bytes::u32_at(image, 0);
    let actual = checksum(image);
    if stored != actual {
        return Err(Damage::new(format!(
            "checksum: stored {stored:#010x}, actual {actual:#010x}"
        )));
    }
    let id = crate::bytes::u32_at(image, 4);
    if id != page.0 {
        return Err(Damage::new(format!(
            "holds page {id} (a misdirected write?)"
        )));
    }
    let actual_tag = crate::StoredPage::tag_of(actual);
    if actual_tag != tag {
        return Err(Damage::new(format!(
            "an older image of the page (a lost write?): tag {actual_tag:#07x}, expected {tag:#07x}"
        )));
    }
    Ok(())
}

/// Checks the marks of a leaf, `multi_lsn <= lsn_max <= ceiling`; other pages have none. `content`
/// is an uncompressed page. `ceiling` is None for an epoch that is not closed.
///
/// # Errors
/// [`Damage`] with the marks.
pub fn check_marks(content: &[u8], ceiling: Option<Lsn>) -> Result<(), Damage> {
    if PageKind::decode(content[WORD_KIND * 8 + 4]) != Some(PageKind::Leaf) {
        return Ok(());
    }
    let mark = |word: usize| Lsn(u64_at(content, word * 8));
    let (lsn_max, multi_lsn) = (mark(WORD_LSN_MAX), mark(WORD_MULTI_LSN));
    if multi_lsn > lsn_max {
        return Err(Damage::new(format!(
            "its newest batch of many writes, {multi_lsn}, is behind its newest batch, {lsn_max}"
        )));
    }
    match ceiling {
        Some(c) if lsn_max > c => Err(Damage::new(format!(
            "its newest batch, {lsn_max}, is behind its checkpoint, {c}"
        ))),
        _ => Ok(()),
    }
}

const _: () = assert!(PageSize::MAX / 8 <= 1 << 13, "word offsets have 13 bits");
const _: () = assert!(PageSize::MAX / 4 <= 1 << 16, "suffix lengths have 16 bits");
