//! The header of a log segment.
//!
//! ```text
//! bytes
//!   0..8    magic "PANDOLOG"
//!   8..12   version of the format
//!  12..16   CRC-32C of bytes 16..4096
//!  16..24   number of the segment; all ones: none, the file is prepared
//!  24..32   incarnation of the log
//!  32..48   identity of the store
//!  48..52   segment bytes
//!  52..4096 zero
//! ```

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::crc32c;
use crate::{Damage, VERSION_BASE};

/// Length of a segment's header in bytes.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Minimum size of a segment in bytes.
pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;
/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"PANDOLOG";

const NO_SEGMENT: u64 = u64::MAX;

/// The header of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment, `None` in a file that was prepared but not used yet.
    pub segment: Option<u64>,
    /// The life of the log that began the segment.
    pub incarnation: u64,
    /// Identity of the store.
    pub identity: [u8; 16],
    /// Size of the segment in bytes, including the header.
    pub segment_bytes: u32,
}

impl SegmentHeader {
    /// Writes the header into the first [`SEGMENT_HEADER_BYTES`] of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let header = &mut bytes[..SEGMENT_HEADER_BYTES];
        header.fill(0);
        header[..8].copy_from_slice(&SEGMENT_MAGIC);
        put_u32(header, 8, VERSION_BASE);
        put_u64(header, 16, self.segment.unwrap_or(NO_SEGMENT));
        put_u64(header, 24, self.incarnation);
        header[32..48].copy_from_slice(&self.identity);
        put_u32(header, 48, self.segment_bytes);
        let crc = crc32c(&header[16..]);
        put_u32(header, 12, crc);
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Damage`] when it is not a segment header, is of another version, or does not match its
    /// checksum.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let Some(header) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err(Damage::new(format!(
                "log segment header of {} bytes",
                bytes.len()
            )));
        };
        if header[..8] != SEGMENT_MAGIC {
            return Err(Damage::new("no log segment: the magic number is missing"));
        }
        let (stored, actual) = (u32_at(header, 12), crc32c(&header[16..]));
        if stored != actual {
            return Err(Damage::new(format!(
                "log segment header checksum: stored {stored:#010x}, actual {actual:#010x}"
            )));
        }
        let version = u32_at(header, 8);
        if version != VERSION_BASE {
            return Err(Damage::new(format!(
                "log segment of format version {version}; this program reads version {VERSION_BASE}"
            )));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&header[32..48]);
        let number = u64_at(header, 16);
        Ok(Self {
            segment: (number != NO_SEGMENT).then_some(number),
            incarnation: u64_at(header, 24),
            identity,
            segment_bytes: u32_at(header, 48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(segment: Option<u64>) -> SegmentHeader {
        SegmentHeader {
            segment,
            incarnation: 7,
            identity: *b"0123456789abcdef",
            segment_bytes: SEGMENT_BYTES_MIN,
        }
    }

    #[test]
    fn a_header_survives_its_bytes() {
        let mut bytes = vec![0xaa; SEGMENT_HEADER_BYTES + 9];
        for segment in [Some(0), Some(12_345), None] {
            header(segment).encode_into(&mut bytes);
            assert_eq!(SegmentHeader::decode(&bytes), Ok(header(segment)));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
        header(Some(3)).encode_into(&mut bytes);
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(SegmentHeader::decode(&bytes[..SEGMENT_HEADER_BYTES - 1]).is_err());
    }
}
