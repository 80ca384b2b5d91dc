//! Streams as payloads have them: listpacks of entries, each behind the ID of its first entry; what
//! the stream knows of itself; its groups, each with its pending entries, and with its consumers
//! and the IDs that these have of them.
//!
//! A listpack begins with how many entries it has, how many of these are deleted, and the names of
//! the fields of the first one, counted before them, with a 0 behind them. An entry is its flags,
//! how far its ID is behind the first one (both numbers), its fields, and how many entries of the
//! listpack it takes.

use std::collections::HashMap;

use pando_resp::parse_integer;

use super::input::{Input, Refused};
use super::listpack::{self, Listpack};
use super::output::{put_length, put_string};
use crate::data::packed::{self, Encoding, Form, Reader, Strings};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{ConsumerRow, GroupRow, PendingRow};

/// Flag of an entry: it is deleted.
const IS_DELETED: i64 = 1;
/// Flag of an entry: it has the fields of the first one, and only its values follow.
const HAS_FIELDS_OF_FIRST: i64 = 2;
/// A listpack gets no more entries behind so many, or so many bytes, as Redis makes them.
const ENTRIES_MAX: u8 = 100;
const NODE_BYTES_MAX: usize = 4096;
/// Memory for an entry, a group, a consumer or a pending entry besides its bytes, about.
const ROW_BYTES: usize = 128;

/// All of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct StreamValue {
    pub(crate) last: StreamId,
    pub(crate) max_deleted: StreamId,
    /// Number of entries that were ever added.
    pub(crate) added: u64,
    /// The entries in their order, each with the value of its row.
    pub(crate) entries: Vec<(StreamId, Vec<u8>)>,
    pub(crate) groups: Vec<GroupValue>,
}

/// A group of a stream. All numbers of groups and consumers of a stream differ, and are not 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupValue {
    pub(crate) row: GroupRow,
    pub(crate) consumers: Vec<ConsumerRow>,
    /// In the order of their IDs.
    pub(crate) pending: Vec<(StreamId, PendingRow)>,
}

/// An entry of a listpack.
struct Entry<'s> {
    is_deleted: bool,
    /// How far its ID is behind the first one, both numbers.
    ms: u64,
    sequence: u64,
    /// Its fields and values in turns.
    pairs: Vec<&'s [u8]>,
}

/// The strings of a listpack of entries, one after the other.
struct Node<'s> {
    strings: &'s Strings,
    place: usize,
}

