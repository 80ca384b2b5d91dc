//! COMMAND and its subcommands: the table of commands describes itself.

use pando_resp::Writer;

use super::command_keys::{
    FlaggedKey, describe_keys, fixed_places, has_keys, keys_of, specifications, write_flags,
};
use super::documents;
use super::shown::{categories, check_reply, flags, full_name, named};
use crate::commands::glob::Comparisons;
use crate::context::{Command, CommandIndex, Context, Flags, Run, replies};

const FLAGS: Flags = Flags::LOADING;

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: FLAGS,
    since: "2.8.13",
    complexity: "O(N) where N is the total number of Redis commands",
    summary: "Returns detailed information about all commands.",
    subcommands: &[
        sub("count", 2, count, "Returns a count of commands."),
        sub(
            "docs",
            -2,
            documents::docs,
            "Returns documentary information about one, multiple or all commands.",
        ),
        sub(
            "getkeys",
            -3,
            keys,
            "Extracts the key names from an arbitrary command.",
        ),
        Command {
            since: "7.0.0",
            ..sub(
                "getkeysandflags",
                -4,
                keys_and_flags,
                "Extracts the key names and access flags for an arbitrary command.",
            )
        },
        sub(
            "help",
            2,
            help,
            "Returns helpful text about the different subcommands.",
        ),
        sub(
            "info",
            -2,
            info,
            "Returns information about one, multiple or all commands.",
        ),
        sub("list", -2, list, "Returns a list of command names."),
    ],
    ..Command::new("command", -1, all)
}];

fn describe(reply: &mut Writer<'_>, container: Option<&str>, command: &Command) {
    reply.array(10);
    reply.bulk(full_name(container, command.name).as_bytes());
    reply.integer(command.arity.into());
    let specifications = specifications(container, command);
    let flags = flags(container, command);
    reply.set(flags.names().count());
    flags.names().for_each(|name| reply.simple(name));
    let (first, last, step) = fixed_places(&specifications);
    reply.integer(first.into());
    reply.integer(last.into());
    reply.integer(step.into());
    let categories = categories(container, command);
    reply.set(categories.len());
    for name in categories {
        reply.simple(&format!("@{name}"));
    }
    reply.set(0);
    describe_keys(reply, &specifications);
    match command.subcommands.len() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    for subcommand in command.subcommands {
        describe(reply, Some(command.name), subcommand);
    }
}

fn all(context: &mut Context<'_>) -> Run {
    let commands = context.commands.all();
    let mut reply = context.reply();
    reply.array(commands.len());
    for command in commands {
        describe(&mut reply, None, command);
    }
    Ok(())
}

fn count(context: &mut Context<'_>) -> Run {
    let count = context.commands.all().len();
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn info(context: &mut Context<'_>) -> Run {
    if context.count() == 2 {
        return all(context);
    }
    let (arguments, index) = (context.arguments, context.commands);
    context.reply().array(arguments.len() - 2);
    for name in arguments.from(2) {
        match named(index, name) {
            Some((container, command)) => describe(&mut context.reply(), container, command),
            None => context.reply().null(),
        }
        check_reply(context)?;
    }
    Ok(())
}

/// Finds the keys of the command that the arguments from the third on are.
///
/// # Errors
/// The text of the refusal.
fn keys_in<'a>(context: &Context<'a>) -> Result<Vec<FlaggedKey<'a>>, &'static str> {
    let arguments: Vec<&[u8]> = context.arguments.from(2).collect();
    let found = context.commands.find(arguments[0]);
    let (_, mut command) = found.ok_or("ERR Invalid command specified")?;
    let mut container = None;
    if let Some(name) = arguments.get(1).filter(|_| !command.subcommands.is_empty()) {
        let found = command.subcommand(name);
        container = Some(command.name);
        command = found.ok_or("ERR Invalid command specified")?.1;
    }
    let specifications = specifications(container, command);
    if !has_keys(&specifications) {
        return Err("ERR The command has no key arguments");
    }
    if !command.takes(arguments.len()) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    match keys_of(command.name, &specifications, &arguments) {
        None if command.flags.has(Flags::NO_MANDATORY_KEYS) => Ok(Vec::new()),
        keys => keys.ok_or("ERR Invalid arguments specified for command"),
    }
}

fn keys(context: &mut Context<'_>) -> Run {
    let keys = match keys_in(context) {
        Ok(keys) => keys,
        Err(text) => return context.fail(text),
    };
    let mut reply = context.reply();
    reply.array(keys.len());
    keys.iter().for_each(|(key, _)| reply.bulk(key));
    Ok(())
}

fn keys_and_flags(context: &mut Context<'_>) -> Run {
    let keys = match keys_in(context) {
        Ok(keys) => keys,
        Err(text) => return context.fail(text),
    };
    let mut reply = context.reply();
    reply.array(keys.len());
    for (key, flags) in keys {
        reply.array(2);
        reply.bulk(key);
        write_flags(&mut reply, flags);
    }
    Ok(())
}

/// Decides which commands COMMAND LIST names, by their names there.
type Filter<'a> = Box<dyn Fn(Option<&str>, &Command) -> bool + 'a>;

/// Returns the names of the commands that `wanted` chooses, those of subcommands behind that of
/// their container.
pub(super) fn names(
    index: &CommandIndex,
    wanted: impl Fn(Option<&str>, &Command) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for command in index.all() {
        let subcommands = command.subcommands.iter();
        let subcommands = subcommands.map(|sub| (Some(command.name), sub));
        for (container, command) in std::iter::once((None, *command)).chain(subcommands) {
            if wanted(container, command) {
                found.push(full_name(container, command.name));
            }
        }
    }
    found
}

fn list(context: &mut Context<'_>) -> Run {
    let comparisons = Comparisons::new();
    let filter: Option<Filter<'_>> = match context.count() {
        2 => Some(Box::new(|_, _| true)),
        5 if context.is(2, "filterby") => {
            let wanted = context.argument(4);
            if context.is(3, "module") {
                Some(Box::new(|_, _| false))
            } else if context.is(3, "pattern") {
                Some(Box::new(|container, command| {
                    let name = full_name(container, command.name);
                    comparisons.matches_ignoring_case(wanted, name.as_bytes())
                }))
            } else if context.is(3, "aclcat") {
                Some(Box::new(move |container, command| {
                    let mut of = categories(container, command).into_iter();
                    of.any(|name| name.as_bytes().eq_ignore_ascii_case(wanted))
                }))
            } else {
                None
            }
        }
        _ => None,
    };
    let Some(filter) = filter else {
        return context.fail(replies::SYNTAX);
    };
    let names = names(context.commands, filter);
    comparisons.end()?;
    context.reply().array(names.len());
    for name in names {
        context.reply().bulk(name.as_bytes());
    }
    Ok(())
}

fn help(context: &mut Context<'_>) -> Run {
    const LINES: &[&str] = &[
        "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "(no subcommand)",
        "    Return details about all Redis commands.",
        "COUNT",
        "    Return the total number of commands in this Redis server.",
        "LIST",
        "    Return a list of all commands in this Redis server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple Redis commands.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple Redis commands.",
        "GETKEYS <full-command>",
        "    Return the keys from a full Redis command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys and the access flags from a full Redis command.",
        "HELP",
        "    Print this help.",
    ];
    context.reply().array(LINES.len());
    for line in LINES {
        context.reply().simple(line);
    }
    Ok(())
}
