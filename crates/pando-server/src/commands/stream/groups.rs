//! The rows of consumer groups: who has which entry, and how many.

use std::collections::BTreeMap;

use crate::context::{Context, Interrupted, Rows, Run, Stream, Wanted};
use crate::data::elements::{Kind, behind, start};
use crate::data::keyspace::RowError;
use crate::data::stream_id::{ID_BYTES, StreamId};
use crate::data::stream_rows::{
    CONSUMER_BYTES, ConsumerRow, GroupRow, PendingFilter, PendingRow, consumer_key,
    consumer_name_value, decode_consumer_name, owned_key, pending_key,
};

/// The event of a stream whose group gets a consumer.
pub(super) const CREATED_CONSUMER: &str = "xgroup-createconsumer";

/// Returns the group called `name`.
pub(super) fn find_group(
    context: &mut Context<'_>,
    stream: &Stream,
    name: &[u8],
) -> Result<Option<GroupRow>, Interrupted> {
    if stream.head.groups == 0 {
        return Ok(None);
    }
    let key = context.engine().element_keys.group(stream.head.id, name);
    context.stream_row(&key, |row| {
        let group = GroupRow::decode(row)?;
        match group.name == name {
            true => Ok(group),
            false => Err(RowError::OtherKey),
        }
    })
}

/// Writes the row of a group.
pub(super) fn put_group(context: &mut Context<'_>, stream: &mut Stream, group: &GroupRow) -> Run {
    let keys = context.engine().element_keys;
    let key = keys.group(stream.head.id, &group.name);
    put_encoded(context, stream, &key, |row| group.encode(row))
}

/// Writes the row that `encode` makes, in the loop's buffer.
fn put_encoded(
    context: &mut Context<'_>,
    stream: &mut Stream,
    key: &[u8],
    encode: impl FnOnce(&mut Vec<u8>),
) -> Run {
    let mut row = std::mem::take(&mut context.data().scratch.element_row);
    encode(&mut row);
    let put = context.put_stream_row(stream, key, &row);
    context.data().scratch.element_row = row;
    put
}

/// Returns all groups, in the order of their names.
pub(super) fn groups_of(
    context: &mut Context<'_>,
    stream: &Stream,
) -> Result<Vec<GroupRow>, Interrupted> {
    if stream.head.groups == 0 {
        return Ok(Vec::new());
    }
    let from = start(stream.head.id, Kind::Group).to_vec();
    // A name may have any bytes.
    let to = behind(stream.head.id, Kind::Group).to_vec();
    let rows = all(context, stream, (Kind::Group, from, to))?;
    let groups = (0..rows.len()).map(|place| GroupRow::decode(rows.value(place)));
    Ok(groups.collect::<Result<_, _>>()?)
}

fn all(
    context: &mut Context<'_>,
    stream: &Stream,
    (kind, from, to): (Kind, Vec<u8>, Vec<u8>),
) -> Result<Rows, Interrupted> {
    context.stream_rows(stream, Wanted::all(kind, from, to))
}

/// As [`all`], but reads their keys alone.
fn all_keys(
    context: &mut Context<'_>,
    stream: &Stream,
    (kind, from, to): (Kind, Vec<u8>, Vec<u8>),
) -> Result<Rows, Interrupted> {
    let wanted = Wanted {
        has_values: false,
        ..Wanted::all(kind, from, to)
    };
    context.stream_rows(stream, wanted)
}

/// Returns the consumer with this number.
pub(super) fn consumer(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, number): (u64, u64),
) -> Result<ConsumerRow, Interrupted> {
    let key = consumer_key(stream.head.id, group, number);
    let row = context.stream_row(&key, |row| ConsumerRow::decode(number, row))?;
    row.ok_or(Interrupted::Torn)
}

/// Returns the consumer called `name`.
pub(super) fn find_consumer(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, name): (u64, &[u8]),
) -> Result<Option<ConsumerRow>, Interrupted> {
    let keys = context.engine().element_keys;
    let key = keys.consumer_name(stream.head.id, group, name);
    let number = context.stream_row(&key, |row| match decode_consumer_name(row)? {
        (number, whole) if whole == name => Ok(number),
        _ => Err(RowError::OtherKey),
    })?;
    let found = number.map(|number| consumer(context, stream, (group, number)));
    found.transpose()
}

/// Returns the consumers of a group, in the order of their names.
pub(super) fn consumers_of(
    context: &mut Context<'_>,
    stream: &Stream,
    group: u64,
) -> Result<Vec<ConsumerRow>, Interrupted> {
    let rows = names_of(context, stream, group)?;
    let mut numbers = Vec::new();
    for place in 0..rows.len() {
        if !rows.key(place).starts_with(&group.to_be_bytes()) {
            break;
        }
        numbers.push(decode_consumer_name(rows.value(place))?.0);
    }
    let id = stream.head.id;
    let keys = numbers
        .iter()
        .map(|number| consumer_key(id, group, *number));
    let rows = context.stream_rows_at(keys)?;
    let mut consumers = Vec::with_capacity(numbers.len());
    for (number, row) in numbers.into_iter().zip(rows) {
        consumers.push(ConsumerRow::decode(number, &row.ok_or(Interrupted::Torn)?)?);
    }
    Ok(consumers)
}

