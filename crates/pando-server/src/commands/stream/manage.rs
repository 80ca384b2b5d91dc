//! XGROUP: consumer groups and consumers come and go.

use super::arguments::{id, id_or_end};
use super::groups::{
    CREATED_CONSUMER, OpenGroup, check_consumer, find_consumer, find_group, put_group, remove_group,
};
use super::{help, reply_count, text_of, writing};
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{GROUP_BYTES, GroupRow};
use crate::notifications::classes::Class;

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
        ..writing(name, arity, run)
    }
}

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    group: Group::Stream,
    since: "5.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for consumer groups commands.",
    subcommands: &[
        Command {
            flags: Flags::WRITE.and(Flags::DENYOOM),
            ..sub("create", -5, create, "Creates a consumer group.")
        },
        Command {
            since: "6.2.0",
            flags: Flags::WRITE.and(Flags::DENYOOM),
            ..sub(
                "createconsumer",
                5,
                create_consumer,
                "Creates a consumer in a consumer group.",
            )
        },
        sub(
            "delconsumer",
            5,
            delete_consumer,
            "Deletes a consumer from a consumer group.",
        ),
        Command {
            complexity: "O(N) where N is the number of entries in the group's pending entries \
                         list (PEL).",
            ..sub("destroy", 4, destroy, "Destroys a consumer group.")
        },
        Command {
            flags: Flags::LOADING,
            group: Group::Stream,
            since: "5.0.0",
            complexity: "O(1)",
            summary: "Returns helpful text about the different subcommands.",
            ..Command::new("help", 2, help::of_groups)
        },
        sub(
            "setid",
            -5,
            set_last,
            "Sets the last-delivered ID of a consumer group.",
        ),
    ],
    ..Command::new("xgroup", -2, help::of_groups)
}];

/// What a client says behind the ID of a group.
struct Options {
    makes_stream: bool,
    read: i64,
}

impl Options {
    fn parse(context: &Context<'_>, may_make: bool) -> Result<Self, Interrupted> {
        let mut options = Self {
            makes_stream: false,
            read: -1,
        };
        let mut at = 5;
        while at < context.count() {
            if may_make && context.is(at, "mkstream") {
                options.makes_stream = true;
                at += 1;
            } else if context.is(at, "entriesread") && at + 1 < context.count() {
                options.read = context.integer_at(at + 1)?;
                if options.read < -1 {
                    return Err("ERR value for ENTRIESREAD must be positive or -1".into());
                }
                at += 2;
            } else {
                return Err(help::wrong_arguments(context, "XGROUP").into());
            }
        }
        Ok(options)
    }
}

/// Refuses more than `most` arguments. Those that name an option twice are found only here, behind
/// what is wrong with key and group, as in Redis.
fn check_count(context: &Context<'_>, most: usize) -> Run {
    match context.count() <= most {
        true => Ok(()),
        false => Err(help::wrong_arguments(context, "XGROUP").into()),
    }
}

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you \
                      may want to use the MKSTREAM option to create an empty stream automatically.";

/// Reads the stream at the second argument, which must exist.
fn stream(context: &mut Context<'_>) -> Result<Stream, Interrupted> {
    let stream = context.stream(context.argument(2))?;
    match stream.exists() {
        true => Ok(stream),
        false => Err(NO_KEY.into()),
    }
}

/// As [`stream`]; the group must exist, too.
fn stream_and_group(context: &mut Context<'_>) -> Result<(Stream, GroupRow), Interrupted> {
    let (key, name) = (context.argument(2), context.argument(3));
    let stream = stream(context)?;
    let group = find_group(context, &stream, name)?;
    let missing = || {
        let (name, key) = (text_of(name), text_of(key));
        format!("NOGROUP No such consumer group '{name}' for key name '{key}'")
    };
    match group {
        Some(group) => Ok((stream, group)),
        None => Err(missing().into()),
    }
}

