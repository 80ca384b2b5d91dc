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

use super::elements::{ElementKeys, Kind, start};
use super::keyspace::RowError;
use super::stream_id::StreamId;

/// Bytes of the value of the row of a consumer besides its name.
pub(crate) const CONSUMER_BYTES: usize = 3 * 8;
/// Bytes of the value of the row of a group besides its name.
pub(crate) const GROUP_BYTES: usize = 6 * 8;

/// Returns the key that says that a stream has this id.
pub(crate) fn id_key(stream: u64) -> Vec<u8> {
    start(stream, Kind::Id).to_vec()
}

/// Returns the key of an entry.
pub(crate) fn entry_key(stream: u64, id: StreamId) -> Vec<u8> {
    [&start(stream, Kind::Entry)[..], &id.to_bytes()].concat()
}

/// Returns the key of a consumer.
pub(crate) fn consumer_key(stream: u64, group: u64, consumer: u64) -> Vec<u8> {
    let start = start(stream, Kind::Consumer);
    [&start[..], &group.to_be_bytes(), &consumer.to_be_bytes()].concat()
}

/// Returns the key of an entry that is pending in a group.
pub(crate) fn pending_key(stream: u64, group: u64, id: StreamId) -> Vec<u8> {
    let start = start(stream, Kind::Pending);
    [&start[..], &group.to_be_bytes(), &id.to_bytes()].concat()
}

/// Returns the key of the same by its consumer.
pub(crate) fn owned_key(stream: u64, (group, consumer): (u64, u64), id: StreamId) -> Vec<u8> {
    let start = start(stream, Kind::Owned);
    let numbers = [group.to_be_bytes(), consumer.to_be_bytes()].concat();
    [&start[..], &numbers, &id.to_bytes()].concat()
}

impl ElementKeys {
    /// Returns the key of a group.
    pub(crate) fn group(&self, stream: u64, name: &[u8]) -> Vec<u8> {
        let mut key = start(stream, Kind::Group).to_vec();
        self.append_member(name, &mut key);
        key
    }

    /// Returns the key that says the number of a consumer.
    pub(crate) fn consumer_name(&self, stream: u64, group: u64, name: &[u8]) -> Vec<u8> {
        let mut key = start(stream, Kind::ConsumerName).to_vec();
        key.extend_from_slice(&group.to_be_bytes());
        self.append_member(name, &mut key);
        key
    }
}

/// A consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

fn of_numbers(numbers: &[u64], name: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(numbers.len() * 8 + name.len());
    numbers
        .iter()
        .for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
    value.extend_from_slice(name);
    value
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

    /// Returns the value of its row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (StreamId { ms, sequence }, read) = (self.last, self.read.cast_unsigned());
        let numbers = [
            self.number,
            ms,
            sequence,
            read,
            self.pending,
            self.consumers,
        ];
        of_numbers(&numbers, &self.name)
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

    /// Returns the value of its row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        of_numbers(
            &[self.seen, self.active.cast_unsigned(), self.pending],
            &self.name,
        )
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
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (delivered, times) = (self.delivered.cast_unsigned(), self.times.cast_unsigned());
        of_numbers(&[self.consumer, delivered, times], &[])
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
    of_numbers(&[number], name)
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
            let group_bytes = group.encode().len();
            prop_assert_eq!(GroupRow::decode(&group.encode()), Ok(group));
            let seen = consumers;
            let (active, name) = (times.0, name);
            let consumer = ConsumerRow { number, seen, pending, active, name: name.clone() };
            let consumer_bytes = consumer.encode().len();
            prop_assert_eq!(ConsumerRow::decode(number, &consumer.encode()), Ok(consumer));
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
            PendingRow::decode(&[value, vec![0]].concat()),
            Err(RowError::Damaged)
        );
        assert_eq!(GroupRow::decode(&[1; 47]), Err(RowError::Damaged));
        assert_eq!(ConsumerRow::decode(1, &[1; 23]), Err(RowError::Damaged));
        assert_eq!(decode_consumer_name(&[0; 9]), Err(RowError::Damaged));
    }
}
