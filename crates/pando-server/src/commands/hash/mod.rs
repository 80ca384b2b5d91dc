//! Commands of hashes: fields and their values.

pub(super) mod number;
pub(super) mod random;
pub(super) mod read;
pub(super) mod scan;
pub(super) mod write;

use crate::context::{Collection, Command, Context, Flags, Group, Kind, Run};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;

/// Longest listpack in fields, as Redis has it by default: `hash-max-listpack-entries`.
const LISTPACK_FIELDS_MAX: usize = 512;
/// Longest field or value in a listpack: `hash-max-listpack-value`.
const LISTPACK_BYTES_MAX: usize = 64;

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
fn grow_encoding(hash: &mut Collection) {
    let is_long = |string: &[u8]| string.len() > LISTPACK_BYTES_MAX;
    if hash.len() > LISTPACK_FIELDS_MAX || hash.strings.iter().any(is_long) {
        hash.encoding = Encoding::Hashtable;
    }
}
