//! How server data lies in the tables of the engine.
//!
//! Database N (0 to 15) is two tables, `db/N/keys` and `db/N/elements`, and a third one,
//! `db/N/members` (`data/elements.rs`), from its first large collection on.
//!
//! **Stored key**, key of a row of `db/N/keys` (L = longest key of the engine - 10):
//!
//! | user key          | stored key                                                              |
//! |-------------------|-------------------------------------------------------------------------|
//! | up to L - 1 bytes | `00`, user key                                                          |
//! | longer            | `01`, first L - 17 bytes of the user key, SipHash-2-4-128 of the whole   |
//!
//! The hash has 16 bytes (two little-endian words) and is keyed with the key of the store. A folded
//! row holds the whole user key. A row with a different whole key is an error: the value of another
//! key is never returned.
//!
//! **Value** of a row of `db/N/keys`, little-endian:
//!
//! | bytes   | what                                                                              |
//! |---------|-----------------------------------------------------------------------------------|
//! | 1       | type: 1 string, 2 list, 3 set, 4 sorted set, 5 hash, 6 stream, 7 string in pieces, |
//! |         | 8 string in chunks with patches                                                    |
//! | 1       | flags: bit 0 = has a deadline, bit 1 = has the whole key, bit 2 = is a hash of     |
//! |         | which fields have deadlines (decision 086); others are 0                           |
//! | 8       | with bit 0: the deadline, milliseconds since 1970                                 |
//! | 8       | with bit 0 or 2: the time of the row's expiry entry, never later than the          |
//! |         | deadline and the first deadline of a field                                         |
//! | 8       | with bit 2: a time that no deadline of a field is before                           |
//! | 8       | with bit 2: the time at which the last field expires; all ones: never              |
//! | 4 and n | with bit 1: length of the whole key and its bytes                                 |
//! | rest    | payload: the string, or the packed collection (`data/packed.rs`), or the head of  |
//! |         | one whose elements have rows of their own (`data/tree_head.rs`), or that of a     |
//! |         | stream (`data/stream_head.rs`), or of a string in pieces or one with patches      |
//! |         | (`data/piece_head.rs`)                                                            |
//!
//! A string that is too long for pages lies in chunks; this part of its row is then the head of the
//! engine's large value, so a new deadline writes no chunk.
//!
//! **Expiry entry**, key of a row of `db/N/elements` with an empty value: `00`, `45` ("E"), time as
//! 8 bytes big-endian, stored key. A row with a deadline has one entry, which it names. A later
//! deadline leaves the entry where it is: the cleaner moves it when it is due. An entry that no row
//! names is garbage, which the cleaner removes when it is due.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Number of databases.
pub(crate) const DATABASES: usize = 16;

const PLAIN: u8 = 0;
const FOLDED: u8 = 1;
const HASH_BYTES: usize = 16;
/// Length of an expiry entry's prefix, before the stored key.
const ENTRY_PREFIX_BYTES: usize = 10;
/// First bytes of all expiry entries.
pub(crate) const ENTRY_TAG: [u8; 2] = [0, b'E'];

const HAS_DEADLINE: u8 = 1;
const HAS_WHOLE_KEY: u8 = 2;
const HAS_FIELD_TIMES: u8 = 4;
/// Maximum length of a value's head without the whole key: type, flags, deadline and entry, length
/// of the whole key.
const HEADER_BYTES_MAX: usize = 2 + 16 + 4;
/// Bytes that the times of fields take besides.
pub(crate) const FIELD_TIMES_BYTES: usize = 16;
/// Length of the payload of a collection whose elements have rows of their own.
pub(crate) const TREE_HEAD_BYTES: usize = 2 + 5 * 8;
/// Length of that of a hash of which fields have deadlines.
pub(crate) const TIMED_HEAD_BYTES: usize = TREE_HEAD_BYTES + 8;
/// Length of the payload of a stream, the longest one that tells all about its value.
pub(crate) const STREAM_HEAD_BYTES: usize = 2 + 12 * 8;

/// Type of the value of a key. The number is that of the row's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ValueType {
    String = 1,
    List = 2,
    Set = 3,
    SortedSet = 4,
    Hash = 5,
    Stream = 6,
    /// A string whose bytes lie in rows of their own: commands find it as a string.
    Pieces = 7,
    /// A string in chunks over which others of its bytes lie: commands find it as a string.
    Patched = 8,
}

