//! SCRIPT: LOAD, EXISTS, FLUSH, KILL.

use super::eval::{compiled, parsed};
use crate::context::{Command, Context, Flags, Group, Run};
use crate::lua::hex;

const fn sub(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::NOSCRIPT,
        group: Group::Scripting,
        since,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    group: Group::Scripting,
    since: "2.6.0",
    complexity: "Depends on subcommand.",
    summary: "A container for Lua scripts management commands.",
    subcommands: &[
        sub(
            "debug",
            3,
            "3.2.0",
            debug,
            "Sets the debug mode of server-side Lua scripts.",
        ),
        sub(
            "exists",
            -3,
            "2.6.0",
            exists,
            "Determines whether server-side Lua scripts exist in the script cache.",
        ),
        sub(
            "flush",
            -2,
            "2.6.0",
            |context| context.once(flush),
            "Removes all server-side Lua scripts from the script cache.",
        ),
        Command {
            flags: Flags::LOADING,
            ..sub(
                "help",
                2,
                "5.0.0",
                help,
                "Returns helpful text about the different subcommands.",
            )
        },
        sub(
            "kill",
            2,
            "2.6.0",
            |context| context.once(kill),
            "Terminates a server-side Lua script during execution.",
        ),
        sub(
            "load",
            3,
            "2.6.0",
            load,
            "Loads a server-side Lua script to the script cache.",
        ),
    ],
    ..Command::new("script", -2, help)
}];

fn debug(context: &mut Context<'_>) -> Run {
    context.fail("ERR SCRIPT DEBUG is not there: scripts cannot be debugged step by step")
}

fn exists(context: &mut Context<'_>) -> Run {
    let names = context.arguments;
    context.reply().array(names.len() - 2);
    for name in names.from(2) {
        let known = parsed(name).is_some_and(|name| context.shared.scripts.find(&name).is_some());
        context.reply().integer(i64::from(known));
    }
    Ok(())
}

fn flush(context: &mut Context<'_>) -> Run {
    let is_mode = context.count() == 3 && (context.is(2, "sync") || context.is(2, "async"));
    if context.count() > 2 && !is_mode {
        return context.fail("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    context.shared.scripts.clear();
    context.ok()
}

fn kill(context: &mut Context<'_>) -> Run {
    match context.shared.scripts.kill() {
        true => context.ok(),
        false if context.shared.functions.any() => context.fail(
            "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN \
             NOSAVE.",
        ),
        false => context.fail("NOTBUSY No scripts in execution right now."),
    }
}

fn load(context: &mut Context<'_>) -> Run {
    let script = match compiled(context, context.argument(2)) {
        Ok(script) => script,
        Err(text) => return context.fail(&text),
    };
    let (name, most) = (script.name, context.engine().script_bytes_max);
    if !context.shared.scripts.add(script, true, most) {
        let text =
            format!("ERR the script cache holds {most} bytes at most: SCRIPT FLUSH empties it");
        return context.fail(&text);
    }
    context.reply().bulk(hex(&name).as_bytes());
    Ok(())
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache. Very dangerous on replicas.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "HELP",
        "    Print this help.",
    ])
}
