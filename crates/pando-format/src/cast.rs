//! Conversions that narrow an integer. Where a number of one width becomes one of another, the name
//! says why nothing is lost, or that the rest is not wanted.
//!
//! What comes from a disk, a peer or a caller is checked with `try_from` before it gets here.

const _: () = assert!(usize::BITS == 64, "lengths of files are lengths in memory");

/// Returns a number as an index or a length in memory.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: asserted above"
)]
pub const fn usize_of(value: u64) -> usize {
    value as usize
}

/// Returns a number that is known to have 32 bits: a debug build checks it.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the caller knows a bound")]
pub const fn u32_of(value: u64) -> u32 {
    debug_assert!(value <= u32::MAX as u64, "a number of 32 bits");
    value as u32
}

/// As [`u32_of`], of an index or a length.
#[inline(always)]
pub const fn u32_of_len(len: usize) -> u32 {
    u32_of(len as u64)
}

/// Returns the low half of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is meant"
)]
pub const fn low_u32(word: u64) -> u32 {
    word as u32
}

/// Returns the lowest byte of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lowest byte is what is meant"
)]
pub const fn low_u8(word: u64) -> u8 {
    word as u8
}

/// Returns the lowest 16 bits of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lowest bits are what is meant"
)]
pub const fn low_u16(word: u64) -> u16 {
    word as u16
}

/// Returns a length as a number that others are taken from: lengths in memory have at most 63 bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_wrap,
    reason = "no object is longer than isize::MAX bytes"
)]
pub const fn i64_of_len(len: usize) -> i64 {
    debug_assert!(len <= isize::MAX as usize, "a length in memory");
    len as i64
}
