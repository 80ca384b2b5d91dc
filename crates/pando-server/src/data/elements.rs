//! Rows of the elements of large collections, in the counted table `db/N/members`.
//!
//! All keys begin with the id of the collection, 8 bytes big-endian. Then come, big-endian:
//!
//! | key                                      | value                       | of                  |
//! |------------------------------------------|-----------------------------|---------------------|
//! | `45` ("E"), hash of the name, its stored | flags, whole name if long,  | hash: value; sorted |
//! | form as of a key (`data/keyspace.rs`)    | and what belongs to it      | set: score; set: -  |
//! | `4C` ("L"), position of 8 bytes or more  | flags, element; or a block  | list                |
//! | `53` ("S"), score of 8 bytes in order,   | flags, whole member if long | sorted set          |
//! | member, or its beginning and its hash    |                             |                     |
//! | `54` ("T"), deadline of 8 bytes, hash of | 0; key of its row of "E",   | hash: a field with  |
//! | the field of 16 bytes                    | behind the "E"              | a deadline          |
//! | `42` ("B"), number of the piece, 4 bytes | bytes of the string         | string in pieces    |
//!
//! The hash has 8 bytes, and is SipHash-2-4 with the key of the store; so neighbours of a hash or
//! set are no neighbours by name, and a place in an iteration is a number. Flags: bit 0 = has the
//! whole name, after its length (4 bytes little-endian), bit 2 of "E" = has a deadline, behind that
//! (8 bytes little-endian). The hash of 16 bytes is SipHash-2-4 with the same key. A score in order
//! is the double's bits, all of them inverted if it is negative, else the sign alone. The row of a
//! score has no flags if none
//! is set: bit 0 = the whole member follows, of which the key has the beginning and the hash of the
//! row of its name (8 bytes), bit 1 = the score is -0. Members of the same score that begin with
//! the same 990 bytes or so come in the order of their hashes, where Redis compares all bytes.
//!
//! The table is a weighted one (decision 117): a row whose value begins with a byte from `80` on
//! counts as so many as the other bits say. Only blocks of lists do (`data/list_block.rs`): other
//! rows that are counted begin with flags or a kind. The 0 of "T" sees to that. A table that an
//! earlier program has made is not weighted, and has neither blocks nor that 0.
//!
//! **A collection that is given up** leaves its rows behind. The row `0`, its id (both 8 bytes)
//! says so; the cleaner removes first them and then it.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as LongHasher24};

use super::keyspace::{KeyFolder, RowError};

/// Length of a key before what tells its element from others of its kind.
pub(crate) const START_BYTES: usize = 9;
/// Length of a key before the name or member.
const PREFIX_BYTES: usize = 17;
const HAS_WHOLE_NAME: u8 = 1;
const NEGATIVE_ZERO: u8 = 2;
const HAS_DEADLINE: u8 = 4;
const HASH_BYTES: usize = 8;

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A field of a hash, or a member, by its name.
    Name = b'E',
    /// An element of a list, by its position.
    Position = b'L',
    /// A member of a sorted set, by its score.
    Score = b'S',
    /// A field of a hash, by its deadline.
    Time = b'T',
    /// A piece of a string, by its number (`data/piece_head.rs`).
    Piece = b'B',
    /// Says that a stream has the id (`data/stream_rows.rs`).
    Id = b'I',
    /// An entry of a stream.
    Entry = b'X',
    /// A consumer group of a stream, by its name.
    Group = b'G',
    /// A consumer, by its number.
    Consumer = b'C',
    /// The number of a consumer, by its name.
    ConsumerName = b'N',
    /// An entry that is pending in a group.
    Pending = b'P',
    /// The same by its consumer.
    Owned = b'Q',
}

impl Kind {
    /// Returns true for rows that are read as they are, of streams and strings.
    pub(crate) fn is_plain(self) -> bool {
        match self {
            Self::Name | Self::Position | Self::Score | Self::Time => false,
            Self::Piece
            | Self::Id
            | Self::Entry
            | Self::Group
            | Self::Consumer
            | Self::ConsumerName
            | Self::Pending
            | Self::Owned => true,
        }
    }
}

/// Makes the keys of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementKeys {
    hash_key: [u64; 2],
    folder: KeyFolder,
    /// Length of the longest member that is in the key of its score.
    member_bytes_max: usize,
}

