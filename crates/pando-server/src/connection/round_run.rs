//! Round runs: commands of several connections, each the only one that its connection has, that
//! write the same key and run together at the end of a round (decision 125).
//!
//! ```text
//!   round   A: LPUSH q x   B: GET k   C: SET k 1   D: LPUSH q y   E: RPOP q
//!           joins          alone      alone        joins          joins; the three are one batch
//! ```
//!
//! What is said of pipeline runs of commands that write ([`super::pipeline_run`]) holds for these:
//! each runs by its own function, over one batch with a savepoint before each, and the batch is
//! committed at once or not at all. A command that cannot run here begins alone, in the same round.
//! Each connection has one command in it, so the order among them is free.
//!
//! A command joins if another client has named its key shortly before, and other connections have
//! their turn in this round. Keys that are written by one client each would gain little: their
//! rows and their checks cost the same together as alone, and a conflict of one would repeat all.

use pando_stats::Ticker;
use pando_sync::time::Instant;
use pandodb::Lsn;
use pandodb::nonblocking::ValidatedBatch;

use crate::connection::contended::changed_key;
use crate::connection::executor::Step;
use crate::connection::joining::Joined;
use crate::connection::loop_data::Turn;
use crate::connection::pipeline_run::writes::{READ_BYTES_MAX, Refused, WRITTEN_BYTES_MAX, commit};
use crate::connection::{Buffers, Connection};
use crate::context::progress::Progress;
use crate::context::{Command, Context, Flags, Run};
use crate::times::nanoseconds;

/// Maximum number of arguments of one of them.
const ARGUMENTS_MAX: usize = 128;

/// Commands that run together now.
pub(crate) struct Together {
    batch: Box<ValidatedBatch>,
    progress: Box<Progress>,
    began: Instant,
    /// Number of those that have run.
    count: u64,
    /// Number of keys that they have found, and not found.
    found: (u64, u64),
    /// The last of them.
    last: Option<&'static Command>,
    /// No other command can join.
    is_closed: bool,
}

impl Together {
    /// Begins with none.
    pub(crate) fn new(turn: &mut Turn<'_>) -> Self {
        if !turn.is_clock_new {
            turn.read_clock();
        }
        let data = turn.data.as_mut().expect("commands that write have data");
        Self {
            batch: data.batch(),
            progress: std::mem::take(&mut data.joining.progress),
            began: turn.clock,
            count: 0,
            found: (0, 0),
            last: None,
            is_closed: turn.shared.pause.get(turn.clock).is_some(),
        }
    }

    /// Takes back what only a run needs.
    pub(crate) fn end(mut self, turn: &mut Turn<'_>) {
        self.progress.clear();
        let data = turn.data.as_mut().expect("commands that write have data");
        data.joining.progress = self.progress;
        data.give_back(self.batch);
    }
}

/// What the commit of commands that have run together means for each of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    lsn: Option<Lsn>,
    /// What it has read may be shown once this LSN is durable.
    shown_from: Option<Lsn>,
    /// Its part of their time, in nanoseconds.
    ns: u64,
}

impl Connection {
    /// Returns whether the command that the parser has found, of `consumed` bytes, runs at the end
    /// of the round.
    #[inline]
    pub(super) fn joins_round(&self, turn: &mut Turn<'_>, consumed: usize) -> Option<Joined> {
        let joining = &mut turn.data.as_mut()?.joining;
        if !joining.is_open() || !self.quota.allows_several() {
            return None;
        }
        let buffers = self.buffers.as_ref()?;
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let is_shared = joining.note(arguments.get(1)?, self.record.id);
        is_shared.then(|| self.joins(turn, consumed)).flatten()
    }

