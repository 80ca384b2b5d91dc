//! Pipeline runs: adjacent commands of a pipeline, run together: GETs, commands that read a key,
//! commands that write, or commands that need no data (decisions 050, 076, 103 and 119).
//!
//! ```text
//!   input   GET a  GET b  GET c  SET d 1  INCR f  DEL e  GET d  PING
//!           '---- a pipeline run ---'   '- a pipeline run -'  alone  alone
//! ```
//!
//! A pipeline run has the same effect as its commands one after the other. Where it cannot have
//! that, it leaves the rest, and these commands begin alone, starting with the first one that is
//! left. GETs descend the tree together ([`gets`]); others that read do so one after the other, and
//! share the head of a large collection ([`reads`]); so do PUBLISH, PING and ECHO, with nothing to
//! share. Commands that write values, and scripts, are one batch ([`writes`]), and whatever reads
//! after them comes after its commit. Outside of MULTI only, and only commands of few arguments
//! ([`run`]). A page that is not in memory ends a pipeline run, and the next runs are kept short
//! ([`quota`]). So does a command with a key for which somebody waits: what it brings is his before
//! the next command runs (decision 111).

mod foresight;
mod gets;
mod quota;
mod reads;
mod run;
pub(super) mod writes;

use pandodb::Lsn;

use crate::client::session::ReplyMode;
use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::figures::error_codes::code_of;
use crate::notifications::classes::Class;
use crate::options::Durability;
use crate::times::nanoseconds;

pub(crate) use quota::PipelineQuota;
pub(crate) use run::PipelineRun;
use run::{RunKind, Taken};

/// The commands of a pipeline run that were run.
#[derive(Debug, Clone, Copy)]
struct Done {
    /// Their number, counted from the first command.
    count: usize,
    hits: u64,
    misses: u64,
    lsn: Option<Lsn>,
    /// What they have read may be shown once this LSN is durable.
    shown_from: Option<Lsn>,
    /// The next command has to run alone; false if only room ended the run.
    cut: bool,
}

impl Done {
    const NONE: Self = Self {
        count: 0,
        hits: 0,
        misses: 0,
        lsn: None,
        shown_from: None,
        cut: true,
    };
}

