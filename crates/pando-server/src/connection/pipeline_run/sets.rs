//! A pipeline run of SETs: each runs as it does alone, but all are in one batch.
//!
//! That takes one log record, one apply section, and one descent to each leaf. Others see all of
//! the SETs or none: this is one of the orders that single SETs may have. A SET reads before it
//! writes, so one that has to wait for a page has written nothing, and the SETs before it are
//! committed.

use pandodb::Lsn;
use pandodb::nonblocking::{Outcome, Polled, ValidatedBatch};

use super::Done;
use super::run::{PipelineRun, PlainKind};
use crate::connection::loop_data::{LoopData, Turn};
use crate::connection::{Buffers, Connection};
use crate::context::{Context, Data, Interrupted};

/// The reply of a SET that has set its key.
const OK: &[u8] = b"+OK\r\n";

impl Connection {
    /// Runs SETs and commits them together; does none of them if the commit would have to wait.
    pub(super) fn run_sets(&mut self, turn: &mut Turn<'_>, pipeline_run: &PipelineRun) -> Done {
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let mut batch = data.batch();
        let count = self.write_sets(turn, pipeline_run, &mut batch);
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let committed = count.and_then(|count| Some((count, commit(data, &mut batch)?)));
        data.give_back(batch);
        match committed {
            Some((count, lsn)) => Done {
                count,
                lsn: Some(lsn),
                cut: count < pipeline_run.len(),
                ..Done::NONE
            },
            None => Done::NONE,
        }
    }

    /// Runs SETs in `transaction` until all are done or one has to wait. Returns their number;
    /// `None` if they have to run one by one.
    fn write_sets(
        &mut self,
        turn: &mut Turn<'_>,
        pipeline_run: &PipelineRun,
        batch: &mut ValidatedBatch,
    ) -> Option<usize> {
        let most = turn.shared.settings.output_bytes_max();
        let (_, command) = PlainKind::Set.of(turn.commands);
        let data = turn.data.as_mut().expect("pipeline runs have an engine");
        let mut count = 0;
        while count < pipeline_run.len() && self.owed() < self.output_bytes_max(most) {
            let Buffers {
                input,
                offset,
                output,
                progress,
                ..
            } = &mut **self.buffers.as_mut().expect("a command is in the buffers");
            let reply_start = output.bytes.len();
            let mut context = Context {
                arguments: pipeline_run.arguments(&input[*offset..], count),
                staged: &[],
                command,
                session: &mut self.session,
                out: &mut output.bytes,
                reply_start,
                shared: turn.shared,
                commands: turn.commands,
                local: turn.handle,
                record: &self.record,
                data: Some(Data {
                    engine: &data.engine,
                    batch: Some(&mut *batch),
                    scratch: &mut data.scratch,
                    overlay: None,
                }),
                progress,
                waker: &self.waker,
                now_ms: turn.now_ms,
                exec_index: None,
            };
            match (command.run)(&mut context) {
                Ok(()) if &output.bytes[reply_start..] == OK => count += 1,
                Err(Interrupted::Pending(_)) => {
                    output.bytes.truncate(reply_start);
                    break;
                }
                _ => return None,
            }
        }
        (count > 0).then_some(count)
    }
}

/// Commits at once or not at all. A commit that would have to wait is dropped: its commands then
/// run one by one, and each waits or fails by itself.
fn commit(data: &mut LoopData, batch: &mut ValidatedBatch) -> Option<Lsn> {
    match batch.try_commit(&mut data.reactor) {
        Ok(Polled::Ready(Outcome::Committed(lsn))) => lsn,
        Ok(Polled::Ready(Outcome::Conflict { .. }) | Polled::Pending(_)) | Err(_) => None,
    }
}
