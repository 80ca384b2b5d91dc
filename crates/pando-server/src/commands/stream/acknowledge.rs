//! XACK.

use std::collections::BTreeSet;

use super::arguments::id;
use super::groups::{OpenGroup, find_group, pending_at};
use super::writing;
use crate::context::{Command, Context, Flags, Run};
use crate::data::stream_id::StreamId;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    flags: Flags::WRITE.and(Flags::FAST),
    complexity: "O(1) for each message ID processed.",
    summary: "Returns the number of messages that were successfully acknowledged by the consumer \
              group member of a stream.",
    ..writing("xack", -4, acknowledge)
}];

fn acknowledge(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let mut stream = context.read_stream(key)?;
    let Some(group) = find_group(context, &stream, context.argument(2))? else {
        return context.integer(0);
    };
    let ids = (3..context.count()).map(|at| id(context.argument(at), 0));
    let ids = ids.collect::<Result<Vec<StreamId>, _>>()?;
    let mut group = OpenGroup::new(group);
    let mut count = 0_i64;
    let rows = pending_at(context, &stream, (group.row.number, &ids))?;
    let (is_only, mut seen) = (ids.len() == 1, BTreeSet::new());
    for (id, row) in ids.into_iter().zip(rows) {
        if let Some(row) = row
            && (is_only || seen.insert(id))
        {
            group.remove_pending(context, &mut stream, (id, row.consumer))?;
            count += 1;
        }
    }
    if count > 0 {
        group.put(context, &mut stream)?;
        context.put_group(key, stream)?;
    }
    context.integer(count)
}
