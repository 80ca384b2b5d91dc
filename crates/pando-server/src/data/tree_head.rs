//! The payload of a collection whose elements have rows of their own (`data/elements.rs`), all
//! numbers little-endian:
//!
//! | bytes | what                                                                               |
//! |-------|------------------------------------------------------------------------------------|
//! | 1     | encoding that OBJECT ENCODING shows                                                |
//! | 1     | form: 1 = tree, 3 = tree of a hash of which fields have deadlines, 4 = list in     |
//! |       | blocks, 5 = list in blocks of which not all have numbers as positions              |
//! | 8     | id: all keys of its elements begin with it                                         |
//! | 8     | edition: another number after each change of an element                            |
//! | 8     | number of elements                                                                 |
//! | 8     | of a list: position that no element is below; else 0                               |
//! | 8     | of a list: position that no element is above; else 0                               |
//! | 8     | form 3: number of fields with deadlines, not 0                                     |
//!
//! A list is **dense** if its positions are all numbers from the lowest to the highest one. It is
//! known by its head: they are as many as its elements. So each element that is inserted between
//! two others raises the highest position by two, which nothing lowers again as long as the list is
//! not dense. Lists of versions before that begin at a lower position, and count as not dense.
//!
//! A list in blocks (`data/list_block.rs`) has a row for each block, at a position of its own, and
//! places of elements are told by the weights of these rows, so it need not be dense. As long as
//! all of these positions are numbers, the row at the lowest one, if there is one, is the first,
//! and that at the highest one the last. All lists of a store are such ones, unless a program that
//! did not know them has made one of its tables of elements.
//!
//! Whoever changes an element writes this, too. So if it is the same before and behind a number of
//! reads, all of them have seen the same collection.

use super::keyspace::{Row, RowError, TIMED_HEAD_BYTES, TREE_HEAD_BYTES, ValueType};
use super::packed::Encoding;
use super::piece_head::PieceHead;
use super::stream_head::StreamHead;

/// Form of a collection whose elements have rows of their own.
const TREE: u8 = 1;
/// Form of such a hash of which fields have deadlines.
const TIMED_TREE: u8 = 3;
/// Form of a list in blocks whose positions are numbers.
const BLOCKS: u8 = 4;
/// Form of a list in blocks of which some may have other positions.
const MIXED_BLOCKS: u8 = 5;
/// Position of the first element or block of a list.
pub(crate) const FIRST_POSITION: u64 = 3 << 62;
/// Lists of versions that did not know dense ones have no position from here on.
const DENSE_FROM: u64 = 5 << 61;
/// Positions of a list keep so far away from the ends of their numbers: no command adds as many.
const MARGIN: u64 = 1 << 32;
/// By how much an element between two others raises the highest position: so lists that have one,
/// or have lost one that was not at an end, have fewer elements than positions.
pub(crate) const PADDING: u64 = 2;

/// What is known of a collection without looking at its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeHead {
    pub(crate) id: u64,
    pub(crate) edition: u64,
    pub(crate) count: u64,
    /// Positions of a list are not below it.
    pub(crate) low: u64,
    /// Positions of a list are not above it.
    pub(crate) high: u64,
    /// Number of fields of a hash that have deadlines.
    pub(crate) timed: u64,
    /// It is a list in blocks.
    pub(crate) is_blocks: bool,
    /// All positions of its blocks are numbers; false if it is no list in blocks.
    pub(crate) is_numbered: bool,
}

/// Returns the id of the collection or string in the row with this head, if its elements or pieces
/// have rows of their own; `value` is that of the row.
#[inline]
pub(crate) fn tree_of(row: &Row, value: &[u8]) -> Result<Option<u64>, RowError> {
    let payload = &value[row.payload..];
    match row.value_type {
        ValueType::String => Ok(None),
        ValueType::Pieces => PieceHead::decode(payload).map(|head| Some(head.id)),
        ValueType::Patched => PieceHead::decode_patched(payload).map(|head| Some(head.id)),
        ValueType::Stream => StreamHead::decode(payload).map(|head| Some(head.id)),
        _ if !TreeHead::is_of(payload) => Ok(None),
        _ => TreeHead::decode(payload).map(|head| Some(head.id)),
    }
}

