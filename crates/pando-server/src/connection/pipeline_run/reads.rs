//! A pipeline run of commands that read one key each, or need no data. They run as they do alone,
//! but for two things: nothing is done around each of them, and those that follow one another with
//! the same large collection share its head (`context/tree/read_stretch.rs`; decision 119).

use pandodb::Lsn;

use super::Done;
use super::foresight::Foresight;
use super::run::{PipelineRun, RunKind};
use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::context::Interrupted;

/// What a run has reached.
struct Mark {
    done: Done,
    errors: usize,
    /// Length of the output.
    output: usize,
}

impl Connection {
    /// Runs commands until all are done, one has to run alone, or the limit of unsent replies is
    /// reached.
    pub(super) fn run_reads(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &mut PipelineRun,
        kind: RunKind,
    ) -> Done {
        let most = turn.shared.output_bytes_max();
        let mut done = Done {
            cut: false,
            ..Done::NONE
        };
        pipeline_run.meets_pieces &= kind != RunKind::Gets;
        // Where the stretch began that shares a head, if there is one.
        let mut begin = None;
        let mut foresight = Foresight::default();
        while done.count < pipeline_run.len() && self.owed() < self.output_bytes_max(most) {
            if self.is_beyond_stretch(pipeline_run, done.count) {
                match self.end_stretch(turn, (&*pipeline_run, done.count)) {
                    Some(shown_from) => done.shown_from = done.shown_from.max(shown_from),
                    None => break,
                }
                begin = None;
            }
            if kind.reads() {
                self.foresee_reads(turn, (pipeline_run, done.count), &mut foresight);
            }
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            let mark = Mark {
                done,
                errors: pipeline_run.errors.len(),
                output: buffers.output.bytes.len(),
            };
            let before = buffers.progress.mark();
            let ended = self.run_one(turn, pipeline_run, done.count, None);
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            let progress = &mut buffers.progress;
            if matches!(ended, Err(Interrupted::Yield))
                && pipeline_run.at(done.count).command.shows_all()
            {
                self.quota.note_large();
            }
            let Ok(reply_start) = ended else {
                progress.leave_run(self.position + pipeline_run.end(done.count) as u64);
                progress.take_back_to(before);
                if begin.is_none() {
                    progress.read_stretch = None;
                }
                done.cut = true;
                break;
            };
            if buffers.output.bytes[reply_start] == b'-' {
                pipeline_run.errors.push((done.count, reply_start));
            }
            if kind == RunKind::Gets {
                pipeline_run.meets_pieces |= progress.beside.is_some();
            }
            done.count += 1;
            done.shown_from = done.shown_from.max(progress.shown_from());
            done.hits += u64::from(std::mem::take(&mut progress.hits));
            done.misses += u64::from(std::mem::take(&mut progress.misses));
            progress.next_in_run();
            progress.next_read();
            if progress.read_stretch.is_some() {
                begin.get_or_insert(mark);
            }
        }
        let Some(begin) = begin else {
            return done;
        };
        let is_open = self.progress().read_stretch.is_some();
        let ended = is_open.then(|| self.end_stretch(turn, (&*pipeline_run, done.count)));
        if let Some(Some(shown_from)) = ended {
            done.shown_from = done.shown_from.max(shown_from);
            return done;
        }
        self.go_back(pipeline_run, begin)
    }

    /// Takes back what was done since `begin`. Somebody has changed the collection meanwhile: what
    /// was read of it may be of two moments.
    fn go_back(&mut self, pipeline_run: &mut PipelineRun, begin: Mark) -> Done {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.output.bytes.truncate(begin.output);
        pipeline_run.errors.truncate(begin.errors);
        Done {
            cut: true,
            ..begin.done
        }
    }

    /// Returns true if a head is kept that is of no use to the command at `place`.
    fn is_beyond_stretch(&self, pipeline_run: &PipelineRun, place: usize) -> bool {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let Some(stretch) = &buffers.progress.read_stretch else {
            return false;
        };
        let rest = &buffers.input[buffers.offset..];
        !stretch.is_of(pipeline_run.arguments(rest, place).at(1))
    }

    /// Forgets the head that the commands so far, `done` of them, have shared. Returns from which
    /// LSN on it may be shown; `None` if it is another one meanwhile, and what they have read must
    /// not be shown.
    fn end_stretch(
        &mut self,
        turn: &mut Turn<'_>,
        (pipeline_run, done): (&PipelineRun, usize),
    ) -> Option<Option<Lsn>> {
        self.in_run(turn, (pipeline_run, done - 1), None, |context| {
            context.end_read_stretch()
        })
    }
}
