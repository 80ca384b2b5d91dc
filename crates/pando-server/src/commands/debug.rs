//! DEBUG: the few subcommands that tests of clients need, if the server was started with them.

use pando_sync::time::{Duration, now};

use crate::context::{Command, Context, Flags, Interrupted, Run, replies};
use crate::options::DebugCommands;

const REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
     can run it from a local connection, otherwise you need to set this option in the \
     configuration file, and then restart the server.";
/// Longest sleep, in seconds.
const SLEEP_S_MAX: f64 = 86_400.0;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::NO_MULTI),
    complexity: "Depends on subcommand.",
    summary: "A container for debugging commands.",
    ..Command::new("debug", -2, debug)
}];

fn debug(context: &mut Context<'_>) -> Run {
    let is_allowed = match context.shared.options.debug_commands {
        DebugCommands::No => false,
        DebugCommands::Local => context.record.address.is_local(),
        DebugCommands::Yes => true,
    };
    if !is_allowed {
        return context.fail(REFUSED);
    }
    match context.count() {
        2 if context.is(1, "help") => help(context),
        3 if context.is(1, "sleep") => sleep(context),
        3 if context.is(1, "set-active-expire") => set_active_expire(context),
        _ => {
            let name = replies::shown(context.argument(1));
            context.fail(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
            ))
        }
    }
}

/// Lets the connection wait; others are served meanwhile.
fn sleep(context: &mut Context<'_>) -> Run {
    let Some(deadline) = context.progress.deadline else {
        let text = String::from_utf8_lossy(context.argument(2)).into_owned();
        let seconds = text.parse::<f64>().unwrap_or(0.0);
        let seconds = seconds.clamp(0.0, SLEEP_S_MAX);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        if time.is_zero() {
            return context.ok();
        }
        context.progress.deadline = now().checked_add(time);
        context.progress.waiting = true;
        return Err(Interrupted::Wait);
    };
    if now() < deadline {
        return Err(Interrupted::Wait);
    }
    context.ok()
}

/// Expired keys stay absent for all commands; only their rows stay.
fn set_active_expire(context: &mut Context<'_>) -> Run {
    let is_on = context.argument(2) != b"0";
    context.shared.settings.set_active_expire(is_on);
    context.ok()
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys (and hash-fields) in background ",
        "    when they are not accessed (otherwise the Redis behavior). Setting it",
        "    to 1 reenables back the default.",
        "SLEEP <seconds>",
        "    Stop this connection for <seconds>. Decimals allowed.",
        "HELP",
        "    Print this help.",
    ])
}
