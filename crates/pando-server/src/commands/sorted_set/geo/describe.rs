//! Entries of the command table that all commands of places begin with.

use super::super::describe;
use crate::context::{Command, Context, Flags, Group, Run};

/// Returns a command that reads the places at its first argument.
pub(super) const fn reading(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        flags: Flags::READONLY,
        group: Group::Geo,
        ..describe::reading(name, arity, since, run)
    }
}

/// Returns a command that changes places.
pub(super) const fn writing(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::Geo,
        ..describe::writing(name, arity, since, run)
    }
}