impl TreeHead {
    /// Returns the head of a collection without elements.
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            edition: 0,
            count: 0,
            low: FIRST_POSITION,
            high: FIRST_POSITION - 1,
            timed: 0,
            is_blocks: false,
            is_numbered: false,
        }
    }

    /// Returns the head of a list in blocks, without elements.
    pub(crate) fn new_blocks(id: u64) -> Self {
        Self {
            is_blocks: true,
            is_numbered: true,
            ..Self::new(id)
        }
    }

    /// Returns true if this is the payload of a collection with rows for its elements.
    pub(crate) fn is_of(payload: &[u8]) -> bool {
        matches!(
            payload.get(1),
            Some(&(TREE | TIMED_TREE | BLOCKS | MIXED_BLOCKS))
        )
    }

    /// Decodes a payload, which may be any bytes.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, RowError> {
        let rest = payload.get(2..).filter(|_| Self::is_of(payload));
        let rest = rest.ok_or(RowError::Damaged)?;
        let is_timed = payload[1] == TIMED_TREE;
        let length = match is_timed {
            true => TIMED_HEAD_BYTES,
            false => TREE_HEAD_BYTES,
        };
        if payload.len() != length {
            return Err(RowError::Damaged);
        }
        let mut numbers = [0; 6];
        for (number, bytes) in numbers.iter_mut().zip(rest.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().map_err(|_| RowError::Damaged)?);
        }
        let [id, edition, count, low, high, timed] = numbers;
        if timed > count || is_timed != (timed > 0) {
            return Err(RowError::Damaged);
        }
        // No collection has the id 0, and none is without elements.
        let has_id = id != 0 && id != u64::MAX;
        let most = (u64::MAX - MARGIN).saturating_sub(count);
        let is_blocks = matches!(payload[1], BLOCKS | MIXED_BLOCKS);
        let has_places = low > MARGIN && high < most && (low <= high || !is_blocks);
        match has_id && has_places && count != 0 && usize::try_from(count).is_ok() {
            true => Ok(Self {
                id,
                edition,
                count,
                low,
                high,
                timed,
                is_blocks,
                is_numbered: payload[1] == BLOCKS,
            }),
            false => Err(RowError::Damaged),
        }
    }

    /// Replaces `out` by the payload.
    pub(crate) fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) {
        out.clear();
        debug_assert!(self.timed == 0 || !self.is_blocks, "a list has no fields");
        let form = match (self.timed > 0, self.is_blocks, self.is_numbered) {
            (true, ..) => TIMED_TREE,
            (false, true, true) => BLOCKS,
            (false, true, false) => MIXED_BLOCKS,
            (false, false, _) => TREE,
        };
        out.extend_from_slice(&[encoding as u8, form]);
        for number in [self.id, self.edition, self.count, self.low, self.high] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if self.timed > 0 {
            out.extend_from_slice(&self.timed.to_le_bytes());
        }
    }

    /// Returns true if it is a list whose positions are all numbers from `low` to `high`.
    pub(crate) fn is_dense(&self) -> bool {
        !self.is_blocks
            && self.low >= DENSE_FROM
            && self.high.wrapping_sub(self.low).wrapping_add(1) == self.count
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
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
            count in 1..u64::MAX / 2,
            low in MARGIN + 1..=u64::MAX / 4,
            high in u64::MAX / 4..u64::MAX / 2 - MARGIN,
            form in 0..4_u64,
        ) {
            let timed = if form == 1 { count } else { 0 };
            let (is_blocks, is_numbered) = (form > 1, form == 2);
            let head = TreeHead { id, edition, count, low, high, timed, is_blocks, is_numbered };
            let mut payload = Vec::new();
            head.encode(Encoding::Skiplist, &mut payload);
            let bytes = if timed > 0 { TIMED_HEAD_BYTES } else { TREE_HEAD_BYTES };
            prop_assert_eq!(payload.len(), bytes);
            prop_assert_eq!(TreeHead::decode(&payload), Ok(head));
            prop_assert_eq!(Encoding::of_payload(&payload), Ok(Encoding::Skiplist));
            for end in 0..payload.len() {
                prop_assert_eq!(TreeHead::decode(&payload[..end]), Err(RowError::Damaged));
            }
            payload.push(0);
            prop_assert_eq!(TreeHead::decode(&payload), Err(RowError::Damaged));
        }
    }

    #[test]
    fn places_at_the_ends_of_numbers_are_damage() {
        let mut payload = Vec::new();
        let (low, high) = (FIRST_POSITION, FIRST_POSITION + 8);
        let count = 9;
        let least = MARGIN + 1;
        let most = u64::MAX - MARGIN - count - 1;
        for (low, high, is_sound) in [
            (low, high, true),
            (low, low, true),
            (high, low, false),
            (least, high, true),
            (least - 1, high, false),
            (low, most, true),
            (low, most + 1, false),
        ] {
            let head = TreeHead {
                count,
                low,
                high,
                ..TreeHead::new_blocks(1)
            };
            head.encode(Encoding::Quicklist, &mut payload);
            let decoded = TreeHead::decode(&payload);
            assert_eq!(decoded.is_ok(), is_sound, "{low} to {high}");
        }
    }

    #[test]
    fn no_id_and_no_elements_are_damage() {
        let mut payload = Vec::new();
        for (id, count) in [(0, 1), (1, 0)] {
            let head = TreeHead {
                count,
                ..TreeHead::new(id)
            };
            head.encode(Encoding::Hashtable, &mut payload);
            assert_eq!(TreeHead::decode(&payload), Err(RowError::Damaged));
        }
    }
}