impl ElementKeys {
    /// For an engine whose keys have at most `key_bytes_max` bytes.
    pub(crate) fn new(hash_key: [u64; 2], key_bytes_max: usize) -> Self {
        Self {
            hash_key,
            folder: KeyFolder::with_stored_bytes_max(hash_key, key_bytes_max - PREFIX_BYTES),
            member_bytes_max: key_bytes_max - PREFIX_BYTES,
        }
    }

    /// Returns the hash by which names are ordered.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.hash_key[0], self.hash_key[1]);
        hasher.write(name);
        hasher.finish()
    }

    /// Returns a hash that tells lists of names apart.
    pub(crate) fn hash_of_all(&self, names: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.hash_key[0], self.hash_key[1]);
        for name in names {
            hasher.write_usize(name.len());
            hasher.write(name);
        }
        hasher.finish()
    }

    /// Replaces `out` by the key of the element `name`.
    pub(crate) fn name(&self, id: u64, name: &[u8], out: &mut Vec<u8>) {
        begin(id, Kind::Name, out);
        out.extend_from_slice(&self.hash(name).to_be_bytes());
        self.folder.append(name, out);
    }

    /// Replaces `out` by the value of the row of `name`.
    pub(crate) fn value(
        &self,
        name: &[u8],
        (value, deadline): (&[u8], Option<u64>),
        out: &mut Vec<u8>,
    ) {
        out.clear();
        let timed = deadline.map_or(0, |_| HAS_DEADLINE);
        match self.folder.folds(name) {
            true => {
                let length = u32::try_from(name.len()).expect("requests are below 4 GiB");
                out.push(HAS_WHOLE_NAME | timed);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(name);
            }
            false => out.push(timed),
        }
        if let Some(deadline) = deadline {
            out.extend_from_slice(&deadline.to_le_bytes());
        }
        out.extend_from_slice(value);
    }

    /// Replaces `out` by the key of the field `name` by its deadline.
    pub(crate) fn time(&self, id: u64, deadline: u64, name: &[u8], out: &mut Vec<u8>) {
        begin(id, Kind::Time, out);
        out.extend_from_slice(&deadline.to_be_bytes());
        let mut hasher = LongHasher24::new_with_keys(self.hash_key[0], self.hash_key[1]);
        hasher.write(name);
        let hash = hasher.finish128();
        out.extend_from_slice(&hash.h1.to_le_bytes());
        out.extend_from_slice(&hash.h2.to_le_bytes());
    }
}

impl ElementKeys {
    /// Bytes of a member up to which it is in order among all members with its score.
    pub(crate) fn whole_member_bytes_max(&self) -> usize {
        self.member_bytes_max - HASH_BYTES - 1
    }

    /// Appends to `out` what keys of members with this score end with.
    pub(super) fn append_member(&self, member: &[u8], out: &mut Vec<u8>) {
        if member.len() <= self.member_bytes_max {
            out.extend_from_slice(member);
            return;
        }
        out.extend_from_slice(&member[..self.member_bytes_max - HASH_BYTES]);
        out.extend_from_slice(&self.hash(member).to_be_bytes());
    }

    /// Returns score and member as they are in keys, behind what all keys of scores begin with.
    pub(crate) fn place(&self, score: f64, member: &[u8]) -> Vec<u8> {
        let mut place = ordered(score).to_vec();
        self.append_member(member, &mut place);
        place
    }

    /// Replaces `out` by the key of a member by its score.
    pub(crate) fn score(&self, id: u64, score: f64, member: &[u8], out: &mut Vec<u8>) {
        begin(id, Kind::Score, out);
        out.extend_from_slice(&ordered(score));
        self.append_member(member, out);
    }

    /// Replaces `out` by the value of the row of a member by its score.
    pub(crate) fn score_value(&self, score: f64, member: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let is_long = member.len() > self.member_bytes_max;
        let is_negative_zero = score == 0.0 && score.is_sign_negative();
        let flags =
            (u8::from(is_long) * HAS_WHOLE_NAME) | (u8::from(is_negative_zero) * NEGATIVE_ZERO);
        if flags != 0 {
            out.push(flags);
        }
        if is_long {
            out.extend_from_slice(member);
        }
    }
}

/// Returns what all keys of this kind begin with.
pub(crate) fn start(id: u64, kind: Kind) -> [u8; START_BYTES] {
    let mut start = [kind as u8; START_BYTES];
    start[..START_BYTES - 1].copy_from_slice(&id.to_be_bytes());
    start
}

/// Returns the first key behind all keys of this kind.
pub(crate) fn behind(id: u64, kind: Kind) -> [u8; START_BYTES] {
    let mut behind = start(id, kind);
    behind[START_BYTES - 1] += 1;
    behind
}

