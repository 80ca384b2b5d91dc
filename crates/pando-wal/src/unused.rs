//! The parts of a segment that no record needs.

use std::ops::Range;

use pando_format::log::SEGMENT_HEADER_BYTES;

/// Trimmed parts begin and end at multiples of this number of bytes.
const GRAIN: u64 = 4096;
const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;

/// Slot of a file, and a part of it that no record needs.
pub(crate) type Unused = (usize, Range<u64>);

/// Returns the parts of a segment of `segment_bytes` bytes outside `used`, without the header.
pub(crate) fn outside(used: Range<u64>, segment_bytes: u64) -> [Range<u64>; 2] {
    let start = used.start / GRAIN * GRAIN;
    let end = used
        .end
        .next_multiple_of(GRAIN)
        .clamp(HEADER, segment_bytes);
    let parts = [HEADER..start.max(HEADER), end..segment_bytes];
    for part in &parts {
        let kept =
            part.is_empty() || used.is_empty() || part.end <= used.start || part.start >= used.end;
        assert!(kept, "nothing of {used:?} is given back");
        assert!(part.start >= HEADER, "headers stay");
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that hold records are never among those given back to the file system.
    #[test]
    fn what_is_used_is_never_given_back() {
        let segment = 1 << 20;
        for (start, end) in [(0, 0), (5000, 5001), (65536, 65536), (70_000, 900_000)] {
            let parts = outside(start..end, segment);
            for part in &parts {
                assert!(part.start >= HEADER && part.end <= segment);
                assert!(part.is_empty() || part.end <= start || part.start >= end);
            }
        }
        assert_eq!(outside(0..0, segment), [HEADER..HEADER, HEADER..segment]);
    }
}
