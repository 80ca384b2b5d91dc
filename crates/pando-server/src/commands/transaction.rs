//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC runs its commands in one transaction of the engine (decision 006), which the executor
//! commits: others see all of it or nothing. It may run several times; the queue stays with the
//! session until the commit has succeeded.

use pando_resp::Arguments;
use pando_stats::Ticker;
use pando_sync::time::now;
use pandodb::nonblocking::Polled;

use super::watched_times::note_times;
use crate::client::session::{Multi, Session};
use crate::client::staging::Staged;
use crate::client::watches::{TooMany, Watches};
use crate::context::overlay::Overlay;
use crate::context::progress::{InnerCall, Watching};
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run, replies};
use crate::data::keyspace::{Row, RowError};
use crate::figures::error_codes::code_of;
use crate::times::nanoseconds;

/// Number of keys that WATCH reads before it yields to other connections.
const WATCHES_PER_TURN: usize = 512;

const FLAGS: Flags = Flags::FAST
    .and(Flags::LOADING)
    .and(Flags::NOSCRIPT)
    .and(Flags::NO_INTERACTIVE);

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
        flags: Flags::LOADING
            .and(Flags::NOSCRIPT)
            .and(Flags::NO_INTERACTIVE),
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
        flags: Flags::FAST.and(Flags::NOSCRIPT).and(Flags::NO_INTERACTIVE),
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

/// Returns true for the commands that run between MULTI and EXEC instead of being queued. Takes the
/// container of a subcommand, which may have the name of one of them: SLOWLOG RESET.
pub(crate) fn runs_at_once(command: &Command) -> bool {
    matches!(
        command.name,
        "exec" | "discard" | "multi" | "watch" | "quit" | "reset"
    )
}

/// Queues a command that was checked, or refuses it.
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
    // After an error nothing more is queued, since EXEC will refuse.
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

/// Forgets what is watched. Inside EXEC this is left to the end of EXEC, which may run again.
fn unwatch(context: &mut Context<'_>) -> Run {
    if context.exec_index.is_none() {
        context.session.watches = Watches::default();
    }
    context.ok()
}

/// Watches all keys. An expired key already counts as absent, and still does when the cleaner
/// removes its row, so that removal must not count as a change. WATCH therefore removes expired
/// rows itself, and then reads all keys again: it leaves its progress behind, which makes the
/// executor commit and run it again.
fn watch(context: &mut Context<'_>) -> Run {
    if context.session.multi.is_some() {
        return context.fail("ERR WATCH inside MULTI is not allowed");
    }
    let mut watching = context.progress.watching.take().unwrap_or_default();
    let removed = std::mem::take(&mut watching.removed);
    (context.shared.statistics).tick(Ticker::ExpiredKeys, removed);
    let looked = loop {
        if watching.removing {
            match remove_over(context, &mut watching) {
                Ok(()) if watching.removed > 0 => {
                    context.progress.watching = Some(watching);
                    return Ok(());
                }
                Ok(()) => {}
                Err(interrupted) => break Err(interrupted),
            }
        }
        match look_at(context, &mut watching) {
            Ok(WatchReads::Over) => {
                *watching = Watching {
                    removing: true,
                    ..Watching::default()
                };
            }
            looked => break looked,
        }
    };
    match looked {
        Ok(WatchReads::TooMany) => context.fail(replies::TOO_MANY_WATCHES),
        Ok(_) => {
            context.session.watches.append(watching.watches);
            context.ok()
        }
        Err(interrupted) => {
            context.progress.watching = Some(watching);
            Err(interrupted)
        }
    }
}

/// Result of reading the keys of WATCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchReads {
    /// All are watched.
    All,
    /// The watches exceed their share of the memory.
    TooMany,
    /// One of them has expired and still has its row.
    Over,
}

