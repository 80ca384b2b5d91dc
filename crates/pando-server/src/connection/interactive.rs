//! Commands inside a transaction of PANDO BEGIN: each runs as a step of it, and an error that ends
//! the transaction is repeated until the client rolls it back.

use pandodb::nonblocking::ValidatedBatch;
use pandodb::{Isolation, TransactionOptions};

use crate::client::session::Session;
use crate::connection::Connection;
use crate::connection::loop_data::{LoopData, Turn};
use crate::connection::running::Running;
use crate::context::progress::Progress;
use crate::context::{Command, CommandIndex, Flags, Interrupted, Kind, Run};

impl Connection {
    /// Makes the checks of a command inside a transaction.
    ///
    /// # Errors
    /// The reply that refuses it. A transaction that takes too much is rolled back: what was sent
    /// behind the command must not be committed without it.
    pub(super) fn admit_to_transaction(
        &mut self,
        turn: &Turn<'_>,
        command: &Command,
    ) -> Result<(), String> {
        let Some(interactive) = &mut self.session.interactive else {
            return Ok(());
        };
        if command.flags.has(Flags::AFTER_LOSS) {
            return Ok(());
        }
        if let Some(why) = interactive.lost() {
            return Err(why.to_owned());
        }
        if command.flags.has(Flags::NO_INTERACTIVE) {
            return Err("ERR Command not allowed inside a transaction".to_owned());
        }
        if interactive.is_read_only && command.flags.has(Flags::WRITE) {
            return Err("ERR this transaction is READONLY".to_owned());
        }
        let most = turn.data.as_ref().map(|data| data.engine.request_bytes_max);
        if command.kind != Kind::Commit && most.is_some_and(|most| interactive.memory() > most) {
            let text = "ERR the transaction takes too much memory, and was rolled back";
            interactive.lose(text.to_owned());
            return Err(text.to_owned());
        }
        Ok(())
    }

    /// Rolls the transaction back if its client has sent nothing for too long, whether it reads its
    /// replies or not; `received` if it has sent something in this turn.
    pub(super) fn end_idle_transaction(&mut self, turn: &Turn<'_>, received: bool) {
        if let Some(interactive) = &mut self.session.interactive
            && self.running.is_none()
        {
            if received {
                interactive.used = turn.clock;
            }
            interactive.end_if_idle(turn.clock);
        }
    }

    /// Rolls the transaction back after an error that it does not survive; `text` is the reply.
    pub(super) fn lose_transaction(&mut self, error: &pandodb::Error, text: &str) {
        let is_lost = error.is_conflict() || matches!(error, pandodb::Error::LockTimeout { .. });
        if let Some(interactive) = &mut self.session.interactive
            && is_lost
        {
            interactive.lose(text.to_owned());
        }
    }

    /// Gives the transaction back that a command has run in, or ends it after its commit.
    pub(super) fn leave_transaction(&mut self, batch: &mut ValidatedBatch) {
        if let (Some(interactive), Some(transaction)) =
            (&mut self.session.interactive, batch.leave())
        {
            interactive.give_back(transaction);
        }
    }
}

/// Conflicts after which a read of a large collection goes to a snapshot.
const READ_CONFLICTS_MAX: u32 = 8;

/// Returns true for a command that reads a moment of its own: of all keys, or of many keys of which
/// some have changed while it has read them.
fn reads_at_snapshot(
    (session, commands): (&Session, &CommandIndex),
    running: &Running,
    progress: &Progress,
) -> bool {
    let restarts = running.conflicts + progress.restarts;
    match running.command.kind {
        Kind::ReadAll => true,
        Kind::ReadMany => restarts > 0,
        // Ranks are not known at a snapshot: then the command counts.
        Kind::Read => restarts > READ_CONFLICTS_MAX,
        Kind::Exec => restarts > READ_CONFLICTS_MAX && only_reads(session, commands),
        _ => false,
    }
}

/// Returns true if EXEC would only read: no command that is queued may write, and nothing is
/// watched, whose check belongs to the commit.
#[cold]
fn only_reads(session: &Session, commands: &CommandIndex) -> bool {
    let Some(multi) = &session.multi else {
        return false;
    };
    let reads = |place| {
        let (index, arguments) = multi.at(place);
        let resolved = commands.resolve(index, arguments);
        resolved.is_ok_and(|(_, command)| {
            !command.may_write() && !command.flags.has(Flags::NO_INTERACTIVE)
        })
    };
    session.watches.len() == 0 && (0..multi.len()).all(reads)
}

/// Makes the batch of a command a step of the client's transaction, if there is one; or of one that
/// reads a single moment, for a command that reads at a snapshot.
pub(super) fn enter_transaction(
    (session, commands): (&mut Session, &CommandIndex),
    data: &LoopData,
    (running, progress): (&mut Running, &Progress),
) -> Run {
    let at_snapshot =
        !running.lost_snapshot && reads_at_snapshot((session, commands), running, progress);
    let Some(batch) = running.batch.as_deref_mut() else {
        return Ok(());
    };
    let (db, reactor) = (&data.engine.db, &data.reactor);
    if let Some(transaction) = batch.transaction() {
        // The command may have left its loop.
        transaction.go_on_in(reactor);
        return Ok(());
    }
    if let Some(interactive) = &mut session.interactive {
        batch.enter(interactive.take(db, reactor)?);
    } else if at_snapshot {
        let options = TransactionOptions::default().isolation(Isolation::Snapshot);
        let transaction = pandodb::nonblocking::Transaction::begin(db, options, reactor);
        batch.enter(Box::new(transaction?));
    }
    Ok(())
}

/// Returns true if a command that reads at a snapshot goes on without one: there is no memory for
/// it, or no longer.
pub(super) fn goes_on_without_snapshot(
    session: &Session,
    running: &mut Running,
    interrupted: &Interrupted,
) -> bool {
    let is_ended = matches!(
        interrupted,
        Interrupted::Engine(pandodb::Error::SnapshotEnded | pandodb::Error::Full { .. })
    );
    if !is_ended || session.interactive.is_some() || running.lost_snapshot {
        return false;
    }
    let Some(batch) = &mut running.batch else {
        return false;
    };
    running.lost_snapshot = batch.leave().is_some();
    batch.reset();
    running.lost_snapshot
}
