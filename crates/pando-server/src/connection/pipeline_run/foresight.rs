//! The rows that the next commands of a run change, looked for together before the first of them
//! runs: their misses in the processor's caches overlap, and each command goes to its leaf at once.
//!
//! The rows are those of the commands' keys; or, once the commands share the head of a large
//! collection, those of the elements that they name.

use pandodb::nonblocking::ValidatedBatch;

use super::rows::Rows;
use super::run::PipelineRun;
use crate::connection::Connection;
use crate::connection::element_names::ElementNames;
use crate::connection::loop_data::Turn;

/// What was looked for so far.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// The first command for which nothing was.
    to: usize,
    /// Elements were looked for, and not keys.
    of_elements: bool,
}

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
        let of_elements = buffers.progress.kept_head.is_some();
        if from < foresight.to && of_elements == foresight.of_elements {
            return;
        }
        foresight.of_elements = of_elements;
        let mut rows = std::mem::take(&mut pipeline_run.rows);
        rows.clear();
        foresight.to = match of_elements {
            true => self.foresee_elements(turn, (pipeline_run, from), &mut rows, batch),
            false => self.foresee_keys(turn, (pipeline_run, from), &mut rows, batch),
        };
        pipeline_run.rows = rows;
    }

    /// Looks for the rows of keys. Returns the first command for which it has not.
    fn foresee_keys(
        &self,
        turn: &Turn<'_>,
        (pipeline_run, from): (&PipelineRun, usize),
        rows: &mut Rows,
        batch: &mut ValidatedBatch,
    ) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let data = turn.data.as_ref().expect("pipeline runs have an engine");
        let rest = &buffers.input[buffers.offset..];
        let (mut last, mut to): (Option<&[u8]>, _) = (None, from);
        while to < pipeline_run.len() && !rows.are_full() {
            if pipeline_run.at(to).command.changes_its_row() {
                let key = pipeline_run.arguments(rest, to).at(1);
                if last != Some(key) {
                    data.engine.folder.append(key, &mut rows.bytes);
                    rows.end_one();
                    last = Some(key);
                }
            }
            to += 1;
        }
        let keys = &data.engine.databases[self.session.database].keys;
        rows.give(|some| batch.foresee(keys, some));
        to
    }

    /// Looks for the rows of elements of the collection whose head is kept. Returns the first
    /// command for which it has not.
    fn foresee_elements(
        &self,
        turn: &Turn<'_>,
        (pipeline_run, from): (&PipelineRun, usize),
        rows: &mut Rows,
        batch: &mut ValidatedBatch,
    ) -> usize {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let data = turn.data.as_ref().expect("pipeline runs have an engine");
        let members = data.engine.databases[self.session.database].members.table();
        let (Some(kept), Some(members)) = (&buffers.progress.kept_head, members) else {
            return from + 1;
        };
        let rest = &buffers.input[buffers.offset..];
        let mut to = from;
        while to < pipeline_run.len() && !rows.are_full() {
            let command = pipeline_run.at(to).command;
            let arguments = pipeline_run.arguments(rest, to);
            let key = (self.session.database, arguments.get(1));
            let Some(names) = ElementNames::of(command).filter(|_| kept.is_for(command.name, key))
            else {
                break;
            };
            for at in names.places(arguments.len()) {
                if rows.are_full() {
                    break;
                }
                let keys = &data.engine.element_keys;
                keys.name(kept.id(), arguments.at(at), &mut rows.one);
                rows.bytes.extend_from_slice(&rows.one);
                rows.end_one();
            }
            to += 1;
        }
        rows.give(|some| batch.foresee(members, some));
        to.max(from + 1)
    }
}
