//! The frame of a log record.
//!
//! ```text
//! bytes
//!   0..4    CRC-32C of the payload, then of bytes 4..40
//!   4..8    bytes of the payload
//!   8       kind: 1 batch, 2 padding, 3 void
//!   9       flags, free for the writer
//!  10..16   signature of this life of the log: 0 in logs of older programs
//!  16..24   LSN: position right after the record
//!  24..32   incarnation of the log
//!  32..40   position up to which everything was durable when the record was reserved
//!  40..     payload, padded with zeros to a multiple of 8
//! ```
//!
//! The payload of padding is not stored: the bytes there have no meaning. Position and incarnation
//! together prevent a record of an earlier life of the file from being taken for one of this life,
//! even if both have the same length. Writers of values, which are stored in the log unchanged, can
//! guess all of these fields except the signature. No record begins at a position with less than
//! [`RECORD_HEADER_BYTES`] to the end of its segment.

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::{crc32c, crc32c_append, crc32c_append_short};
use crate::{Damage, Lsn};

/// Length of a record's header in bytes.
pub const RECORD_HEADER_BYTES: usize = 40;
/// Number of bits of the signature of a life of the log.
pub const SIGNATURE_BITS: u32 = 48;
/// Records begin at multiples of this.
pub const RECORD_ALIGNMENT: u64 = 8;

const BATCH: u8 = 1;
const PADDING: u8 = 2;
const VOID: u8 = 3;

/// Returns the length in bytes of a record with a payload of `payload` bytes.
#[inline]
pub fn record_bytes(payload: usize) -> u64 {
    (RECORD_HEADER_BYTES as u64 + payload as u64).next_multiple_of(RECORD_ALIGNMENT)
}

/// The purpose of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A batch to apply.
    Batch,
    /// Nothing: fills a sector or the rest of a segment.
    Padding,
    /// A reserved place whose batch was refused: nothing to apply.
    Void,
}

impl RecordKind {
    fn encode(self) -> u8 {
        match self {
            Self::Batch => BATCH,
            Self::Padding => PADDING,
            Self::Void => VOID,
        }
    }

    fn decode(byte: u8) -> Result<Self, Damage> {
        match byte {
            BATCH => Ok(Self::Batch),
            PADDING => Ok(Self::Padding),
            VOID => Ok(Self::Void),
            other => Err(Damage::new(format!("log record of unknown kind {other}"))),
        }
    }
}

/// The header of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Length of the payload in bytes.
    pub length: u32,
    /// The purpose of the record.
    pub kind: RecordKind,
    /// Free for the writer.
    pub flags: u8,
    /// Position right after the record.
    pub lsn: Lsn,
    /// The life of the log that wrote it.
    pub incarnation: u64,
    /// Position up to which everything was durable when the record was reserved.
    pub durable: Lsn,
    /// A secret that writers of values do not know: [`SIGNATURE_BITS`] bits, the same in all
    /// records of one life.
    pub signature: u64,
}