impl ValueType {
    const ALL: [Self; 8] = [
        Self::String,
        Self::List,
        Self::Set,
        Self::SortedSet,
        Self::Hash,
        Self::Stream,
        Self::Pieces,
        Self::Patched,
    ];

    #[inline]
    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).wrapping_sub(1)).copied()
    }

    /// Returns its name, as TYPE shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String | Self::Pieces | Self::Patched => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
        }
    }

    /// Returns the type that clients know it as.
    pub(crate) fn shown(self) -> Self {
        match self {
            Self::Pieces | Self::Patched => Self::String,
            other => other,
        }
    }

    /// Returns the type of this name, in any case.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|of| name.eq_ignore_ascii_case(of.name().as_bytes()))
    }
}

/// Error: a row cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowError {
    /// The bytes are not a value of this version.
    Damaged,
    /// The row belongs to another long key, with the same first bytes and the same hash.
    OtherKey,
}

/// Converts user keys to stored keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFolder {
    hash_key: [u64; 2],
    stored_bytes_max: usize,
}

impl KeyFolder {
    /// Creates it for an engine whose keys have at most `key_bytes_max` bytes.
    pub(crate) fn new(hash_key: [u64; 2], key_bytes_max: usize) -> Self {
        assert!(
            key_bytes_max > ENTRY_PREFIX_BYTES + 1 + HASH_BYTES,
            "keys of the engine are long enough for a hash"
        );
        Self {
            hash_key,
            stored_bytes_max: key_bytes_max - ENTRY_PREFIX_BYTES,
        }
    }

    /// Creates it for stored keys of at most so many bytes.
    pub(crate) fn with_stored_bytes_max(hash_key: [u64; 2], stored_bytes_max: usize) -> Self {
        Self::new(hash_key, stored_bytes_max + ENTRY_PREFIX_BYTES)
    }

    /// Returns true if the row of `key` must store the whole key.
    pub(crate) fn folds(&self, key: &[u8]) -> bool {
        key.len() >= self.stored_bytes_max
    }

    /// Replaces `out` by the stored key of `key`.
    #[inline]
    pub(crate) fn store(&self, key: &[u8], out: &mut Vec<u8>) {
        out.clear();
        self.append(key, out);
    }

    /// Appends the stored key of `key` to `out`.
    #[inline]
    pub(crate) fn append(&self, key: &[u8], out: &mut Vec<u8>) {
        if !self.folds(key) {
            out.push(PLAIN);
            out.extend_from_slice(key);
            return;
        }
        let mut hasher = SipHasher24::new_with_keys(self.hash_key[0], self.hash_key[1]);
        hasher.write(key);
        let hash = hasher.finish128();
        out.push(FOLDED);
        out.extend_from_slice(&key[..self.stored_bytes_max - 1 - HASH_BYTES]);
        out.extend_from_slice(&hash.h1.to_le_bytes());
        out.extend_from_slice(&hash.h2.to_le_bytes());
    }
}

impl KeyFolder {
    /// Returns what the stored keys of all keys begin with that begin with `prefix`: of those that
    /// are stored as they are, and of long ones.
    pub(crate) fn prefixes(&self, prefix: &[u8]) -> [Vec<u8>; 2] {
        let kept = prefix.len().min(self.stored_bytes_max - 1 - HASH_BYTES);
        [
            [&[PLAIN], prefix].concat(),
            [&[FOLDED], &prefix[..kept]].concat(),
        ]
    }

    /// Returns the first bytes of the long key that the row at `stored` is of; None if it is stored
    /// as it is. They are as many for all long keys.
    pub(crate) fn first_of_long<'k>(&self, stored: &'k [u8]) -> Option<&'k [u8]> {
        let rest = stored.strip_prefix(&[FOLDED])?;
        rest.get(..self.stored_bytes_max - 1 - HASH_BYTES)
    }
}

/// Returns the key of a client that the row at `stored` of the table called `table` is of, and
/// whether it is the whole key: only the beginning of a long one is known.
pub(crate) fn shown_of<'k>(table: &str, stored: &'k [u8]) -> (&'k [u8], bool) {
    let stored = match table.ends_with("/elements") {
        true => stored.get(ENTRY_PREFIX_BYTES..).unwrap_or_default(),
        false => stored,
    };
    match stored.split_first() {
        Some((&FOLDED, rest)) => (&rest[..rest.len().saturating_sub(HASH_BYTES)], false),
        Some((_, rest)) => (rest, true),
        None => (&[], true),
    }
}

