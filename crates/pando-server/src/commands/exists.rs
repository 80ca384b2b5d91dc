//! DEL, UNLINK, EXISTS, TOUCH, TYPE.

use crate::context::{Command, Context, Flags, Former, Group, Interrupted, Keys, Kind, Run};
use crate::data::keyspace::RowError;
use crate::notifications::classes::Class;

const COMPLEXITY: &str = "O(N) where N is the number of keys.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE,
        group: Group::Generic,
        value_type: None,
        keys: Keys::ALL,
        complexity: COMPLEXITY,
        summary: "Deletes one or more keys.",
        ..Command::write("del", -2, delete)
    },
    Command {
        since: "4.0.0",
        flags: Flags::WRITE.and(Flags::FAST),
        group: Group::Generic,
        value_type: None,
        keys: Keys::ALL,
        complexity: COMPLEXITY,
        summary: "Asynchronously deletes one or more keys.",
        ..Command::write("unlink", -2, delete)
    },
    Command {
        group: Group::Generic,
        value_type: None,
        keys: Keys::ALL,
        kind: Kind::ReadMany,
        complexity: COMPLEXITY,
        summary: "Determines whether one or more keys exist.",
        ..Command::read("exists", -2, exists)
    },
    Command {
        since: "3.2.1",
        group: Group::Generic,
        value_type: None,
        keys: Keys::ALL,
        kind: Kind::ReadMany,
        complexity: COMPLEXITY,
        summary: "Returns the number of existing keys out of those specified.",
        ..Command::read("touch", -2, exists)
    },
    Command {
        group: Group::Generic,
        value_type: None,
        summary: "Determines the type of value stored at a key.",
        ..Command::read("type", 2, kind)
    },
];

fn delete(context: &mut Context<'_>) -> Run {
    let mut deleted = 0;
    for (number, key) in context.arguments.from(1).enumerate() {
        context.foresee_keys(number, 1 + number, 1);
        let former = match context.find_head(key) {
            Ok(found) => found.row.map(|_| found.former),
            // Nothing can be read of the row, and it can be deleted: what belonged to it is not
            // known, and `pando verify --rows` finds that.
            Err(Interrupted::Row(RowError::Damaged)) => Some(Former::default()),
            Err(other) => return Err(other),
        };
        if let Some(former) = former {
            context.remove_row(key, former)?;
            context.event(Class::Generic, "del", key);
            deleted += 1;
        }
    }
    context.integer(deleted)
}

fn exists(context: &mut Context<'_>) -> Run {
    let mut existing = 0;
    for (number, key) in context.arguments.from(1).enumerate() {
        context.foresee_keys(number, 1 + number, 1);
        existing += i64::from(context.read_head(key)?.row.is_some());
    }
    context.integer(existing)
}

fn kind(context: &mut Context<'_>) -> Run {
    let kind = match context.read_head(context.argument(1))?.row {
        Some(row) => row.value_type.name(),
        None => "none",
    };
    context.reply().simple(kind);
    Ok(())
}
