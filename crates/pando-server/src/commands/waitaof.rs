//! WAIT and WAITAOF: how far the writes of this connection are durable.
//!
//! There are no replicas: a client that asks for one waits until the timeout.

use pando_sync::time::{Duration, now};

use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run};

const fn waiting(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::BLOCKING.and(Flags::NO_INTERACTIVE),
        keys: Keys::NONE,
        group: Group::Generic,
        kind: Kind::Read,
        since,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    waiting(
        "wait",
        3,
        "3.0.0",
        wait,
        "Blocks until the asynchronous replication of all preceding write commands sent by the \
         connection is completed.",
    ),
    waiting(
        "waitaof",
        4,
        "7.2.0",
        wait_for_log,
        "Blocks until all of the preceding write commands sent by the connection are written to \
         the append-only file of the master and/or replicas.",
    ),
];

/// Waits for the next wake-up. Returns false if the time is over, or inside a transaction, which
/// must not wait.
fn may_wait(context: &mut Context<'_>, timeout_ms: u64) -> Result<bool, Interrupted> {
    if context.exec_index.is_some() || context.is_unblocked()? {
        return Ok(false);
    }
    let now = now();
    if !context.progress.waiting {
        context.progress.waiting = true;
        if timeout_ms > 0 {
            context.progress.deadline = now.checked_add(Duration::from_millis(timeout_ms));
        }
        context.record.unblocking.begin_wait();
    }
    let deadline = context.progress.deadline;
    let goes_on = deadline.is_none_or(|deadline| now < deadline);
    if !goes_on {
        context.end_wait()?;
    }
    Ok(goes_on)
}

fn timeout_at(context: &Context<'_>, index: usize) -> Result<u64, &'static str> {
    let parsed = pando_resp::parse_integer(context.argument(index));
    let number = parsed.ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(number).map_err(|_| "ERR timeout is negative")
}

fn wait(context: &mut Context<'_>) -> Run {
    let replicas = match context.integer_at(1) {
        Ok(count) => count,
        Err(text) => return context.fail(text),
    };
    let timeout_ms = match timeout_at(context, 2) {
        Ok(timeout) => timeout,
        Err(text) => return context.fail(text),
    };
    if replicas > 0 && may_wait(context, timeout_ms)? {
        return Err(Interrupted::Wait);
    }
    context.integer(0)
}

fn wait_for_log(context: &mut Context<'_>) -> Run {
    let (local, replicas) = match (context.integer_at(1), context.integer_at(2)) {
        (Ok(local), Ok(replicas)) => (local, replicas),
        (Err(text), _) | (_, Err(text)) => return context.fail(text),
    };
    if !(0..=1).contains(&local) || replicas < 0 {
        return context.fail("ERR value is out of range, must be positive");
    }
    let timeout_ms = match timeout_at(context, 3) {
        Ok(timeout) => timeout,
        Err(text) => return context.fail(text),
    };
    let durable = match context.session.last_write {
        Some(lsn) => {
            let db = &context.engine().db;
            db.durable_lsn() >= lsn || db.when_durable(lsn, context.waker)?
        }
        None => true,
    };
    let satisfied = (durable || local == 0) && replicas == 0;
    if !satisfied && may_wait(context, timeout_ms)? {
        return Err(Interrupted::Wait);
    }
    if satisfied && !context.is_unblocked()? {
        context.end_wait()?;
    }
    context.reply().array(2);
    context.reply().integer(i64::from(durable));
    context.reply().integer(0);
    Ok(())
}
