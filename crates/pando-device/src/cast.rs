//! The one conversion that narrows without a check. This crate does not see that of the format.

const _: () = assert!(usize::BITS == 64, "lengths of files are lengths in memory");

/// Returns a number as an index or a length in memory.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: asserted above"
)]
pub(crate) const fn usize_of(value: u64) -> usize {
    value as usize
}
