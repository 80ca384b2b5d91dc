//! When a watched value expires, or a part of it: for WATCH that is a change.

use std::ops::Bound;

use pandodb::Error;
use pandodb::nonblocking::{Polled, Reads};

use crate::client::watches::Watches;
use crate::context::{Interrupted, Run, Scratch};
use crate::data::deadlines;
use crate::data::elements::{self, Kind};
use crate::data::engine::Database;
use crate::data::keyspace::{Row, RowError, ValueType, has_ended};
use crate::data::tree_head::TreeHead;

/// Records when the value of the row whose beginning is in the scratch expires, or a field of it.
/// It lives at `now_ms`. Its watch was registered before it was read.
pub(super) fn note_times(
    database: &Database,
    scratch: &mut Scratch,
    (row, now_ms): (&Row, u64),
    watches: &mut Watches,
) -> Run {
    let times = row.times();
    let field = match times.fields {
        // Fields that have expired already are not there for EXEC, either.
        Some(fields) if has_ended(fields.first, now_ms) => {
            next_deadline(database, scratch, row, now_ms)?
        }
        fields => fields.map(|fields| fields.first),
    };
    let ends = times.deadline.into_iter().chain(field);
    ends.for_each(|end| watches.ends_at(end));
    Ok(())
}

/// Returns the first deadline of a field that has not passed at `now_ms`. What is read here may be
/// of a later state than the row: then the watch has failed, and any answer will do.
fn next_deadline(
    database: &Database,
    scratch: &mut Scratch,
    row: &Row,
    now_ms: u64,
) -> Result<Option<u64>, Interrupted> {
    let payload = &scratch.value[row.payload..];
    if TreeHead::is_of(payload) {
        let head = TreeHead::decode(payload)?;
        return next_of_large(database, scratch, head.id, now_ms);
    }
    // Only its beginning was read.
    scratch.value.clear();
    let read = Reads::of(&database.keys).get(&scratch.stored, &mut scratch.value, &mut None);
    match read {
        Ok(Polled::Ready(true)) => {}
        Ok(Polled::Ready(false)) | Err(Error::InChunks) => return Ok(None),
        Ok(Polled::Pending(pending)) => return Err(Interrupted::Pending(pending)),
        Err(error) => return Err(error.into()),
    }
    let row = Row::decode(&scratch.stored, &scratch.value)?;
    let payload = &scratch.value[row.payload..];
    if row.value_type != ValueType::Hash || TreeHead::is_of(payload) {
        return Ok(None);
    }
    let (_, deadlines) = deadlines::decode(payload)?;
    Ok(deadlines.next(now_ms))
}

/// As [`next_deadline`], of the large hash `id`.
fn next_of_large(
    database: &Database,
    scratch: &mut Scratch,
    id: u64,
    now_ms: u64,
) -> Result<Option<u64>, Interrupted> {
    let members = database.members.table().ok_or(RowError::Damaged)?;
    let prefix = elements::start(id, Kind::Time);
    let mut from = prefix.to_vec();
    from.extend_from_slice(&now_ms.to_be_bytes());
    loop {
        let page = &mut scratch.page;
        if let Polled::Pending(pending) = Reads::of(members).scan(Bound::Included(&from), page)? {
            return Err(Interrupted::Pending(pending));
        }
        if !page.is_empty() {
            let (key, _) = page.entry(0);
            return Ok(key.starts_with(&prefix).then(|| elements::time_of(key)));
        }
        match page.next.take() {
            Some(next) => from = next,
            None => return Ok(None),
        }
    }
}
