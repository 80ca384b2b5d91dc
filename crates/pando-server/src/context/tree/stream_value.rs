//! All of a stream in memory, as a payload has it (`dump/stream.rs`).

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};

use crate::context::{Context, Former, Interrupted, Run};
use crate::data::elements::{ElementKeys, Kind};
use crate::data::keyspace::{Row, RowError, ValueType};
use crate::data::new_rows::{MadeRows, NewRows};
use crate::data::stream_head::StreamHead;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{ConsumerRow, GroupRow, PendingRow, consumer_key};
use crate::data::stream_rows::{consumer_name_value, entry_key, id_key, owned_key, pending_key};
use crate::data::tree_head::TreeHead;
use crate::dump::{GroupValue, StreamValue};

/// Rows from which on they are written by a thread, or fewer long ones.
const ROWS_MIN: usize = 512;

/// Takes a key and a value of a row.
type PutRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Run;

/// Returns the two numbers that the key of a consumer ends with: of its group, and its own.
fn numbers_of(key: &[u8]) -> Result<(u64, u64), RowError> {
    let (group, consumer) = key.split_first_chunk().ok_or(RowError::Damaged)?;
    let consumer = consumer.try_into().map_err(|_| RowError::Damaged)?;
    Ok((u64::from_be_bytes(*group), u64::from_be_bytes(consumer)))
}

impl Context<'_> {
    /// Reads all of the stream whose row was read last.
    pub(crate) fn stream_value(&mut self, row: Row) -> Result<StreamValue, Interrupted> {
        let head = StreamHead::decode(self.payload(row))?;
        let mut value = StreamValue {
            last: head.last,
            max_deleted: head.max_deleted,
            added: head.added,
            ..StreamValue::default()
        };
        let entries = self.all_rows(&head, Kind::Entry)?;
        for place in 0..entries.len() {
            let entry = (entries.id(place)?, entries.value(place).to_vec());
            value.entries.push(entry);
        }
        let groups = self.all_rows(&head, Kind::Group)?;
        let mut places = HashMap::new();
        for place in 0..groups.len() {
            let row = GroupRow::decode(groups.value(place))?;
            places.insert(row.number, place);
            value.groups.push(GroupValue {
                row,
                consumers: Vec::new(),
                pending: Vec::new(),
            });
        }
        let group_of = |number: u64| places.get(&number).copied().ok_or(RowError::Damaged);
        let consumers = self.all_rows(&head, Kind::Consumer)?;
        for place in 0..consumers.len() {
            let (group, number) = numbers_of(consumers.key(place))?;
            let row = ConsumerRow::decode(number, consumers.value(place))?;
            value.groups[group_of(group)?].consumers.push(row);
        }
        let pending = self.all_rows(&head, Kind::Pending)?;
        for place in 0..pending.len() {
            let (group, _) = pending
                .key(place)
                .split_first_chunk()
                .ok_or(RowError::Damaged)?;
            let row = PendingRow::decode(pending.value(place))?;
            let entry = (pending.id(place)?, row);
            value.groups[group_of(u64::from_be_bytes(*group))?]
                .pending
                .push(entry);
        }
        Ok(value)
    }

    /// Refuses a stream that has something too long for a row.
    pub(crate) fn check_stream_value(&self, value: &StreamValue) -> Run {
        for (_, row) in &value.entries {
            self.check_row("an entry of a stream", row.len())?;
        }
        for group in &value.groups {
            self.check_row("the name of a group", group.row.name.len())?;
            for consumer in &group.consumers {
                self.check_row("the name of a consumer", consumer.name.len())?;
            }
        }
        Ok(())
    }

    /// Writes it at `key` of the selected database, which has had `former`.
    pub(crate) fn put_stream_value(
        &mut self,
        key: &[u8],
        value: &StreamValue,
        (deadline, former): (Option<u64>, Former),
    ) -> Run {
        let members = self.make_members()?;
        let keys = self.engine().element_keys;
        let is_in_transaction = self.batch()?.transaction().is_some();
        let (mut rows, mut bytes) = (0, 0);
        each_row((&keys, 0), value, &mut |key, row| {
            (rows, bytes) = (rows + 1, bytes + key.len() + row.len());
            Ok(())
        })?;
        let is_long = rows >= ROWS_MIN || self.is_long_batch(rows, bytes);
        let id = if is_in_transaction || !is_long {
            let id = self.database().members.new_id();
            let batch = self.batch()?;
            each_row((&keys, id), value, &mut |key, row| {
                Ok(batch.put(members, key, row)?)
            })?;
            id
        } else {
            let mut hasher = self.progress.builds.hasher();
            value.hash(&mut hasher);
            let identity = (ValueType::Stream, hasher.finish());
            let (head, _) = self.built(members, identity, |_, id| {
                let mut rows = MadeRows::default();
                each_row((&keys, id), value, &mut |key, row| {
                    rows.push(key, row);
                    Ok(())
                })?;
                Ok((TreeHead::new(id), Box::new(rows) as Box<dyn NewRows>))
            })?;
            head.id
        };
        let head = head_of(value, id, self.progress.seed());
        self.wake_readers(key);
        self.note_written(key);
        self.put_stream_head(key, &head, deadline, former)
    }
}

fn head_of(value: &StreamValue, id: u64, edition: u64) -> StreamHead {
    let numbers = value.groups.iter().flat_map(|group| {
        let consumers = group.consumers.iter().map(|consumer| consumer.number);
        consumers.chain([group.row.number])
    });
    StreamHead {
        edition,
        length: value.entries.len() as u64,
        last: value.last,
        first: value.entries.first().map_or(StreamId::ZERO, |(id, _)| *id),
        max_deleted: value.max_deleted,
        added: value.added,
        groups: value.groups.len() as u64,
        next_number: numbers.max().unwrap_or(0) + 1,
        ..StreamHead::new(id)
    }
}

/// Has `put` take all rows of the stream, which gets this id.
fn each_row((keys, id): (&ElementKeys, u64), value: &StreamValue, put: PutRow<'_>) -> Run {
    put(&id_key(id), &[])?;
    for (entry, row) in &value.entries {
        put(&entry_key(id, *entry), row)?;
    }
    value
        .groups
        .iter()
        .try_for_each(|group| rows_of_group((keys, id), group, put))
}

fn rows_of_group((keys, id): (&ElementKeys, u64), group: &GroupValue, put: PutRow<'_>) -> Run {
    let number = group.row.number;
    let mut row = Vec::new();
    group.row.encode(&mut row);
    put(&keys.group(id, &group.row.name), &row)?;
    let mut owned: HashMap<u64, u64> = HashMap::new();
    for (entry, pending) in &group.pending {
        let owner = (number, pending.consumer);
        *owned.entry(pending.consumer).or_default() += 1;
        put(&pending_key(id, number, *entry), &pending.encode())?;
        put(&owned_key(id, owner, *entry), &[])?;
    }
    for consumer in &group.consumers {
        let name = keys.consumer_name(id, number, &consumer.name);
        put(&name, &consumer_name_value(consumer.number, &consumer.name))?;
        let pending = owned.get(&consumer.number).copied().unwrap_or(0);
        let consumer = ConsumerRow {
            pending,
            ..consumer.clone()
        };
        consumer.encode(&mut row);
        put(&consumer_key(id, number, consumer.number), &row)?;
    }
    Ok(())
}
