//! Commands of streams, and what they share (decision 087).

pub(super) mod acknowledge;
pub(super) mod add;
mod arguments;
mod claim;
pub(super) mod claim_automatically;
pub(super) mod claim_chosen;
pub(super) mod delete;
mod description;
mod groups;
mod help;
pub(super) mod info;
mod info_full;
pub(super) mod manage;
pub(super) mod pending;
pub(super) mod range;
pub(super) mod read;
mod read_group;
mod request;
pub(super) mod set_last;
pub(super) mod trim;

use pando_resp::Writer;

use crate::context::{Command, Context, Flags, Group, Kind, Rows, Run, replies};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::Reader;
use crate::data::stream_id::{ID_TEXT_BYTES, StreamId};

/// Returns a command that reads the stream at its first argument.
const fn reading(name: &'static str, arity: i32, run: fn(&mut Context<'_>) -> Run) -> Command {
    Command {
        flags: Flags::READONLY,
        group: Group::Stream,
        kind: Kind::ReadMany,
        value_type: Some(ValueType::Stream),
        since: "5.0.0",
        ..Command::read(name, arity, run)
    }
}

/// Returns a command that writes the stream at its first argument.
const fn writing(name: &'static str, arity: i32, run: fn(&mut Context<'_>) -> Run) -> Command {
    Command {
        flags: Flags::WRITE,
        group: Group::Stream,
        value_type: Some(ValueType::Stream),
        since: "5.0.0",
        ..Command::write(name, arity, run)
    }
}

/// Replies with an ID.
fn reply_id(reply: &mut Writer<'_>, id: StreamId) {
    reply.bulk(id.text(&mut [0; ID_TEXT_BYTES]));
}

/// Replies with an entry: its ID, and the fields and values in the value of its row.
fn reply_entry(reply: &mut Writer<'_>, id: StreamId, value: &[u8]) -> Result<(), RowError> {
    let mut strings = Reader::new(value)?;
    if !strings.left.is_multiple_of(2) {
        return Err(RowError::Damaged);
    }
    reply.array(2);
    reply_id(reply, id);
    reply.array(strings.left);
    while let Some(string) = strings.next()? {
        reply.bulk(string);
    }
    Ok(())
}

/// Replies with entries, in ascending order or the other one.
fn reply_entries(context: &mut Context<'_>, rows: &Rows, is_backwards: bool) -> Run {
    context.reply().array(rows.len());
    for number in 0..rows.len() {
        let place = match is_backwards {
            false => number,
            true => rows.len() - 1 - number,
        };
        let id = rows.id(place)?;
        reply_entry(&mut context.reply(), id, rows.value(place))?;
        context.check_reply()?;
    }
    Ok(())
}

/// Replies with a number that is never negative.
fn reply_count(reply: &mut Writer<'_>, count: u64) {
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
}

/// Returns the text of bytes that a client has sent, as Redis puts it into errors: up to a NUL.
fn text_of(bytes: &[u8]) -> String {
    pando_resp::text_of(replies::cut(bytes, usize::MAX))
}
