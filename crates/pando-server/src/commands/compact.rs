//! PANDO COMPACT, and BGREWRITEAOF, which does the same.

use crate::context::{Command, Context, Flags, Kind, Run, replies};
use crate::data::compaction::Compaction;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

/// The subcommand of PANDO.
pub(super) const COMPACT: Command = Command {
    flags: ADMIN,
    kind: Kind::Read,
    complexity: "O(N) where N is the number of pages, in the background",
    summary: "Makes the files as small as what they hold, in the background.",
    ..Command::new("compact", -2, compact)
};

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: ADMIN,
    kind: Kind::Read,
    summary: "Asynchronously makes the files as small as what they hold: PANDO COMPACT.",
    ..Command::new("bgrewriteaof", 1, rewrite)
}];

fn compact(context: &mut Context<'_>) -> Run {
    match context.count() {
        2 => start(context, "Background compaction started"),
        3 if context.is(2, "abort") => match context.shared.compaction.abort() {
            true => context.ok(),
            false => context.fail("ERR No compaction in progress."),
        },
        _ => context.fail(replies::SYNTAX),
    }
}

fn rewrite(context: &mut Context<'_>) -> Run {
    start(context, "Background append only file rewriting started")
}

fn start(context: &mut Context<'_>, started: &'static str) -> Run {
    let db = context.engine().db.clone();
    match Compaction::start(&context.shared.compaction, db) {
        Ok(true) => {
            context.reply().simple(started);
            Ok(())
        }
        Ok(false) => context.fail("ERR Background compaction already in progress"),
        Err(error) => context.fail(&format!("ERR {error}")),
    }
}
