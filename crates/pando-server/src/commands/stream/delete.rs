//! XDEL.

use std::collections::BTreeSet;

use super::arguments::id;
use super::writing;
use crate::context::{Command, Context, Flags, Interrupted, Run};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::entry_key;
use crate::notifications::classes::Class;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    flags: Flags::WRITE.and(Flags::FAST),
    complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
    summary: "Returns the number of messages after removing them from a stream.",
    ..writing("xdel", -3, delete)
}];

fn delete(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    if !stream.exists() {
        return context.integer(0);
    }
    let ids = (2..context.count()).map(|at| id(context.argument(at), 0));
    let ids = ids.collect::<Result<Vec<StreamId>, _>>()?;
    let are_there = context.has_entries(&stream, &ids)?;
    let mut seen = BTreeSet::new();
    let mut deleted = 0_i64;
    for (id, is_there) in ids.into_iter().zip(are_there) {
        if !is_there || !seen.insert(id) {
            continue;
        }
        let row = entry_key(stream.head.id, id);
        context.delete_stream_row(&mut stream, &row)?;
        let left = stream.head.length.checked_sub(1);
        stream.head.length = left.ok_or(Interrupted::Torn)?;
        stream.head.max_deleted = stream.head.max_deleted.max(id);
        deleted += 1;
    }
    if deleted == 0 {
        return context.integer(0);
    }
    // The transaction sees what it has deleted.
    let first = context.edge(&stream, stream.head.first, false)?;
    stream.head.first = first.unwrap_or(StreamId::ZERO);
    context.put_unawaited_stream(key, stream)?;
    context.event(Class::Stream, "xdel", key);
    context.integer(deleted)
}