/// Adds the removal of expired keys to the transaction, starting with the first key that was not
/// read. Starts over at the first key once none is left.
fn remove_over(context: &mut Context<'_>, watching: &mut Watching) -> Run {
    let (first, mut removed) = (watching.keys, 0);
    for at in first.. {
        let Some(key) = context.arguments.get(1 + at) else {
            break;
        };
        if at - first == WATCHES_PER_TURN {
            watching.keys = at;
            watching.removed = removed;
            return if removed > 0 {
                Ok(())
            } else {
                Err(Interrupted::Yield)
            };
        }
        let found = match context.find_head(key) {
            // The place belongs to another key, with the same first bytes and the same hash.
            Err(Interrupted::Row(RowError::OtherKey)) => continue,
            found => found?,
        };
        if found.row.is_none() && found.former.entry.is_some() {
            context.remove(key, &found)?;
            removed += 1;
        }
    }
    *watching = Watching {
        removed,
        ..Watching::default()
    };
    Ok(())
}

/// Reads the keys of WATCH, starting with the first one that was not read.
fn look_at(context: &mut Context<'_>, watching: &mut Watching) -> Result<WatchReads, Interrupted> {
    let (database, now_ms) = (context.database(), context.now_ms);
    let bytes = &context.shared.watch_bytes;
    for turn in 0.. {
        let Some(key) = context.arguments.get(1 + watching.keys) else {
            break;
        };
        if turn == WATCHES_PER_TURN {
            return Err(Interrupted::Yield);
        }
        let data = context.data();
        let most = data.engine.watch_bytes_max;
        data.engine.folder.store(key, &mut data.scratch.stored);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("WATCH has a batch");
        // The watch is registered before the read: a change in between counts as a change.
        let watch = match batch.watch(&database.keys, &data.scratch.stored) {
            Polled::Ready(watch) => watch,
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
        };
        let place = watch.place();
        let is_known = context.session.watches.has(&watch);
        if !is_known && watching.watches.add(watch, bytes, most) == Err(TooMany) {
            return Ok(WatchReads::TooMany);
        }
        let scratch = &mut *context.data().scratch;
        scratch.value.clear();
        // No reply shows what is read here.
        let looked = database.look(&scratch.stored, &mut scratch.value, &mut None)?;
        let found = match looked {
            Polled::Ready(found) => found,
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
        };
        if found {
            let row = Row::decode(&scratch.stored, &scratch.value)?;
            let is_own = row.user_key(&scratch.stored, &scratch.value) == key;
            if is_own && row.is_over(now_ms) {
                return Ok(WatchReads::Over);
            }
            watching.watches.is_there(place);
            context.session.watches.is_there(place);
            if is_own {
                let scratch = &mut *context.data().scratch;
                note_times(database, scratch, (&row, now_ms), &mut watching.watches)?;
            }
        }
        watching.keys += 1;
    }
    Ok(WatchReads::All)
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
    if context.session.watches.is_over(now_ms) {
        context.session.end_transaction();
        context.reply().null_array();
        return Ok(());
    }
    if let Some(data) = context.data.as_mut()
        && let Some(batch) = data.batch.as_deref_mut()
    {
        let expected = context.session.watches.expect(batch);
        if let Polled::Pending(pending) = expected {
            context.session.multi = Some(multi);
            return Err(Interrupted::Pending(pending));
        }
        // The commit looks again; what is known before need not run.
        if batch.has_changed_watch() {
            context.session.end_transaction();
            context.reply().null_array();
            return Ok(());
        }
    }
    // A repeated run begins in the same state as the first one.
    multi.enter(context.session);
    context.progress.acts_late = context.session.watches.len() > 0;
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
        match context.commands.resolve(index, arguments) {
            Ok((id, command)) => {
                let mut nested =
                    context.nested(command, arguments, multi.staged(place), place, &mut overlay);
                nested.run()?;
                if nested.data.is_some() {
                    nested.check_reply()?;
                }
                let reply = &context.out[start..];
                let error = (reply.first() == Some(&b'-')).then(|| code_of(reply).to_vec());
                let time = now();
                let ns = nanoseconds(time.duration_since(clock));
                clock = time;
                context.progress.calls.push(InnerCall {
                    id: Some(id),
                    ns,
                    error,
                    ..InnerCall::default()
                });
            }
            Err((_, text)) => context.reply().error(&text),
        }
    }
    Ok(())
}