/// The decoded head of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// What its payload is.
    pub(crate) value_type: ValueType,
    /// `None` for a row that never expires.
    pub(crate) expiry: Option<Expiry>,
    /// Offset of the payload.
    pub(crate) payload: usize,
    /// Length of the whole key before the payload; 0 if the row has none.
    whole_key_bytes: usize,
}

impl Row {
    /// Returns what is known of the row of a new value.
    pub(crate) fn of_new(value_type: ValueType, deadline: Option<u64>) -> Self {
        let expiry = deadline.map(|deadline| Expiry {
            times: Times::of(Some(deadline)),
            entry: deadline,
        });
        Self {
            value_type,
            expiry,
            payload: 0,
            whole_key_bytes: 0,
        }
    }
}

/// When a row expires, and the time of its expiry entry; both in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) times: Times,
    /// Never later than the times; the key of the entry contains it.
    pub(crate) entry: u64,
}

/// When a value, or a part of it, expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) deadline: Option<u64>,
    /// Those of the fields of a hash, if one has a deadline.
    pub(crate) fields: Option<FieldTimes>,
}

/// When fields of a hash expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldTimes {
    /// Not later than the first deadline.
    pub(crate) first: u64,
    /// The last one; `u64::MAX` if a field has none.
    pub(crate) last: u64,
}

/// Returns true if what has this deadline lives no more at `now_ms`; both in milliseconds since
/// 1970. As in Redis, it lives in the millisecond of its deadline.
#[inline]
pub(crate) fn has_ended(deadline: u64, now_ms: u64) -> bool {
    deadline < now_ms
}

impl Times {
    /// Returns the times of a value whose fields, if it has some, have no deadlines.
    pub(crate) fn of(deadline: Option<u64>) -> Self {
        let fields = None;
        Self { deadline, fields }
    }

    /// Returns the time at which the cleaner looks at it at the latest.
    pub(crate) fn due(self) -> Option<u64> {
        let first = self.fields.map(|fields| fields.first);
        self.deadline.into_iter().chain(first).min()
    }

    /// Returns true if the value has expired at `now_ms`, and not all of its fields one by one.
    pub(crate) fn is_over_itself(self, now_ms: u64) -> bool {
        self.deadline
            .is_some_and(|deadline| has_ended(deadline, now_ms))
    }

    /// Returns true if nothing is left of the value at `now_ms`.
    #[inline]
    fn is_over(self, now_ms: u64) -> bool {
        self.is_over_itself(now_ms)
            || self
                .fields
                .is_some_and(|fields| has_ended(fields.last, now_ms))
    }

    /// Returns true if fields may have expired at `now_ms`.
    pub(crate) fn has_expired_fields(self, now_ms: u64) -> bool {
        self.fields
            .is_some_and(|fields| has_ended(fields.first, now_ms))
    }
}

/// Takes 8 bytes from the beginning of `rest`.
#[inline]
fn take_u64(rest: &mut &[u8]) -> Result<u64, RowError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
    *rest = after;
    Ok(u64::from_le_bytes(*bytes))
}

/// Takes the times of a row with these flags.
#[inline]
fn take_expiry(flags: u8, rest: &mut &[u8]) -> Result<Option<Expiry>, RowError> {
    if flags & (HAS_DEADLINE | HAS_FIELD_TIMES) == 0 {
        return Ok(None);
    }
    let deadline = match flags & HAS_DEADLINE {
        0 => None,
        _ => Some(take_u64(rest)?),
    };
    let entry = take_u64(rest)?;
    let fields = match flags & HAS_FIELD_TIMES {
        0 => None,
        _ => Some(FieldTimes {
            first: take_u64(rest)?,
            last: take_u64(rest)?,
        }),
    };
    let times = Times { deadline, fields };
    Ok(Some(Expiry { times, entry }))
}

