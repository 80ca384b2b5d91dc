//! XRANGE and XREVRANGE.

use super::arguments::{count_at, end_at, start_at};
use super::{reading, reply_entries};
use crate::context::{Command, Context, Run, replies};

const COMPLEXITY: &str = "O(N) with N being the number of elements being returned. If N is constant \
                          (e.g. always asking for the first 10 elements with COUNT), you can \
                          consider it O(1).";

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command {
        complexity: COMPLEXITY,
        summary: "Returns the messages from a stream within a range of IDs.",
        ..reading("xrange", -4, |context| range(context, false))
    },
    Command {
        complexity: COMPLEXITY,
        summary: "Returns the messages from a stream within a range of IDs in reverse order.",
        ..reading("xrevrange", -4, |context| range(context, true))
    },
];

fn range(context: &mut Context<'_>, is_backwards: bool) -> Run {
    let (from_at, to_at) = if is_backwards { (3, 2) } else { (2, 3) };
    let (from, to) = (start_at(context, from_at)?, end_at(context, to_at)?);
    let mut count = None;
    let mut at = 4;
    while at < context.count() {
        if !context.is(at, "count") || at + 1 == context.count() {
            return context.fail(replies::SYNTAX);
        }
        count = Some(count_at(context, at + 1)?);
        at += 2;
    }
    let stream = context.read_stream(context.argument(1))?;
    if stream.exists() && count == Some(0) {
        context.reply().null_array();
        return Ok(());
    }
    let rows = context.entries(
        &stream,
        (from, to),
        count.unwrap_or(usize::MAX),
        is_backwards,
    )?;
    reply_entries(context, &rows, is_backwards)
}