impl RecordHeader {
    /// Returns the length of the whole record in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        record_bytes(self.length as usize)
    }

    /// Returns the bytes of the header, given the checksum of the stored payload.
    #[inline]
    pub fn encode(&self, payload_crc: u32) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        self.encode_to(&mut bytes, payload_crc);
        bytes
    }

    /// Writes the bytes of the header to `bytes`, given the checksum of the stored payload.
    #[inline]
    pub fn encode_to(&self, bytes: &mut [u8; RECORD_HEADER_BYTES], payload_crc: u32) {
        put_u32(bytes, 4, self.length);
        bytes[8] = self.kind.encode();
        bytes[9] = self.flags;
        debug_assert!(self.signature >> SIGNATURE_BITS == 0, "a longer signature");
        bytes[10..16].copy_from_slice(&self.signature.to_le_bytes()[..6]);
        put_u64(bytes, 16, self.lsn.0);
        put_u64(bytes, 24, self.incarnation);
        put_u64(bytes, 32, self.durable.0);
        let crc = crc32c_append_short(payload_crc, &mut bytes[4..]);
        put_u32(bytes, 0, crc);
    }

    /// Reads the header of the record at `position`, which begins with `bytes`, without checking
    /// its payload. Accepts only a record with this position, of this life of the log, and that
    /// ends before `segment_end`. The caller then calls [`RecordHeader::verify`].
    ///
    /// # Errors
    /// [`Damage`] otherwise.
    pub fn decode(
        bytes: &[u8],
        position: u64,
        segment_end: u64,
        incarnation: u64,
    ) -> Result<Self, Damage> {
        let Some(bytes) = bytes.get(..RECORD_HEADER_BYTES) else {
            return Err(Damage::new(format!(
                "log record header of {} bytes",
                bytes.len()
            )));
        };
        let header = Self {
            length: u32_at(bytes, 4),
            kind: RecordKind::decode(bytes[8])?,
            flags: bytes[9],
            lsn: Lsn(u64_at(bytes, 16)),
            incarnation: u64_at(bytes, 24),
            durable: Lsn(u64_at(bytes, 32)),
            signature: u64_at(bytes, 8) >> 16,
        };
        let refuse = |why: &str| Err(Damage::new(format!("log record at {position}: {why}")));
        if header.incarnation != incarnation {
            return refuse("it belongs to another life of the log");
        }
        if Some(header.lsn.0) != position.checked_add(header.bytes()) {
            return refuse("it was written to another place");
        }
        if header.lsn.0 > segment_end {
            return refuse("it is longer than its segment");
        }
        if header.durable.0 > position {
            return refuse("it claims to be durable before it was written");
        }
        Ok(header)
    }

    /// Returns the number of stored bytes of the payload: none for padding.
    #[inline]
    pub fn stored_payload(&self) -> usize {
        match self.kind {
            RecordKind::Padding => 0,
            RecordKind::Batch | RecordKind::Void => self.length as usize,
        }
    }

    /// Returns whether `bytes`, the header and the stored payload after it, match their checksum.
    pub fn verify(&self, bytes: &[u8]) -> bool {
        let Some(payload) = bytes.get(RECORD_HEADER_BYTES..) else {
            return false;
        };
        let Some(payload) = payload.get(..self.stored_payload()) else {
            return false;
        };
        crc32c_append(crc32c(payload), &bytes[4..RECORD_HEADER_BYTES]) == u32_at(bytes, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITION: u64 = 70_000;
    const SEGMENT_END: u64 = 131_072;

    fn record(payload: &[u8], incarnation: u64) -> Vec<u8> {
        let header = RecordHeader {
            length: payload.len() as u32,
            kind: RecordKind::Batch,
            flags: 9,
            lsn: Lsn(POSITION + record_bytes(payload.len())),
            incarnation,
            durable: Lsn(POSITION - 8),
            signature: 0xfedc_ba98_7654,
        };
        let mut bytes = header.encode(crc32c(payload)).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    fn accepted(bytes: &[u8], position: u64, incarnation: u64) -> bool {
        RecordHeader::decode(bytes, position, SEGMENT_END, incarnation)
            .is_ok_and(|header| header.verify(bytes))
    }

    #[test]
    fn a_record_is_accepted_in_its_place_and_life_only() {
        for length in [0, 1, 7, 8, 9, 300] {
            let bytes = record(&vec![5; length], 4);
            assert!(accepted(&bytes, POSITION, 4));
            assert!(!accepted(&bytes, POSITION + 8, 4));
            assert!(!accepted(&bytes, POSITION - 8, 4));
            assert!(!accepted(&bytes, POSITION, 3));
            assert!(RecordHeader::decode(&bytes, POSITION, POSITION + 8, 4).is_err());
        }
    }

    /// A record may only claim that the log before its own position was durable when it was
    /// written.
    #[test]
    fn a_record_knows_nothing_of_what_is_behind_it() {
        let mut header = RecordHeader::decode(&record(b"", 4), POSITION, SEGMENT_END, 4).unwrap();
        for (durable, fine) in [(POSITION, true), (POSITION + 1, false)] {
            header.durable = Lsn(durable);
            let bytes = header.encode(crc32c(b""));
            assert_eq!(accepted(&bytes, POSITION, 4), fine);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = record(b"a payload of some bytes", 4);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!accepted(&bytes, POSITION, 4), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert!(!accepted(&bytes[..length], POSITION, 4), "cut at {length}");
        }
    }

    #[test]
    fn padding_stores_no_payload() {
        let header = RecordHeader {
            length: 4000,
            kind: RecordKind::Padding,
            flags: 0,
            lsn: Lsn(POSITION + record_bytes(4000)),
            incarnation: 1,
            durable: Lsn(0),
            signature: (1 << SIGNATURE_BITS) - 1,
        };
        let bytes = header.encode(crc32c(&[]));
        assert!(accepted(&bytes, POSITION, 1));
        assert_eq!(
            RecordHeader::decode(&bytes, POSITION, SEGMENT_END, 1),
            Ok(header)
        );
    }

    #[test]
    fn a_length_near_the_end_of_numbers_does_not_overflow() {
        let mut bytes = record(b"", 4);
        bytes[4..8].fill(0xff);
        assert!(RecordHeader::decode(&bytes, u64::MAX - 7, u64::MAX, 4).is_err());
        assert!(RecordHeader::decode(&bytes, POSITION, SEGMENT_END, 4).is_err());
    }
}
