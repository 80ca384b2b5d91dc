//! CRC-32C (Castagnoli): hardware on x86-64 and aarch64.
//!
//! There are two implementations of the same checksum. One chooses by length: carry-less
//! multiplication, up to 512 bits wide, for pages and other long inputs (about half the time for
//! 4 KiB where the processor has it), and the processor's own instruction for short ones, without
//! the three lanes that only pay for long ones. The other one continues a checksum.

use crate::bytes::{put_u32, u32_at};

/// Returns the checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// As [`crc32c_append`], for a few bytes, at least four, that the caller owns: they are unchanged
/// afterwards.
///
/// The state of the sum is combined with the first four bytes only, so to begin with another state
/// is to begin with other bytes: those of `crc` are added to them.
///
/// # Panics
/// When there are fewer than four bytes.
#[inline]
pub(crate) fn crc32c_append_short(crc: u32, bytes: &mut [u8]) -> u32 {
    let first = u32_at(bytes, 0);
    put_u32(bytes, 0, first ^ crc);
    let sum = crc32c(bytes);
    put_u32(bytes, 0, first);
    sum
}

/// Continues `crc`, the checksum of the preceding bytes, with `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice of the implementation by length must not change the sum.
    #[test]
    fn both_ways_come_to_the_same_number() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..70_000_u32)
            .map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        for start in [0, 1, 4, 7] {
            for len in [0, 1, 255, 256, 257, 511, 1024, 4092, 4096, 16_380, 65_532] {
                let part = &bytes[start..start + len];
                assert_eq!(
                    crc32c(part),
                    crc32c::crc32c(part),
                    "{len} bytes from {start}"
                );
                let (head, tail) = part.split_at(len / 3);
                assert_eq!(crc32c_append(crc32c(head), tail), crc32c(part));
                if tail.len() >= 4 {
                    let mut own = tail.to_vec();
                    let sum = crc32c_append_short(crc32c(head), &mut own);
                    assert_eq!((sum, &own[..]), (crc32c(part), tail), "{len} bytes");
                }
            }
        }
    }
}