    fn joins(&self, turn: &Turn<'_>, consumed: usize) -> Option<Joined> {
        let buffers = self.buffers.as_ref()?;
        let is_last = buffers.offset + consumed >= buffers.input.len();
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let (id, command) = turn.commands.find(arguments.at(0))?;
        let key = command.keys.of(arguments).next()?;
        let is_fit = is_last
            && command.writes_values()
            && !command.flags.has(Flags::BLOCKING)
            && command.takes(arguments.len())
            && arguments.len() <= ARGUMENTS_MAX
            && buffers.staging.is_empty()
            && !buffers.progress.has_left_run()
            // What it reads is noted when it runs alone, and a monitor sees one at a time.
            && self.session.tracking.is_none()
            && !turn.shared.channels.has_monitors()
            && self.may_run_together(turn);
        let key = || turn.shared.contended.key(self.session.database, key);
        is_fit.then(|| Joined { key: key(), id })
    }

    /// Runs the command with which it has joined. Returns false if it has to run alone.
    pub(crate) fn run_in_round(
        &mut self,
        turn: &mut Turn<'_>,
        joined: Joined,
        together: &mut Together,
    ) -> bool {
        let command = turn.commands.at(joined.id);
        if self.is_kept_out(turn, command, together) {
            return false;
        }
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.hold();
        let savepoint = together.batch.savepoint();
        let mark = together.progress.mark();
        let pushed = together.progress.pushed.len();
        let ended = self.in_round(turn, command, together, |context| context.run());
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let progress = &mut together.progress;
        if ended.is_err() {
            together.batch.rollback_to(savepoint);
            progress.kept_head.iter_mut().for_each(|kept| kept.undo());
            progress.leave_round(&mut buffers.progress, self.position);
            progress.take_back_to(mark);
            self.leave_round();
            return false;
        }
        assert!(!buffers.output.running().is_empty(), "each command replies");
        together.count += 1;
        together.found.0 += u64::from(std::mem::take(&mut progress.hits));
        together.found.1 += u64::from(std::mem::take(&mut progress.misses));
        progress.next_in_run();
        together.last = Some(command);
        // Whoever waits for what it has brought is served before the next one.
        let kept = progress.kept_head.as_ref().map(|kept| kept.place());
        let places = progress.pushed.iter().skip(pushed).chain(kept);
        together.is_closed |= turn.shared.waiters.are_awaited(places);
        true
    }

    /// Returns true if the command cannot run with those before it.
    fn is_kept_out(
        &mut self,
        turn: &mut Turn<'_>,
        command: &'static Command,
        together: &mut Together,
    ) -> bool {
        let batch = &together.batch;
        together.is_closed |= batch.written_bytes() >= WRITTEN_BYTES_MAX
            || batch.read_bytes() >= READ_BYTES_MAX
            || turn.shared.channels.has_monitors();
        if together.is_closed || self.record.is_killed() {
            return true;
        }
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        if turn.shared.waiters.is_anyone_awake()
            && self.comes_between(turn, (command, arguments), None)
        {
            return true;
        }
        let key = (self.session.database, arguments.get(1));
        let kept = together.progress.kept_head.as_ref();
        if kept.is_some_and(|kept| !kept.is_for(command.name, key))
            && self.write_head_in_round(turn, together).is_err()
        {
            // Without it, what was done so far must not be committed.
            (together.is_closed, together.count) = (true, 0);
            return true;
        }
        false
    }

    /// Writes the head that the commands so far have kept, as the last of them would.
    fn write_head_in_round(&mut self, turn: &mut Turn<'_>, together: &mut Together) -> Run {
        let Some(last) = together
            .last
            .filter(|_| together.progress.kept_head.is_some())
        else {
            return Ok(());
        };
        let written = self.in_round(turn, last, together, |context| context.write_kept_head());
        together.progress.kept_head = None;
        written
    }