fn create(context: &mut Context<'_>) -> Run {
    let options = Options::parse(context, true)?;
    let (key, name) = (context.argument(2), context.argument(3));
    let mut stream = context.stream(key)?;
    if !stream.exists() && !options.makes_stream {
        return context.fail(NO_KEY);
    }
    check_count(context, 8)?;
    let last = match context.argument(4) {
        b"$" => stream.head.last,
        text => id(text, 0)?,
    };
    if find_group(context, &stream, name)?.is_some() {
        return context.fail("BUSYGROUP Consumer Group name already exists");
    }
    context.check_row("a consumer group", GROUP_BYTES + name.len())?;
    let exists = stream.exists();
    if !exists {
        context.create_stream(&mut stream)?;
    }
    let group = GroupRow {
        number: stream.head.next_number,
        last,
        read: options.read,
        pending: 0,
        consumers: 0,
        name: name.to_vec(),
    };
    stream.head.next_number += 1;
    stream.head.groups += 1;
    put_group(context, &mut stream, &group)?;
    match exists {
        true => context.put_awaited_group(key, stream)?,
        false => context.put_stream(key, stream)?,
    }
    context.event(Class::Stream, "xgroup-create", key);
    context.ok()
}

fn set_last(context: &mut Context<'_>) -> Run {
    let options = Options::parse(context, false)?;
    let (mut stream, mut group) = stream_and_group(context)?;
    check_count(context, 7)?;
    group.last = match context.argument(4) {
        b"$" => stream.head.last,
        text => id_or_end(text, 0)?,
    };
    group.read = options.read;
    put_group(context, &mut stream, &group)?;
    let key = context.argument(2);
    context.put_awaited_group(key, stream)?;
    context.event(Class::Stream, "xgroup-setid", key);
    context.ok()
}

fn destroy(context: &mut Context<'_>) -> Run {
    let key = context.argument(2);
    let mut stream = stream(context)?;
    let Some(group) = find_group(context, &stream, context.argument(3))? else {
        return context.integer(0);
    };
    remove_group(context, &mut stream, &group)?;
    context.put_awaited_group(key, stream)?;
    context.event(Class::Stream, "xgroup-destroy", key);
    context.integer(1)
}

fn create_consumer(context: &mut Context<'_>) -> Run {
    let name = context.argument(4);
    let (mut stream, group) = stream_and_group(context)?;
    check_consumer(context, name)?;
    if find_consumer(context, &stream, (group.number, name))?.is_some() {
        return context.integer(0);
    }
    let mut group = OpenGroup::new(group);
    group.find_or_create(context, &mut stream, name)?;
    group.put(context, &mut stream)?;
    let key = context.argument(2);
    context.put_awaited_group(key, stream)?;
    context.event(Class::Stream, CREATED_CONSUMER, key);
    context.integer(1)
}

fn delete_consumer(context: &mut Context<'_>) -> Run {
    let name = context.argument(4);
    let (mut stream, group) = stream_and_group(context)?;
    let Some(consumer) = find_consumer(context, &stream, (group.number, name))? else {
        return context.integer(0);
    };
    let mut group = OpenGroup::new(group);
    let pending = group.remove_consumer(context, &mut stream, &consumer)?;
    group.put(context, &mut stream)?;
    let key = context.argument(2);
    context.put_awaited_group(key, stream)?;
    context.event(Class::Stream, "xgroup-delconsumer", key);
    reply_count(&mut context.reply(), pending);
    Ok(())
}

/// Returns how many entries up to `id` a group has read, now that it got that one; -1: not known.
pub(super) fn read_up_to(stream: &Stream, read: i64, id: StreamId) -> i64 {
    let head = &stream.head;
    if read >= 0 && !head.has_gaps_from(id) {
        return read.saturating_add(1);
    }
    if head.added == 0 {
        return read;
    }
    let known = head.added_up_to(id);
    known
        .and_then(|known| i64::try_from(known).ok())
        .unwrap_or(-1)
}
