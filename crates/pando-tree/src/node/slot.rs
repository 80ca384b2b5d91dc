//! Slots, the size of their records, and the writing of records.
//!
//! The layout is that of `pando_format::page`. An entry of an inner node has no value. It has no
//! record either (its offset is 0) if its suffix fits into the head.

use pando_format::page::{HEADER_WORDS, SLOT_CHUNKED, SLOT_GHOST, SLOT_OVERFLOW};

use super::text;
use crate::word::{Store, load};

const OFFSET_SHIFT: u32 = 19;
const OFFSET_MASK: u64 = (1 << 13) - 1;
const FLAGS: u64 = SLOT_GHOST | SLOT_OVERFLOW | SLOT_CHUNKED;
/// Number of bytes of a suffix that lie in the slot.
pub const HEAD_BYTES: usize = 4;
/// Number of bytes of the value length, at the start of a record.
pub const LENGTH_BYTES: usize = 2;
/// Where the words of a record are in a copy that begins with the suffix: the end of the head
/// stands in the place of the length.
pub const RECORD_IN_COPY: usize = HEAD_BYTES - LENGTH_BYTES;

/// One slot word. Any bits are a slot: the fields of a torn one only lead to a wrong answer, which
/// fails validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub u64);

impl Slot {
    /// Makes the slot of `suffix`, whose record lies at word `offset`.
    pub fn new(suffix: &[u8], offset: usize, flags: u64) -> Self {
        debug_assert!(suffix.len() <= usize::from(u16::MAX));
        debug_assert!(offset as u64 <= OFFSET_MASK);
        let head = u64::from(text::head_of(suffix)) << 32;
        let offset = (offset as u64 & OFFSET_MASK) << OFFSET_SHIFT;
        Self(head | offset | (flags & FLAGS) | (suffix.len() as u64 & 0xFFFF))
    }

    /// Returns the first four bytes of the suffix, big-endian.
    #[inline]
    pub fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the word of the page at which the record starts.
    #[inline]
    pub fn offset(self) -> usize {
        (self.0 >> OFFSET_SHIFT & OFFSET_MASK) as usize
    }

    /// Returns the length of the suffix in bytes.
    #[inline]
    pub fn suffix_bytes(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    /// Returns the number of bytes of the suffix that lie in the record.
    #[inline]
    pub fn rest_bytes(self) -> usize {
        self.suffix_bytes().saturating_sub(HEAD_BYTES)
    }

    /// Returns the byte of the page at which these bytes start.
    #[inline]
    pub fn rest_start(self) -> usize {
        self.offset() * 8 + LENGTH_BYTES
    }

    /// Returns the word of the page at which the value starts.
    #[inline]
    pub fn value_start(self) -> usize {
        self.offset() + (LENGTH_BYTES + self.rest_bytes()).div_ceil(8)
    }

    /// Returns the flag bits.
    #[inline]
    pub fn flags(self) -> u64 {
        self.0 & FLAGS
    }

    /// Returns whether the value is a blob reference, in the leaf or in overflow pages.
    #[inline]
    pub fn is_chunked(self) -> bool {
        self.0 & SLOT_CHUNKED != 0
    }

    /// Returns whether the record contains the value itself: no overflow header and no blob
    /// reference.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.0 & (SLOT_OVERFLOW | SLOT_CHUNKED) == 0
    }

    /// Returns whether the value lies in overflow pages.
    #[inline]
    pub fn is_overflow(self) -> bool {
        self.0 & SLOT_OVERFLOW != 0
    }
}

/// Returns the number of words of a record of a leaf.
#[inline]
pub fn leaf_record_words(suffix_bytes: usize, value_bytes: usize) -> usize {
    (LENGTH_BYTES + suffix_bytes.saturating_sub(HEAD_BYTES)).div_ceil(8) + value_bytes.div_ceil(8)
}

/// Returns the number of words of a record of an inner node.
#[inline]
pub fn inner_record_words(suffix_bytes: usize) -> usize {
    match suffix_bytes.saturating_sub(HEAD_BYTES) {
        0 => 0,
        rest => (LENGTH_BYTES + rest).div_ceil(8),
    }
}

/// Writes the record of `suffix` and `value` at word `offset`.
pub fn write_record<P: Store + ?Sized>(page: &mut P, offset: usize, suffix: &[u8], value: &[u8]) {
    debug_assert!(offset >= HEADER_WORDS, "a record in the header");
    debug_assert!(
        value.len() <= usize::from(u16::MAX),
        "a value that is too long"
    );
    let rest = suffix.get(HEAD_BYTES..).unwrap_or(&[]);
    let (first, more) = rest.split_at(rest.len().min(8 - LENGTH_BYTES));
    let length = value.len() as u64 & 0xFFFF;
    page.store(offset, length | text::word_of(first) << (8 * LENGTH_BYTES));
    let at = text::write(page, offset + 1, more);
    text::write(page, at, value);
}

/// Replaces the value of the record at word `offset` of a leaf, which begins at word `at`, by one
/// that takes as many words.
pub fn replace_value<P: Store + ?Sized>(page: &mut P, (offset, at): (usize, usize), value: &[u8]) {
    debug_assert!(offset >= HEADER_WORDS, "a record in the header");
    debug_assert!(
        value.len() <= usize::from(u16::MAX),
        "a value that is too long"
    );
    let first = load(page.words(), offset);
    let length = value.len() as u64 & 0xFFFF;
    page.store(
        offset,
        first >> (8 * LENGTH_BYTES) << (8 * LENGTH_BYTES) | length,
    );
    text::write(page, at, value);
}

/// Writes a record of a leaf at word `offset`, as another leaf had it: `record` are its bytes, but
/// for those of the value's length at their begin.
pub fn copy_record<P: Store + ?Sized>(
    page: &mut P,
    offset: usize,
    record: &[u8],
    value_bytes: usize,
) {
    debug_assert!(offset >= HEADER_WORDS, "a record in the header");
    let (words, _) = record.as_chunks::<8>();
    let Some((first, others)) = words.split_first() else {
        return;
    };
    let length = value_bytes as u64 & 0xFFFF;
    let first = u64::from_le_bytes(*first) >> (8 * LENGTH_BYTES) << (8 * LENGTH_BYTES);
    page.store(offset, first | length);
    let others = others.iter().map(|word| u64::from_le_bytes(*word));
    page.store_all(offset + 1, others);
}