impl Row {
    /// Decodes the head of `value`, the row at `stored`.
    #[inline]
    pub(crate) fn decode(stored: &[u8], value: &[u8]) -> Result<Self, RowError> {
        let (&[kind, flags], mut rest) = value.split_first_chunk().ok_or(RowError::Damaged)?;
        let value_type = ValueType::of_byte(kind).ok_or(RowError::Damaged)?;
        let is_of_fields = flags & HAS_FIELD_TIMES != 0;
        let known = HAS_DEADLINE | HAS_WHOLE_KEY | HAS_FIELD_TIMES;
        if flags & !known != 0 || is_of_fields && value_type != ValueType::Hash {
            return Err(RowError::Damaged);
        }
        let expiry = take_expiry(flags, &mut rest)?;
        let folded = stored.first() == Some(&FOLDED);
        if folded != (flags & HAS_WHOLE_KEY != 0) {
            return Err(RowError::Damaged);
        }
        let mut whole_key_bytes = 0;
        if folded {
            let (length, after) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
            whole_key_bytes = u32::from_le_bytes(*length) as usize;
            rest = after.get(whole_key_bytes..).ok_or(RowError::Damaged)?;
        }
        Ok(Self {
            value_type,
            expiry,
            payload: value.len() - rest.len(),
            whole_key_bytes,
        })
    }

    /// Returns the user key of the row at `stored` with this head.
    pub(crate) fn user_key<'a>(&self, stored: &'a [u8], value: &'a [u8]) -> &'a [u8] {
        if self.whole_key_bytes == 0 {
            stored.get(1..).unwrap_or_default()
        } else {
            &value[self.payload - self.whole_key_bytes..self.payload]
        }
    }

    /// Returns true if the row has expired at `now_ms`.
    #[inline]
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.expiry
            .is_some_and(|expiry| expiry.times.is_over(now_ms))
    }

    /// Returns its times.
    pub(crate) fn times(&self) -> Times {
        self.expiry.map(|expiry| expiry.times).unwrap_or_default()
    }
}

/// Replaces `out` by an encoded value; `whole_key` is given for folded keys.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    value_type: ValueType,
    whole_key: Option<&[u8]>,
    expiry: Option<Expiry>,
    payload: &[u8],
) {
    encode_head(out, value_type, whole_key, expiry);
    out.extend_from_slice(payload);
}

/// The part of a value before its payload, of a key that is not folded and does not expire.
#[inline]
pub(crate) fn plain_head(value_type: ValueType) -> [u8; 2] {
    [value_type as u8, 0]
}

