//! Rows of streams in the table `db/N/members`, beside those of large collections
//! (`data/elements.rs`). All keys begin with the id of the stream, 8 bytes. Numbers and IDs in keys
//! are big-endian, those in values little-endian.
//!
//! | key behind the id                          | value                                           |
//! |--------------------------------------------|-------------------------------------------------|
//! | `49` ("I")                                 | nothing: there as long as the stream is         |
//! | `58` ("X"), ID                             | an entry: fields and values, as a packed        |
//! |                                            | collection (`data/packed.rs`) has its strings   |
//! | `47` ("G"), name                           | a group: its number, last delivered ID, entries |
//! |                                            | read, entries pending, number of consumers, name|
//! | `4E` ("N"), group, name                    | the number of the consumer with this name; name |
//! | `43` ("C"), group, consumer                | a consumer: when it was seen, when it last got  |
//! |                                            | something, entries pending, name                |
//! | `50` ("P"), group, ID                      | a pending entry: its consumer, when it was      |
//! |                                            | delivered, how often                            |
//! | `51` ("Q"), group, consumer, ID            | nothing: the same by consumer                   |
//!
//! Groups and consumers are numbers in keys. A name that is too long for a key is there with its
//! beginning and a hash; the value has all of it. -1 stands for what is not known.
//!
//! **Every stream has the row "I"**, from its first moment on: one without entries and groups has
//! no other one, and the first new collection after a restart gets the id behind the highest one
//! that has rows (`data/members.rs`). Only the cleaner removes it, with all other rows of a stream
//! that was given up.

use super::elements::{ElementKeys, Kind, START_BYTES, start};
use super::keyspace::RowError;
use super::stream_id::{ID_BYTES, StreamId};

/// Bytes of the value of the row of a consumer besides its name.
pub(crate) const CONSUMER_BYTES: usize = 3 * 8;
/// Bytes of the value of the row of a pending entry.
const PENDING_BYTES: usize = 3 * 8;
/// Bytes of the value of the row of a group besides its name.
pub(crate) const GROUP_BYTES: usize = 6 * 8;

/// Bytes of a number in keys.
const NUMBER_BYTES: usize = 8;
/// Bytes of the key of an entry.
pub(crate) const ENTRY_KEY_BYTES: usize = START_BYTES + ID_BYTES;
/// Bytes of the key of a consumer.
pub(crate) const CONSUMER_KEY_BYTES: usize = START_BYTES + 2 * NUMBER_BYTES;
/// Bytes of the key of an entry that is pending in a group.
pub(crate) const PENDING_KEY_BYTES: usize = START_BYTES + NUMBER_BYTES + ID_BYTES;
/// Bytes of the key of the same by its consumer.
pub(crate) const OWNED_KEY_BYTES: usize = PENDING_KEY_BYTES + NUMBER_BYTES;

/// Returns the key that says that a stream has this id.
pub(crate) fn id_key(stream: u64) -> [u8; START_BYTES] {
    start(stream, Kind::Id)
}

/// Returns the parts of a key, which are `N` bytes, one behind the other.
fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut rest = &mut key[..];
    for part in parts {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
    debug_assert!(rest.is_empty(), "the parts are all of the key");
    key
}

/// Returns the key of an entry.
pub(crate) fn entry_key(stream: u64, id: StreamId) -> [u8; ENTRY_KEY_BYTES] {
    joined(&[&start(stream, Kind::Entry), &id.to_bytes()])
}

/// Returns the key of a consumer.
pub(crate) fn consumer_key(stream: u64, group: u64, consumer: u64) -> [u8; CONSUMER_KEY_BYTES] {
    let start = start(stream, Kind::Consumer);
    joined(&[&start, &group.to_be_bytes(), &consumer.to_be_bytes()])
}

/// Returns the key of an entry that is pending in a group.
pub(crate) fn pending_key(stream: u64, group: u64, id: StreamId) -> [u8; PENDING_KEY_BYTES] {
    let start = start(stream, Kind::Pending);
    joined(&[&start, &group.to_be_bytes(), &id.to_bytes()])
}