impl<'s> Node<'s> {
    fn text(&mut self) -> Result<&'s [u8], Refused> {
        if self.place == self.strings.len() {
            return Err(Refused::Damaged);
        }
        self.place += 1;
        Ok(self.strings.at(self.place - 1))
    }

    fn number(&mut self) -> Result<i64, Refused> {
        parse_integer(self.text()?).ok_or(Refused::Damaged)
    }

    fn count(&mut self) -> Result<usize, Refused> {
        let count = usize::try_from(self.number()?).ok();
        // It has that many strings and more.
        count
            .filter(|count| *count <= self.strings.len())
            .ok_or(Refused::Damaged)
    }

    fn texts(&mut self, count: usize) -> Result<Vec<&'s [u8]>, Refused> {
        (0..count).map(|_| self.text()).collect()
    }

    /// Takes the next entry, of a listpack whose first one has these fields.
    fn entry(&mut self, fields: &[&'s [u8]]) -> Result<Entry<'s>, Refused> {
        let start = self.place;
        let flags = self.number()?;
        let (ms, sequence) = (self.number()?, self.number()?);
        let pairs = match flags & HAS_FIELDS_OF_FIRST != 0 {
            true => {
                let values = self.texts(fields.len())?;
                fields
                    .iter()
                    .copied()
                    .zip(values)
                    .flat_map(|(field, value)| [field, value])
                    .collect()
            }
            false => {
                let count = self.count()?;
                self.texts(count.checked_mul(2).ok_or(Refused::Damaged)?)?
            }
        };
        let taken = self.place - start;
        if self.count()? != taken || pairs.is_empty() {
            return Err(Refused::Damaged);
        }
        Ok(Entry {
            is_deleted: flags & IS_DELETED != 0,
            ms: ms.cast_unsigned(),
            sequence: sequence.cast_unsigned(),
            pairs,
        })
    }
}

impl StreamValue {
    /// Takes a stream. Version 1 is that of Redis 5, 2 that of 7.0, 3 that of 7.2.
    pub(super) fn take(input: &mut Input<'_>, version: u32) -> Result<Self, Refused> {
        let mut stream = Self::default();
        for _ in 0..input.length()? {
            stream.take_node(input)?;
        }
        let length = stream.take_rest(input, version)?;
        let last = stream.entries.last().map(|(id, _)| *id);
        let is_whole =
            length == stream.entries.len() as u64 && last.is_none_or(|last| last <= stream.last);
        match is_whole {
            true => Ok(stream),
            false => Err(Refused::Damaged),
        }
    }

    /// Reads some of the listpacks of a stream, and nothing else of it.
    pub(crate) fn of_entries(bytes: &[u8], room: usize) -> Result<Self, Refused> {
        let mut input = Input::new(bytes, room);
        let mut stream = Self::default();
        while !input.is_empty() {
            stream.take_node(&mut input)?;
        }
        Ok(stream)
    }

    /// Reads what is behind the listpacks of a stream of this version.
    pub(crate) fn of_rest(bytes: &[u8], version: u32, room: usize) -> Result<Self, Refused> {
        let mut input = Input::new(bytes, room);
        let mut stream = Self::default();
        stream.take_rest(&mut input, version)?;
        match input.is_empty() {
            true => Ok(stream),
            false => Err(Refused::Damaged),
        }
    }

    /// Takes what is behind the listpacks. Returns how many entries there should be.
    fn take_rest(&mut self, input: &mut Input<'_>, version: u32) -> Result<u64, Refused> {
        let length = input.number()?;
        self.last = take_id(input)?;
        self.added = length;
        if version >= 2 {
            let _first = take_id(input)?;
            self.max_deleted = take_id(input)?;
            self.added = input.number()?;
        }
        // The highest deleted ID may be above the last one, by an XSETID of Redis 7.0.
        if i64::try_from(self.added).is_err() {
            return Err(Refused::Damaged);
        }
        let mut number = 1;
        for _ in 0..input.length()? {
            let group = GroupValue::take(input, version, &mut number)?;
            self.groups.push(group);
        }
        let mut names: Vec<&[u8]> = self.groups.iter().map(|of| &of.row.name[..]).collect();
        names.sort_unstable();
        match names.windows(2).any(|two| two[0] == two[1]) {
            true => Err(Refused::Damaged),
            false => Ok(length),
        }
    }

    /// Takes a listpack of entries.
    fn take_node(&mut self, input: &mut Input<'_>) -> Result<(), Refused> {
        let id = input.string()?;
        let Some((first, [])) = StreamId::split(&id) else {
            return Err(Refused::Damaged);
        };
        let bytes = input.string()?;
        let mut strings = Strings::default();
        listpack::read(&bytes, &mut |text| {
            strings.push(text);
            Ok(())
        })?;
        let mut node = Node {
            strings: &strings,
            place: 0,
        };
        let (count, deleted, fields) = (node.count()?, node.count()?, node.count()?);
        let fields = node.texts(fields)?;
        if node.number()? != 0 {
            return Err(Refused::Damaged);
        }
        let (mut found, mut gone) = (0, 0);
        while node.place < strings.len() {
            let entry = node.entry(&fields)?;
            if entry.is_deleted {
                gone += 1;
                continue;
            }
            found += 1;
            let id = StreamId::new(
                first.ms.wrapping_add(entry.ms),
                first.sequence.wrapping_add(entry.sequence),
            );
            let before = self.entries.last().map_or(StreamId::ZERO, |(id, _)| *id);
            if id <= before {
                return Err(Refused::Damaged);
            }
            let mut row = Vec::new();
            packed::encode(
                (Encoding::Stream, Form::Plain),
                entry.pairs.into_iter(),
                &mut row,
            );
            input.make_room(row.len() + ROW_BYTES)?;
            self.entries.push((id, row));
        }
        match (found, gone) == (count, deleted) {
            true => Ok(()),
            false => Err(Refused::Damaged),
        }
    }

    /// Appends the stream, as version 2.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut nodes = Vec::new();
        let mut rest = &self.entries[..];
        while let Some((first, _)) = rest.first() {
            let (node, taken) = node_of(rest);
            nodes.push((*first, node));
            rest = &rest[taken..];
        }
        put_length(out, nodes.len() as u64);
        for (first, node) in nodes {
            put_string(out, &first.to_bytes());
            put_string(out, &node);
        }
        put_length(out, self.entries.len() as u64);
        put_id(out, self.last);
        put_id(
            out,
            self.entries.first().map_or(StreamId::ZERO, |(id, _)| *id),
        );
        put_id(out, self.max_deleted);
        put_length(out, self.added);
        put_length(out, self.groups.len() as u64);
        self.groups.iter().for_each(|group| group.put(out));
    }
}

