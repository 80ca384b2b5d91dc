//! Giving the space of log files back that holds nothing: free segments, and of the current one
//! what lies before the last checkpoint and behind the newest record.
//!
//! The files keep their names, lengths and headers; what is given back reads as zeros. The next
//! flush to reach such a place allocates it again: it is slower than one over prepared bytes, and a
//! full disk shows there, where a flush waits for room. Only the leader of flushes writes to
//! segments, so this is done by who leads.

use std::ops::Range;

use pando_device::{Device, File};
use pando_format::log::SEGMENT_HEADER_BYTES;

use crate::error::Result;
use crate::log::Log;

/// What is given back begins and ends at a multiple of this.
const GRAIN: u64 = 4096;
const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;

/// A part of a segment that no record needs, by slot.
pub(crate) type Unused = (usize, Range<u64>);

/// The parts of a segment of `segment_bytes` that nothing needs: all of it but `used`.
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

impl<D: Device> Log<D> {
    /// Gives back what no record behind the last [`Log::truncate_below`] needs. Returns how many
    /// bytes that were, at most; 0 where the file system cannot. Blocks flushes meanwhile.
    ///
    /// # Errors
    /// What the device reports. The log is not poisoned; why it is, if it is.
    pub fn trim(&self) -> Result<u64> {
        let trimmed = self.group.while_leading(|| self.trim_leading());
        match trimmed {
            Some(trimmed) => trimmed,
            None => self.poisoned().map_or(Ok(0), Err),
        }
    }

    fn trim_leading(&self) -> Result<u64> {
        let unused = self.shared.tail.lock().unused();
        let mut bytes = 0;
        for (slot, range) in unused {
            if range.is_empty() {
                continue;
            }
            let count = range.end - range.start;
            match self.segments.file(slot).punch(range.start, count) {
                Ok(()) => bytes += count,
                Err(pando_device::Error::Unsupported { .. }) => return Ok(bytes),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
