//! What threads do with the whole store meanwhile: PANDO COMPACT, PANDO DUMP, and BGREWRITEAOF,
//! which compacts.

use std::io;

use crate::context::{Command, Context, Flags, Kind, Run, job, replies};
use crate::data::compaction;
use crate::data::store_dump::StoreDump;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

/// A subcommand of PANDO.
pub(super) const COMPACT: Command = Command {
    flags: ADMIN,
    kind: Kind::Read,
    complexity: "O(N) where N is the number of pages, in the background",
    summary: "Makes the files as small as what they hold, in the background.",
    ..Command::new("compact", -2, compact)
};

/// A subcommand of PANDO. Not in MULTI: EXEC may run its commands again, which would find the dump
/// that they have started.
pub(super) const DUMP: Command = Command {
    flags: ADMIN.and(Flags::NO_MULTI),
    kind: Kind::Read,
    complexity: "O(N) where N is the number of keys and elements, in the background",
    summary: "Writes the whole store, as of one moment, to a file of its directory, in the background.",
    ..Command::new("dump", -2, dump)
};

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: ADMIN,
    kind: Kind::Read,
    summary: "Asynchronously makes the files as small as what they hold: PANDO COMPACT.",
    ..Command::new("bgrewriteaof", 1, rewrite)
}];

fn compact(context: &mut Context<'_>) -> Run {
    match context.count() {
        2 => start_compaction(context, "Background compaction started"),
        3 if context.is(2, "abort") => {
            let aborted = context.shared.compaction.abort();
            tell_abort(context, aborted, "compaction")
        }
        _ => context.fail(replies::SYNTAX),
    }
}

fn rewrite(context: &mut Context<'_>) -> Run {
    start_compaction(context, "Background append only file rewriting started")
}

fn start_compaction(context: &mut Context<'_>, text: &'static str) -> Run {
    let db = context.engine().db.clone();
    let started = compaction::start(&context.shared.compaction, db);
    tell_start(context, started, text, "compaction")
}

fn dump(context: &mut Context<'_>) -> Run {
    match context.count() {
        2 => {
            let db = context.engine().db.clone();
            let started = StoreDump::start(&context.shared.store_dump, db);
            tell_start(context, started, "Background dump started", "dump")
        }
        3 if context.is(2, "abort") => {
            let aborted = context.shared.store_dump.work.abort();
            tell_abort(context, aborted, "dump")
        }
        _ => context.fail(replies::SYNTAX),
    }
}

/// Replies to who has asked for `what`: with `text` if it has begun.
fn tell_start(
    context: &mut Context<'_>,
    started: io::Result<bool>,
    text: &'static str,
    what: &str,
) -> Run {
    match started {
        Ok(true) => {
            context.reply().simple(text);
            Ok(())
        }
        Ok(false) => context.fail(&format!("ERR Background {what} already in progress")),
        Err(error) => context.fail(&format!("ERR {}", job::not_started(&error))),
    }
}

fn tell_abort(context: &mut Context<'_>, aborted: bool, what: &str) -> Run {
    match aborted {
        true => context.ok(),
        false => context.fail(&format!("ERR No {what} in progress.")),
    }
}
