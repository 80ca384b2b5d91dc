//! The rows that the next commands of a run read or change, looked for together before the first
//! of them runs: their misses in the processor's caches overlap, and each command goes to its leaf
//! at once (decisions 141 and 148).
//!
//! The rows are those of the commands' keys; or, once the commands share the head of a large
//! collection, those of the elements that they name.

use pando_resp::Arguments;
use pandodb::Table;
use pandodb::nonblocking::ValidatedBatch;

use super::run::PipelineRun;
use crate::connection::Connection;
use crate::connection::element_names::ElementNames;
use crate::connection::loop_data::{LoopData, Turn};
use crate::context::foreseen_rows::ForeseenRows;
use crate::context::{Command, Keys};
use crate::data::engine::Database;

/// What was looked for so far.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// The first command for which nothing was.
    to: usize,
    /// Elements were looked for, and not keys.
    of_elements: bool,
}

impl Foresight {
    /// Returns true if it is time to look for the rows of the commands from `from` on.
    fn is_over(&mut self, from: usize, of_elements: bool) -> bool {
        let is_over = from >= self.to || of_elements != self.of_elements;
        self.of_elements = of_elements;
        is_over
    }
}

/// The rows of some commands, and their table.
type RowsOf<'r> = (&'r ForeseenRows, &'r Table);

impl Connection {
    /// Has the batch look for the rows of the commands from `from` on, unless it has.
    #[inline]
    pub(super) fn foresee(
        &self,
        turn: &Turn<'_>,
        (pipeline_run, from): (&mut PipelineRun, usize),
        foresight: &mut Foresight,
        batch: &mut ValidatedBatch,
    ) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let kept = buffers.progress.kept_head.as_ref();
        if !foresight.is_over(from, kept.is_some()) {
            return;
        }
        let data = turn.data.as_ref().expect("pipeline runs have an engine");
        let look = |(rows, table): RowsOf<'_>| rows.give(|some| batch.foresee(table, some));
        foresight.to = match kept {
            Some(kept) => {
                let is_same = |command: &Command, arguments: Arguments<'_>| {
                    let key = (self.session.database, arguments.get(1));
                    kept.is_for(command.name, key)
                };
                self.elements_ahead(data, (pipeline_run, from), (kept.id(), is_same), look)
            }
            None => {
                let database = &data.engine.databases[self.session.database];
                let is_plain = !database.has_more_than_rows();
                let key_of = |command: &Command, arguments: usize| {
                    let is_read = !(is_plain && command.replaces_its_row(arguments));
                    command.first_row(arguments).filter(|_| is_read)
                };
                self.keys_ahead((data, database), (pipeline_run, from), key_of, look)
            }
        };
    }

    /// As [`Connection::foresee`], for commands that read, without a batch.
    #[inline]
    pub(super) fn foresee_reads(
        &self,
        turn: &mut Turn<'_>,
        (pipeline_run, from): (&mut PipelineRun, usize),
        foresight: &mut Foresight,
    ) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let stretch = buffers.progress.read_stretch.as_ref();
        if !foresight.is_over(from, stretch.is_some()) {
            return;
        }
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let mut foreseen = std::mem::take(&mut data.scratch.foreseen);
        foreseen.clear();
        let look = |(rows, table): RowsOf<'_>| rows.give(|some| foreseen.look_for(table, some));
        foresight.to = match stretch {
            Some(stretch) => {
                let is_same =
                    |_: &Command, arguments: Arguments<'_>| stretch.is_of(arguments.at(1));
                self.elements_ahead(data, (pipeline_run, from), (stretch.id(), is_same), look)
            }
            None => {
                let database = &data.engine.databases[self.session.database];
                let key_of = |command: &Command, _| (command.keys != Keys::NONE).then_some(1);
                self.keys_ahead((data, database), (pipeline_run, from), key_of, look)
            }
        };
        data.scratch.foreseen = foreseen;
    }

    /// Has `look` look for the rows of keys: `key_of`, called with a command and the number of its
    /// arguments, says which argument is one. Returns the first command for which it has not.
    fn keys_ahead(
        &self,
        (data, database): (&LoopData, &Database),
        (pipeline_run, from): (&mut PipelineRun, usize),
        key_of: impl Fn(&Command, usize) -> Option<usize>,
        look: impl FnOnce(RowsOf<'_>),
    ) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let rest = &buffers.input[buffers.offset..];
        let mut rows = std::mem::take(&mut pipeline_run.rows);
        rows.clear();
        let (mut last, mut to): (Option<&[u8]>, _) = (None, from);
        while to < pipeline_run.len() && !rows.are_full() {
            let arguments = pipeline_run.arguments(rest, to);
            let key = key_of(pipeline_run.at(to).command, arguments.len());
            let key = key.map(|at| arguments.at(at));
            if let Some(key) = key.filter(|key| last != Some(*key)) {
                data.engine.folder.append(key, &mut rows.bytes);
                rows.end_one();
                last = Some(key);
            }
            to += 1;
        }
        look((&rows, &database.keys));
        pipeline_run.rows = rows;
        to
    }

    /// Has `look` look for the rows of the elements that commands name of the large collection
    /// `id`, up to one for which `is_same` returns false. Returns the first command for which it
    /// has not.
    fn elements_ahead(
        &self,
        data: &LoopData,
        (pipeline_run, from): (&mut PipelineRun, usize),
        (id, is_same): (u64, impl Fn(&Command, Arguments<'_>) -> bool),
        look: impl FnOnce(RowsOf<'_>),
    ) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let Some(members) = data.engine.databases[self.session.database].members.table() else {
            return from + 1;
        };
        let rest = &buffers.input[buffers.offset..];
        let mut rows = std::mem::take(&mut pipeline_run.rows);
        rows.clear();
        let mut to = from;
        while to < pipeline_run.len() && !rows.are_full() {
            let command = pipeline_run.at(to).command;
            let arguments = pipeline_run.arguments(rest, to);
            let Some(names) = ElementNames::of(command).filter(|_| is_same(command, arguments))
            else {
                break;
            };
            for at in names.places(arguments.len()) {
                if rows.are_full() {
                    break;
                }
                let keys = &data.engine.element_keys;
                keys.name(id, arguments.at(at), &mut rows.one);
                rows.bytes.extend_from_slice(&rows.one);
                rows.end_one();
            }
            to += 1;
        }
        look((&rows, members));
        pipeline_run.rows = rows;
        to.max(from + 1)
    }
}
