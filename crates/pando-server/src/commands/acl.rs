//! ACL, of a server whose only user is `default`.

use super::command::names;
use super::shown::{CATEGORIES, categories};
use crate::context::{Command, Context, Flags, Run, replies};

const FLAGS: Flags = Flags::LOADING.and(Flags::NOSCRIPT);

const fn sub(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags,
        since: "6.0.0",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "6.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for Access List Control commands.",
    subcommands: &[
        sub(
            "whoami",
            2,
            FLAGS,
            who_am_i,
            "Returns the authenticated username of the current connection.",
        ),
        sub(
            "users",
            2,
            FLAGS.and(Flags::ADMIN),
            users,
            "Lists all ACL users.",
        ),
        sub(
            "cat",
            -2,
            FLAGS,
            cat,
            "Lists the ACL categories, or the commands inside a category.",
        ),
        sub(
            "help",
            2,
            Flags::LOADING,
            help,
            "Returns helpful text about the different subcommands.",
        ),
    ],
    ..Command::new("acl", -2, help)
}];

fn who_am_i(context: &mut Context<'_>) -> Run {
    context.reply().bulk(b"default");
    Ok(())
}

fn users(context: &mut Context<'_>) -> Run {
    context.reply().array(1);
    context.reply().bulk(b"default");
    Ok(())
}

fn cat(context: &mut Context<'_>) -> Run {
    match context.count() {
        2 => {
            let mut reply = context.reply();
            reply.array(CATEGORIES.len());
            CATEGORIES
                .iter()
                .for_each(|name| reply.bulk(name.as_bytes()));
            Ok(())
        }
        3 => {
            let wanted = context.argument(2);
            let known = |name: &&str| name.as_bytes().eq_ignore_ascii_case(wanted);
            let Some(category) = CATEGORIES.iter().find(|name| known(name)) else {
                let shown = replies::shown(wanted);
                return context.fail(&format!("ERR Unknown category '{shown}'"));
            };
            let names = names(context.commands, |container, command| {
                categories(container, command).contains(category)
            });
            let mut reply = context.reply();
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name.as_bytes()));
            Ok(())
        }
        _ => context
            .fail("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP."),
    }
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CAT [<category>]",
        "    List all commands that belong to <category>, or all command categories",
        "    when no category is specified.",
        "USERS",
        "    List all the registered usernames.",
        "WHOAMI",
        "    Return the current connection username.",
        "HELP",
        "    Print this help.",
    ])
}
