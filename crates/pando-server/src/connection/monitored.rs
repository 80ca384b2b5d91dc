//! Commands that MONITOR shows (decision 092): when they have ended, or begin to wait for others.

use crate::connection::Connection;
use crate::connection::pipeline_run::PipelineRun;
use crate::connection::running::Running;
use crate::context::Command;
use crate::monitoring::Caller;
use crate::monitoring::lines::Lines;
use crate::shared::Shared;

impl Connection {
    /// Shows the running command to the monitors, with those inside it, unless that was done.
    #[cold]
    pub(crate) fn show(&mut self, shared: &Shared, running: &mut Running) {
        if std::mem::replace(&mut running.is_shown, true) {
            return;
        }
        let lines = std::mem::take(&mut self.progress().lines);
        // A script has shown itself before what it called, unless it was ended.
        let is_in = running.command.is_script() && !lines.is_empty();
        self.show_lines(shared, running.command, (lines, is_in));
    }

    /// Notes that the running command begins to wait for other clients. Who becomes a monitor now
    /// does not see it any more.
    #[cold]
    pub(super) fn show_wait(&mut self, shared: &Shared, running: &mut Running) {
        match shared.channels.has_monitors() {
            true => self.show(shared, running),
            false => running.is_shown = true,
        }
    }

    /// Shows an EXEC that was refused: the transaction ends all the same.
    #[cold]
    pub(super) fn show_refused(&self, shared: &Shared, command: &Command) {
        self.show_lines(shared, command, (Lines::default(), false));
    }

    fn show_lines(&self, shared: &Shared, command: &Command, (mut lines, is_in): (Lines, bool)) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        if command.is_for_monitors() && !is_in {
            let caller = (self.session.database, Caller::Client(&self.record.address));
            lines.add_own(caller, command.visible(arguments, buffers.staging.values()));
        }
        let messages = lines.into_messages(self.session.database);
        shared.channels.tell_monitors(messages);
    }

    /// Shows the first `count` commands of a pipeline run to the monitors.
    #[cold]
    pub(super) fn show_together(&self, shared: &Shared, pipeline_run: &PipelineRun, count: usize) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let rest = &buffers.input[buffers.offset..];
        let caller = (self.session.database, Caller::Client(&self.record.address));
        let mut lines = Lines::default();
        for place in 0..count {
            let command = pipeline_run.at(place).command;
            if command.is_for_monitors() {
                let arguments = pipeline_run.arguments(rest, place);
                lines.add_own(caller, command.visible(arguments, &[]));
            }
        }
        let messages = lines.into_messages(self.session.database);
        shared.channels.tell_monitors(messages);
    }
}
