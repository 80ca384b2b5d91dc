//! The payload of a stream, whose entries have rows of their own (`data/stream_rows.rs`); all
//! numbers are little-endian, and each ID is two of them:
//!
//! | bytes | what                                                                               |
//! |-------|------------------------------------------------------------------------------------|
//! | 1     | encoding that OBJECT ENCODING shows: 5                                             |
//! | 1     | form: 1 = elements in rows                                                         |
//! | 8     | id: all keys of its rows begin with it                                             |
//! | 8     | edition: another number after each change of a row                                 |
//! | 8     | number of entries, which may be 0                                                  |
//! | 16    | last ID that was given to an entry                                                 |
//! | 16    | ID of the first entry; 0-0 if there is none                                        |
//! | 16    | highest ID of a deleted entry                                                      |
//! | 8     | number of entries that were ever added                                             |
//! | 8     | number of consumer groups                                                          |
//! | 8     | number that the next group or consumer gets                                        |
//!
//! Whoever changes a row writes this, too, as with large collections (`data/tree_head.rs`).

use super::keyspace::{RowError, STREAM_HEAD_BYTES};
use super::packed::Encoding;
use super::stream_id::StreamId;

/// Form of a value whose elements have rows of their own.
const ROWS: u8 = 1;

/// What is known of a stream without looking at its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamHead {
    pub(crate) id: u64,
    pub(crate) edition: u64,
    pub(crate) length: u64,
    pub(crate) last: StreamId,
    pub(crate) first: StreamId,
    pub(crate) max_deleted: StreamId,
    pub(crate) added: u64,
    pub(crate) groups: u64,
    pub(crate) next_number: u64,
}

impl StreamHead {
    /// Returns the head of an empty stream.
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            edition: 0,
            length: 0,
            last: StreamId::ZERO,
            first: StreamId::ZERO,
            max_deleted: StreamId::ZERO,
            added: 0,
            groups: 0,
            next_number: 1,
        }
    }

    /// Decodes a payload, which may be any bytes.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, RowError> {
        let rest = payload.strip_prefix(&[Encoding::Stream as u8, ROWS]);
        let rest = rest.filter(|_| payload.len() == STREAM_HEAD_BYTES);
        let mut numbers = [0; 12];
        let chunks = rest.ok_or(RowError::Damaged)?.chunks_exact(8);
        for (number, bytes) in numbers.iter_mut().zip(chunks) {
            *number = u64::from_le_bytes(bytes.try_into().map_err(|_| RowError::Damaged)?);
        }
        let [id, edition, length, last_ms, last, first_ms, first, ..] = numbers;
        let [.., deleted_ms, deleted, added, groups, next_number] = numbers;
        let head = Self {
            id,
            edition,
            length,
            last: StreamId::new(last_ms, last),
            first: StreamId::new(first_ms, first),
            max_deleted: StreamId::new(deleted_ms, deleted),
            added,
            groups,
            next_number,
        };
        let has_id = id != 0 && id != u64::MAX;
        let counts = [length, groups, next_number];
        let are_small = counts.iter().all(|count| i64::try_from(*count).is_ok());
        match has_id && are_small && next_number > 0 {
            true => Ok(head),
            false => Err(RowError::Damaged),
        }
    }

    /// Replaces `out` by the payload.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[Encoding::Stream as u8, ROWS]);
        let id = |id: StreamId| [id.ms, id.sequence];
        let numbers = [
            &[self.id, self.edition, self.length][..],
            &id(self.last),
            &id(self.first),
            &id(self.max_deleted),
            &[self.added, self.groups, self.next_number],
        ];
        for number in numbers.into_iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Returns true if an entry may have been deleted from `from` on, other than at the beginning.
    pub(crate) fn has_gaps_from(&self, from: StreamId) -> bool {
        self.has_gaps() && from <= self.max_deleted
    }

    /// Returns true if an entry may have been deleted behind the first one that is there.
    fn has_gaps(&self) -> bool {
        let any = self.length > 0 && self.max_deleted != StreamId::ZERO;
        any && self.max_deleted >= self.first
    }

    /// Returns how many entries were added up to `id`, if that can be told.
    pub(crate) fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last {
            return Some(self.added);
        }
        if id >= self.last {
            return (id == self.last).then_some(self.added);
        }
        if self.has_gaps() {
            return None;
        }
        let before = self.added.wrapping_sub(self.length);
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before.wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
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
            ids: [(u64, u64); 3],
            edition: u64,
            added: u64,
            counts in (0..u64::MAX / 2, 0..u64::MAX / 2, 1..u64::MAX / 2),
        ) {
            let of = |at: usize| StreamId::new(ids[at].0, ids[at].1);
            let (length, groups, next_number) = counts;
            let head = StreamHead {
                id, edition, length, added, groups, next_number,
                last: of(0), first: of(1), max_deleted: of(2),
            };
            let mut payload = Vec::new();
            head.encode(&mut payload);
            prop_assert_eq!(payload.len(), STREAM_HEAD_BYTES);
            prop_assert_eq!(StreamHead::decode(&payload), Ok(head));
            prop_assert_eq!(Encoding::of_payload(&payload), Ok(Encoding::Stream));
            for end in 0..payload.len() {
                prop_assert_eq!(StreamHead::decode(&payload[..end]), Err(RowError::Damaged));
            }
            payload.push(0);
            prop_assert_eq!(StreamHead::decode(&payload), Err(RowError::Damaged));
        }
    }

    #[test]
    fn no_id_and_impossible_counts_are_damage() {
        let mut payload = Vec::new();
        let good = StreamHead::new(1);
        let bad = [
            StreamHead { id: 0, ..good },
            StreamHead {
                id: u64::MAX,
                ..good
            },
            StreamHead {
                length: u64::MAX,
                ..good
            },
            StreamHead {
                groups: 1 << 63,
                ..good
            },
            StreamHead {
                next_number: 0,
                ..good
            },
        ];
        for head in bad {
            head.encode(&mut payload);
            assert_eq!(
                StreamHead::decode(&payload),
                Err(RowError::Damaged),
                "{head:?}"
            );
        }
    }
}