/// Replaces `out` by the part of a value before its payload; `whole_key` is given for folded keys.
pub(crate) fn encode_head(
    out: &mut Vec<u8>,
    value_type: ValueType,
    whole_key: Option<&[u8]>,
    expiry: Option<Expiry>,
) {
    let times = expiry.map(|expiry| expiry.times).unwrap_or_default();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(times.deadline.is_some(), HAS_DEADLINE)
        | flag(whole_key.is_some(), HAS_WHOLE_KEY)
        | flag(times.fields.is_some(), HAS_FIELD_TIMES);
    out.clear();
    let [kind, none] = plain_head(value_type);
    out.extend_from_slice(&[kind, none | flags]);
    if let Some(expiry) = expiry {
        let due = times.due().expect("an entry is of a time");
        assert!(expiry.entry <= due, "an entry is never late");
        if let Some(deadline) = times.deadline {
            out.extend_from_slice(&deadline.to_le_bytes());
        }
        out.extend_from_slice(&expiry.entry.to_le_bytes());
        if let Some(fields) = times.fields {
            out.extend_from_slice(&fields.first.to_le_bytes());
            out.extend_from_slice(&fields.last.to_le_bytes());
        }
    }
    if let Some(key) = whole_key {
        let length = u32::try_from(key.len()).expect("requests are below 4 GiB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(key);
    }
}

/// Returns the maximum number of bytes that a value has before its payload.
#[inline]
pub(crate) fn head_bytes(whole_key: Option<&[u8]>) -> usize {
    HEADER_BYTES_MAX + whole_key.map_or(0, <[u8]>::len)
}

/// Returns a number of bytes within which a value of `whole_key` tells all about it but its string
/// or its packed elements.
pub(crate) fn telling_bytes(whole_key: Option<&[u8]>) -> usize {
    let collection = FIELD_TIMES_BYTES + TIMED_HEAD_BYTES;
    head_bytes(whole_key) + collection.max(STREAM_HEAD_BYTES)
}

/// As [`telling_bytes`], of the row at `stored`.
pub(crate) fn head_bytes_of(stored: &[u8]) -> usize {
    match stored.first() {
        // It has the whole key, whose length is not known.
        Some(&FOLDED) => usize::MAX,
        _ => telling_bytes(None),
    }
}

/// Returns the length of the longest string that is stored in pages for any key that is not folded.
pub(crate) fn plain_string_bytes_max(value_bytes_max: usize) -> usize {
    value_bytes_max.saturating_sub(HEADER_BYTES_MAX)
}

/// Replaces `out` by the key of an expiry entry.
pub(crate) fn entry_key(out: &mut Vec<u8>, time: u64, stored: &[u8]) {
    out.clear();
    out.extend_from_slice(&ENTRY_TAG);
    out.extend_from_slice(&time.to_be_bytes());
    out.extend_from_slice(stored);
}

/// Returns the time and the stored key of an expiry entry.
pub(crate) fn decode_entry(key: &[u8]) -> Option<(u64, &[u8])> {
    let rest = key.strip_prefix(&ENTRY_TAG)?;
    let (time, stored) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*time), stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_keys_are_folded_and_keep_their_order_of_first_bytes() {
        let folder = KeyFolder::new([1, 2], 110);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        folder.store(&[b'x'; 99], &mut a);
        assert_eq!((a.len(), a[0]), (100, PLAIN));
        folder.store(&[b'x'; 100], &mut a);
        assert_eq!((a.len(), a[0]), (100, FOLDED));
        folder.store(&[b'x'; 101], &mut b);
        assert_ne!(a, b);
        assert_eq!(a[..84], b[..84]);
    }

    #[test]
    fn damaged_values_are_errors() {
        let stored = [PLAIN, b'k'];
        let damaged = [
            &b""[..],
            b"\x01",
            b"\x09\x00",
            b"\x00\x00",
            b"\x01\x08",
            b"\x01\x0412345678123456781234567812345678",
            b"\x05\x041234567812345678",
            b"\x01\x01abc",
            b"\x01\x02",
        ];
        for value in damaged {
            assert_eq!(Row::decode(&stored, value), Err(RowError::Damaged));
        }
        let long = b"\x01\x02\xff\xff\xff\xffabc";
        assert_eq!(Row::decode(&[FOLDED], long), Err(RowError::Damaged));
        assert_eq!(
            Row::decode(&[FOLDED], b"\x01\x00abc"),
            Err(RowError::Damaged)
        );
    }

    #[test]
    fn entries_are_ordered_by_time() {
        let mut keys: Vec<Vec<u8>> = [300_u64, 2, 1 << 40]
            .iter()
            .map(|time| {
                let mut key = Vec::new();
                entry_key(&mut key, *time, b"\0k");
                key
            })
            .collect();
        keys.sort();
        let times: Vec<u64> = keys
            .iter()
            .map(|key| decode_entry(key).unwrap().0)
            .collect();
        assert_eq!(times, [2, 300, 1 << 40]);
        assert_eq!(decode_entry(b"\0X12345678k"), None);
        assert_eq!(decode_entry(b"\0E123"), None);
    }

    proptest! {
        #[test]
        fn values_come_back(
            key in prop::collection::vec(any::<u8>(), 0..80),
            payload in prop::collection::vec(any::<u8>(), 0..50),
            times in prop::option::of((0..u64::MAX, 0..1000_u64)),
            first in prop::option::of(0..u64::MAX),
            kind in prop::sample::select(&ValueType::ALL[..]),
        ) {
            let folder = KeyFolder::new([3, 4], 60);
            let mut stored = Vec::new();
            folder.store(&key, &mut stored);
            let first = first.filter(|_| kind == ValueType::Hash);
            let last = u64::MAX - 1;
            let fields = first.map(|first| FieldTimes { first, last });
            let deadline = times.map(|(deadline, _)| deadline);
            let times = Times { deadline, fields };
            let expiry = times.due().map(|due| Expiry {
                times,
                entry: due.saturating_sub(7),
            });
            let whole = folder.folds(&key).then_some(key.as_slice());
            let mut value = Vec::new();
            encode(&mut value, kind, whole, expiry, &payload);
            let row = Row::decode(&stored, &value).unwrap();
            prop_assert_eq!((row.expiry, row.value_type), (expiry, kind));
            prop_assert_eq!(&value[row.payload..], payload.as_slice());
            prop_assert_eq!(row.user_key(&stored, &value), key.as_slice());
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            stored in prop::collection::vec(0..3_u8, 0..3),
            value in prop::collection::vec(0..7_u8, 0..40),
        ) {
            let _ = Row::decode(&stored, &value).map(|row| row.user_key(&stored, &value).len());
        }
    }
}
