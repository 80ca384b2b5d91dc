//! One command, from its arguments to the gate of its reply (decision 009).
//!
//! ```text
//!            begin                    run: Ok             try_commit: Committed
//!   (none) ---------> Run ------------------------> Commit --------------------> done
//!                     ^ | Pending, Yield, Wait       | ^ | Pending
//!                     | v                            | | v
//!                   parked                           | parked
//!                     ^------------------------------'
//!                         Conflict: back to the start
//! ```
//!
//! A command that leaves its loop (decision 095) is parked, and runs on a script thread, in the
//! same steps.
//!
//! While the command is parked, its reply is held or taken back, its arguments stay in the input
//! buffer, and its batch stays with the connection.

use pando_resp::Writer;
use pando_stats::Ticker;
use pandodb::Lsn;
use pandodb::nonblocking::{Outcome, Polled};

use crate::client::session::{ReplyMode, Session};
use crate::commands;
use crate::commands::client_kill::close_own;
use crate::connection::interactive::{enter_transaction, goes_on_without_snapshot};
use crate::connection::loop_data::Turn;
use crate::connection::pause::Paused;
use crate::connection::running::Running;
use crate::connection::{Buffers, Connection};
use crate::context::progress::Progress;
use crate::context::{Command, CommandIndex, Flags, Kind, replies};
use crate::context::{Context, Interrupted, Run};
use crate::figures::error_codes::code_of;
use crate::options::Durability;

/// Number of conflicts after which the command yields to other connections.
const CONFLICTS_PER_TURN: u32 = 8;

/// Result of a turn of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Its reply is complete.
    Done,
    /// It continues when the connection is woken.
    Suspended,
    /// It continues in the next turn.
    Yielded,
    /// It continues on a script thread.
    #[cfg_attr(
        not(feature = "scripts"),
        expect(dead_code, reason = "only scripts leave")
    )]
    Leaves,
}

/// Forgets what a command that waits has read: its next run reads everything again, as it is then.
/// Returns true if what it has read was of an earlier moment than its run.
fn read_anew(session: &Session, running: &mut Running, progress: &mut Progress) -> bool {
    let mut was_old = running.replayed || running.conflicts > 0;
    if let Some(batch) = running.batch.as_deref_mut() {
        // At the snapshot of a read (`interactive.rs`) nothing new would ever come.
        was_old |= session.interactive.is_none() && batch.leave().is_some();
        batch.reset();
    }
    (running.conflicts, progress.restarts) = (0, 0);
    progress.reservations = (0, 0);
    running.reservation = None;
    progress.is_tracking = false;
    progress.now_ms = None;
    progress.forget_loads();
    was_old
}

