//! PING, ECHO, SELECT, QUIT, RESET.

use pando_sync::atomic::Ordering;

use super::rename::database_at;
use crate::context::{Command, Context, Flags, Group, Run, replies};

const FAST: Flags = Flags::FAST;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: FAST.and(Flags::BESIDE_MESSAGES),
        group: Group::Connection,
        summary: "Returns the server's liveliness response.",
        ..Command::new("ping", -1, ping)
    },
    Command {
        flags: FAST.and(Flags::LOADING),
        group: Group::Connection,
        summary: "Returns the given string.",
        ..Command::new("echo", 2, echo)
    },
    Command {
        flags: FAST.and(Flags::LOADING),
        group: Group::Connection,
        summary: "Changes the selected database.",
        ..Command::new("select", 2, select)
    },
    Command {
        flags: FAST
            .and(Flags::LOADING)
            .and(Flags::NO_AUTH)
            .and(Flags::NOSCRIPT)
            .and(Flags::AFTER_LOSS)
            .and(Flags::BESIDE_MESSAGES),
        group: Group::Connection,
        summary: "Closes the connection.",
        ..Command::new("quit", -1, quit)
    },
    Command {
        flags: FAST
            .and(Flags::LOADING)
            .and(Flags::NO_AUTH)
            .and(Flags::NOSCRIPT)
            .and(Flags::AFTER_LOSS)
            .and(Flags::BESIDE_MESSAGES),
        group: Group::Connection,
        since: "6.2.0",
        summary: "Resets the connection.",
        ..Command::new("reset", 1, reset)
    },
];

/// A subscriber with RESP2 gets an array, as it does for everything else.
fn ping(context: &mut Context<'_>) -> Run {
    match context.count() {
        1 | 2 if context.session.receives_only() => {
            let message = context.arguments.get(1).unwrap_or_default();
            let mut reply = context.reply();
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(message);
        }
        1 => context.reply().simple("PONG"),
        2 => {
            let message = context.argument(1);
            context.reply().bulk(message);
        }
        _ => return context.fail(&replies::wrong_arity("ping")),
    }
    Ok(())
}

fn echo(context: &mut Context<'_>) -> Run {
    let message = context.argument(1);
    context.reply().bulk(message);
    Ok(())
}

fn select(context: &mut Context<'_>) -> Run {
    match database_at(context, 1) {
        Ok(number) => {
            context.session.database = number;
            context.ok()
        }
        Err(text) => context.fail(text),
    }
}

fn quit(context: &mut Context<'_>) -> Run {
    // Once it has the reply, nobody finds it among the subscribers.
    if let Some(subscriptions) = &mut context.session.subscriptions {
        subscriptions.unsubscribe_all();
    }
    context.session.closing = true;
    context.ok()
}

fn reset(context: &mut Context<'_>) -> Run {
    let authenticated = !context.shared.settings.has_password();
    context.session.reset(authenticated);
    context.record.names.lock().name.clear();
    // Relaxed: a report.
    context.record.asked.store(0, Ordering::Relaxed);
    context.reply().simple("RESET");
    Ok(())
}