/// Returns the rows that have the names of the consumers of a group; the last one may be of another
/// group.
fn names_of(context: &mut Context<'_>, stream: &Stream, group: u64) -> Result<Rows, Interrupted> {
    let keys = context.engine().element_keys;
    let from = keys.consumer_name(stream.head.id, group, b"");
    let to = keys.consumer_name(stream.head.id, group + 1, b"");
    all(context, stream, (Kind::ConsumerName, from, to))
}

/// Returns at most `count` entries between two IDs that are pending in a group; by consumer if one
/// is given, and then without values.
pub(super) fn pending_rows(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, consumer): (u64, Option<u64>),
    (from, to): (StreamId, StreamId),
    count: usize,
) -> Result<Rows, Interrupted> {
    let id = stream.head.id;
    let key = |at| match consumer {
        None => pending_key(id, group, at).to_vec(),
        Some(consumer) => owned_key(id, (group, consumer), at).to_vec(),
    };
    let kind = match consumer {
        None => Kind::Pending,
        Some(_) => Kind::Owned,
    };
    let wanted = Wanted {
        count: if from > to { 0 } else { count },
        has_values: consumer.is_none(),
        ..Wanted::all(kind, key(from), key(to))
    };
    context.stream_rows(stream, wanted)
}

/// Returns what is known of the entries with these IDs, as far as they are pending.
pub(super) fn pending_at(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, ids): (u64, &[StreamId]),
) -> Result<Vec<Option<PendingRow>>, Interrupted> {
    let of = stream.head.id;
    let keys = ids.iter().map(|id| pending_key(of, group, *id));
    context.decoded_rows_at(keys, PendingRow::decode)
}

/// Returns those of the entries between two IDs that are pending in a group and pass the filter, at
/// most `count`.
pub(super) fn filtered_rows(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, filter): (u64, PendingFilter),
    ((from, to), count): ((StreamId, StreamId), usize),
) -> Result<Rows, Interrupted> {
    let key = |at| pending_key(stream.head.id, group, at).to_vec();
    let wanted = Wanted {
        count: if from > to { 0 } else { count },
        pending: Some(filter),
        ..Wanted::all(Kind::Pending, key(from), key(to))
    };
    context.stream_rows(stream, wanted)
}

/// Returns the last entry that is pending in a group, which has one.
pub(super) fn last_pending(
    context: &mut Context<'_>,
    stream: &Stream,
    group: u64,
) -> Result<StreamId, Interrupted> {
    let key = |at| pending_key(stream.head.id, group, at).to_vec();
    let wanted = Wanted {
        count: 1,
        is_backwards: true,
        has_values: false,
        ..Wanted::all(Kind::Pending, key(StreamId::ZERO), key(StreamId::MAX))
    };
    let rows = context.stream_rows(stream, wanted)?;
    match rows.len() {
        0 => Err(Interrupted::Torn),
        _ => Ok(rows.id(0)?),
    }
}

/// Returns what is known of an entry if it is pending.
pub(super) fn pending(
    context: &mut Context<'_>,
    stream: &Stream,
    (group, id): (u64, StreamId),
) -> Result<Option<PendingRow>, Interrupted> {
    context.stream_row(&pending_key(stream.head.id, group, id), PendingRow::decode)
}

/// Refuses the name of a consumer that is too long for its rows.
pub(super) fn check_consumer(context: &Context<'_>, name: &[u8]) -> Run {
    context.check_row("a consumer", CONSUMER_BYTES + name.len())
}

fn less(count: u64) -> Result<u64, Interrupted> {
    count.checked_sub(1).ok_or(Interrupted::Torn)
}

/// A group that is changed, with those of its consumers that have changed.
pub(super) struct OpenGroup {
    pub(super) row: GroupRow,
    consumers: BTreeMap<u64, ConsumerRow>,
}

impl OpenGroup {
    pub(super) fn new(row: GroupRow) -> Self {
        Self {
            row,
            consumers: BTreeMap::new(),
        }
    }

    /// Returns the consumer with this number, to be changed.
    pub(super) fn consumer(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        number: u64,
    ) -> Result<&mut ConsumerRow, Interrupted> {
        if !self.consumers.contains_key(&number) {
            let found = consumer(context, stream, (self.row.number, number))?;
            self.consumers.insert(number, found);
        }
        self.consumers.get_mut(&number).ok_or(Interrupted::Torn)
    }

