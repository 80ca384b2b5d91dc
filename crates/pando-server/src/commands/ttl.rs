//! TTL, PTTL, EXPIRETIME, PEXPIRETIME.

use crate::context::{Command, Context, Group, Run};

const fn asking(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        since,
        group: Group::Generic,
        value_type: None,
        summary,
        ..Command::read(name, 2, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    asking(
        "ttl",
        "1.0.0",
        |context| ask(context, 1000, true),
        "Returns the expiration time in seconds of a key.",
    ),
    asking(
        "pttl",
        "2.6.0",
        |context| ask(context, 1, true),
        "Returns the expiration time in milliseconds of a key.",
    ),
    asking(
        "expiretime",
        "7.0.0",
        |context| ask(context, 1000, false),
        "Returns the expiration time of a key as a Unix timestamp.",
    ),
    asking(
        "pexpiretime",
        "7.0.0",
        |context| ask(context, 1, false),
        "Returns the expiration time of a key as a Unix milliseconds timestamp.",
    ),
];

/// Replies with the time in units of `unit_ms`, rounded; -1 for a key without a deadline, -2 for no
/// key.
fn ask(context: &mut Context<'_>, unit_ms: u64, relative: bool) -> Run {
    let Some(row) = context.read_head(context.argument(1))?.row else {
        return context.integer(-2);
    };
    let Some(deadline) = row.times().deadline else {
        return context.integer(-1);
    };
    let base = if relative { context.now_ms } else { 0 };
    let time = deadline.saturating_sub(base);
    let rounded = time.saturating_add(unit_ms / 2) / unit_ms;
    context.integer(i64::try_from(rounded).unwrap_or(i64::MAX))
}
