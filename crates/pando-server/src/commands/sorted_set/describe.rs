//! Entries of the command table that all commands of sorted sets begin with.

use crate::context::{Command, Context, Flags, Group, Run};
use crate::data::keyspace::ValueType;

/// Returns a command that reads the sorted set at its first argument.
pub(super) const fn reading(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        since,
        group: Group::SortedSet,
        value_type: Some(ValueType::SortedSet),
        ..Command::read(name, arity, run)
    }
}

/// Returns a command that changes the sorted set at its first argument.
pub(super) const fn writing(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        since,
        group: Group::SortedSet,
        value_type: Some(ValueType::SortedSet),
        ..Command::write(name, arity, run)
    }
}

/// Flags of commands that read, and take more than logarithmic time.
pub(super) const SLOW_READ: Flags = Flags::READONLY;
/// Flags of commands that only remove.
pub(super) const REMOVING: Flags = Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST);
/// Flags of commands that write as much as they read.
pub(super) const STORING: Flags = Flags::WRITE.and(Flags::DENYOOM);
