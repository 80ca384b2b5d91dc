//! PANDO BEGIN, LOCK, SAVEPOINT, ROLLBACK, COMMIT: transactions of several commands, in which a
//! client can think between reading and writing (decision 070).
//!
//! Each command between BEGIN and COMMIT is a step of the transaction
//! (`connection/interactive.rs`): it reads what that reads, and what it writes is written by the
//! transaction. MULTI, commands that wait for others, and FLUSHDB and FLUSHALL are refused.

use pando_sync::time::Duration;
use pandodb::nonblocking::{Polled, Transaction};
use pandodb::{Isolation, TransactionOptions};

use crate::client::interactive::Interactive;
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run, replies};

/// How long a transaction may be without a command, unless the client says otherwise.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most keys that a transaction locks: they are taken, and given back, in one go.
const LOCKS_MAX: usize = 10_000;
/// The longest time that a client can ask for.
const IDLE_TIMEOUT_MAX: Duration = Duration::from_hours(24);

const fn step(
    name: &'static str,
    arity: i32,
    kind: Kind,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::NOSCRIPT.and(Flags::NO_MULTI),
        group: Group::Transactions,
        kind,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(super) const BEGIN: Command = step(
    "begin",
    -2,
    Kind::Read,
    begin,
    "Begins a transaction of several commands.",
);
pub(super) const LOCK: Command = Command {
    flags: Flags::NOSCRIPT.and(Flags::NO_MULTI).and(Flags::BLOCKING),
    keys: Keys {
        first: 2,
        ..Keys::ALL
    },
    complexity: "O(N) where N is the number of keys.",
    ..step(
        "lock",
        -3,
        Kind::Read,
        lock,
        "Locks keys until the end of the transaction.",
    )
};
pub(super) const SAVEPOINT: Command = step(
    "savepoint",
    2,
    Kind::Read,
    savepoint,
    "Returns the number of a savepoint of the transaction.",
);
pub(super) const ROLLBACK: Command = Command {
    flags: Flags::NOSCRIPT.and(Flags::NO_MULTI).and(Flags::AFTER_LOSS),
    ..step(
        "rollback",
        -2,
        Kind::Session,
        rollback,
        "Ends the transaction without its writes, or goes back to a savepoint.",
    )
};
pub(super) const COMMIT: Command = Command {
    complexity: "O(N) where N is the number of keys written and read.",
    ..step(
        "commit",
        2,
        Kind::Commit,
        commit,
        "Commits the transaction.",
    )
};

fn begin(context: &mut Context<'_>) -> Run {
    if context.session.interactive.is_some() {
        return context.fail("ERR PANDO BEGIN calls can not be nested");
    }
    let (mut level, mut is_read_only, mut idle) = (None, false, None);
    let mut at = 2;
    while at < context.count() {
        let levels = [
            ("snapshot", Isolation::Snapshot),
            ("serializable", Isolation::Serializable),
            ("readcommitted", Isolation::ReadCommitted),
        ];
        let named = levels.iter().find(|(name, _)| context.is(at, name));
        if let (Some((_, named)), None) = (named, level) {
            level = Some(*named);
        } else if context.is(at, "readonly") && !is_read_only {
            is_read_only = true;
        } else if context.is(at, "timeout") && idle.is_none() && at + 1 < context.count() {
            at += 1;
            idle = match context.integer_at(at).map(u64::try_from) {
                Ok(Ok(ms)) if ms > 0 => Some(Duration::from_millis(ms).min(IDLE_TIMEOUT_MAX)),
                Ok(_) => return context.fail("ERR timeout is not positive"),
                Err(text) => return context.fail(text),
            };
        } else {
            return context.fail(replies::SYNTAX);
        }
        at += 1;
    }
    let level = match level.unwrap_or_default() {
        // What is read at one moment, and nothing else, is serializable.
        Isolation::Serializable if is_read_only => Isolation::Snapshot,
        level => level,
    };
    let options = TransactionOptions::default().isolation(level);
    let options = options.read_set_bytes(context.engine().read_set_bytes_max);
    let idle = idle.unwrap_or(IDLE_TIMEOUT);
    let begun = (pando_sync::time::now(), context.now_ms);
    let transaction = Interactive::new((options, is_read_only), idle, begun);
    context.session.interactive = Some(Box::new(transaction));
    context.ok()
}

/// Returns the transaction that this command is a step of.
fn transaction<'c>(context: &'c mut Context<'_>) -> Option<&'c mut Transaction> {
    let batch = context.data().batch.as_deref_mut();
    batch.and_then(|batch| batch.transaction())
}

fn without_begin(context: &mut Context<'_>) -> Run {
    let name = context.command.name.to_ascii_uppercase();
    context.fail(&format!("ERR PANDO {name} without PANDO BEGIN"))
}

fn lock(context: &mut Context<'_>) -> Run {
    if context.session.interactive.is_none() {
        return without_begin(context);
    }
    let held = transaction(context).map_or(0, |transaction| transaction.locks());
    // Once it waits, it holds some of its own keys, and must come to its end.
    if !context.progress.waiting && held + context.count() - 2 > LOCKS_MAX {
        return context.fail(&format!("ERR a transaction locks {LOCKS_MAX} keys at most"));
    }
    let folder = context.engine().folder;
    let store = |key: &[u8]| {
        let mut stored = Vec::new();
        folder.store(key, &mut stored);
        stored
    };
    let mut keys: Vec<Vec<u8>> = context.arguments.from(2).map(store).collect();
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let table = &context.database().keys;
    let transaction = transaction(context).expect("it is a step");
    match transaction.lock(table, &keys)? {
        Polled::Ready(()) => context.ok(),
        Polled::Pending(pending) => {
            // Nothing else would tell that the client is gone.
            context.progress.waiting = true;
            Err(Interrupted::Pending(pending))
        }
    }
}

fn savepoint(context: &mut Context<'_>) -> Run {
    if context.session.interactive.is_none() {
        return without_begin(context);
    }
    let savepoint = transaction(context).expect("it is a step").savepoint();
    let interactive = context.session.interactive.as_mut();
    let number = interactive.map_or(0, |interactive| interactive.add_savepoint(savepoint));
    context.integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn rollback(context: &mut Context<'_>) -> Run {
    let Some(interactive) = context.session.interactive.as_mut() else {
        return without_begin(context);
    };
    if context.arguments.len() == 2 {
        context.session.interactive = None;
        return context.ok();
    }
    let lost = interactive.lost().map(str::to_owned);
    if context.count() != 4 || !context.is(2, "to") {
        return context.fail(replies::SYNTAX);
    }
    if let Some(why) = lost {
        return context.fail(&why);
    }
    let number = match context.integer_at(3) {
        Ok(number) => usize::try_from(number).unwrap_or(0),
        Err(text) => return context.fail(text),
    };
    let interactive = context.session.interactive.as_mut();
    match interactive.is_some_and(|interactive| interactive.rollback_to(number)) {
        true => context.ok(),
        false => context.fail("ERR there is no such savepoint"),
    }
}

/// The commit itself is that of the executor, after this.
fn commit(context: &mut Context<'_>) -> Run {
    if context.session.interactive.is_none() {
        return without_begin(context);
    }
    let batch = context.data().batch.as_deref_mut();
    batch.expect("it is a step").end_transaction();
    context.ok()
}
