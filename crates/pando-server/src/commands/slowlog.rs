//! SLOWLOG.

use pando_resp::parse_integer;

use crate::context::{Command, Context, Flags, Run, replies};

const FLAGS: Flags = Flags::ADMIN.and(Flags::LOADING);

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        since: "2.2.12",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "2.2.12",
    complexity: "Depends on subcommand.",
    summary: "A container for slow log commands.",
    subcommands: &[
        sub("get", -2, get, "Returns the slow log's entries."),
        sub(
            "len",
            2,
            length,
            "Returns the number of entries in the slow log.",
        ),
        sub("reset", 2, reset, "Clears all entries from the slow log."),
        Command {
            flags: Flags::LOADING,
            ..sub(
                "help",
                2,
                help,
                "Returns helpful text about the different subcommands.",
            )
        },
    ],
    ..Command::new("slowlog", -2, help)
}];

fn get(context: &mut Context<'_>) -> Run {
    let count = match context.count() {
        2 => 10,
        3 => match parse_integer(context.argument(2)) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return context.fail("ERR count should be greater than or equal to -1"),
        },
        _ => return context.fail(&replies::wrong_form(context.argument(1), "SLOWLOG")),
    };
    let entries = context.shared.slow_log.newest(count);
    let mut reply = context.reply();
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id);
        reply.integer(i64::try_from(entry.unix_s).unwrap_or(i64::MAX));
        reply.integer(i64::try_from(entry.micros).unwrap_or(i64::MAX));
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|one| reply.bulk(one));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(entry.client_name.as_bytes());
    }
    Ok(())
}

fn length(context: &mut Context<'_>) -> Run {
    let length = context.shared.slow_log.len();
    context.integer(i64::try_from(length).unwrap_or(i64::MAX))
}

fn reset(context: &mut Context<'_>) -> Run {
    context.shared.slow_log.reset();
    context.ok()
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
        "HELP",
        "    Print this help.",
    ])
}