/// Returns the key of the same by its consumer.
pub(crate) fn owned_key(
    stream: u64,
    (group, consumer): (u64, u64),
    id: StreamId,
) -> [u8; OWNED_KEY_BYTES] {
    let start = start(stream, Kind::Owned);
    let (group, consumer) = (group.to_be_bytes(), consumer.to_be_bytes());
    joined(&[&start, &group, &consumer, &id.to_bytes()])
}

impl ElementKeys {
    /// Returns the key of a group.
    pub(crate) fn group(&self, stream: u64, name: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(START_BYTES + name.len());
        key.extend_from_slice(&start(stream, Kind::Group));
        self.append_member(name, &mut key);
        key
    }

    /// Returns the key that says the number of a consumer.
    pub(crate) fn consumer_name(&self, stream: u64, group: u64, name: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(START_BYTES + NUMBER_BYTES + name.len());
        key.extend_from_slice(&start(stream, Kind::ConsumerName));
        key.extend_from_slice(&group.to_be_bytes());
        self.append_member(name, &mut key);
        key
    }
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupRow {
    pub(crate) number: u64,
    pub(crate) last: StreamId,
    /// Number of entries up to the last delivered one; -1: not known.
    pub(crate) read: i64,
    pub(crate) pending: u64,
    pub(crate) consumers: u64,
    pub(crate) name: Vec<u8>,
}

/// A consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConsumerRow {
    /// Its number, which its key has.
    pub(crate) number: u64,
    /// When it last asked for something, in milliseconds since 1970.
    pub(crate) seen: u64,
    /// When it last got something; -1: never.
    pub(crate) active: i64,
    pub(crate) pending: u64,
    pub(crate) name: Vec<u8>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PendingRow {
    /// The number of its consumer.
    pub(crate) consumer: u64,
    /// When it was delivered, in milliseconds since 1970.
    pub(crate) delivered: i64,
    /// How often.
    pub(crate) times: i64,
}

/// Returns the numbers that a value begins with, and what is behind them.
fn numbers<const N: usize>(mut value: &[u8]) -> Result<([u64; N], &[u8]), RowError> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (bytes, rest) = value.split_first_chunk().ok_or(RowError::Damaged)?;
        *number = u64::from_le_bytes(*bytes);
        value = rest;
    }
    Ok((numbers, value))
}

/// Replaces `out` by numbers, and a name behind them.
fn put_numbers(numbers: &[u64], name: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.reserve(numbers.len() * NUMBER_BYTES + name.len());
    numbers
        .iter()
        .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(name);
}

/// Refuses a count that no stream can have.
fn count(number: u64) -> Result<u64, RowError> {
    i64::try_from(number).map_or(Err(RowError::Damaged), |_| Ok(number))
}

impl GroupRow {
    /// Decodes the value of its row, which may be any bytes.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, RowError> {
        let ([number, ms, sequence, read, pending, consumers], name) = numbers(value)?;
        let read = read.cast_signed();
        if number == 0 || number == u64::MAX || read < -1 {
            return Err(RowError::Damaged);
        }
        Ok(Self {
            number,
            last: StreamId::new(ms, sequence),
            read,
            pending: count(pending)?,
            consumers: count(consumers)?,
            name: name.to_vec(),
        })
    }

    /// Replaces `out` by the value of its row.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (StreamId { ms, sequence }, read) = (self.last, self.read.cast_unsigned());
        let numbers = [
            self.number,
            ms,
            sequence,
            read,
            self.pending,
            self.consumers,
        ];
        put_numbers(&numbers, &self.name, out);
    }
}

impl ConsumerRow {
    /// Decodes the value of the row of the consumer with this number, which may be any bytes.
    pub(crate) fn decode(number: u64, value: &[u8]) -> Result<Self, RowError> {
        let ([seen, active, pending], name) = numbers(value)?;
        Ok(Self {
            number,
            seen: count(seen)?,
            active: active.cast_signed().max(-1),
            pending: count(pending)?,
            name: name.to_vec(),
        })
    }

    /// Replaces `out` by the value of its row.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [self.seen, self.active.cast_unsigned(), self.pending];
        put_numbers(&numbers, &self.name, out);
    }
}

/// Which pending entries are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingFilter {
    /// Those that nobody has got for so many milliseconds; 0: all.
    pub(crate) least_idle: i64,
    /// Those of the consumer with this number.
    pub(crate) consumer: Option<u64>,
}

