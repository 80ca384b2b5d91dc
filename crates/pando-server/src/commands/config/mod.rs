//! CONFIG, over one table of parameters.

mod effective;
mod form;
mod output_limits;
mod parameter;
mod remembered;
mod rewrite;
mod table;

use crate::context::{Command, Context, Flags, Run, Secrets, replies};
use crate::glob::Comparisons;
use form::Refusal;
use rewrite::rewrite;
use table::Named;

pub use table::is_settable;
pub(crate) use table::start;

const FLAGS: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::NOSCRIPT);

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
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for server configuration commands.",
    subcommands: &[
        sub(
            "get",
            -3,
            get,
            "Returns the effective values of configuration parameters.",
        ),
        Command {
            secrets: Secrets::OfParameters,
            ..sub(
                "set",
                -4,
                |context| context.once(set),
                "Sets configuration parameters in-flight.",
            )
        },
        sub(
            "resetstat",
            2,
            |context| context.once(reset_statistics),
            "Resets the server's statistics.",
        ),
        Command {
            flags: FLAGS.and(Flags::NO_MULTI),
            ..sub(
                "rewrite",
                2,
                rewrite,
                "Persists the effective configuration to file.",
            )
        },
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
    ..Command::new("config", -2, help)
}];

fn get(context: &mut Context<'_>) -> Run {
    let patterns = || context.arguments.from(2);
    let mut wanted = table::all();
    let comparisons = Comparisons::new();
    wanted.retain(|named| {
        let name = named.name.as_bytes();
        patterns().any(|pattern| comparisons.matches_ignoring_case(pattern, name))
    });
    comparisons.end()?;
    let shared = context.shared;
    let mut reply = context.reply();
    reply.map(wanted.len());
    for named in wanted {
        reply.bulk(named.name.as_bytes());
        reply.bulk(named.get(shared).as_bytes());
    }
    Ok(())
}

/// Sets all parameters or none: names are looked at first, then values, and then they are set.
fn set(context: &mut Context<'_>) -> Run {
    if !context.count().is_multiple_of(2) {
        return context.fail(replies::SYNTAX);
    }
    let mut wanted: Vec<(Named, &[u8])> = Vec::new();
    for at in (2..context.count()).step_by(2) {
        let (name, value) = (context.argument(at), context.argument(at + 1));
        let Some(named) = table::find(name) else {
            let shown = replies::shown(name);
            let text =
                format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'");
            return context.fail(&text);
        };
        let checked = named.check_mutable(context.shared, value);
        if let Err(reason) = checked {
            return refuse(context, name, &reason);
        }
        if wanted.iter().any(|(of, _)| of.name == named.name) {
            return refuse(context, name, &"duplicate parameter".into());
        }
        wanted.push((named, value));
    }
    for apply in [false, true] {
        for (named, value) in &wanted {
            if let Err(reason) = named.set(context.shared, value, apply) {
                return refuse(context, named.name.as_bytes(), &reason);
            }
        }
    }
    context.ok()
}

fn refuse(context: &mut Context<'_>, name: &[u8], reason: &Refusal) -> Run {
    let shown = replies::shown(name);
    context.fail(&format!(
        "ERR CONFIG SET failed (possibly related to argument '{shown}') - {reason}"
    ))
}

fn reset_statistics(context: &mut Context<'_>) -> Run {
    context.shared.reset_statistics();
    context.ok()
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
        "HELP",
        "    Print this help.",
    ])
}
