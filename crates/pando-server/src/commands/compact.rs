//! PANDO with its subcommand COMPACT, and BGREWRITEAOF, which does the same.

use super::profile::profile;
use crate::context::{Command, Context, Flags, Kind, Run, replies};
use crate::data::compaction::Compaction;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: "Depends on subcommand.",
        summary: "A container for commands of PandoDB's own.",
        subcommands: &[
            Command {
                flags: ADMIN,
                kind: Kind::Read,
                complexity: "O(N) where N is the number of pages, in the background",
                summary: "Makes the files as small as what they hold, in the background.",
                ..Command::new("compact", -2, compact)
            },
            Command {
                flags: Flags::LOADING.and(Flags::NO_MULTI),
                complexity: "O(1)",
                summary: "Tells where the commands of the connection spend their time.",
                ..Command::new("profile", 3, profile)
            },
            Command {
                flags: Flags::LOADING,
                summary: "Returns helpful text about the different subcommands.",
                ..Command::new("help", 2, help)
            },
        ],
        ..Command::new("pando", -2, help)
    },
    Command {
        flags: ADMIN,
        kind: Kind::Read,
        summary: "Asynchronously makes the files as small as what they hold: PANDO COMPACT.",
        ..Command::new("bgrewriteaof", 1, rewrite)
    },
];

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

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "PANDO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "COMPACT [ABORT]",
        "    Make the files of the store as small as what they hold, in the background:",
        "    underfull pages are packed, the data file is cut, the log gives back what it",
        "    does not use. INFO persistence tells how far it is. ABORT ends it early;",
        "    what was done stays done.",
        "PROFILE ON|OFF|GET",
        "    Turn profiles of the commands of this connection on or off, or get that of",
        "    the command before: runs, time, waits and steps of its commit, each with",
        "    how often and how many microseconds.",
        "HELP",
        "    Print this help.",
    ])
}
