//! What a command does to clients that track keys: it notes what it reads for its own client, and
//! tells others what it has written. `tracking/registry.rs` has the argument that nothing is lost.

use std::ops::Range;

use crate::client::session::Session;
use crate::connection::loop_data::Turn;
use crate::connection::pipeline_run::PipelineRun;
use crate::connection::running::Running;
use crate::connection::{Buffers, Connection};
use crate::context::Kind;
use crate::tracking::session::LeftTold;

/// Bytes of keys that a loop has still to tell beyond which all clients forget everything.
const LEFT_BYTES_MAX: usize = 32 << 20;

/// Returns true if what it reads was noted by the commands that it has run.
fn is_several(running: &Running) -> bool {
    running.command.kind == Kind::Exec || running.command.is_script()
}

/// Returns the keys that the command has read for its client, as far as they are known.
fn reads_of<'b>(buffers: &'b Buffers, running: &Running) -> Vec<&'b [u8]> {
    if is_several(running) {
        let reads = buffers.progress.tracked_reads.as_ref();
        return reads.map_or_else(Vec::new, |reads| reads.keys().collect());
    }
    if !running.command.is_tracked() {
        return Vec::new();
    }
    let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
    running.command.keys.of(arguments).collect()
}

/// Returns true if what the command reads at its top level is kept by its client.
fn keeps(session: &Session, running: &Running) -> bool {
    let tracking = session.tracking.as_ref();
    // What several have read was noted if it is kept.
    tracking.is_some_and(|of| of.options.is_on && (is_several(running) || of.options.keeps()))
}

impl Connection {
    /// Notes the keys of a command that reads without a transaction, before it reads them.
    #[cold]
    pub(super) fn track_before_run(&mut self, turn: &Turn<'_>, running: &Running) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let is_alone = match running.command.kind {
            Kind::Read => true,
            Kind::ReadMany => buffers.parser.spans().len() <= 2,
            _ => false,
        };
        if is_alone && !running.reads_many && self.session.interactive.is_none() {
            self.track_reads(turn, running);
        }
    }

    /// Notes the keys that a transaction has read, before it is checked that they have not changed.
    #[cold]
    pub(super) fn track_before_commit(&mut self, turn: &Turn<'_>, running: &mut Running) {
        if let Some(tracking) = &mut self.session.tracking
            && tracking.is_changed()
        {
            tracking.apply();
        }
        let batch = running.batch.as_deref_mut();
        // What was read at a snapshot is forgotten at once: see `forget_old_reads`.
        if batch.is_some_and(|batch| batch.transaction().is_none()) {
            self.track_reads(turn, running);
        }
    }

    fn track_reads(&mut self, turn: &Turn<'_>, running: &Running) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let tracking = self.session.tracking.as_ref();
        let tracking = tracking.filter(|tracking| !tracking.options.is_broadcast);
        let Some(tracking) = tracking.filter(|_| keeps(&self.session, running)) else {
            return;
        };
        let keys = reads_of(buffers, running);
        let is_any = !keys.is_empty();
        tracking.add_reads(keys.into_iter(), &turn.shared.channels);
        buffers.progress.is_tracking |= is_any;
    }

    /// Notes the keys of GETs that run together, before they are read.
    #[cold]
    pub(super) fn track_gets(
        &self,
        turn: &Turn<'_>,
        pipeline_run: &PipelineRun,
        places: Range<usize>,
    ) {
        let tracking = self.session.tracking.as_ref();
        if let Some(tracking) = tracking.filter(|tracking| tracking.options.listens()) {
            let buffers = self.buffers.as_ref().expect("a command is in the buffers");
            let rest = &buffers.input[buffers.offset..];
            let keys = places.map(|place| pipeline_run.arguments(rest, place).at(1));
            tracking.add_reads(keys, &turn.shared.channels);
        }
    }

    /// Has the client forget what the command has read, behind its reply, if that was of an earlier
    /// moment, that of a snapshot or of an open transaction: it may have changed since. So it does
    /// if the command has read more than was noted.
    #[cold]
    pub(super) fn forget_old_reads(&self, turn: &Turn<'_>, running: &mut Running) {
        let batch = running.batch.as_deref_mut();
        let is_old = batch.is_some_and(|batch| batch.transaction().is_some());
        let running = &*running;
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let tracking = self.session.tracking.as_ref();
        let Some(tracking) = tracking.filter(|_| keeps(&self.session, running)) else {
            return;
        };
        let reads = buffers.progress.tracked_reads.as_ref();
        let has_too_many = is_several(running) && reads.is_some_and(|reads| reads.has_all());
        if has_too_many {
            tracking.forget_all(&turn.shared.channels);
        } else if is_old {
            let keys = reads_of(buffers, running);
            tracking.forget(keys.into_iter(), &turn.shared.channels);
        }
    }

    /// Tells the clients that have read them which keys were just committed; inside a transaction
    /// of the client, that waits for its end. `running` is the command, if it ran alone.
    #[inline]
    pub(super) fn tell_trackers(&mut self, turn: &mut Turn<'_>, running: Option<&Running>) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let written = &mut buffers.progress.written;
        if let Some(interactive) = &mut self.session.interactive {
            interactive.written.append(written);
        } else if !written.is_empty() && turn.shared.tracking.any() {
            self.tell_written(turn, running);
        }
    }

    #[cold]
    fn tell_written(&mut self, turn: &mut Turn<'_>, running: Option<&Running>) {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let written = std::mem::take(&mut buffers.progress.written);
        // No single command writes what it has read for its client.
        let running = running.filter(|of| is_several(of) && keeps(&self.session, of));
        let reads = running.and_then(|_| buffers.progress.tracked_reads.clone());
        let tracking = self.session.tracking.as_ref();
        let mut left = LeftTold::new(written, tracking.map(|of| of.writer(reads)));
        left.from += left.tell(&turn.shared.tracking, &turn.shared.channels);
        if let Some(data) = turn.data.as_mut()
            && !left.is_done()
        {
            let bytes = left.memory() + data.left_told.iter().map(LeftTold::memory).sum::<usize>();
            data.left_told.push_back(left);
            if bytes > LEFT_BYTES_MAX {
                data.left_told.clear();
                turn.shared.tracking.changed_all(&turn.shared.channels);
            }
        }
    }
}