impl PendingFilter {
    /// Returns true if the entry is wanted.
    pub(crate) fn takes(&self, row: &PendingRow, now_ms: u64) -> bool {
        let is_idle = self.least_idle == 0 || row.idle(now_ms) >= self.least_idle;
        is_idle
            && self
                .consumer
                .is_none_or(|consumer| consumer == row.consumer)
    }
}

impl PendingRow {
    /// Returns for how many milliseconds nobody has got the entry; below zero if clocks differ.
    pub(crate) fn idle(&self, now_ms: u64) -> i64 {
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        now.saturating_sub(self.delivered)
    }

    /// Decodes the value of its row, which may be any bytes.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, RowError> {
        let ([consumer, delivered, times], rest) = numbers(value)?;
        match rest.is_empty() && consumer != 0 {
            true => Ok(Self {
                consumer,
                delivered: delivered.cast_signed(),
                times: times.cast_signed(),
            }),
            false => Err(RowError::Damaged),
        }
    }

    /// Returns the value of its row.
    pub(crate) fn encode(&self) -> [u8; PENDING_BYTES] {
        let (delivered, times) = (self.delivered.to_le_bytes(), self.times.to_le_bytes());
        joined(&[&self.consumer.to_le_bytes(), &delivered, &times])
    }
}

/// Returns the number and the whole name in the value of the row that has the name of a consumer.
pub(crate) fn decode_consumer_name(value: &[u8]) -> Result<(u64, &[u8]), RowError> {
    let ([number], name) = numbers(value)?;
    match number {
        0 => Err(RowError::Damaged),
        _ => Ok((number, name)),
    }
}

/// Returns the value of that row.
pub(crate) fn consumer_name_value(number: u64, name: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes()[..], name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back(
            last: (u64, u64),
            counts in (1..1_u64 << 63, 0..1_u64 << 63, 0..1_u64 << 63),
            times in (-1..i64::MAX, any::<i64>()),
            name in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let (number, pending, consumers) = counts;
            let last = StreamId::new(last.0, last.1);
            let group = GroupRow {
                number, last, pending, consumers, read: times.0, name: name.clone(),
            };
            let mut bytes = vec![1];
            group.encode(&mut bytes);
            let group_bytes = bytes.len();
            prop_assert_eq!(GroupRow::decode(&bytes), Ok(group));
            let seen = consumers;
            let (active, name) = (times.0, name);
            let consumer = ConsumerRow { number, seen, pending, active, name: name.clone() };
            consumer.encode(&mut bytes);
            let consumer_bytes = bytes.len();
            prop_assert_eq!(ConsumerRow::decode(number, &bytes), Ok(consumer));
            let pending = PendingRow { consumer: number, delivered: times.0, times: times.1 };
            prop_assert_eq!(PendingRow::decode(&pending.encode()), Ok(pending));
            let value = consumer_name_value(number, &name);
            prop_assert_eq!(decode_consumer_name(&value), Ok((number, &name[..])));
            prop_assert_eq!(group_bytes, GROUP_BYTES + name.len());
            prop_assert_eq!(consumer_bytes, CONSUMER_BYTES + name.len());
            let keys = ElementKeys::new([1, 2], 100);
            prop_assert!(keys.group(1, &name).len() <= 100);
            prop_assert!(keys.consumer_name(1, 2, &[&name[..], &[7; 200]].concat()).len() <= 100);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            value in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = (GroupRow::decode(&value), ConsumerRow::decode(1, &value));
            let _ = (PendingRow::decode(&value), decode_consumer_name(&value));
        }
    }

    #[test]
    fn what_is_cut_off_is_damage() {
        let pending = PendingRow {
            consumer: 1,
            delivered: 2,
            times: 3,
        };
        let value = pending.encode();
        for end in 0..value.len() {
            assert_eq!(PendingRow::decode(&value[..end]), Err(RowError::Damaged));
        }
        assert_eq!(
            PendingRow::decode(&[&value[..], &[0]].concat()),
            Err(RowError::Damaged)
        );
        assert_eq!(GroupRow::decode(&[1; 47]), Err(RowError::Damaged));
        assert_eq!(ConsumerRow::decode(1, &[1; 23]), Err(RowError::Damaged));
        assert_eq!(decode_consumer_name(&[0; 9]), Err(RowError::Damaged));
    }
}
