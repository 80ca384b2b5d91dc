//! Removes expired fields of a hash for the cleaner, a bounded number at a time.

use std::ops::Bound;

use pandodb::Table;
use pandodb::nonblocking::{Polled, ScanPage, ValidatedBatch};

use super::deadlines;
use super::elements::{self, Kind};
use super::engine::Database;
use super::keyspace::{FieldTimes, Row, has_ended};
use super::packed::Encoding;
use super::tree_head::TreeHead;

/// What is left of a hash.
pub(crate) struct Rest {
    pub(crate) payload: Vec<u8>,
    pub(crate) fields: Option<FieldTimes>,
    /// Number of fields that were removed.
    pub(crate) removed: usize,
}

/// Removes at most `most` expired fields of the hash in the row `value` if it is large, else all.
/// At least one field that lives is left. `None`: the row is damaged, and stays.
///
/// # Errors
/// Those of the engine.
pub(crate) fn remove_expired(
    database: &Database,
    batch: &mut ValidatedBatch,
    (row, value): (&Row, &[u8]),
    (now_ms, most): (u64, usize),
) -> pandodb::Result<Polled<Option<Rest>>> {
    let payload = &value[row.payload..];
    let Ok(encoding) = Encoding::of_payload(payload) else {
        return Ok(Polled::Ready(None));
    };
    if !TreeHead::is_of(payload) {
        return Ok(Polled::Ready(of_packed(payload, encoding, now_ms)));
    }
    let (Ok(head), Some(times), Some(members)) = (
        TreeHead::decode(payload),
        row.times().fields,
        database.members.table(),
    ) else {
        return Ok(Polled::Ready(None));
    };
    let (due, first) = match scan_due(members, batch, head.id, (now_ms, most))? {
        Polled::Ready(Some(scanned)) => scanned,
        Polled::Ready(None) => return Ok(Polled::Ready(None)),
        Polled::Pending(pending) => return Ok(Polled::Pending(pending)),
    };
    let gone = due.len() as u64;
    let (Some(count), Some(timed)) = (head.count.checked_sub(gone), head.timed.checked_sub(gone))
    else {
        return Ok(Polled::Ready(None));
    };
    if count == 0 || first.is_some() != (timed > 0) {
        return Ok(Polled::Ready(None));
    }
    for (time, name) in &due {
        batch.delete(members, time);
        batch.delete(members, name);
    }
    let head = TreeHead {
        count,
        timed,
        edition: fastrand::u64(..),
        ..head
    };
    let mut payload = Vec::new();
    head.encode(encoding, &mut payload);
    let last = times.last;
    let fields = first.map(|first| FieldTimes { first, last });
    let removed = due.len();
    Ok(Polled::Ready(Some(Rest {
        payload,
        fields,
        removed,
    })))
}

/// Keys of the two rows of each expired field, and the time of the first one behind them.
type Due = (Vec<(Vec<u8>, Vec<u8>)>, Option<u64>);

/// Returns at most `most` fields of the large hash `id` that have expired. `None`: it is damaged.
fn scan_due(
    members: &Table,
    batch: &mut ValidatedBatch,
    id: u64,
    (now_ms, most): (u64, usize),
) -> pandodb::Result<Polled<Option<Due>>> {
    let prefix = elements::start(id, Kind::Time);
    let end = elements::behind(id, Kind::Time);
    let mut due = Vec::new();
    let mut from = prefix.to_vec();
    let mut page = ScanPage::default();
    loop {
        let range = (Bound::Included(&from[..]), Bound::Excluded(&end[..]));
        if let Polled::Pending(pending) = batch.scan(members, range, most, &mut page)? {
            return Ok(Polled::Pending(pending));
        }
        for index in 0..page.len() {
            let (key, row) = page.entry(index);
            if !key.starts_with(&prefix) {
                return Ok(Polled::Ready(Some((due, None))));
            }
            let time = elements::time_of(key);
            if !has_ended(time, now_ms) || due.len() == most {
                return Ok(Polled::Ready(Some((due, Some(time)))));
            }
            let Some(row) = row else {
                return Ok(Polled::Ready(None));
            };
            let tail = elements::tail_of_time(row, members.is_weighted());
            due.push((key.to_vec(), elements::name_key(id, tail)));
        }
        match page.next.take() {
            Some(next) => from = next,
            None => return Ok(Polled::Ready(Some((due, None)))),
        }
    }
}

