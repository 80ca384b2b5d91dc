//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC runs its commands over one transaction of the engine, which the executor commits: others
//! see all of it or nothing. It may be run several times; the queue stays with the session until
//! the commit has succeeded.

use pando_resp::Arguments;
use pando_sync::time::now;
use pandodb::nonblocking::Attempt;

use super::{Command, Flags, Group, Keys, Kind, replies};
use crate::context::overlay::Overlay;
use crate::context::progress::InnerCall;
use crate::context::{Context, Halt, Run};
use crate::error_codes::code_of;
use crate::executor::nanoseconds;
use crate::keyspace::Row;
use crate::session::{Multi, Session, WatchedKey};
use crate::staging::Staged;

/// Most keys that one connection watches.
const WATCHES_MAX: usize = 65_536;

const FLAGS: Flags = Flags::FAST.and(Flags::LOADING).and(Flags::NOSCRIPT);

const fn of_transactions(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        group: Group::Transactions,
        since,
        summary,
        ..Command::new(name, 1, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    of_transactions("multi", "1.2.0", multi, "Starts a transaction."),
    Command {
        flags: Flags::LOADING.and(Flags::NOSCRIPT),
        kind: Kind::Exec,
        complexity: "Depends on commands in the transaction",
        ..of_transactions(
            "exec",
            "1.2.0",
            exec,
            "Executes all commands in a transaction.",
        )
    },
    of_transactions("discard", "2.0.0", discard, "Discards a transaction."),
    Command {
        arity: -2,
        flags: Flags::FAST.and(Flags::NOSCRIPT),
        keys: Keys::ALL,
        kind: Kind::Watch,
        complexity: "O(1) for every key.",
        ..of_transactions(
            "watch",
            "2.2.0",
            watch,
            "Monitors changes to keys to determine the execution of a transaction.",
        )
    },
    of_transactions(
        "unwatch",
        "2.2.0",
        unwatch,
        "Forgets about watched keys of a transaction.",
    ),
];

/// True for the commands that run between MULTI and EXEC instead of being queued.
pub(crate) fn runs_at_once(command: &Command) -> bool {
    matches!(
        command.name,
        "exec" | "discard" | "multi" | "watch" | "quit" | "reset"
    )
}

/// Queues a command that has been checked, or refuses it.
pub(crate) fn queue(
    session: &mut Session,
    index: usize,
    arguments: Arguments<'_>,
    staged: &mut Vec<Staged>,
    bytes_max: usize,
) -> Result<(), &'static str> {
    let multi = session
        .multi
        .as_mut()
        .expect("commands are queued between MULTI and EXEC");
    // After an error nothing more is kept: EXEC is going to refuse.
    if multi.dirty {
        return Ok(());
    }
    if multi.bytes() > bytes_max {
        return Err(replies::QUEUE_TOO_LONG);
    }
    multi.push(index, arguments, staged);
    Ok(())
}

fn multi(context: &mut Context<'_>) -> Run {
    if context.session.multi.is_some() {
        return context.fail("ERR MULTI calls can not be nested");
    }
    context.session.multi = Some(Multi::default());
    context.ok()
}

fn discard(context: &mut Context<'_>) -> Run {
    if context.session.multi.is_none() {
        return context.fail("ERR DISCARD without MULTI");
    }
    context.session.end_transaction();
    context.ok()
}

fn unwatch(context: &mut Context<'_>) -> Run {
    context.session.watches.clear();
    context.ok()
}

fn watch(context: &mut Context<'_>) -> Run {
    if context.session.multi.is_some() {
        return context.fail("ERR WATCH inside MULTI is not allowed");
    }
    if context.session.watches.len() + context.count() > WATCHES_MAX {
        return context.fail("ERR too many watched keys");
    }
    let number = context.session.database;
    let database = context.database();
    let now_ms = context.now_ms;
    let mut watches: Vec<WatchedKey> = Vec::new();
    for key in context.arguments.from(1) {
        let known = context.session.watches.iter().chain(&watches);
        if known
            .into_iter()
            .any(|known| known.database == number && known.key == key)
        {
            continue;
        }
        let data = context.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let transaction = data.transaction.as_deref_mut();
        let transaction = transaction.expect("WATCH has a transaction");
        // Registered before the look: a change in between is a change.
        let watch = match transaction.watch(&database.keys, &scratch.stored) {
            Attempt::Ready(watch) => watch,
            Attempt::Pending(pending) => return Err(Halt::Pending(pending)),
        };
        scratch.value.clear();
        let found = match database.look(&scratch.stored, &mut scratch.value)? {
            Attempt::Ready(found) => found,
            Attempt::Pending(pending) => return Err(Halt::Pending(pending)),
        };
        let row = match found {
            true => Some(Row::decode(&scratch.stored, &scratch.value)?),
            false => None,
        };
        let expiry = row
            .filter(|row| !row.is_over(now_ms))
            .and_then(|row| row.expiry);
        watches.push(WatchedKey {
            watch,
            database: number,
            key: key.to_vec(),
            deadline: expiry.map(|expiry| expiry.deadline),
        });
    }
    context.session.watches.append(&mut watches);
    context.ok()
}

fn exec(context: &mut Context<'_>) -> Run {
    let Some(mut multi) = context.session.multi.take() else {
        return context.fail("ERR EXEC without MULTI");
    };
    if multi.dirty {
        context.session.end_transaction();
        return context.fail(replies::EXEC_ABORT);
    }
    let now_ms = context.now_ms;
    let watches = &context.session.watches;
    if watches
        .iter()
        .any(|key| key.deadline.is_some_and(|deadline| deadline <= now_ms))
    {
        context.session.end_transaction();
        context.reply().null_array();
        return Ok(());
    }
    if let Some(data) = context.data.as_mut()
        && let Some(transaction) = data.transaction.as_deref_mut()
    {
        for key in &context.session.watches {
            transaction.expect(&key.watch);
        }
    }
    // Run again, it begins as the first time.
    multi.enter(context.session);
    let result = run_all(context, &multi);
    if result.is_err() {
        multi.enter(context.session);
    }
    context.session.multi = Some(multi);
    result
}

fn run_all(context: &mut Context<'_>, multi: &Multi) -> Run {
    let mut overlay = Overlay::default();
    context.reply().array(multi.len());
    let mut clock = now();
    for place in 0..multi.len() {
        let (index, arguments) = multi.at(place);
        let start = context.out.len();
        match context.shared.commands.resolve(index, arguments) {
            Ok((id, command)) => {
                let mut nested =
                    context.nested(command, arguments, multi.staged(place), place, &mut overlay);
                (command.run)(&mut nested)?;
                if nested.data.is_some() {
                    nested.check_reply()?;
                }
                let reply = &context.out[start..];
                let error = (reply.first() == Some(&b'-')).then(|| code_of(reply).to_vec());
                let time = now();
                let ns = nanoseconds(time.duration_since(clock));
                clock = time;
                context.progress.calls.push(InnerCall { id, ns, error });
            }
            Err((_, text)) => context.reply().error(&text),
        }
    }
    Ok(())
}
