//! MGET, MSET, MSETNX.

use super::set::entry_to_replace;
use crate::context::{Command, Context, Flags, Keys, Kind, Run, replies};
use crate::data::keyspace::ValueType;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        keys: Keys::ALL,
        kind: Kind::ReadMany,
        complexity: "O(N) where N is the number of keys to retrieve.",
        summary: "Atomically returns the string values of one or more keys.",
        value_type: None,
        ..Command::read("mget", -2, get_many)
    },
    Command {
        since: "1.0.1",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: Keys::PAIRS,
        large: Keys::OF_PAIRS,
        complexity: "O(N) where N is the number of keys to set.",
        summary: "Atomically creates or modifies the string values of one or more keys.",
        value_type: None,
        ..Command::write("mset", -3, set_many)
    },
    Command {
        since: "1.0.1",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: Keys::PAIRS,
        large: Keys::OF_PAIRS,
        complexity: "O(N) where N is the number of keys to set.",
        summary: "Atomically modifies the string values of one or more keys only when all keys \
                  don't exist.",
        value_type: None,
        ..Command::write("msetnx", -3, set_many_if_absent)
    },
];

fn get_many(context: &mut Context<'_>) -> Run {
    let count = context.count() - 1;
    context.reply().array(count);
    for (number, key) in context.arguments.from(1).enumerate() {
        context.foresee_keys(number, 1 + number, 1);
        let found = context.read(key)?;
        match found.row {
            Some(row) if row.value_type != ValueType::String => context.reply().null(),
            _ => context.reply_found(&found)?,
        }
    }
    Ok(())
}

/// Returns the error for arguments that are not pairs, or for a value that is too long.
fn refusal(context: &Context<'_>) -> Option<String> {
    if context.count().is_multiple_of(2) {
        return Some(replies::wrong_arity(context.command.name));
    }
    let fits = |at: usize| context.fits(context.string(at + 1).len());
    let all_fit = (1..context.count()).step_by(2).all(fits);
    (!all_fit).then(|| replies::STRING_TOO_LONG.to_owned())
}

fn set_many(context: &mut Context<'_>) -> Run {
    if let Some(text) = refusal(context) {
        return context.fail(&text);
    }
    let reads = context.database().has_more_than_rows();
    for at in (1..context.count()).step_by(2) {
        let (key, value) = (context.argument(at), context.string(at + 1));
        if reads {
            context.foresee_keys(at / 2, at, 2);
        }
        let found = entry_to_replace(context, key)?;
        context.put(key, value, None, found.former)?;
        context.event(Class::String, "set", key);
    }
    context.ok()
}

fn set_many_if_absent(context: &mut Context<'_>) -> Run {
    if let Some(text) = refusal(context) {
        return context.fail(&text);
    }
    for at in (1..context.count()).step_by(2) {
        context.foresee_keys(at / 2, at, 2);
        if context.find_head(context.argument(at))?.row.is_some() {
            return context.integer(0);
        }
    }
    for at in (1..context.count()).step_by(2) {
        let (key, value) = (context.argument(at), context.string(at + 1));
        let found = context.find_head(key)?;
        context.put(key, value, None, found.former)?;
        context.event(Class::String, "set", key);
    }
    context.integer(1)
}
