//! What a command that has finished adds to the figures: counters, slow log, latency monitor,
//! profile.

use pando_resp::Arguments;
use pando_sync::time::Duration;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::connection::running::Running;
use crate::context::progress::Progress;
use crate::context::{Command, Flags};
use crate::figures::slow_log::{SlowCommand, kept};
use crate::times::nanoseconds;

impl Connection {
    /// Counts a command that has finished at the turn's clock, and the commands inside an EXEC.
    #[inline]
    pub(crate) fn count(&mut self, turn: &mut Turn<'_>, running: &Running) {
        let statistics = &turn.shared.statistics;
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let Progress { hits, misses, .. } = &*buffers.progress;
        let found = (u64::from(*hits), u64::from(*misses));
        let commands = 1 + self.count_calls(turn);
        turn.counts.ended(commands, found.0, found.1);
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let ns = nanoseconds(turn.clock.duration_since(running.began));
        statistics.commands.called(running.id, ns);
        if buffers.output.running().first() == Some(&b'-') {
            statistics.commands.failed(running.id);
        }
        if ns >= turn.shared.settings.watch_ns() {
            let buffers = self.buffers.as_ref().expect("a command is in the buffers");
            let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
            let waits = match running.parked {
                true => buffers.waits.text(),
                false => String::new(),
            };
            let command = (running.id, running.command);
            self.note_slow(turn, command, arguments, (ns, &waits));
        }
        if self.session.profiles.is_some() {
            self.note_profile(turn, running, ns);
        }
    }

    /// Counts the commands inside an EXEC or scripts, and returns their number.
    #[inline]
    pub(crate) fn count_calls(&mut self, turn: &Turn<'_>) -> u64 {
        let statistics = &turn.shared.statistics;
        let (calls, mut count) = (&mut self.progress().calls, 0);
        for call in calls.drain(..) {
            count += u64::from(!call.is_refused);
            if let Some(id) = call.id {
                match (call.is_refused, &call.error) {
                    (true, _) => statistics.commands.rejected(id),
                    (false, None) => statistics.commands.called(id, call.ns),
                    (false, Some(_)) => {
                        statistics.commands.called(id, call.ns);
                        statistics.commands.failed(id);
                    }
                }
            }
            if let Some(code) = call.error.filter(|_| !call.is_passed_on) {
                turn.count_error(&code);
            }
        }
        count
    }

    /// Adds where a command spent its time to the connection's profiles; PANDO PROFILE itself is
    /// left out.
    #[cold]
    fn note_profile(&mut self, turn: &Turn<'_>, running: &Running, ns: u64) {
        let name = turn.shared.statistics.commands.name(running.id);
        let waited = self.buffers.as_ref().filter(|_| running.parked);
        let Some(profiles) = &mut self.session.profiles else {
            return;
        };
        if name == "pando|profile" {
            return profiles.forget_runs();
        }
        let waited = waited.map(|buffers| &buffers.waits);
        profiles.end(name, Duration::from_nanos(ns), waited);
    }

    /// Reports a command that took `ns` nanoseconds, and what it waited for, to slow log and
    /// latency monitor.
    #[cold]
    pub(crate) fn note_slow(
        &self,
        turn: &Turn<'_>,
        (id, command): (usize, &Command),
        arguments: Arguments<'_>,
        (ns, waits): (u64, &str),
    ) {
        let event = match command.flags.has(Flags::FAST) {
            true => "fast-command",
            false => "command",
        };
        turn.shared.observe(event, ns, turn.now_ms);
        let settings = &turn.shared.settings;
        let micros = ns / 1000;
        if u64::try_from(settings.slow_us()).is_ok_and(|least| micros >= least) {
            let command = SlowCommand {
                id: 0,
                unix_s: turn.now_ms / 1000,
                micros,
                arguments: kept(arguments, command.hides()),
                address: self.record.address.to_string(),
                client_name: self.record.names.lock().name.clone(),
            };
            let most = usize::try_from(settings.slow_entries_max()).unwrap_or(usize::MAX);
            turn.shared.slow_log.add(command, most);
            let statistics = &turn.shared.statistics;
            let (client, name) = (&self.record.address, statistics.commands.name(id));
            (turn.shared.events).slow_command(client, name, micros, waits);
        }
    }
}
