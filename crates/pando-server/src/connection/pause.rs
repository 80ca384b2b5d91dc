//! Commands that wait for the end of CLIENT PAUSE.

use pando_sync::time::Duration;

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::context::{Command, Kind};

impl Connection {
    /// Returns true if `command` must wait before it runs.
    #[inline]
    pub(super) fn is_paused(&self, turn: &Turn<'_>, command: &Command) -> bool {
        match turn.shared.pause.get(turn.now_ms) {
            None => false,
            Some((_, all)) => all || self.may_write(turn, command),
        }
    }

    /// Returns true if `command` may change data, or publish.
    #[cold]
    fn may_write(&self, turn: &Turn<'_>, command: &Command) -> bool {
        match (&self.session.multi, command.kind) {
            (Some(multi), Kind::Exec) => {
                (0..multi.len()).any(|place| turn.commands.at(multi.at(place).0).may_write())
            }
            (_, Kind::Commit) => true,
            _ => command.may_write(),
        }
    }

    /// Has the command that has begun wait until its pause is over; returns false if it is.
    #[cold]
    pub(super) fn stays_held(&mut self, turn: &Turn<'_>) -> bool {
        let command = self.running.as_ref().map(|running| running.command);
        let pause = turn.shared.pause.get(turn.now_ms);
        let pause = pause.filter(|_| command.is_some_and(|of| self.is_paused(turn, of)));
        let until = pause.and_then(|(until_ms, _)| {
            let left = Duration::from_millis(until_ms - turn.now_ms);
            turn.clock.checked_add(left)
        });
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
