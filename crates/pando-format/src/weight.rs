//! What a record of a weighted tree counts for (decision 117).
//!
//! An entry may stand for several things, such as a block of elements of a list. How many these are
//! is said by the first byte of its value, so that no record, log or write path has another form:
//!
//! ```text
//!      bit 7   6          0
//!         +---+------------+
//!         | 1 |   weight   |   the value has this weight, 0 to 127
//!         +---+------------+
//!         | 0 |   any bits |   it weighs 1, as one without bytes does
//!         +---+------------+
//! ```
//! A value that does not lie in its leaf alone weighs 1: its bytes are elsewhere, and who counts
//! would have to read them.

use crate::page::{SLOT_CHUNKED, SLOT_OVERFLOW};

/// The largest weight.
pub const WEIGHT_MAX: u8 = 127;
/// Bit of the first byte of a value whose other bits are a weight.
const HAS_WEIGHT: u8 = 1 << 7;

/// Returns the weight of a record of a weighted tree. `flags` are those of its slot; `first` is the
/// first byte of its value, None if the value is empty.
#[inline]
pub fn weight_of(flags: u64, first: Option<u8>) -> u64 {
    let is_plain = flags & (SLOT_OVERFLOW | SLOT_CHUNKED) == 0;
    match first {
        Some(byte) if is_plain && byte & HAS_WEIGHT != 0 => u64::from(byte & WEIGHT_MAX),
        _ => 1,
    }
}

/// Returns the first byte of a value that has this weight if it lies in its leaf.
///
/// # Panics
/// When the weight is more than [`WEIGHT_MAX`].
#[inline]
pub fn weight_byte(weight: u8) -> u8 {
    assert!(weight <= WEIGHT_MAX, "a weight of {weight}");
    HAS_WEIGHT | weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_what_the_first_byte_of_a_value_in_its_leaf_says() {
        for weight in 0..=WEIGHT_MAX {
            let first = Some(weight_byte(weight));
            assert_eq!(weight_of(0, first), weight.into());
            assert_eq!(weight_of(0, Some(weight)), 1, "the top bit is not set");
            for flags in [SLOT_OVERFLOW, SLOT_CHUNKED, SLOT_OVERFLOW | SLOT_CHUNKED] {
                assert_eq!(weight_of(flags, first), 1, "the value lies elsewhere");
            }
        }
        assert_eq!(weight_of(0, None), 1);
    }
}