impl Connection {
    /// Begins the command that the parser has found, of `consumed` bytes: checks it, and then
    /// refuses, queues or runs it.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, consumed: usize) -> Step {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.hold();
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let checked = match turn.commands.find(arguments.at(0)) {
            Some((index, _)) => (turn.commands.resolve(index, arguments))
                .map(|(id, resolved)| (index, id, resolved)),
            None => {
                let name = arguments.at(0);
                // These are HTTP requests: a browser was tricked into talking to us.
                if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
                    self.session.closing = true;
                    let client = &self.record.address;
                    let what = "a request of a browser: possibly an attack through one";
                    turn.shared.events.protocol_error(client, what);
                    return self.finish(turn, consumed, None);
                }
                Err((None, CommandIndex::unknown(arguments)))
            }
        };
        let admitted = checked.and_then(|(index, id, command)| match self.admit(turn, command) {
            Ok(()) => match self
                .admit_to_transaction(turn, command)
                .and_then(|()| self.admit_beside_messages(turn, (id, command)))
            {
                Ok(()) => Ok((index, id, command)),
                Err(text) => Err((Some(id), text)),
            },
            Err(text) => Err((Some(id), text.to_owned())),
        });
        let (index, id, command) = match admitted {
            Ok(admitted) => admitted,
            Err((id, text)) => return self.refuse(turn, consumed, id, &text),
        };
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        if let Some(text) = buffers.staging.refusal() {
            return self.refuse(turn, consumed, Some(id), &text);
        }
        let is_queued = || !commands::runs_at_once(turn.commands.at(index));
        if self.session.multi.is_some() && is_queued() {
            return self.queue(turn, consumed, (index, id));
        }
        let paused = self.paused(turn, command);
        self.record.note_command(Some(id));
        self.running = Some(Running {
            id,
            command,
            is_held: paused == Paused::Yes,
            began: turn.clock,
            consumed,
            committing: false,
            reads_many: false,
            // If the lookahead has covered this command, it has counted its misses.
            missed: self.position < self.looked_until,
            waited: false,
            replayed: false,
            stalls: 0,
            reads: (0, 0),
            parked: false,
            batch: None,
            conflicts: 0,
            reservation: None,
            announcement: None,
            is_shown: false,
            lost_snapshot: false,
        });
        let position = self.position;
        self.progress().begin_at(position);
        self.progress().holds_writers = paused == Paused::ByFunction;
        self.resume(turn)
    }

    /// Makes the checks that do not depend on arguments.
    #[inline]
    fn admit(&self, turn: &Turn<'_>, command: &Command) -> Result<(), &'static str> {
        if !self.session.authenticated && !command.flags.has(Flags::NO_AUTH) {
            return Err(replies::NO_AUTH);
        }
        if self.session.multi.is_some() && command.flags.has(Flags::NO_MULTI) {
            return Err("ERR Command not allowed inside a transaction");
        }
        if turn.data.is_none() && !command.flags.has(Flags::LOADING) {
            return Err(replies::LOADING);
        }
        Ok(())
    }

    #[cold]
    fn refuse(
        &mut self,
        turn: &mut Turn<'_>,
        consumed: usize,
        id: Option<usize>,
        text: &str,
    ) -> Step {
        self.record.note_command(id);
        if let Some(id) = id {
            turn.shared.statistics.commands.rejected(id);
        }
        if id == turn.commands.find(b"exec").map(|(exec, _)| exec)
            && self.session.interactive.is_none()
        {
            if turn.shared.channels.has_monitors()
                && let Some((_, exec)) = turn.commands.find(b"exec")
            {
                self.show_refused(turn.shared, exec);
            }
            // Any other command ends the transaction only by running.
            self.session.end_transaction();
            self.write_error(&replies::exec_aborted(text));
        } else {
            if let Some(multi) = &mut self.session.multi {
                multi.dirty = true;
            }
            self.write_error(text);
        }
        self.finish(turn, consumed, None)
    }

    fn queue(&mut self, turn: &mut Turn<'_>, consumed: usize, of: (usize, usize)) -> Step {
        let (index, id) = of;
        let limit = turn
            .data
            .as_ref()
            .map_or(1024 * 1024, |data| data.engine.request_bytes_max);
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let staged = buffers.staging.values_mut();
        let queued = commands::queue(&mut self.session, index, arguments, staged, limit);
        if let Err(text) = queued {
            return self.refuse(turn, consumed, Some(id), text);
        }
        self.record.note_command(Some(id));
        Writer::new(&mut buffers.output.bytes, self.session.version).simple("QUEUED");
        self.finish(turn, consumed, None)
    }

    /// Runs the command that has begun as far as it gets.
    pub(crate) fn resume(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.running.as_ref().is_some_and(|of| of.is_held) && self.stays_held(turn) {
            return Step::Suspended;
        }
        let mut running = self.running.take().expect("a command has begun");
        running.reservation.take_if(|of| of.is_over(turn.clock));
        turn.is_clock_new = false;
        match running.command.kind {
            Kind::Read
            | Kind::ReadMany
            | Kind::ReadAll
            | Kind::Transaction
            | Kind::Watch
            | Kind::Commit => {}
            // The command may show or reset counts.
            Kind::Session | Kind::Exec => turn.tick(),
        }
        if running.command.flags.has(Flags::BLOCKING) {
            // The client asked the command to wait: that is no latency.
            running.began = turn.clock;
        }
        loop {
            if !running.committing {
                if self.session.tracking.is_some() {
                    self.track_before_run(turn, &running);
                }
                match self.run_once(turn, &mut running) {
                    Ok(()) => self.begin_commit(&mut running),
                    Err(Interrupted::ReadsMany) => {
                        self.read_many(&mut running);
                        continue;
                    }
                    Err(interrupted) => match self.interrupted(turn, &mut running, interrupted) {
                        Step::Done => return self.end(turn, running, None),
                        step => {
                            if running.command.flags.has(Flags::BLOCKING) && self.progress().waiting
                            {
                                self.show_wait(turn.shared, &mut running);
                            }
                            self.running = Some(running);
                            return step;
                        }
                    },
                }
            }
            let ends_here = match running.command.kind {
                Kind::Session => true,
                Kind::Read => !running.reads_many || running.batch.is_none(),
                // After its first commit it continues with further keys.
                Kind::Watch => self.progress().watching.is_none(),
                Kind::ReadMany | Kind::ReadAll | Kind::Transaction | Kind::Commit => {
                    running.batch.is_none()
                }
                Kind::Exec => self.session.multi.is_none() || running.batch.is_none(),
            };
            if ends_here {
                return self.end(turn, running, None);
            }
            match self.commit(turn, &mut running) {
                Ok(_) if self.goes_on(&running) => {
                    running.committing = false;
                    running.conflicts = 0;
                }
                Ok(lsn) => return self.end(turn, running, lsn),
                Err(None) => {}
                Err(Some(step)) => {
                    self.running = Some(running);
                    return step;
                }
            }
        }
    }

    /// Runs the command's function once.
    #[inline]
    fn run_once(&mut self, turn: &mut Turn<'_>, running: &mut Running) -> Run {
        let Buffers {
            input,
            offset,
            parser,
            output,
            progress,
            staging,
            ..
        } = &mut **self.buffers.as_mut().expect("a command is in the buffers");
        let arguments = parser.arguments(&input[*offset..]);
        let is_inside = self.session.interactive.is_some();
        let transactional = match running.command.kind {
            Kind::Session => false,
            Kind::Commit => is_inside,
            Kind::Read => is_inside || running.reads_many,
            Kind::ReadMany => is_inside || running.reads_many || arguments.len() > 2,
            Kind::ReadAll | Kind::Transaction | Kind::Watch | Kind::Exec => true,
        };
        if let Some(data) = turn.data.as_mut()
            && transactional
        {
            match running.batch.as_mut() {
                Some(batch) if running.waited => batch.rewind(),
                Some(batch) if running.conflicts > 0 => batch.begin_again(),
                Some(batch) => batch.reset(),
                None => running.batch = Some(data.batch()),
            }
            let session = (&mut self.session, turn.commands);
            enter_transaction(session, data, (running, progress))?;
        }
        running.replayed = std::mem::take(&mut running.waited);
        let reply_start = output.bytes.len();
        let data =
            (turn.data.as_mut()).map(|data| data.lend(running.batch.as_deref_mut(), turn.leaves));
        // A transaction has one clock, that of its beginning: what expires meanwhile stays.
        let interactive = self.session.interactive.as_ref();
        let now_ms = match (interactive, running.command.kind) {
            (Some(interactive), _) => interactive.now_ms,
            (None, Kind::Transaction | Kind::Exec) => *progress.now_ms.get_or_insert(turn.now_ms),
            _ => turn.now_ms,
        };
        let mut context = Context {
            arguments,
            staged: staging.values(),
            command: running.command,
            session: &mut self.session,
            out: &mut output.bytes,
            reply_start,
            shared: turn.shared,
            commands: turn.commands,
            local: turn.handle,
            record: &self.record,
            data,
            progress,
            waker: &self.waker,
            now_ms,
            exec_index: None,
            is_together: false,
        };
        if context.session.profiles.is_none() {
            return context.run();
        }
        let (run, profile) = pandodb::profiled(|| context.run());
        if let Some(profiles) = &mut self.session.profiles {
            profiles.add_run(&profile);
        }
        run
    }

    /// Prepares the next run of a command, which follows at once and has a transaction.
    fn read_many(&mut self, running: &mut Running) {
        assert!(running.batch.is_none(), "it had a transaction");
        running.reads_many = true;
        self.take_back();
    }

    /// The command has run to its end: gives back what only a run needs, since the commit may wait
    /// for others.
    fn begin_commit(&mut self, running: &mut Running) {
        self.progress().parts.end_run();
        running.committing = true;
    }

    /// Handles an interrupted run: parks the command, or ends it with an error.
    fn interrupted(
        &mut self,
        turn: &mut Turn<'_>,
        running: &mut Running,
        interrupted: Interrupted,
    ) -> Step {
        self.take_back();
        if goes_on_without_snapshot(&self.session, running, &interrupted) {
            return Step::Yielded;
        }
        let waits_for_page =
            matches!(&interrupted, Interrupted::Pending(pending) if pending.is_for_page());
        let is_stuck = waits_for_page && running.count_wait();
        let text = match interrupted {
            Interrupted::Pending(_) if is_stuck => replies::TOO_MANY_LONG.to_owned(),
            Interrupted::Pending(pending) => match self.park_read(turn, running, pending) {
                Ok(()) => return Step::Suspended,
                Err(error) => self.engine_error(turn, running.command, &error),
            },
            Interrupted::Yield => {
                // What was read in order is kept for the run that needs it.
                let key_order = self.progress().key_order.as_ref();
                running.waited =
                    key_order.is_some_and(|of| of.goes_on()) && running.batch.is_some();
                if self.progress().restarts > 0 {
                    self.reserve_if_restarted(turn, running);
                }
                return Step::Yielded;
            }
            // What it reads next must be new, so nothing is played back; and it waits only if what
            // it has read was new, and it has looked since it registered.
            Interrupted::Blocked => {
                let buffers = self.buffers.as_mut().expect("a command is in the buffers");
                let progress = &mut buffers.progress;
                let was_old = read_anew(&self.session, running, progress);
                if !progress.waiting || was_old {
                    return Step::Yielded;
                }
                // Not before: if it looks again at once, nobody is to come between.
                if let Some(blocked) = &progress.blocked {
                    blocked.registration.sleep();
                }
                return Step::Suspended;
            }
            Interrupted::Wait => {
                // The next run plays back what this one has read (decision 013).
                running.waited = running.batch.is_some();
                return Step::Suspended;
            }
            #[cfg(feature = "scripts")]
            Interrupted::Leaves => {
                running.waited = running.batch.is_some();
                // What has begun goes on, whatever pauses.
                self.progress().holds_writers = false;
                return Step::Leaves;
            }
            #[cfg(feature = "scripts")]
            Interrupted::Held => {
                self.hold(running);
                return Step::Yielded;
            }
            Interrupted::ReadsMany => unreachable!("its next run has begun"),
            Interrupted::Torn => replies::TORN.to_owned(),
            Interrupted::Engine(error) => self.engine_error(turn, running.command, &error),
            Interrupted::Row(error) => {
                format!("ERR the value of this key cannot be used: {error:?}")
            }
            Interrupted::Refused(text) => text.into_owned(),
            #[cfg(feature = "scripts")]
            Interrupted::Ended(text) => text,
            Interrupted::ReplyTooLong => replies::REPLY_TOO_LONG.to_owned(),
            Interrupted::TooManyLong => replies::TOO_MANY_LONG.to_owned(),
        };
        self.write_error(&text);
        Step::Done
    }

    /// Has a command wait for the end of a pause. It has changed nothing, and begins anew then.
    fn hold(&mut self, running: &mut Running) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let progress = &mut buffers.progress;
        read_anew(&self.session, running, progress);
        progress.holds_writers = false;
        progress.forget_scripts();
        progress.begin_again();
        running.waited = false;
        running.is_held = true;
    }

    /// Has the command that has begun wait for the end of a pause.
    pub(super) fn begin_held(&mut self) {
        if let Some(mut running) = self.running.take() {
            self.hold(&mut running);
            self.running = Some(running);
        }
    }

    /// Tries to commit. `Err(None)` means that the command has to run again; `Err(Some(step))` that
    /// it cannot commit now.
    fn commit(
        &mut self,
        turn: &mut Turn<'_>,
        running: &mut Running,
    ) -> Result<Option<Lsn>, Option<Step>> {
        if self.session.tracking.is_some() {
            self.track_before_commit(turn, running);
        }
        let announcement = self.announce(turn, running);
        let data = turn
            .data
            .as_mut()
            .expect("a transaction is one of the engine");
        let batch = running.batch.as_mut();
        let batch = batch.expect("what is committed is a transaction");
        let attempt = match &mut self.session.profiles {
            None => batch.try_commit(&mut data.reactor),
            Some(profiles) => {
                let commit = || batch.try_commit(&mut data.reactor);
                let (attempt, profile) = pandodb::profiled(commit);
                profiles.add_run(&profile);
                attempt
            }
        };
        match attempt {
            Ok(Polled::Ready(Outcome::Committed(lsn))) => {
                let shown_from = batch.shown_from();
                self.hand_over(announcement, (lsn, shown_from));
                if running.command.kind == Kind::Commit {
                    let mut interactive = self.session.interactive.take();
                    if let Some(interactive) = &mut interactive {
                        self.progress().written.append(&mut interactive.written);
                    }
                    // The keys that its commands have written are not known any more.
                    if turn.shared.waiters.any() {
                        turn.shared.waiters.wake_all();
                    }
                }
                // In this order: who is woken reads the keys, and would hear of them.
                self.tell_trackers(turn, Some(running));
                self.wake_waiters(turn);
                Ok(lsn)
            }
            Ok(Polled::Ready(Outcome::Conflict { watched })) => {
                self.take_back();
                self.undo_exec();
                if watched && running.command.kind == Kind::Exec {
                    let buffers = self.buffers.as_mut().expect("a command is in the buffers");
                    Writer::new(&mut buffers.output.bytes, self.session.version).null_array();
                    return Ok(None);
                }
                turn.shared.statistics.tick(Ticker::TransactionConflicts, 1);
                self.met_conflict(turn, running.command);
                let buffers = self.buffers.as_mut().expect("a command is in the buffers");
                buffers.progress.begin_again();
                running.committing = false;
                running.conflicts += 1;
                self.reserve_if_stubborn(turn, running);
                let pause = running.conflicts.is_multiple_of(CONFLICTS_PER_TURN);
                Err(pause.then_some(Step::Yielded))
            }
            Ok(Polled::Pending(pending)) => {
                Self::withdraw(announcement, running, &pending);
                match self.park(turn, running, pending) {
                    Ok(()) => Err(Some(Step::Suspended)),
                    Err(error) => self.commit_failed(turn, running.command, &error),
                }
            }
            Err(error) => self.commit_failed(turn, running.command, &error),
        }
    }

    /// Wakes the clients that wait for elements of keys that were just committed.
    #[inline]
    pub(crate) fn wake_waiters(&mut self, turn: &Turn<'_>) {
        let progress = self.progress();
        if progress.pushed.is_empty() {
            return;
        }
        if self.session.interactive.is_none() && turn.shared.waiters.any() {
            let pushed = &self.progress().pushed;
            if pushed.has_all() {
                turn.shared.waiters.wake_all();
            }
            let places: Vec<_> = (pushed.iter())
                .map(|(database, key)| (database, key.into()))
                .collect();
            turn.shared.waiters.wake(&places);
        }
        self.progress().pushed.clear();
    }

    #[cold]
    fn commit_failed(
        &mut self,
        turn: &Turn<'_>,
        command: &Command,
        error: &pandodb::Error,
    ) -> Result<Option<Lsn>, Option<Step>> {
        self.take_back();
        self.undo_exec();
        self.progress().watching = None;
        let text = self.engine_error(turn, command, error);
        self.write_error(&text);
        if let Some(interactive) = &mut self.session.interactive
            && command.kind == Kind::Commit
        {
            interactive.lose(text);
        }
        Ok(None)
    }

    /// Returns true if the commit was only a part of the command.
    fn goes_on(&mut self, running: &Running) -> bool {
        running.command.kind == Kind::Watch && self.progress().watching.is_some()
    }

    pub(super) fn progress(&mut self) -> &mut Progress {
        let buffers = self.buffers.as_mut();
        &mut buffers.expect("a command is in the buffers").progress
    }

    /// Has the command that has begun run from its beginning at a new moment, as behind a conflict;
    /// not inside a transaction of PANDO BEGIN, which has the moment of its own beginning.
    pub(crate) fn begin_command_anew(&mut self) {
        if self.session.interactive.is_some() {
            return;
        }
        self.undo_exec();
        self.progress().begin_again();
        let running = self.running.as_mut().expect("a command has begun");
        assert!(!running.committing, "a commit is not repeated");
        running.waited = false;
        if let Some(batch) = &mut running.batch {
            batch.forget_refreshed();
        }
    }

    /// Undoes what the commands of an uncommitted EXEC did to the session.
    fn undo_exec(&mut self) {
        if let Some(mut multi) = self.session.multi.take() {
            multi.enter(&mut self.session);
            self.session.multi = Some(multi);
        } else if let Some(subscriptions) = &mut self.session.subscriptions {
            // What a script wanted to publish.
            subscriptions.revert();
        }
    }

    /// Finishes the command.
    fn end(&mut self, turn: &mut Turn<'_>, mut running: Running, lsn: Option<Lsn>) -> Step {
        if self.looked_keys > 0 {
            self.pass_looked(&running);
        }
        if !self.progress().withheld.is_empty() {
            self.act_late(turn);
        }
        turn.read_clock();
        if self.session.tracking.is_some() {
            self.forget_old_reads(turn, &mut running);
        }
        if let Some(batch) = running.batch.as_deref_mut() {
            self.leave_transaction(batch);
        }
        if let (Some(batch), Some(data)) = (running.batch.take(), turn.data.as_mut()) {
            if let Some(buffers) = &mut self.buffers {
                buffers.progress.show_from(batch.shown_from());
            }
            data.give_back(batch);
        }
        if !self.progress().events.is_empty() {
            self.settle_events(turn);
        }
        // An EXEC without MULTI has ended no transaction, and its client still watches what it
        // watched.
        if running.command.kind == Kind::Exec && self.session.multi.is_some() {
            self.session.end_transaction();
            if std::mem::take(&mut self.session.closes_after_exec) {
                close_own(&mut self.session, turn.shared, &self.record);
            }
        }
        if running.command.flags.has(Flags::BLOCKING) {
            self.record.unblocking.clear();
        }
        if let Some(subscriptions) = &self.session.subscriptions
            && subscriptions.has_changes()
        {
            self.carry_out_changes(turn, lsn);
        }
        if let Some(tracking) = &mut self.session.tracking
            && tracking.is_changed()
        {
            tracking.apply();
        }
        if turn.shared.channels.has_monitors() {
            self.show(turn.shared, &mut running);
        }
        self.count(turn, &running);
        self.finish(turn, running.consumed, lsn)
    }

    /// Completes the reply: it waits for `lsn` if it must, and the input advances.
    pub(super) fn finish(
        &mut self,
        turn: &mut Turn<'_>,
        consumed: usize,
        lsn: Option<Lsn>,
    ) -> Step {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let reply = buffers.output.running();
        if reply.first() == Some(&b'-') {
            turn.count_error(code_of(reply));
        }
        if lsn.is_some() {
            self.session.last_write = lsn;
        }
        if let Some(interactive) = &mut self.session.interactive {
            interactive.used = turn.clock;
        }
        if let Some(tracking) = &mut self.session.tracking
            && tracking.options.caching
            && self.session.multi.is_none()
        {
            let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
            tracking.options.caching = turn.commands.is_about_client(arguments);
        }
        if self.session.reply_mode != ReplyMode::On {
            if self.session.reply_mode.is_silent() && !buffers.progress.confirms {
                buffers.output.take_back();
                buffers.progress.streams.clear();
            }
            self.session.reply_mode = self.session.reply_mode.after_command();
        }
        for (offset, source) in buffers.progress.streams.drain(..) {
            buffers.output.push_stream(offset, source);
        }
        // The LSN of the command's own write, or of the writes of others that its reply shows.
        let gate = lsn.max(buffers.progress.shown_from());
        let gate = gate.filter(|_| turn.shared.settings.durability() == Durability::Durable);
        if gate.is_some()
            && let Some(profiles) = &mut self.session.profiles
        {
            profiles.gate();
        }
        buffers.output.release(gate);
        buffers.offset += consumed;
        self.position += consumed as u64;
        buffers.parser.clear();
        buffers.progress.clear();
        buffers.staging.clear();
        Step::Done
    }

    fn take_back(&mut self) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.take_back();
        buffers.progress.take_back();
    }

    /// Appends an error to the replies.
    pub(crate) fn write_error(&mut self, text: &str) {
        let version = self.session.version;
        let buffers = self.buffers.as_mut().expect("replies go into the buffers");
        Writer::new(&mut buffers.output.bytes, version).error(text);
    }

    /// Returns the reply to a command that failed since the store failed, and ends a transaction
    /// that does not survive that; logs the failure, too.
    #[cold]
    fn engine_error(
        &mut self,
        turn: &Turn<'_>,
        command: &Command,
        error: &pandodb::Error,
    ) -> String {
        turn.shared.events.failed_command(command.name, error);
        let text = replies::engine_error(error);
        self.lose_transaction(error, &text);
        text
    }
}
