//! Commands that wait for the turn of their loop with a contended key
//! ([`crate::client::contended_keys`]).
//!
//! A command is asked for the first key that it writes, and a pipeline run for that of its first
//! command: keys for which many fight come alone or first in practice, and a turn that was not
//! taken costs a conflict. A reservation is of the key that the commit found changed: for others it
//! would be of no use to a command that is repeated.

use pando_resp::Arguments;
use pando_sync::time::Duration;
use pandodb::nonblocking::ValidatedBatch;

use crate::client::contended_keys::{ContendedKey, Entry};
use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::connection::reservation::Reservation;
use crate::connection::running::Running;
use crate::context::{Command, Kind};
use crate::data::keyspace::shown_of;

/// Time after which a loop gives its turns back before the next command: it may have many
/// connections whose commands take long.
const TURN_MAX: Duration = Duration::from_millis(2);

/// Number of conflicts after which a command reserves the key that it meets them for.
const CONFLICTS_MAX: u32 = 8;

impl Connection {
    /// Returns true if the command that the parser has found writes a key whose turn another loop
    /// has, or that a command has reserved: the connection is woken when this loop gets it.
    #[inline]
    pub(super) fn waits_for_turn(&mut self, turn: &mut Turn<'_>) -> bool {
        turn.shared.contended.any() && self.asks_for_turn(turn)
    }

    #[cold]
    fn asks_for_turn(&mut self, turn: &mut Turn<'_>) -> bool {
        self.end_hold();
        if turn.clock.duration_since(turn.turns_since) >= TURN_MAX {
            turn.turns_since = turn.clock;
            let tell = |of| turn.shared.tell_turn(of);
            turn.shared.contended.end_turns(turn.index, tell);
        }
        // Its waker is in the queue already.
        if self.awaits_turn {
            return true;
        }
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let command = (turn.commands.find(arguments.at(0)))
            .and_then(|(index, _)| turn.commands.resolve(index, arguments).ok())
            .map(|(_, command)| command);
        let key = command.and_then(|command| self.first_written(turn, (command, arguments)));
        self.awaits_turn = key.is_some_and(|key| {
            let (of, tell) = ((turn.index, &self.waker), |of| turn.shared.tell_turn(of));
            (turn.shared.contended).enter(key, of, turn.clock, tell) == Entry::Later
        });
        self.awaits_turn
    }

    /// Records that the commit of `command`, or of the run of commands that it begins, met a
    /// conflict.
    #[cold]
    pub(super) fn met_conflict(&self, turn: &Turn<'_>, command: &'static Command) {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        if let Some(key) = self.first_written(turn, (command, arguments)) {
            turn.shared.contended.met_conflict(key);
        }
    }

    /// Reserves the key that a command has met conflicts for, if it is known, else the first one
    /// that it writes, once they are many.
    #[cold]
    pub(super) fn reserve_if_stubborn(&self, turn: &Turn<'_>, running: &mut Running) {
        if running.reservation.is_some() || !running.conflicts.is_multiple_of(CONFLICTS_MAX) {
            return;
        }
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let first = self.first_written(turn, (running.command, arguments));
        let changed = running.batch.as_deref();
        let changed = changed.and_then(|batch| changed_key(turn, batch));
        let key = first.map(|first| changed.unwrap_or(first));
        let reserved = key.and_then(|key| Reservation::begin(turn.shared, key, 0));
        running.reservation = reserved.map(Box::new);
    }

    /// Reserves the first key that a command writes, if it has begun anew many times, since others
    /// have written the key while it read what belongs to that: a walk over a long list takes many
    /// turns. Once the time is over, it does so for a longer time at the next change, so that its
    /// reads fit into one.
    #[cold]
    pub(super) fn reserve_if_restarted(&mut self, turn: &Turn<'_>, running: &mut Running) {
        let progress = self.progress();
        let (restarts, (times, reserved_at)) = (progress.restarts, progress.reservations);
        if running.reservation.is_some() || restarts < CONFLICTS_MAX.max(reserved_at + 1) {
            return;
        }
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let first = self.first_written(turn, (running.command, arguments));
        let reserved = first.and_then(|key| Reservation::begin(turn.shared, key, times));
        if let Some(reserved) = reserved {
            running.reservation = Some(Box::new(reserved));
            self.progress().reservations = (times + 1, restarts);
        }
    }

    /// Returns the first key that a call writes; `None` if it writes none now.
    pub(super) fn first_written(
        &self,
        turn: &Turn<'_>,
        call: (&'static Command, Arguments<'_>),
    ) -> Option<ContendedKey> {
        if self.session.interactive.is_some() {
            return None;
        }
        let of = |(command, arguments): (&'static Command, Arguments<'_>)| {
            let writes = command.may_write() && command.takes(arguments.len());
            let mut keys = command.keys.of(arguments);
            let key = keys.next().filter(|_| writes)?;
            Some(turn.shared.contended.key(self.session.database, key))
        };
        match &self.session.multi {
            None => of(call),
            Some(multi) if call.0.kind == Kind::Exec => (0..multi.len()).find_map(|place| {
                let (index, arguments) = multi.at(place);
                of((turn.commands.at(index), arguments))
            }),
            // It is queued.
            Some(_) => None,
        }
    }
}

/// Returns the key whose row the last commit of a command found changed, whether the command writes
/// it or not. `None` if that was another row, or if the row does not name all of its key.
pub(super) fn changed_key(turn: &Turn<'_>, batch: &ValidatedBatch) -> Option<ContendedKey> {
    let databases = &turn.data.as_ref()?.engine.databases;
    databases.iter().enumerate().find_map(|(database, of)| {
        let (key, is_whole) = shown_of("", batch.changed_key(&of.keys)?);
        is_whole.then(|| turn.shared.contended.key(database, key))
    })
}