/// Replaces `out` by what all keys of this kind begin with.
fn begin(id: u64, kind: Kind, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&start(id, kind));
}

/// Replaces `out` by the key of the element of a list at `position`.
pub(crate) fn position_key(id: u64, position: &[u8], out: &mut Vec<u8>) {
    begin(id, Kind::Position, out);
    out.extend_from_slice(position);
}

/// Returns the position in the key of an element of a list.
pub(crate) fn position_of(key: &[u8]) -> &[u8] {
    key.get(START_BYTES..).unwrap_or_default()
}

/// Returns the key of piece `number` of a string.
pub(crate) fn piece_key(id: u64, number: u64) -> [u8; START_BYTES + 4] {
    let number = u32::try_from(number).expect("a string has fewer bytes");
    let mut key = [0; START_BYTES + 4];
    key[..START_BYTES].copy_from_slice(&start(id, Kind::Piece));
    key[START_BYTES..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns the number of the piece whose key ends so, behind the id and the kind.
pub(crate) fn piece_number(end: &[u8]) -> Option<u64> {
    let number = end.try_into().ok().map(u32::from_be_bytes);
    number.map(u64::from)
}

/// Returns the deadline in a key of [`Kind::Time`].
pub(crate) fn time_of(key: &[u8]) -> u64 {
    let time = key.get(9..).and_then(|rest| rest.first_chunk());
    time.map_or(0, |time| u64::from_be_bytes(*time))
}

/// Returns the part of a key of [`Kind::Name`] that tells all names of a collection apart.
pub(crate) fn name_tail(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}

/// Replaces `out` by the value of a row of [`Kind::Time`], of the field with this part of its key.
pub(crate) fn time_row(tail: &[u8], is_weighted: bool, out: &mut Vec<u8>) {
    out.clear();
    if is_weighted {
        out.push(0);
    }
    out.extend_from_slice(tail);
}

/// Returns the part of the key of [`Kind::Name`] that a row of [`Kind::Time`] has; nothing if it is
/// damaged.
pub(crate) fn tail_of_time(row: &[u8], is_weighted: bool) -> &[u8] {
    match is_weighted {
        true => row.strip_prefix(&[0]).unwrap_or_default(),
        false => row,
    }
}

/// Returns the key of [`Kind::Name`] with this part.
pub(crate) fn name_key(id: u64, tail: &[u8]) -> Vec<u8> {
    [&start(id, Kind::Name), tail].concat()
}

/// What a row of [`Kind::Name`] is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedRow<'r> {
    pub(crate) name: &'r [u8],
    /// The value or the score.
    pub(crate) value: &'r [u8],
    pub(crate) deadline: Option<u64>,
}

/// Decodes the row at `key`, of [`Kind::Name`].
pub(crate) fn decode_name<'r>(key: &'r [u8], row: &'r [u8]) -> Result<NamedRow<'r>, RowError> {
    let (flags, mut rest) = row.split_first().ok_or(RowError::Damaged)?;
    let mut name = key.get(PREFIX_BYTES + 1..).ok_or(RowError::Damaged)?;
    if flags & !(HAS_WHOLE_NAME | HAS_DEADLINE) != 0 {
        return Err(RowError::Damaged);
    }
    if flags & HAS_WHOLE_NAME != 0 {
        let (length, after) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
        let length = u32::from_le_bytes(*length) as usize;
        (name, rest) = after.split_at_checked(length).ok_or(RowError::Damaged)?;
    }
    let mut deadline = None;
    if flags & HAS_DEADLINE != 0 {
        let (bytes, value) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
        deadline = Some(u64::from_le_bytes(*bytes));
        rest = value;
    }
    let value = rest;
    Ok(NamedRow {
        name,
        value,
        deadline,
    })
}

/// Returns the element in the value of a row of [`Kind::Position`].
pub(crate) fn decode_element(value: &[u8]) -> Result<&[u8], RowError> {
    value.strip_prefix(&[0]).ok_or(RowError::Damaged)
}

/// Returns the hash by which the row of [`Kind::Name`] at `key` is ordered.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    let hash = key.get(START_BYTES..).and_then(|rest| rest.first_chunk());
    hash.map_or(0, |hash| u64::from_be_bytes(*hash))
}

/// Returns 8 bytes that are ordered as scores are; -0 is 0.
pub(crate) fn ordered(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let ordered = match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    };
    ordered.to_be_bytes()
}

