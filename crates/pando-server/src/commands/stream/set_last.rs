//! XSETID.

use super::arguments::id;
use super::writing;
use crate::context::{Command, Context, Flags, Run, replies};
use crate::data::stream_id::StreamId;
use crate::notifications::classes::Class;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    complexity: "O(1)",
    summary: "An internal command for replicating stream values.",
    ..writing("xsetid", -3, set_last)
}];

/// What is set besides the last ID.
#[derive(Default)]
struct Options {
    added: Option<u64>,
    max_deleted: StreamId,
}

impl Options {
    fn parse(context: &Context<'_>, last: StreamId) -> Result<Self, &'static str> {
        let mut options = Self::default();
        let mut at = 3;
        while at < context.count() {
            if at + 1 < context.count() && context.is(at, "entriesadded") {
                let added = u64::try_from(context.integer_at(at + 1)?);
                options.added = Some(added.map_err(|_| "ERR entries_added must be positive")?);
            } else if at + 1 < context.count() && context.is(at, "maxdeletedid") {
                options.max_deleted = id(context.argument(at + 1), 0)?;
                if last < options.max_deleted {
                    return Err(
                        "ERR The ID specified in XSETID is smaller than the provided \
                                max_deleted_entry_id",
                    );
                }
            } else {
                return Err(replies::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }
}

fn set_last(context: &mut Context<'_>) -> Run {
    let last = id(context.argument(2), 0)?;
    let options = Options::parse(context, last)?;
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    if !stream.exists() {
        return context.fail(replies::NO_SUCH_KEY);
    }
    if last < stream.head.max_deleted {
        return context
            .fail("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
    }
    if let Some(top) = context.edge(&stream, StreamId::ZERO, true)? {
        if last < top {
            return context
                .fail("ERR The ID specified in XSETID is smaller than the target stream top item");
        }
        if options
            .added
            .is_some_and(|added| added < stream.head.length)
        {
            return context.fail(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            );
        }
    }
    stream.head.last = last;
    stream.head.added = options.added.unwrap_or(stream.head.added);
    if options.max_deleted != StreamId::ZERO {
        stream.head.max_deleted = options.max_deleted;
    }
    context.put_awaited_group(key, stream)?;
    context.event(Class::Stream, "xsetid", key);
    context.ok()
}
