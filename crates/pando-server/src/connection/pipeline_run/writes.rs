//! A pipeline run of commands that write values, and of scripts: each runs as it does alone, but
//! all are in one batch.
//!
//! That takes one log record, one apply section, and one descent to each leaf. Others see what all
//! of them have written, or nothing: this is one of the orders that single commands may have, as
//! all that they have read is unchanged when their batch is committed. A command that has to wait,
//! or that fails, is undone, and those before it are committed. A script that was ended has its
//! reply, since it is not to run again: whoever has killed it was told that it is gone.

use pando_resp::Writer;
use pando_stats::Ticker;
use pando_sync::time::Duration;
use pandodb::Lsn;
use pandodb::nonblocking::{Outcome, Polled, ValidatedBatch};

use super::Done;
use super::foresight::Foresight;
use super::run::PipelineRun;
use crate::connection::loop_data::{LoopData, Turn};
use crate::connection::{Buffers, Connection};
use crate::context::patience::{Leaves, STAY_MAX};
use crate::context::{Context, Interrupted};

/// Bytes of writes after which no further command joins.
pub(in crate::connection) const WRITTEN_BYTES_MAX: usize = 256 * 1024;
/// Bytes of what was read after which no further command joins.
pub(in crate::connection) const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time of scripts after which no further command joins. If the commit meets a conflict, that was
/// in vain; and a script that takes longer is to leave the loop.
const SCRIPTS_MAX: Duration = STAY_MAX;

impl Connection {
    /// Runs commands and commits them together; does none of them if the commit would have to wait.
    pub(super) fn run_writes(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &mut PipelineRun,
    ) -> Done {
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let mut batch = data.batch();
        let mut done = self.write_together(turn, pipeline_run, &mut batch);
        let kept = (&*pipeline_run, done.count);
        if self.write_kept_head(turn, kept, &mut batch).is_err() {
            done = Done::NONE;
        }
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let mut is_conflict = false;
        if done.count > 0 {
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            let notifications = &turn.shared.notifications;
            let events = &buffers.progress.events;
            let announcement = (!events.is_empty())
                .then(|| notifications.announce(data.engine.db.newest_lsn(), events));
            match commit(data, &mut batch) {
                Ok(lsn) => {
                    (done.lsn, done.shown_from) = (lsn, batch.shown_from());
                    if let (Some(announcement), Some(lsn)) = (announcement, lsn) {
                        let events = std::mem::take(&mut buffers.progress.events);
                        announcement.hand_over(lsn, events);
                    }
                }
                Err(why) => (is_conflict, done) = (why == Refused::Conflict, Done::NONE),
            }
        }
        data.give_back(batch);
        if is_conflict {
            turn.shared.statistics.tick(Ticker::TransactionConflicts, 1);
            self.met_conflict(turn, pipeline_run.at(0).command);
        }
        if done.lsn.is_some() {
            self.tell_trackers(turn, None);
            self.wake_waiters(turn);
        }
        done
    }

    /// Runs commands in `batch` until all are done or one has to run alone.
    fn write_together(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &mut PipelineRun,
        batch: &mut ValidatedBatch,
    ) -> Done {
        let most = turn.shared.output_bytes_max();
        let is_tracking = self.session.tracking.is_some();
        let takes_scripts = self.takes_scripts(turn);
        let mut of_scripts = Duration::ZERO;
        let mut foresight = Foresight::default();
        let mut done = Done {
            cut: false,
            ..Done::NONE
        };
        while done.count < pipeline_run.len()
            && self.owed() < self.output_bytes_max(most)
            && batch.written_bytes() < WRITTEN_BYTES_MAX
            && batch.read_bytes() < READ_BYTES_MAX
            && of_scripts < SCRIPTS_MAX
        {
            let command = pipeline_run.at(done.count).command;
            // What it reads is noted when it runs alone. A monitor may have come since scripts were
            // gathered.
            if is_tracking && command.is_tracked() || command.is_script() && !takes_scripts {
                done.cut = true;
                break;
            }
            if self.is_for_another(pipeline_run, done.count)
                && self
                    .write_kept_head(turn, (&*pipeline_run, done.count), batch)
                    .is_err()
            {
                return Done::NONE;
            }
            self.foresee(turn, (pipeline_run, done.count), &mut foresight, batch);
            let savepoint = batch.savepoint();
            let mark = self.progress().mark();
            let pushed = self.progress().pushed.len();
            let ended = self.run_one(turn, pipeline_run, done.count, Some(batch));
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            let Buffers {
                output, progress, ..
            } = &mut **buffers;
            of_scripts += progress.time_of_scripts();
            let reply_start = match ended {
                Ok(reply_start) => reply_start,
                Err(interrupted) => {
                    batch.rollback_to(savepoint);
                    progress.kept_head.iter_mut().for_each(|kept| kept.undo());
                    let text = interrupted.ended();
                    if text.is_none() {
                        progress.leave_run(self.position + pipeline_run.end(done.count) as u64);
                    }
                    progress.take_back_to(mark);
                    let Some(text) = text else {
                        done.cut = true;
                        break;
                    };
                    let reply_start = output.bytes.len();
                    Writer::new(&mut output.bytes, self.session.version).error(&text);
                    reply_start
                }
            };
            if output.bytes[reply_start] == b'-' {
                pipeline_run.errors.push((done.count, reply_start));
            }
            done.count += 1;
            done.hits += u64::from(std::mem::take(&mut progress.hits));
            done.misses += u64::from(std::mem::take(&mut progress.misses));
            progress.next_in_run();
            // Whoever waits for what it has brought is served before the next one.
            let kept = progress.kept_head.as_ref().map(|kept| kept.place());
            let places = progress.pushed.iter().skip(pushed).chain(kept);
            if turn.shared.waiters.are_awaited(places) {
                break;
            }
        }
        done
    }