    /// Returns the number of the consumer called `name`, and whether it is new.
    pub(super) fn find_or_create(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        name: &[u8],
    ) -> Result<(u64, bool), Interrupted> {
        let group = self.row.number;
        let found = find_consumer(context, stream, (group, name))?;
        let is_new = found.is_none();
        let consumer = match found {
            Some(consumer) => consumer,
            None => {
                let number = stream.head.next_number;
                stream.head.next_number += 1;
                self.row.consumers += 1;
                let keys = context.engine().element_keys;
                let key = keys.consumer_name(stream.head.id, group, name);
                context.put_stream_row(stream, &key, &consumer_name_value(number, name))?;
                ConsumerRow {
                    number,
                    seen: 0,
                    active: -1,
                    pending: 0,
                    name: name.to_vec(),
                }
            }
        };
        let number = consumer.number;
        let seen = context.now_ms;
        self.consumers
            .insert(number, ConsumerRow { seen, ..consumer });
        Ok((number, is_new))
    }

    /// Writes a pending entry; it was one of another consumer before, or of none.
    pub(super) fn put_pending(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        (id, old, new): (StreamId, Option<u64>, PendingRow),
    ) -> Run {
        let (of, group) = (stream.head.id, self.row.number);
        context.put_stream_row(stream, &pending_key(of, group, id), &new.encode())?;
        if old == Some(new.consumer) {
            return Ok(());
        }
        match old {
            Some(old) => self.disown(context, stream, (old, id))?,
            None => self.row.pending += 1,
        }
        self.consumer(context, stream, new.consumer)?.pending += 1;
        context.put_stream_row(stream, &owned_key(of, (group, new.consumer), id), &[])
    }

    /// An entry is pending no longer.
    pub(super) fn remove_pending(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        (id, consumer): (StreamId, u64),
    ) -> Run {
        let key = pending_key(stream.head.id, self.row.number, id);
        context.delete_stream_row(stream, &key)?;
        self.row.pending = less(self.row.pending)?;
        self.disown(context, stream, (consumer, id))
    }

    fn disown(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        (number, id): (u64, StreamId),
    ) -> Run {
        let consumer = self.consumer(context, stream, number)?;
        consumer.pending = less(consumer.pending)?;
        let key = owned_key(stream.head.id, (self.row.number, number), id);
        context.delete_stream_row(stream, &key)
    }

    /// Removes a consumer with all that is pending for it; returns how many entries that were.
    pub(super) fn remove_consumer(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
        consumer: &ConsumerRow,
    ) -> Result<u64, Interrupted> {
        let (of, group) = (stream.head.id, self.row.number);
        let range = (StreamId::ZERO, StreamId::MAX);
        let owner = (group, Some(consumer.number));
        let rows = pending_rows(context, stream, owner, range, usize::MAX)?;
        for place in 0..rows.len() {
            let id = rows.id(place)?;
            self.remove_pending(context, stream, (id, consumer.number))?;
        }
        self.consumers.remove(&consumer.number);
        let keys = context.engine().element_keys;
        let name = keys.consumer_name(of, group, &consumer.name);
        context.delete_stream_row(stream, &name)?;
        context.delete_stream_row(stream, &consumer_key(of, group, consumer.number))?;
        self.row.consumers = less(self.row.consumers)?;
        Ok(rows.len() as u64)
    }

    /// Writes the group and its consumers that have changed.
    pub(super) fn put(self, context: &mut Context<'_>, stream: &mut Stream) -> Run {
        put_group(context, stream, &self.row)?;
        for (number, consumer) in &self.consumers {
            let key = consumer_key(stream.head.id, self.row.number, *number);
            put_encoded(context, stream, &key, |row| consumer.encode(row))?;
        }
        Ok(())
    }
}

/// Deletes all rows of a group.
pub(super) fn remove_group(
    context: &mut Context<'_>,
    stream: &mut Stream,
    group: &GroupRow,
) -> Run {
    let (of, number) = (stream.head.id, group.number);
    let mut keys = vec![context.engine().element_keys.group(of, &group.name)];
    let names = names_of(context, stream, number)?;
    let kinds = [
        (Kind::Pending, ID_BYTES),
        (Kind::Owned, 8 + ID_BYTES),
        (Kind::Consumer, 8),
    ];
    for (kind, rest) in kinds {
        let from = [&start(of, kind)[..], &number.to_be_bytes()].concat();
        let to = [&from[..], &vec![u8::MAX; rest]].concat();
        let rows = all_keys(context, stream, (kind, from, to))?;
        let key = |place| [&start(of, kind)[..], rows.key(place)].concat();
        keys.extend((0..rows.len()).map(key));
    }
    let is_of = |place: &usize| names.key(*place).starts_with(&number.to_be_bytes());
    let key = |place| [&start(of, Kind::ConsumerName)[..], names.key(place)].concat();
    keys.extend((0..names.len()).filter(is_of).map(key));
    for key in keys {
        context.delete_stream_row(stream, &key)?;
    }
    stream.head.groups = less(stream.head.groups)?;
    Ok(())
}