/// Returns the strings of the row of an entry: fields and values in turns.
pub(crate) fn strings_of(row: &[u8]) -> Vec<&[u8]> {
    let mut strings = Vec::new();
    let mut reader = Reader::new(row).expect("it was read as the row of an entry");
    while let Ok(Some(string)) = reader.next() {
        strings.push(string);
    }
    strings
}

/// Returns a listpack of the first entries, and how many these are.
fn node_of(entries: &[(StreamId, Vec<u8>)]) -> (Vec<u8>, usize) {
    let (first, row) = &entries[0];
    let strings = strings_of(row);
    let fields: Vec<&[u8]> = strings.iter().step_by(2).copied().collect();
    let mut node = Listpack::new();
    // The number of entries, from 1 to 100, is written over it in the end.
    let count_at = node.len();
    node.push_number(0);
    node.push_number(0);
    node.push_count(fields.len());
    fields.iter().for_each(|field| node.push(field));
    node.push_number(0);
    let mut count = 0;
    for (id, row) in entries {
        if count == ENTRIES_MAX || count > 0 && node.len() + row.len() > NODE_BYTES_MAX {
            break;
        }
        put_entry(&mut node, (*first, *id), &strings_of(row), &fields);
        count += 1;
    }
    node.set_small(count_at, count);
    (node.finish(), count.into())
}

fn put_entry(
    node: &mut Listpack,
    (first, id): (StreamId, StreamId),
    pairs: &[&[u8]],
    fields: &[&[u8]],
) {
    let are_same = pairs.iter().step_by(2).eq(fields);
    node.push_number(if are_same { HAS_FIELDS_OF_FIRST } else { 0 });
    node.push_number(id.ms.wrapping_sub(first.ms).cast_signed());
    node.push_number(id.sequence.wrapping_sub(first.sequence).cast_signed());
    let taken = if are_same {
        pairs
            .iter()
            .skip(1)
            .step_by(2)
            .for_each(|value| node.push(value));
        3 + fields.len()
    } else {
        node.push_count(pairs.len() / 2);
        pairs.iter().for_each(|string| node.push(string));
        4 + pairs.len()
    };
    node.push_count(taken);
}

fn take_id(input: &mut Input<'_>) -> Result<StreamId, Refused> {
    Ok(StreamId::new(input.number()?, input.number()?))
}

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_length(out, id.ms);
    put_length(out, id.sequence);
}

fn take_bytes_of_id(input: &mut Input<'_>) -> Result<StreamId, Refused> {
    let bytes: [u8; 16] = input.array()?;
    StreamId::split(&bytes).map_or(Err(Refused::Damaged), |(id, _)| Ok(id))
}