    /// Returns true if a head was kept with which the command at `place` cannot go on.
    fn is_for_another(&self, pipeline_run: &PipelineRun, place: usize) -> bool {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let Some(kept) = &buffers.progress.kept_head else {
            return false;
        };
        let rest = &buffers.input[buffers.offset..];
        let arguments = pipeline_run.arguments(rest, place);
        let key = (self.session.database, arguments.get(1));
        !kept.is_for(pipeline_run.at(place).command.name, key)
    }

    /// Writes the head that the commands so far, `done` of them, have kept, if there is one, as the
    /// last of them would. Without it, what they have done must not be committed.
    fn write_kept_head(
        &mut self,
        turn: &mut Turn<'_>,
        (pipeline_run, done): (&PipelineRun, usize),
        batch: &mut ValidatedBatch,
    ) -> Result<(), Interrupted> {
        if self.progress().kept_head.is_none() {
            return Ok(());
        }
        let write = |context: &mut Context<'_>| context.write_kept_head();
        // On a full disk, it matters which command writes.
        let place = (pipeline_run, done.saturating_sub(1));
        let written = self.in_run(turn, place, Some(batch), write);
        self.progress().kept_head = None;
        written
    }

    /// Returns whether scripts run together with others. What one reads or calls is noted when it
    /// runs alone; and without threads it may take long.
    pub(super) fn takes_scripts(&self, turn: &Turn<'_>) -> bool {
        let is_noted = self.session.tracking.is_some() || turn.shared.channels.has_monitors();
        !is_noted && turn.leaves != Leaves::Never
    }

    /// Runs the command at `place`, in `batch` if it is one that writes. Returns where its reply
    /// begins.
    ///
    /// # Errors
    /// It has to run alone, or was ended; what it has written must be undone.
    pub(super) fn run_one(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &PipelineRun,
        place: usize,
        batch: Option<&mut ValidatedBatch>,
    ) -> Result<usize, Interrupted> {
        let position = self.position + pipeline_run.end(place) as u64;
        self.progress().begin_at(position);
        self.in_run(turn, (pipeline_run, place), batch, |context| {
            let reply_start = context.reply_start;
            if let Err(interrupted) = context.run() {
                context.out.truncate(reply_start);
                return Err(interrupted);
            }
            assert!(reply_start < context.out.len(), "each command replies");
            Ok(reply_start)
        })
    }

    /// Calls `work` in the environment of the command at `place`.
    #[inline]
    pub(super) fn in_run<T>(
        &mut self,
        turn: &mut Turn<'_>,
        (pipeline_run, place): (&PipelineRun, usize),
        batch: Option<&mut ValidatedBatch>,
        work: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let Buffers {
            input,
            offset,
            output,
            progress,
            ..
        } = &mut **self.buffers.as_mut().expect("a command is in the buffers");
        let reply_start = output.bytes.len();
        work(&mut Context {
            arguments: pipeline_run.arguments(&input[*offset..], place),
            staged: &[],
            command: pipeline_run.at(place).command,
            session: &mut self.session,
            out: &mut output.bytes,
            reply_start,
            shared: turn.shared,
            commands: turn.commands,
            local: turn.handle,
            record: &self.record,
            data: Some(data.lend(batch, turn.leaves)),
            progress,
            waker: &self.waker,
            now_ms: turn.now_ms,
            exec_index: None,
            is_together: true,
        })
    }
}

/// Why a run was not committed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Refused {
    Conflict,
    /// It would have to wait, or has failed.
    Other,
}

/// Commits at once or not at all. A commit that would have to wait is dropped: its commands then
/// run one by one, and each waits or fails by itself. Returns the LSN, if anything was written.
pub(in crate::connection) fn commit(
    data: &mut LoopData,
    batch: &mut ValidatedBatch,
) -> Result<Option<Lsn>, Refused> {
    match batch.try_commit(&mut data.reactor) {
        Ok(Polled::Ready(Outcome::Committed(lsn))) => Ok(lsn),
        Ok(Polled::Ready(Outcome::Conflict { .. })) => Err(Refused::Conflict),
        Ok(Polled::Pending(_)) | Err(_) => Err(Refused::Other),
    }
}