/// Returns the score in the key of a row of [`Kind::Score`]; 0 for -0.
pub(crate) fn score_of(key: &[u8]) -> Result<f64, RowError> {
    let bytes = key.get(START_BYTES..).and_then(|rest| rest.first_chunk());
    let bits = u64::from_be_bytes(*bytes.ok_or(RowError::Damaged)?);
    let score = f64::from_bits(match bits >> 63 {
        0 => !bits,
        _ => bits & !(1 << 63),
    });
    match score.is_nan() {
        true => Err(RowError::Damaged),
        false => Ok(score),
    }
}

/// Returns score and member of the row of [`Kind::Score`] at `key`.
pub(crate) fn decode_score<'r>(
    key: &'r [u8],
    value: &'r [u8],
) -> Result<(f64, &'r [u8]), RowError> {
    let score = score_of(key)?;
    let member = key.get(PREFIX_BYTES..).unwrap_or(&[]);
    let (flags, whole) = value.split_first().unwrap_or((&0, &[]));
    let score = match flags & NEGATIVE_ZERO {
        0 => score,
        _ if score == 0.0 => -0.0,
        _ => return Err(RowError::Damaged),
    };
    match flags & !NEGATIVE_ZERO {
        0 if whole.is_empty() => Ok((score, member)),
        HAS_WHOLE_NAME => Ok((score, whole)),
        _ => Err(RowError::Damaged),
    }
}

/// The keys that say that collections were given up are below this one, and all others are not.
pub(crate) const END_OF_GIVEN_UP: [u8; 8] = 1_u64.to_be_bytes();

/// Replaces `out` by the key that says that the collection `id` was given up.
pub(crate) fn given_up_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&id.to_be_bytes());
}

/// Returns the id in a key that says that a collection was given up.
pub(crate) fn decode_given_up(key: &[u8]) -> Option<u64> {
    let id = key.strip_prefix(&[0; 8])?;
    Some(u64::from_be_bytes(id.try_into().ok()?))
}

/// Returns the id of the collection that a row belongs to.
pub(crate) fn id_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |id| u64::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scores_are_ordered_and_come_back(
            a in any::<f64>().prop_filter("scores are numbers", |score| !score.is_nan()),
            b in any::<f64>().prop_filter("scores are numbers", |score| !score.is_nan()),
            member in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), a.partial_cmp(&b).unwrap());
            let keys = ElementKeys::new([1, 2], 100);
            let (mut key, mut row) = (Vec::new(), Vec::new());
            keys.score(7, a, &member, &mut key);
            keys.score_value(a, &member, &mut row);
            prop_assert!(key.len() <= 100);
            let (score, of) = decode_score(&key, &row).unwrap();
            prop_assert_eq!((score.to_bits(), of), (a.to_bits(), &member[..]));
        }

        #[test]
        fn names_come_back(
            name in prop::collection::vec(any::<u8>(), 0..120),
            value in prop::collection::vec(any::<u8>(), 0..20),
            deadline in prop::option::of(any::<u64>()),
        ) {
            let keys = ElementKeys::new([1, 2], 100);
            let (mut key, mut row) = (Vec::new(), Vec::new());
            keys.name(9, &name, &mut key);
            keys.value(&name, (&value, deadline), &mut row);
            prop_assert!(key.len() <= 100);
            prop_assert_eq!((id_of(&key), hash_of(&key)), (9, keys.hash(&name)));
            let (name, value) = (&name[..], &value[..]);
            let expected = NamedRow { name, value, deadline };
            prop_assert_eq!(decode_name(&key, &row), Ok(expected));
            prop_assert_eq!(&name_key(9, name_tail(&key)), &key);
            keys.time(9, deadline.unwrap_or(7), name, &mut key);
            prop_assert_eq!((time_of(&key), key.len()), (deadline.unwrap_or(7), 33));
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(0..6_u8, 0..20),
        ) {
            let _ = decode_name(&key, &value);
            let _ = decode_score(&key, &value);
            let _ = decode_element(&value);
            let _ = (decode_given_up(&key), hash_of(&key), position_of(&key));
        }
    }

    #[test]
    fn zeros_of_both_signs_are_equal_and_differ() {
        assert_eq!(ordered(-0.0), ordered(0.0));
        let keys = ElementKeys::new([1, 2], 100);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        keys.score(1, -0.0, b"m", &mut key);
        keys.score_value(-0.0, b"m", &mut row);
        let (score, _) = decode_score(&key, &row).unwrap();
        assert!(score.is_sign_negative());
        assert!(ordered(f64::NEG_INFINITY) < ordered(f64::MIN));
        assert!(ordered(f64::INFINITY) > ordered(f64::MAX));
    }
}