fn of_packed(payload: &[u8], encoding: Encoding, now_ms: u64) -> Option<Rest> {
    let (mut strings, mut deadlines) = deadlines::decode(payload).ok()?;
    let before = strings.len();
    deadlines.drop_expired(&mut strings, now_ms);
    if strings.len() == 0 {
        return None;
    }
    let mut payload = Vec::new();
    let fields = deadlines::encode((&strings, &deadlines), encoding, &mut payload);
    Some(Rest {
        payload,
        fields,
        removed: (before - strings.len()) / 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::engine::Engine;
    use crate::data::keyspace::{Expiry, Times, ValueType, encode};
    use pandodb::Db;

    const DEADLINE: u64 = 5;

    /// Writes a field of the large hash 7.
    fn put(engine: &Engine, members: &Table, name: &[u8], deadline: Option<u64>) {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        engine.element_keys.name(7, name, &mut key);
        engine.element_keys.value(name, (b"v", deadline), &mut row);
        members.put(&key, &row).unwrap();
        if let Some(deadline) = deadline {
            let tail = elements::name_tail(&key).to_vec();
            engine.element_keys.time(7, deadline, name, &mut key);
            elements::time_row(&tail, members.is_weighted(), &mut row);
            members.put(&key, &row).unwrap();
        }
    }

    /// Returns the row of a hash with this payload.
    fn row_of(payload: &[u8], fields: Option<FieldTimes>) -> Vec<u8> {
        let mut value = Vec::new();
        let deadline = None;
        let expiry = fields.map(|fields| Expiry {
            times: Times {
                deadline,
                fields: Some(fields),
            },
            entry: fields.first,
        });
        encode(&mut value, ValueType::Hash, None, expiry, payload);
        value
    }

    #[test]
    fn a_batch_removes_no_more_than_it_may() {
        let db = Db::builder()
            .max_memory(16 << 20)
            .open_in_memory()
            .expect("a store in memory");
        let engine = Engine::new(db).expect("the tables are made");
        let database = &engine.databases[0];
        database
            .members
            .make(&engine.db)
            .expect("the table is made");
        let members = database.members.table().expect("it was made");
        for number in 0..300 {
            let name = format!("gone{number}");
            put(&engine, members, name.as_bytes(), Some(DEADLINE));
        }
        put(&engine, members, b"later", Some(20));
        put(&engine, members, b"lives", None);
        let head = TreeHead {
            count: 302,
            timed: 301,
            ..TreeHead::new(7)
        };
        let (mut payload, last) = (Vec::new(), u64::MAX);
        head.encode(Encoding::Hashtable, &mut payload);
        let mut fields = Some(FieldTimes {
            first: DEADLINE,
            last,
        });
        let mut batch = ValidatedBatch::new(&engine.db);
        // The rest is removed, and then nothing but what lives is there.
        for (removed, left, first) in [(256, 46, DEADLINE), (44, 2, 20)] {
            let value = row_of(&payload, fields);
            let row = Row::decode(b"\0h", &value).unwrap();
            let rest = remove_expired(database, &mut batch, (&row, &value), (10, 256)).unwrap();
            let Polled::Ready(Some(rest)) = rest else {
                panic!("all is in memory");
            };
            let head = TreeHead::decode(&rest.payload).unwrap();
            assert_eq!((rest.removed, head.count), (removed, left));
            assert_eq!(head.timed, left - 1);
            assert_eq!(rest.fields, Some(FieldTimes { first, last }));
            (payload, fields) = (rest.payload, rest.fields);
        }
    }
}
