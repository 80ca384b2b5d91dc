//! The payload of a string whose bytes lie in rows of their own, in **pieces** (decision 105), all
//! numbers little-endian:
//!
//! | bytes | what                                                                               |
//! |-------|------------------------------------------------------------------------------------|
//! | 8     | id: all keys of its pieces begin with it (`data/elements.rs`)                      |
//! | 8     | edition: another number after each change of a piece                               |
//! | 4     | length of the string in bytes                                                      |
//! | 4     | length of a piece in bytes                                                         |
//! | 4     | number of pieces that have rows                                                    |
//!
//! Bytes that no piece has are zeros: pieces may be absent, and shorter than they could be. There
//! is at least one, so that the id is known to be in use.
//!
//! A string whose deadline is moved has all of its bytes in one piece, however long that is
//! (decision 149).
//!
//! Whoever changes a piece writes this, too, as with large collections (`data/tree_head.rs`).
//!
//! **A string in chunks** of which a part was changed has such a payload, too, in the head of the
//! large value (decision 107). Its pieces are called *patches*: they lie over the bytes of the
//! chunks, and bytes that no patch has are those of the chunks. The length is that of the chunks,
//! and the length of a patch is a power of two, so that none lies over two chunks.

use std::ops::Range;

use super::keyspace::RowError;

/// Length of the payload.
pub(crate) const HEAD_BYTES: usize = 2 * 8 + 3 * 4;
/// Length of the longest piece of a string that has several: six of them fill a leaf of 4 KiB, so
/// that one that is split is not half empty.
pub(crate) const PIECE_BYTES_MAX: u32 = 640;
/// Length of the longest string in pieces: one that a server with the least memory can reply with.
pub(crate) const STRING_BYTES_MAX: u64 = 12 << 20;
/// Length of the longest string in chunks.
const CHUNKED_BYTES_MAX: u64 = 512 << 20;
/// Length of a patch. Bits that are set all over a bitmap need short ones: so many more of them fit
/// into the memory of whoever reads it whole.
pub(crate) const PATCH_BYTES: u32 = 128;

/// What is known of a string in pieces without looking at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceHead {
    pub(crate) id: u64,
    pub(crate) edition: u64,
    /// Bytes of the string; not 0.
    pub(crate) length: u32,
    /// Bytes of a piece; not 0.
    pub(crate) piece: u32,
    /// Pieces that have rows; not 0.
    pub(crate) count: u32,
}

