//! Commands of sets: members without order.

pub(super) mod algebra;
pub(super) mod random;
pub(super) mod read;
pub(super) mod scan;
pub(super) mod write;

pub(super) mod members;

use crate::context::{Command, Context, Flags, Group, Kind, Run};
use crate::data::keyspace::ValueType;

const fn reading(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        since,
        group: Group::Set,
        value_type: Some(ValueType::Set),
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