impl Connection {
    /// Runs the command that the parser has found, of `consumed` bytes, together with the commands
    /// after it if they are a pipeline run of at most `most` commands. Returns the number of
    /// commands that were run; 0 if there were none.
    #[inline]
    pub(crate) fn run_pipeline(
        &mut self,
        turn: &mut Turn<'_>,
        consumed: usize,
        most: usize,
    ) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let is_last = buffers.offset + consumed >= buffers.input.len();
        if is_last || !self.quota.allows_several() {
            return 0;
        }
        self.run_together(turn, most)
    }

    /// Returns true if the state of the client lets a command run together with others.
    pub(super) fn may_run_together(&self, turn: &Turn<'_>) -> bool {
        let in_transaction = self.session.multi.is_some() || self.session.interactive.is_some();
        let is_told = self.session.receives_only() || self.session.is_monitor();
        let free = self.session.authenticated && !in_transaction && !is_told;
        // A profile belongs to one command.
        let is_profiled = self.session.profiles.is_some();
        let is_quiet = self.session.reply_mode != ReplyMode::On;
        // CLIENT CACHING is about one command.
        let tracking = self.session.tracking.as_ref();
        let is_quiet = is_quiet || tracking.is_some_and(|of| of.options.caching);
        free && !is_profiled && !is_quiet && turn.shared.pause.get(turn.clock).is_none()
    }

    fn run_together(&mut self, turn: &mut Turn<'_>, most: usize) -> usize {
        if !self.may_run_together(turn) {
            return 0;
        }
        let Some(data) = turn.data.as_mut() else {
            return 0;
        };
        let mut pipeline_run = std::mem::take(&mut data.pipeline_run);
        let gathered = self.gather(turn, &mut pipeline_run, most);
        self.quota.note_try();
        let count = match gathered {
            Some(kind) => self.run_gathered(turn, &mut pipeline_run, kind),
            None => 0,
        };
        if let Some(data) = turn.data.as_mut() {
            data.pipeline_run = pipeline_run;
        }
        count
    }

    fn gather(
        &self,
        turn: &Turn<'_>,
        pipeline_run: &mut PipelineRun,
        most: usize,
    ) -> Option<RunKind> {
        let buffers = self.buffers.as_ref()?;
        let engine = &turn.data.as_ref()?.engine;
        if !buffers.staging.is_empty() {
            return None;
        }
        let first = buffers.parser.spans().first()?;
        let rest = &buffers.input[buffers.offset..];
        let (kind, command) = run::kind_of(first.of(rest), turn.commands)?;
        if command.shows_all() && !self.quota.shows_all() {
            return None;
        }
        // Each read says what it misses, which reads of a group do not.
        if kind.reads() && turn.shared.notifications.wants(Class::Miss) {
            return None;
        }
        // What they read is noted when they run alone.
        if kind == RunKind::Reads && self.session.tracking.is_some() {
            return None;
        }
        let most = most.min(self.quota.most());
        let known = (turn.commands, &engine.folder);
        let taken = Taken {
            scripts: self.takes_scripts(turn),
            shows_all: self.quota.shows_all(),
            most,
        };
        let kind = pipeline_run.gather(rest, known, &self.limits(turn), taken)?;
        if turn.shared.waiters.is_anyone_awake() {
            self.leave_out_held(turn, pipeline_run);
        }
        (pipeline_run.len() > 1).then_some(kind)
    }

    /// Ends a run before the first command that has to wait for others; the one with which the run
    /// begins has waited.
    #[cold]
    fn leave_out_held(&self, turn: &Turn<'_>, pipeline_run: &mut PipelineRun) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let rest = &buffers.input[buffers.offset..];
        let is_held = |place: &usize| {
            let call = (
                pipeline_run.at(*place).command,
                pipeline_run.arguments(rest, *place),
            );
            self.comes_between(turn, call, None)
        };
        if let Some(place) = (1..pipeline_run.len()).find(is_held) {
            pipeline_run.truncate(place);
        }
    }

    fn run_gathered(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &mut PipelineRun,
        kind: RunKind,
    ) -> usize {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.hold();
        let done = match kind {
            RunKind::Gets if !pipeline_run.meets_pieces || self.session.tracking.is_some() => {
                self.run_gets(turn, pipeline_run)
            }
            RunKind::Gets | RunKind::Reads | RunKind::Keyless => {
                let done = self.run_reads(turn, pipeline_run, kind);
                let data = turn.data.as_mut().expect("pipeline runs have an engine");
                data.scratch.foreseen.clear();
                done
            }
            RunKind::Writes => self.run_writes(turn, pipeline_run),
        };
        self.quota.note(done.count, done.cut);
        if done.count > 0 {
            self.end_together(turn, pipeline_run, done);
        } else {
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            buffers.output.take_back();
            buffers.output.release(None);
            buffers.progress.take_back();
            buffers.progress.forget_scripts();
        }
        done.count
    }

    /// Finishes the first commands of a pipeline run: their replies wait for the log together if
    /// they must, and the input advances past them.
    fn end_together(&mut self, turn: &mut Turn<'_>, pipeline_run: &PipelineRun, done: Done) {
        let began = turn.clock;
        turn.read_clock();
        let (count, consumed) = (done.count as u64, pipeline_run.end(done.count));
        let called = self.count_calls(turn);
        turn.counts.ended(count + called, done.hits, done.misses);
        turn.counts.ended_together(count);
        // The time of one command is its share of the whole.
        let ns = nanoseconds(turn.clock.duration_since(began)) / count;
        self.count_together(turn, pipeline_run, done.count, ns);
        if turn.shared.channels.has_monitors() {
            self.show_together(turn.shared, pipeline_run, done.count);
        }
        if !self.progress().events.is_empty() {
            self.progress().show_from(done.shown_from);
            self.settle_events(turn);
        }
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        if self.looked_keys > 0 {
            let keys = pipeline_run.keys(&buffers.input[buffers.offset..], done.count);
            self.looked_keys = self.looked_keys.saturating_sub(keys);
        }
        self.record
            .note_command(Some(pipeline_run.at(done.count - 1).id));
        if done.lsn.is_some() {
            self.session.last_write = done.lsn;
        }
        let durable = turn.shared.settings.durability() == Durability::Durable;
        let gate = done.lsn.max(done.shown_from);
        buffers.output.release(gate.filter(|_| durable));
        buffers.offset += consumed;
        self.position += consumed as u64;
        buffers.parser.clear();
        buffers.progress.clear();
    }

    /// Counts the first `count` commands, of `ns` nanoseconds each.
    fn count_together(&self, turn: &Turn<'_>, pipeline_run: &PipelineRun, count: usize, ns: u64) {
        let statistics = &turn.shared.statistics;
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        for (id, calls) in pipeline_run.stretches(count) {
            statistics.commands.called_together(id, ns, calls);
        }
        for (place, reply_start) in &pipeline_run.errors {
            statistics.commands.failed(pipeline_run.at(*place).id);
            turn.count_error(code_of(&buffers.output.bytes[*reply_start..]));
        }
        if ns >= turn.shared.settings.watch_ns() {
            let rest = &buffers.input[buffers.offset..];
            for place in 0..count {
                let arguments = pipeline_run.arguments(rest, place);
                let of = pipeline_run.at(place);
                self.note_slow(turn, (of.id, of.command), arguments, (ns, ""));
            }
        }
    }
}