impl PieceHead {
    /// Decodes the payload of a string in pieces, which may be any bytes.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, RowError> {
        Self::decode_up_to(payload, STRING_BYTES_MAX)
    }

    /// Decodes the payload of a string in chunks that has patches; it may be any bytes.
    pub(crate) fn decode_patched(payload: &[u8]) -> Result<Self, RowError> {
        let head = Self::decode_up_to(payload, CHUNKED_BYTES_MAX)?;
        match head.piece.is_power_of_two() && head.piece <= PIECE_BYTES_MAX {
            true => Ok(head),
            false => Err(RowError::Damaged),
        }
    }

    fn decode_up_to(payload: &[u8], length_max: u64) -> Result<Self, RowError> {
        let whole: &[u8; HEAD_BYTES] = payload.try_into().map_err(|_| RowError::Damaged)?;
        let long = |at: usize| {
            let bytes = whole[at..].first_chunk().expect("it has all numbers");
            u64::from_le_bytes(*bytes)
        };
        let short = |at: usize| {
            let bytes = whole[at..].first_chunk().expect("it has all numbers");
            u32::from_le_bytes(*bytes)
        };
        let head = Self {
            id: long(0),
            edition: long(8),
            length: short(16),
            piece: short(20),
            count: short(24),
        };
        // No string has the id 0, and none is without bytes or pieces.
        let has_id = head.id != 0 && head.id != u64::MAX;
        let is_short = (1..=length_max).contains(&u64::from(head.length));
        let has_piece = (1..=PIECE_BYTES_MAX).contains(&head.piece) || head.is_in_one_piece();
        let has_bytes = is_short && has_piece;
        let has_pieces = has_bytes && head.count != 0 && head.has_place_for_pieces();
        match has_id && has_pieces {
            true => Ok(head),
            false => Err(RowError::Damaged),
        }
    }

    /// Replaces `out` by the payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.edition.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.piece.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    /// Returns true if one piece has all bytes of the string.
    pub(crate) fn is_in_one_piece(&self) -> bool {
        self.piece >= self.length
    }

    /// Returns true if the string has as many pieces as are counted, or more.
    pub(crate) fn has_place_for_pieces(&self) -> bool {
        self.count <= self.length.div_ceil(self.piece)
    }

    /// Returns the numbers of the pieces that have the bytes at `range`.
    pub(crate) fn pieces(&self, range: &Range<u64>) -> Range<u64> {
        let piece = u64::from(self.piece);
        match range.is_empty() {
            true => 0..0,
            false => range.start / piece..range.end.div_ceil(piece),
        }
    }

    /// Returns the places of the string that piece `number` has.
    pub(crate) fn places(&self, number: u64) -> Range<u64> {
        let piece = u64::from(self.piece);
        number * piece..(number + 1) * piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_come_back(
            id in 1..u64::MAX,
            edition: u64,
            length in 1..=12_u32 << 20,
            piece in 1..=PIECE_BYTES_MAX,
            count: u32,
        ) {
            let count = count % length.div_ceil(piece) + 1;
            let count = count.min(length.div_ceil(piece));
            let head = PieceHead { id, edition, length, piece, count };
            let mut payload = Vec::new();
            head.encode(&mut payload);
            prop_assert_eq!(PieceHead::decode(&payload), Ok(head));
            for end in 0..payload.len() {
                prop_assert_eq!(PieceHead::decode(&payload[..end]), Err(RowError::Damaged));
            }
            payload.push(0);
            prop_assert_eq!(PieceHead::decode(&payload), Err(RowError::Damaged));
        }

        #[test]
        fn each_byte_is_in_the_pieces_of_its_range(
            piece in 1..20_u32,
            start in 0..100_u64,
            bytes in 0..50_u64,
        ) {
            let head = PieceHead { id: 1, edition: 0, length: 200, piece, count: 1 };
            let pieces = head.pieces(&(start..start + bytes));
            let in_them = |place: u64| pieces.contains(&(place / u64::from(piece)));
            prop_assert!((start..start + bytes).all(in_them));
            for number in pieces {
                let places = head.places(number);
                prop_assert!(places.start < start + bytes && start < places.end);
            }
        }
    }

    #[test]
    fn heads_of_patches_are_of_longer_strings() {
        let mut payload = Vec::new();
        let head = PieceHead {
            id: 1,
            edition: 2,
            length: 512 << 20,
            piece: PATCH_BYTES,
            count: 1,
        };
        head.encode(&mut payload);
        assert_eq!(PieceHead::decode_patched(&payload), Ok(head));
        assert_eq!(PieceHead::decode(&payload), Err(RowError::Damaged));
        for (length, piece) in [
            (head.length + 1, PATCH_BYTES),
            (head.length, 96),
            (1024, 1024),
        ] {
            let other = PieceHead {
                length,
                piece,
                ..head
            };
            other.encode(&mut payload);
            let decoded = PieceHead::decode_patched(&payload);
            assert_eq!(decoded, Err(RowError::Damaged));
        }
    }

    #[test]
    fn a_single_piece_may_be_long() {
        let mut payload = Vec::new();
        for (piece, count, is_good) in [(5000, 1, true), (5001, 1, true), (5000, 2, false)] {
            let head = PieceHead {
                id: 1,
                edition: 2,
                length: 5000,
                piece,
                count,
            };
            head.encode(&mut payload);
            let expected = if is_good {
                Ok(head)
            } else {
                Err(RowError::Damaged)
            };
            assert_eq!(PieceHead::decode(&payload), expected);
            assert_eq!(head.pieces(&(10..4000)), 0..1);
        }
    }

    #[test]
    fn no_id_no_bytes_and_no_pieces_are_damage() {
        let good = PieceHead {
            id: 1,
            edition: 0,
            length: 1,
            piece: 1,
            count: 1,
        };
        let bad = [
            PieceHead { id: 0, ..good },
            PieceHead {
                id: u64::MAX,
                ..good
            },
            PieceHead { length: 0, ..good },
            PieceHead {
                length: (12 << 20) + 1,
                ..good
            },
            PieceHead { count: 0, ..good },
            PieceHead { count: 2, ..good },
            PieceHead { piece: 0, ..good },
            PieceHead {
                length: PIECE_BYTES_MAX + 2,
                piece: PIECE_BYTES_MAX + 1,
                ..good
            },
        ];
        let mut payload = Vec::new();
        for head in bad {
            head.encode(&mut payload);
            assert_eq!(PieceHead::decode(&payload), Err(RowError::Damaged));
        }
    }
}
