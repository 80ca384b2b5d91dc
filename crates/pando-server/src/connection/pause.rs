//! Commands that wait for the end of CLIENT PAUSE.

use pando_resp::Arguments;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::context::{Command, Flags, Kind};
use crate::shared::Shared;

/// What a pause does with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paused {
    /// It runs.
    No,
    /// Its run finds out: it calls functions, and waits at the first one that may write.
    ByFunction,
    /// It waits before it runs.
    Yes,
}

/// Returns what a pause of writes does with a command.
fn paused(shared: &Shared, command: &Command, arguments: Arguments<'_>) -> Paused {
    if !command.may_write() {
        return Paused::No;
    }
    #[cfg(feature = "scripts")]
    match command.name {
        "fcall" => return Paused::ByFunction,
        "eval" if crate::commands::only_reads(arguments.at(1)) => return Paused::No,
        "evalsha" if crate::commands::named_only_reads(shared, arguments.at(1)) => {
            return Paused::No;
        }
        _ => {}
    }
    #[cfg(not(feature = "scripts"))]
    let _not_asked = (shared, arguments);
    Paused::Yes
}

impl Connection {
    /// Returns what the pause, if there is one, does with the command that begins.
    #[inline]
    pub(super) fn paused(&self, turn: &Turn<'_>, command: &Command) -> Paused {
        match turn.shared.pause.get(turn.clock) {
            None => Paused::No,
            Some((_, true)) => Paused::Yes,
            Some((_, false)) => self.paused_as_write(turn, command),
        }
    }

    /// Returns what a pause of those that may change data, or publish, does with `command`.
    #[cold]
    fn paused_as_write(&self, turn: &Turn<'_>, command: &Command) -> Paused {
        let of_command = match (&self.session.multi, command.kind) {
            (Some(multi), Kind::Exec) => {
                let commands = (0..multi.len()).map(|place| multi.at(place));
                // One that cannot be called is an error in its place.
                let each = commands.filter_map(|(index, arguments)| {
                    let (_, command) = turn.commands.resolve(index, arguments).ok()?;
                    Some(paused(turn.shared, command, arguments))
                });
                each.max().unwrap_or(Paused::No)
            }
            (_, Kind::Commit) => Paused::Yes,
            _ => {
                let buffers = self.buffers.as_ref().expect("a command is in the buffers");
                let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
                paused(turn.shared, command, arguments)
            }
        };
        match of_command {
            // Its transaction stays as it is, and so does what it has read.
            Paused::ByFunction if self.session.interactive.is_some() => Paused::Yes,
            other => other,
        }
    }

    /// Has a command whose next run would write wait for the end of a pause that has begun since
    /// its last one, and begin anew then. Not a command that waits for elements, nor an EXEC that
    /// has acted beside the store: that may have asked for the pause.
    #[inline]
    pub(super) fn hold_between_runs(&mut self, turn: &Turn<'_>) {
        if turn.shared.pause.get(turn.clock).is_some() {
            self.hold_anew(turn);
        }
    }

    #[cold]
    fn hold_anew(&mut self, turn: &Turn<'_>) {
        let Some(running) = &self.running else {
            return;
        };
        let command = running.command;
        let begins = matches!(command.kind, Kind::Exec | Kind::Transaction)
            && !command.flags.has(Flags::BLOCKING)
            && !running.is_held
            && !running.committing;
        let buffers = self.buffers.as_ref();
        let has_acted = buffers.is_none_or(|buffers| {
            !buffers.progress.done.is_empty() || buffers.progress.job.is_some()
        });
        if begins && !has_acted && self.paused_as_write(turn, command) == Paused::Yes {
            self.begin_held();
        }
    }

    /// Has the command that has begun wait until its pause is over; returns false if it is.
    #[cold]
    pub(super) fn stays_held(&mut self, turn: &Turn<'_>) -> bool {
        let command = self.running.as_ref().map(|running| running.command);
        let pause = turn.shared.pause.get(turn.clock);
        let waits = |of| self.paused(turn, of) != Paused::No;
        let pause = pause.filter(|_| command.is_some_and(waits));
        let until = pause.and_then(|(left, _)| turn.clock.checked_add(left));
        if let Some(buffers) = &mut self.buffers {
            buffers.progress.deadline = until;
        }
        if pause.is_none()
            && let Some(running) = &mut self.running
        {
            // The pause was asked for: that is no latency.
            running.is_held = false;
            running.began = turn.clock;
        }
        pause.is_some()
    }
}
