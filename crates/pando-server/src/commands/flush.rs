//! FLUSHDB and FLUSHALL: tables are dropped whole, in one commit, whatever their size.

use crate::context::{Command, Context, Flags, Keys, Kind, Run, replies};
use crate::data::keyspace::DATABASES;

const fn flushing(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::NO_INTERACTIVE),
        keys: Keys::NONE,
        kind: Kind::Transaction,
        summary,
        ..Command::new(name, -1, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    flushing(
        "flushdb",
        flush_one,
        "Removes all keys from the current database.",
    ),
    flushing(
        "flushall",
        flush_all,
        "Removes all keys from all databases.",
    ),
];

fn flush(context: &mut Context<'_>, numbers: std::ops::Range<usize>) -> Run {
    let mode = context.count() == 2 && (context.is(1, "sync") || context.is(1, "async"));
    if context.count() > 1 && !mode {
        return context.fail(replies::SYNTAX);
    }
    let engine = context.engine();
    let data = context.data();
    let batch = data.batch.as_deref_mut();
    let batch = batch.expect("commands that write have a transaction");
    for number in numbers {
        batch.clear_table(&engine.databases[number].keys);
        batch.clear_table(&engine.databases[number].elements);
        // It may have been made just now, and get elements until the others are emptied.
        let members = engine.databases[number].members.name();
        match engine.db.existing_table(members) {
            Some(members) => batch.clear_table(&members),
            None => batch.expect_no_table(members),
        }
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.clear(number);
        }
    }
    // Who waits for a group that is gone must learn that.
    context.progress.pushed.add_all();
    context.progress.written.add_all();
    context.ok()
}

fn flush_one(context: &mut Context<'_>) -> Run {
    let number = context.session.database;
    flush(context, number..number + 1)
}

fn flush_all(context: &mut Context<'_>) -> Run {
    flush(context, 0..DATABASES)
}