    /// Calls `work` in the environment of `command`, with what all commands of the run share.
    fn in_round<T>(
        &mut self,
        turn: &mut Turn<'_>,
        command: &'static Command,
        together: &mut Together,
        work: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        let data = turn.data.as_mut().expect("commands that write have data");
        let Buffers {
            input,
            offset,
            parser,
            output,
            ..
        } = &mut **self.buffers.as_mut().expect("a command is in the buffers");
        let reply_start = output.bytes.len();
        work(&mut Context {
            arguments: parser.arguments(&input[*offset..]),
            staged: &[],
            command,
            session: &mut self.session,
            out: &mut output.bytes,
            reply_start,
            shared: turn.shared,
            commands: turn.commands,
            local: turn.handle,
            record: &self.record,
            data: Some(data.lend(Some(&mut together.batch), turn.leaves)),
            progress: &mut together.progress,
            waker: &self.waker,
            now_ms: turn.now_ms,
            exec_index: None,
            is_together: true,
        })
    }

    /// Commits what the commands have done, of which its own is the last one, at once or not at
    /// all. `None`: each has to run alone.
    pub(crate) fn commit_round(
        &mut self,
        turn: &mut Turn<'_>,
        together: &mut Together,
    ) -> Option<Share> {
        if self.write_head_in_round(turn, together).is_err() || together.count == 0 {
            return None;
        }
        let data = turn.data.as_mut().expect("commands that write have data");
        let (notifications, events) = (&turn.shared.notifications, &together.progress.events);
        let announcement = (!events.is_empty())
            .then(|| notifications.announce(data.engine.db.newest_lsn(), events));
        let lsn = match commit(data, &mut together.batch) {
            Ok(lsn) => lsn,
            Err(why) => {
                if why == Refused::Conflict {
                    turn.shared.statistics.tick(Ticker::TransactionConflicts, 1);
                    if let Some(key) = changed_key(turn, &together.batch) {
                        turn.shared.contended.met_conflict(key);
                    }
                }
                return None;
            }
        };
        if let (Some(announcement), Some(lsn)) = (announcement, lsn) {
            let events = std::mem::take(&mut together.progress.events);
            announcement.hand_over(lsn, events);
        }
        let shown_from = together.batch.shown_from();
        // What is left to be told is told as of one of them.
        self.swap_progress(together);
        self.progress().show_from(shown_from);
        if lsn.is_some() {
            self.tell_trackers(turn, None);
            self.wake_waiters(turn);
        }
        if !self.progress().events.is_empty() {
            self.settle_events(turn);
        }
        self.swap_progress(together);
        turn.counts
            .ended(together.count, together.found.0, together.found.1);
        turn.counts.ended_together(together.count);
        turn.read_clock();
        let ns = nanoseconds(turn.clock.duration_since(together.began)) / together.count;
        Some(Share {
            lsn,
            shown_from,
            ns,
        })
    }

    fn swap_progress(&mut self, together: &mut Together) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        std::mem::swap(&mut buffers.progress, &mut together.progress);
    }

    /// Ends the command, which was committed with the others.
    pub(crate) fn end_in_round(&mut self, turn: &mut Turn<'_>, joined: Joined, share: Share) {
        let command = turn.commands.at(joined.id);
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let statistics = &turn.shared.statistics.commands;
        statistics.called(joined.id, share.ns);
        if buffers.output.running().first() == Some(&b'-') {
            statistics.failed(joined.id);
        }
        if share.ns >= turn.shared.settings.watch_ns() {
            self.note_slow(turn, (joined.id, command), arguments, (share.ns, ""));
        }
        if self.looked_keys > 0 {
            let keys = command.keys.of(arguments).count();
            self.looked_keys = self.looked_keys.saturating_sub(keys);
        }
        self.record.note_command(Some(joined.id));
        self.progress().show_from(share.shown_from);
        let consumed = self.found.take().expect("it was found").get();
        let step = self.finish(turn, consumed, share.lsn);
        assert_eq!(step, Step::Done, "the reply is complete");
        self.quota.grow();
        self.compact();
    }

    /// Takes back the reply of the command, which begins by itself.
    pub(crate) fn leave_round(&mut self) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.take_back();
        buffers.output.release(None);
    }
}
