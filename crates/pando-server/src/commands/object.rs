//! OBJECT: what Redis would tell of the representation of a value.
//!
//! The encoding of a string is the one that Redis gives to the same string when it is set; that of
//! a collection is kept with it, as it depends on its past. No key is ever idle.

use pando_resp::parse_integer;

use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;

/// Length of the longest string that Redis keeps in one piece with its header.
const EMBEDDED_BYTES_MAX: u64 = 44;
/// Length of the longest string that Redis keeps as an integer.
const INTEGER_BYTES_MAX: u64 = 20;

const fn of_key(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::READONLY,
        keys: Keys::SECOND,
        group: Group::Generic,
        kind: Kind::Read,
        since,
        summary,
        ..Command::new(name, 3, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    group: Group::Generic,
    since: "2.2.3",
    complexity: "Depends on subcommand.",
    summary: "A container for object introspection commands.",
    subcommands: &[
        of_key(
            "encoding",
            "2.2.3",
            encoding,
            "Returns the internal encoding of a value.",
        ),
        of_key(
            "freq",
            "4.0.0",
            frequency,
            "Returns the logarithmic access frequency counter of a value.",
        ),
        of_key(
            "idletime",
            "2.2.3",
            idle_time,
            "Returns the time since the last access to a value.",
        ),
        of_key(
            "refcount",
            "2.2.3",
            references,
            "Returns the reference count of a value.",
        ),
        Command {
            flags: Flags::LOADING,
            group: Group::Generic,
            since: "6.2.0",
            summary: "Returns helpful text about the different subcommands.",
            ..Command::new("help", 2, help)
        },
    ],
    ..Command::new("object", -2, help)
}];

/// Returns true if there is a value; otherwise the reply is null.
fn exists(context: &mut Context<'_>) -> Result<bool, Interrupted> {
    let found = context.find_head(context.argument(2))?;
    if found.row.is_none() {
        context.reply().null();
    }
    Ok(found.row.is_some())
}

fn encoding(context: &mut Context<'_>) -> Run {
    let key = context.argument(2);
    let mut found = context.find_head(key)?;
    let Some(row) = found.row else {
        context.reply().null();
        return Ok(());
    };
    if row.value_type != ValueType::String {
        found = context.find(key)?;
        let payload = found.row.map(|row| context.payload(row));
        let encoding = Encoding::of_payload(payload.unwrap_or_default())?;
        context.reply().bulk(encoding.name().as_bytes());
        return Ok(());
    }
    let length = context.string_bytes(&found);
    // A short string comes whole with its head.
    let is_whole = found.cut == 0 && found.large.is_none() && length <= INTEGER_BYTES_MAX;
    let name: &[u8] = match length {
        _ if is_whole && parse_integer(context.payload(row)).is_some() => b"int",
        0..=EMBEDDED_BYTES_MAX => b"embstr",
        _ => b"raw",
    };
    context.reply().bulk(name);
    Ok(())
}

fn frequency(context: &mut Context<'_>) -> Run {
    if !exists(context)? {
        return Ok(());
    }
    context.fail(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    )
}

fn idle_time(context: &mut Context<'_>) -> Run {
    if !exists(context)? {
        return Ok(());
    }
    context.integer(0)
}

fn references(context: &mut Context<'_>) -> Run {
    if !exists(context)? {
        return Ok(());
    }
    context.integer(1)
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the encoding that the value of <key> has when it is set.",
        "FREQ <key>",
        "    Fails: how often keys are used is not tracked.",
        "IDLETIME <key>",
        "    Return 0: when keys were used is not tracked.",
        "REFCOUNT <key>",
        "    Return 1: values are not shared.",
        "HELP",
        "    Print this help.",
    ])
}
