//! Commands of hashes: fields and their values.

pub(super) mod deadline;
pub(super) mod expire;
mod fields;
pub(super) mod get_set;
pub(super) mod number;
pub(super) mod random;
pub(super) mod read;
pub(super) mod scan;
pub(super) mod write;

use crate::context::{Collection, Command, Context, Flags, Group, Kind, Run};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;

const fn reading(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        since,
        group: Group::Hash,
        value_type: Some(ValueType::Hash),
        summary,
        ..Command::read(name, arity, run)
    }
}

const fn writing(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        kind: Kind::Transaction,
        ..reading(name, arity, since, run, summary)
    }
}

/// Sets the encoding that Redis would have after a change; it never goes back.
pub(super) fn grow_encoding(hash: &mut Collection) {
    let most = hash.limits;
    let is_long = |string: &[u8]| string.len() > most.bytes;
    if hash.len() > most.elements || hash.strings.iter().any(is_long) {
        hash.encoding = Encoding::Hashtable;
    }
}
