//! Pipeline runs: adjacent GETs or SETs of a pipeline, run together (decision 050).
//!
//! ```text
//!   input   GET a  GET b  GET c  SET d 1  SET e 2  INCR f
//!           '---- a pipeline run ---'   '-- a pipeline run ---'  alone
//! ```
//!
//! A pipeline run has the same effect as its commands one after the other. Where it cannot have
//! that, it leaves the rest, and these commands begin alone, starting with the first one that is
//! left. GETs descend the tree together ([`gets`]); SETs are one batch ([`sets`]). Only plain
//! commands are taken ([`run`]): key and value lie in pages, there are no options and no MULTI, and
//! no reply is an error. A page that is not in memory ends a pipeline run, and the next runs are
//! kept short ([`quota`]).

mod gets;
mod quota;
mod run;
mod sets;

use pandodb::Lsn;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::options::Durability;
use crate::times::nanoseconds;

pub(crate) use quota::PipelineQuota;
pub(crate) use run::PipelineRun;
use run::PlainKind;

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
    /// The next command waits for a page or is no plain one; false if only room ended the run.
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

    fn run_together(&mut self, turn: &mut Turn<'_>, most: usize) -> usize {
        let in_transaction = self.session.multi.is_some() || self.session.interactive.is_some();
        let free = self.session.authenticated && !in_transaction;
        // A profile belongs to one command.
        let is_profiled = self.session.profiles.is_some();
        let (true, false, Some(data)) = (free, is_profiled, turn.data.as_mut()) else {
            return 0;
        };
        let mut pipeline_run = std::mem::take(&mut data.pipeline_run);
        let count = match self.gather(turn, &mut pipeline_run, most) {
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
    ) -> Option<PlainKind> {
        let buffers = self.buffers.as_ref()?;
        let engine = &turn.data.as_ref()?.engine;
        if !buffers.staging.is_empty() {
            return None;
        }
        let rest = &buffers.input[buffers.offset..];
        let most = most.min(self.quota.most());
        let first = buffers.parser.spans();
        pipeline_run.gather(rest, first, engine, &self.limits(turn), most)
    }

    fn run_gathered(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &mut PipelineRun,
        kind: PlainKind,
    ) -> usize {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.hold();
        let done = match kind {
            PlainKind::Get => self.run_gets(turn, pipeline_run),
            PlainKind::Set => self.run_sets(turn, pipeline_run),
        };
        self.quota.note(done.count, done.cut);
        if done.count > 0 {
            self.end_together(turn, pipeline_run, kind, done);
        } else {
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            buffers.output.take_back();
            buffers.output.release(None);
            buffers.progress.take_back();
        }
        done.count
    }

    /// Finishes the first commands of a pipeline run: their replies wait for the log together if
    /// they must, and the input advances past them.
    fn end_together(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &PipelineRun,
        kind: PlainKind,
        done: Done,
    ) {
        let began = turn.clock;
        turn.read_clock();
        let (count, consumed) = (done.count as u64, pipeline_run.end(done.count));
        let (id, command) = kind.of(turn.commands);
        turn.counts.ended(count, done.hits, done.misses);
        turn.counts.ended_together(count);
        let statistics = &turn.shared.statistics;
        // The time of one command is its share of the whole.
        let ns = nanoseconds(turn.clock.duration_since(began)) / count;
        statistics.commands.called_together(id, ns, count);
        if ns >= turn.shared.settings.watch_ns() {
            let buffers = self.buffers.as_ref().expect("a command is in the buffers");
            let rest = &buffers.input[buffers.offset..];
            for place in 0..done.count {
                let arguments = pipeline_run.arguments(rest, place);
                self.note_slow(turn, (id, command), arguments, (ns, ""));
            }
        }
        if self.looked_keys > 0 {
            self.looked_keys = self.looked_keys.saturating_sub(done.count);
        }
        self.last_command = command.name;
        if done.lsn.is_some() {
            self.session.last_write = done.lsn;
        }
        let durable = turn.shared.settings.durability() == Durability::Durable;
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let gate = done.lsn.max(done.shown_from);
        buffers.output.release(gate.filter(|_| durable));
        buffers.offset += consumed;
        self.position += consumed as u64;
        buffers.parser.clear();
        buffers.progress.clear();
    }
}