/// Takes a time in milliseconds.
fn take_time(input: &mut Input<'_>) -> Result<i64, Refused> {
    Ok(input.fixed()?.cast_signed())
}

impl GroupValue {
    /// Takes a group; it and its consumers get the next numbers.
    fn take(input: &mut Input<'_>, version: u32, number: &mut u64) -> Result<Self, Refused> {
        let name = input.string()?.into_owned();
        let last = take_id(input)?;
        let read = match version {
            1 => -1,
            _ => input.number()?.cast_signed(),
        };
        input.make_room(name.len() + ROW_BYTES)?;
        let mut group = Self {
            row: GroupRow {
                number: next(number),
                last,
                read,
                pending: 0,
                consumers: 0,
                name,
            },
            consumers: Vec::new(),
            pending: Vec::new(),
        };
        if read < -1 {
            return Err(Refused::Damaged);
        }
        for _ in 0..input.length()? {
            let id = take_bytes_of_id(input)?;
            let (delivered, times) = (take_time(input)?, input.number()?);
            let times = i64::try_from(times).map_err(|_| Refused::Damaged)?;
            if group
                .pending
                .last()
                .is_some_and(|(before, _)| *before >= id)
            {
                return Err(Refused::Damaged);
            }
            input.make_room(ROW_BYTES)?;
            let row = PendingRow {
                consumer: 0,
                delivered,
                times,
            };
            group.pending.push((id, row));
        }
        group.take_consumers(input, version, number)?;
        Ok(group)
    }

    fn take_consumers(
        &mut self,
        input: &mut Input<'_>,
        version: u32,
        number: &mut u64,
    ) -> Result<(), Refused> {
        let mut owners: HashMap<StreamId, u64> = HashMap::new();
        for _ in 0..input.length()? {
            let name = input.string()?.into_owned();
            let seen = u64::try_from(take_time(input)?).unwrap_or(0);
            let active = match version {
                // What was not written before 7.2 counts as the other time there.
                ..3 => seen.cast_signed(),
                3.. => take_time(input)?.max(-1),
            };
            input.make_room(name.len() + ROW_BYTES)?;
            let (number, pending) = (next(number), input.number()?);
            for _ in 0..pending {
                let id = take_bytes_of_id(input)?;
                input.make_room(ROW_BYTES)?;
                if owners.insert(id, number).is_some() {
                    return Err(Refused::Damaged);
                }
            }
            self.consumers.push(ConsumerRow {
                number,
                seen,
                active,
                pending,
                name,
            });
        }
        let mut names: Vec<&[u8]> = self.consumers.iter().map(|of| &of.name[..]).collect();
        names.sort_unstable();
        // Each pending entry has one consumer, and each of theirs is one.
        let mut are_all_owned = owners.len() == self.pending.len();
        for (id, row) in &mut self.pending {
            match owners.get(id) {
                Some(consumer) => row.consumer = *consumer,
                None => are_all_owned = false,
            }
        }
        self.row.pending = self.pending.len() as u64;
        self.row.consumers = self.consumers.len() as u64;
        match are_all_owned && !names.windows(2).any(|two| two[0] == two[1]) {
            true => Ok(()),
            false => Err(Refused::Damaged),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_string(out, &self.row.name);
        put_id(out, self.row.last);
        put_length(out, self.row.read.cast_unsigned());
        put_length(out, self.pending.len() as u64);
        for (id, row) in &self.pending {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&row.delivered.to_le_bytes());
            put_length(out, row.times.cast_unsigned());
        }
        let mut owned: HashMap<u64, Vec<StreamId>> = HashMap::new();
        for (id, row) in &self.pending {
            owned.entry(row.consumer).or_default().push(*id);
        }
        put_length(out, self.consumers.len() as u64);
        for consumer in &self.consumers {
            let ids = owned.remove(&consumer.number).unwrap_or_default();
            put_string(out, &consumer.name);
            out.extend_from_slice(&consumer.seen.to_le_bytes());
            put_length(out, ids.len() as u64);
            ids.iter()
                .for_each(|id| out.extend_from_slice(&id.to_bytes()));
        }
    }
}

fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What DUMP of redis-server 7.0 has behind the kind: entries 5-2 and 70000-0, 5-1 is deleted;
    /// the group `all`, of whose consumers c1 and c2 the first one has 5-2; the group `new`.
    const OF_REDIS: &[u8] = b"\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\
        \x01@AA\x00\x00\x00\x18\x00\x02\x01\x01\x01\x01\x01\x81f\x02\x00\x01\x03\x01\x00\x01\x00\
        \x01\x81v\x02\x04\x01\x02\x01\x00\x01\x01\x01\xde\xd4\x02\x04\x01\x00\x01\xf2k\x11\x01\
        \x04\xdf\xff\x02\x02\x01\x81g\x02\x01\x01\x81h\x02\x81y\x02\x08\x01\xff\x02\x80\x00\x01\
        \x11p\x00\x05\x02\x05\x01\x03\x02\x03all\x05\x02\x02\x01\x00\x00\x00\x00\x00\x00\x00\x05\
        \x00\x00\x00\x00\x00\x00\x00\x02\xc7k\\-\xa2\x01\x00\x00\x01\x02\x02c1\xc7k\\-\xa2\x01\
        \x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x02\x02c2\xfbk\\-\
        \xa2\x01\x00\x00\x00\x03new\x80\x00\x01\x11p\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\
        \x00";

    fn taken(bytes: &[u8], version: u32) -> Result<StreamValue, Refused> {
        let mut input = Input::new(bytes, 1 << 20);
        let stream = StreamValue::take(&mut input, version)?;
        match input.is_empty() {
            true => Ok(stream),
            false => Err(Refused::Damaged),
        }
    }

    #[test]
    fn a_stream_of_redis_is_read() {
        let stream = taken(OF_REDIS, 2).unwrap();
        let ids: Vec<StreamId> = stream.entries.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [StreamId::new(5, 2), StreamId::new(70_000, 0)]);
        assert_eq!(strings_of(&stream.entries[0].1), [b"f", &b"-300"[..]]);
        assert_eq!(strings_of(&stream.entries[1].1), [b"g", b"1", b"h", b"y"]);
        assert_eq!(
            (stream.last, stream.max_deleted),
            (ids[1], StreamId::new(5, 1))
        );
        assert_eq!(stream.added, 3);
        let [all, new] = &stream.groups[..] else {
            panic!("there are two");
        };
        assert_eq!(
            (&all.row.name[..], all.row.last, all.row.read),
            (&b"all"[..], ids[0], 2)
        );
        assert_eq!((all.row.pending, all.row.consumers), (1, 2));
        let numbers: Vec<u64> = all.consumers.iter().map(|of| of.number).collect();
        assert_eq!(
            (all.row.number, &numbers[..], new.row.number),
            (1, &[2, 3][..], 4)
        );
        let pending = PendingRow {
            consumer: 2,
            delivered: 1_796_057_361_351,
            times: 1,
        };
        assert_eq!(all.pending, [(ids[0], pending)]);
        assert_eq!(
            (new.row.read, new.row.last, new.row.pending),
            (-1, ids[1], 0)
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let mut stream = taken(OF_REDIS, 2).unwrap();
        // Many listpacks, with entries of the same and of other fields, far from each other.
        for number in 0..1_000_u64 {
            let id = StreamId::new(1 << 40 | number << (number % 20), number);
            let long = vec![b'x'; usize::try_from(number % 7 * 900).unwrap()];
            let pairs: [&[u8]; 4] = [b"field", b"12", &long[..long.len().min(3)], &long];
            let mut row = Vec::new();
            packed::encode((Encoding::Stream, Form::Plain), pairs.into_iter(), &mut row);
            stream.entries.push((id, row));
        }
        stream.entries.sort_unstable();
        stream.last = StreamId::MAX;
        let mut out = Vec::new();
        stream.put(&mut out);
        let mut input = Input::new(&out, 1 << 24);
        assert_eq!(StreamValue::take(&mut input, 2), Ok(stream));
        assert!(input.is_empty());
    }

    #[test]
    fn the_highest_deleted_id_may_be_above_the_last_one() {
        let mut stream = taken(OF_REDIS, 2).unwrap();
        stream.max_deleted = StreamId::MAX;
        let mut out = Vec::new();
        stream.put(&mut out);
        assert_eq!(taken(&out, 2), Ok(stream));
    }

    #[test]
    fn what_is_cut_or_changed_ends_in_a_result() {
        for end in 0..OF_REDIS.len() {
            assert_eq!(taken(&OF_REDIS[..end], 2), Err(Refused::Damaged), "{end}");
        }
        for bit in 0..OF_REDIS.len() * 8 {
            let mut damaged = OF_REDIS.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            for version in 1..4 {
                if let Ok(stream) = taken(&damaged, version) {
                    let mut out = Vec::new();
                    stream.put(&mut out);
                    assert!(taken(&out, 2).is_ok(), "{bit}");
                }
            }
        }
    }

    /// Redis 7.2 has another time behind the one at which a consumer was seen.
    #[test]
    fn the_time_of_a_consumer_that_later_versions_have_is_read() {
        let mut bytes = OF_REDIS.to_vec();
        for (name, active) in [(b"\x02c1", 77_i64), (b"\x02c2", -1)] {
            let place = bytes.windows(3).position(|three| three == name);
            let behind = place.unwrap() + 3 + 8;
            bytes.splice(behind..behind, active.to_le_bytes());
        }
        let with = taken(&bytes, 3).unwrap();
        let active: Vec<i64> = with.groups[0]
            .consumers
            .iter()
            .map(|of| of.active)
            .collect();
        assert_eq!(active, [77, -1]);
        assert_eq!(taken(&bytes, 2), Err(Refused::Damaged));
        let without = taken(OF_REDIS, 2).unwrap();
        let seen = |stream: &StreamValue| stream.groups[0].consumers[0].seen;
        assert_eq!(seen(&with), seen(&without));
        assert_eq!(
            without.groups[0].consumers[0].active,
            seen(&without).cast_signed()
        );
    }

    #[test]
    fn entries_have_ascending_ids() {
        // How far 70000-0 is behind 5-1; 5-2 is 0 and 1.
        let behind = b"\xf2k\x11\x01\x04\xdf\xff\x02";
        let place = OF_REDIS.windows(8).position(|eight| eight == behind);
        let with = |behind: [u8; 4]| {
            let mut bytes = OF_REDIS.to_vec();
            let place = place.unwrap();
            bytes.splice(place..place + 8, behind);
            // The listpack, whose length is there twice, is shorter now.
            (bytes[19], bytes[20]) = (0x3d, 0x3d);
            taken(&bytes, 2)
        };
        assert!(with(*b"\0\x01\x02\x01").is_ok(), "it is 5-3");
        assert_eq!(with(*b"\0\x01\x01\x01"), Err(Refused::Damaged), "5-2 again");
        assert_eq!(with(*b"\0\x01\0\x01"), Err(Refused::Damaged), "5-1");
    }

    #[test]
    fn a_pending_entry_has_one_consumer() {
        let owned = OF_REDIS.len() - 70;
        // The consumer names another entry.
        let place = OF_REDIS
            .windows(3)
            .rposition(|bytes| bytes == b"\x05\0\0")
            .unwrap();
        assert!(place > owned, "it is that of the consumer");
        let mut damaged = OF_REDIS.to_vec();
        damaged[place] = 6;
        assert_eq!(taken(&damaged, 2), Err(Refused::Damaged));
    }
}
