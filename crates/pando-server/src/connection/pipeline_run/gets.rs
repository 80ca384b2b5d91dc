//! A pipeline run of GETs: the tree is descended by one group of keys after another.

use pando_resp::Writer;
use pandodb::Lsn;

use super::Done;
use super::run::PipelineRun;
use pandodb::nonblocking::Reads;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::data::keyspace::{Row, ValueType};

/// Length from which on a value is taken to be one that does not lie in its leaf.
const LONG: usize = 1024;
/// Bytes of values that do not lie in their leaves after which a group ends.
const GROUP_BYTES_MAX: usize = 256 * 1024;

impl Connection {
    /// Runs GETs until all are done, one has to wait, or the limit of unsent replies is reached.
    pub(super) fn run_gets(&mut self, turn: &mut Turn<'_>, pipeline_run: &mut PipelineRun) -> Done {
        let mut done = Done {
            cut: false,
            ..Done::NONE
        };
        let most = turn.shared.output_bytes_max();
        while done.count < pipeline_run.len() && !done.cut {
            let from = done.count;
            let count = (pipeline_run.len() - from).min(Reads::GROUP_MAX);
            if self.session.tracking.is_some() {
                self.track_gets(turn, pipeline_run, from..from + count);
            }
            if !self.look_up(turn, pipeline_run, (from, count), &mut done.shown_from) {
                done.cut = true;
                break;
            }
            for place in 0..pipeline_run.values.len() {
                if self.owed() >= self.output_bytes_max(most) {
                    return done;
                }
                if !self.reply_value(turn, pipeline_run, place, &mut done) {
                    done.cut = true;
                    break;
                }
            }
            let is_full = pipeline_run.bytes.len() > GROUP_BYTES_MAX;
            done.cut |= pipeline_run.values.len() < count && !is_full;
        }
        done
    }

    /// Looks up the keys of `count` commands, starting with the command at `from`.
    fn look_up(
        &self,
        turn: &Turn<'_>,
        pipeline_run: &mut PipelineRun,
        (from, count): (usize, usize),
        shown_from: &mut Option<Lsn>,
    ) -> bool {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let rest = &buffers.input[buffers.offset..];
        let engine = &turn
            .data
            .as_ref()
            .expect("pipeline runs have an engine")
            .engine;
        pipeline_run.store_keys(rest, from..from + count, &engine.folder);
        let mut keys: [&[u8]; Reads::GROUP_MAX] = [&[]; Reads::GROUP_MAX];
        let mut start = 0;
        for (key, end) in keys.iter_mut().zip(&pipeline_run.stored_ends) {
            *key = &pipeline_run.stored[start..*end];
            start = *end;
        }
        pipeline_run.bytes.clear();
        pipeline_run.values.clear();
        let table = &engine.databases[self.session.database].keys;
        let reads = Reads::of(table);
        let PipelineRun { bytes, values, .. } = pipeline_run;
        if !pipeline_run.meets_long {
            // On an error nothing is replied here: the command that meets it runs alone and
            // reports it.
            match reads.get_group(&keys[..count], bytes, values, shown_from) {
                Ok(is_long) => pipeline_run.meets_long = is_long,
                Err(_) => return false,
            }
        }
        if pipeline_run.meets_long && values.len() < count {
            let PipelineRun { foreseen, row, .. } = pipeline_run;
            foreseen.look_for(table, &keys[values.len()..count]);
            pipeline_run.meets_long = false;
            for key in &keys[values.len()..count] {
                let what = (*key, usize::MAX);
                let Some(found) = reads.get_foreseen(foreseen, what, row, shown_from) else {
                    break;
                };
                pipeline_run.meets_long |= row.len() > LONG;
                let start = bytes.len();
                bytes.extend_from_slice(row);
                values.push(found.map(|_| start..bytes.len()));
                // The others are those of another group.
                if bytes.len() > GROUP_BYTES_MAX {
                    break;
                }
            }
            foreseen.clear();
        }
        true
    }

    /// Replies with the value at `place` of the group. Returns false if its row cannot be used.
    fn reply_value(
        &mut self,
        turn: &Turn<'_>,
        pipeline_run: &mut PipelineRun,
        place: usize,
        done: &mut Done,
    ) -> bool {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let mut writer = Writer::new(&mut buffers.output.bytes, self.session.version);
        let value = pipeline_run.values[place]
            .clone()
            .map(|range| &pipeline_run.bytes[range]);
        let payload = match value {
            None => None,
            Some(value) => match Row::decode(pipeline_run.stored_at(place), value) {
                Err(_) => return false,
                Ok(row) if row.is_over(turn.now_ms) => None,
                // GET itself refuses it.
                Ok(row) if row.value_type != ValueType::String => {
                    pipeline_run.meets_pieces = row.value_type == ValueType::Pieces;
                    return false;
                }
                Ok(row) => Some(&value[row.payload..]),
            },
        };
        match payload {
            Some(payload) => {
                writer.bulk(payload);
                done.hits += 1;
            }
            None => {
                writer.null();
                done.misses += 1;
            }
        }
        done.count += 1;
        true
    }
}
