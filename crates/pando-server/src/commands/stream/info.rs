//! XINFO: what is known of streams, groups and consumers.

use pando_resp::Writer;

use super::description::{reply_head, reply_progress};
use super::groups::{consumers_of, find_group, groups_of};
use super::info_full::full;
use super::{help, reading, reply_count, reply_entry, reply_id, text_of};
use crate::context::{
    Command, Context, Flags, Group, Interrupted, Keys, Rows, Run, Stream, replies,
};
use crate::data::keyspace::RowError;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::PendingRow;

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        keys: Keys::SECOND,
        complexity: "O(1)",
        summary,
        ..reading(name, arity, run)
    }
}

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    group: Group::Stream,
    since: "5.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for stream introspection commands.",
    subcommands: &[
        sub(
            "consumers",
            4,
            consumers,
            "Returns a list of the consumers in a consumer group.",
        ),
        sub(
            "groups",
            3,
            groups,
            "Returns a list of the consumer groups of a stream.",
        ),
        Command {
            flags: Flags::LOADING,
            group: Group::Stream,
            since: "5.0.0",
            complexity: "O(1)",
            summary: "Returns helpful text about the different subcommands.",
            ..Command::new("help", 2, help::of_information)
        },
        sub("stream", -3, stream, "Returns information about a stream."),
    ],
    ..Command::new("xinfo", -2, help::of_information)
}];

/// Reads the stream at the second argument, which must exist.
fn read_stream(context: &mut Context<'_>) -> Result<Stream, Interrupted> {
    let stream = context.read_stream(context.argument(2))?;
    match stream.exists() {
        true => Ok(stream),
        false => Err(replies::NO_SUCH_KEY.into()),
    }
}

fn consumers(context: &mut Context<'_>) -> Run {
    let stream = read_stream(context)?;
    let (key, name) = (context.argument(2), context.argument(3));
    let Some(group) = find_group(context, &stream, name)? else {
        let (name, key) = (text_of(name), text_of(key));
        let text = format!("NOGROUP No such consumer group '{name}' for key name '{key}'");
        return Err(text.into());
    };
    let consumers = consumers_of(context, &stream, group.number)?;
    let now_ms = context.now_ms;
    context.reply().array(consumers.len());
    for consumer in consumers {
        let idle = |since: i64| {
            let row = PendingRow {
                consumer: consumer.number,
                delivered: since,
                times: 0,
            };
            row.idle(now_ms).max(0)
        };
        let mut reply = context.reply();
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(&consumer.name);
        reply.bulk(b"pending");
        reply_count(&mut reply, consumer.pending);
        reply.bulk(b"idle");
        reply.integer(idle(i64::try_from(consumer.seen).unwrap_or(i64::MAX)));
        reply.bulk(b"inactive");
        reply.integer(match consumer.active {
            -1 => -1,
            since => idle(since),
        });
        context.check_reply()?;
    }
    Ok(())
}

fn groups(context: &mut Context<'_>) -> Run {
    let stream = read_stream(context)?;
    let groups = groups_of(context, &stream)?;
    context.reply().array(groups.len());
    for group in groups {
        let mut reply = context.reply();
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(&group.name);
        reply.bulk(b"consumers");
        reply_count(&mut reply, group.consumers);
        reply.bulk(b"pending");
        reply_count(&mut reply, group.pending);
        reply.bulk(b"last-delivered-id");
        reply_id(&mut reply, group.last);
        reply_progress(&mut reply, &stream, &group);
        context.check_reply()?;
    }
    Ok(())
}

fn stream(context: &mut Context<'_>) -> Run {
    let count = context.count();
    let is_full = count > 3;
    let mut most = 10;
    let is_form = match count {
        3 => true,
        4 => context.is(3, "full"),
        6 => context.is(3, "full") && context.is(4, "count"),
        _ => false,
    };
    // As in Redis, the key is looked at first.
    let stream = read_stream(context)?;
    if !is_form {
        return Err(help::wrong_arguments(context, "XINFO").into());
    }
    if count == 6 {
        most = usize::try_from(context.integer_at(5)?).unwrap_or(most);
    }
    if is_full {
        return full(context, &stream, most);
    }
    let all = (StreamId::ZERO, StreamId::MAX);
    let first = context.entries(&stream, all, 1, false)?;
    let last = context.entries(&stream, all, 1, true)?;
    let mut reply = context.reply();
    reply.map(10);
    reply_head(&mut reply, &stream);
    reply.bulk(b"groups");
    reply_count(&mut reply, stream.head.groups);
    reply.bulk(b"first-entry");
    reply_edge(&mut reply, &first)?;
    reply.bulk(b"last-entry");
    reply_edge(&mut reply, &last)?;
    context.check_reply()
}

fn reply_edge(reply: &mut Writer<'_>, rows: &Rows) -> Result<(), RowError> {
    match rows.len() {
        0 => {
            reply.null();
            Ok(())
        }
        _ => reply_entry(reply, rows.id(0)?, rows.value(0)),
    }
}
