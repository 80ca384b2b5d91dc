//! The turn of a connection: reads input, finds commands, executes them.

use std::io::{self, Read as _};
use std::num::NonZeroUsize;

use pando_sync::time::Instant;

use crate::client::staging::Staging;
use crate::connection::executor::Step;
use crate::connection::intake::Input;
use crate::connection::joining::Joined;
use crate::connection::loop_data::Turn;
use crate::connection::{Connection, SpareBuffers};

/// Maximum number of commands that a connection executes in one turn.
const COMMANDS_PER_TURN: usize = 1024;
/// Maximum number of bytes that a connection reads in one turn.
const READ_BYTES_PER_TURN: usize = 512 * 1024;
/// The same while clients hold much memory.
const READ_BYTES_IN_SHORTAGE: usize = 32 * 1024;
/// Number of unexecuted input bytes beyond which nothing is read.
const INPUT_BYTES_AHEAD: usize = 128 * 1024;
/// Memory that is kept for later input, once all of it is executed.
const INPUT_BYTES_KEPT: usize = 1 << 20;

/// What the loop does with a connection after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterTurn {
    /// It has more to do at once.
    Again,
    /// It waits for an event or a wake-up.
    Wait,
    /// Its command goes on on a script thread, and the connection with it.
    Leave,
    /// Its command is to run together with those of others, at the end of the round.
    Join(Joined),
}

impl AfterTurn {
    /// Returns what follows from the step of a command that does not wait for anything.
    fn of(step: Step) -> Self {
        match step {
            Step::Leaves => Self::Leave,
            Step::Done | Step::Suspended | Step::Yielded => Self::Again,
        }
    }
}

impl Connection {
    /// Returns true if the connection has as much input as it can use for now.
    fn has_enough(&self) -> bool {
        let staging = self.buffers.as_ref().map(|buffers| &buffers.staging);
        if let Some(begin) = staging.and_then(Staging::begins_at) {
            // The bytes of the command before the argument stay in the buffer, so they do not
            // count.
            return self.input_ahead().saturating_sub(begin) >= INPUT_BYTES_AHEAD;
        }
        // A command that has arrived in part is read to its end, whatever its length; the parser
        // enforces its limits.
        !self.starved && self.input_ahead() >= INPUT_BYTES_AHEAD
    }

    /// Reads available input, up to the quota of a turn. Returns true if it has read something.
    fn fill(&mut self, turn: &mut Turn<'_>, spare: &mut SpareBuffers) -> bool {
        let most = match turn.shared.clients.memory.is_short() {
            true => READ_BYTES_IN_SHORTAGE,
            false => READ_BYTES_PER_TURN,
        };
        let mut left = most;
        while self.readable && left > 0 && !self.at_end && !self.session.closing {
            if self.has_enough() {
                break;
            }
            let room = turn.read_buffer.len().min(left);
            match self.stream.read(&mut turn.read_buffer[..room]) {
                Ok(0) => self.at_end = true,
                Ok(count) => {
                    left -= count;
                    turn.counts.received(count);
                    let buffers = self
                        .buffers
                        .get_or_insert_with(|| spare.pop().unwrap_or_default());
                    buffers.input.extend_from_slice(&turn.read_buffer[..count]);
                    // A short read has emptied the socket: later bytes raise a new event. The end
                    // of the input does not, if it was announced together with these bytes.
                    if count < room && !self.read_closed {
                        self.readable = false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        left < most
    }

    /// Finds the next command, which may have been found before.
    #[inline]
    fn find(&mut self, turn: &Turn<'_>) -> Input {
        let found = match self.found.take().map(NonZeroUsize::get) {
            Some(consumed) => Input::Command { consumed },
            None => self.parse(turn),
        };
        self.starved = found == Input::Starved;
        found
    }

    /// Takes its turn: reads and executes, and returns what comes next. The loop sends the replies
    /// after all connections have had their turn, so that their writes share a flush.
    pub(crate) fn advance(&mut self, turn: &mut Turn<'_>, spare: &mut SpareBuffers) -> AfterTurn {
        turn.is_clock_new = false;
        let most = turn.shared.output_bytes_max();
        self.receive(turn, spare);
        let received = self.owed() < self.output_bytes_max(most) && self.fill(turn, spare);
        let mut left = COMMANDS_PER_TURN;
        let mut next = AfterTurn::Wait;
        while self.buffers.is_some() && !self.session.closing && !self.broken {
            // A command that has begun may hold a reply of that length, which is sent at its end.
            if self.running.is_none() && self.owed() >= self.output_bytes_max(most) {
                self.stalled = true;
                break;
            }
            if left == 0 {
                next = AfterTurn::Again;
                break;
            }
            if self.record.is_killed() {
                break;
            }
            let step = if self.running.is_some() {
                self.go_on(turn)
            } else if turn.stopping {
                break;
            } else {
                match self.find(turn) {
                    Input::Command { consumed } if self.is_kept_back(turn) => {
                        self.found = NonZeroUsize::new(consumed);
                        break;
                    }
                    Input::Command { consumed } => match self.run_pipeline(turn, consumed, left) {
                        0 => match self.joins_round(turn, consumed) {
                            Some(joined) => {
                                self.found = NonZeroUsize::new(consumed);
                                next = AfterTurn::Join(joined);
                                break;
                            }
                            None => self.begin(turn, consumed),
                        },
                        count => {
                            left -= count;
                            continue;
                        }
                    },
                    Input::Starved => {
                        if self.readable && !self.at_end {
                            next = AfterTurn::Again;
                        }
                        break;
                    }
                    Input::Stuck => break,
                }
            };
            match step {
                Step::Done => {
                    self.quota.grow();
                    left -= 1;
                }
                Step::Suspended => {
                    self.quota.shrink();
                    break;
                }
                Step::Yielded | Step::Leaves => {
                    next = AfterTurn::of(step);
                    break;
                }
            }
        }
        self.compact();
        self.end_idle_transaction(turn, received);
        self.note_arrival(received, turn.clock);
        next
    }

    /// Records since when the peer owes the rest of a command, unless the connection waits for
    /// something else.
    fn note_arrival(&mut self, received: bool, clock: Instant) {
        let has_begun = self.buffers.as_ref().is_some_and(|buffers| {
            buffers.input.len() > buffers.offset || buffers.staging.is_arriving()
        });
        let waits = self.running.is_some() || self.stalled || self.at_end;
        if !has_begun || !self.starved || waits {
            self.unfinished_since = None;
        } else if received || self.unfinished_since.is_none() {
            self.unfinished_since = Some(clock);
        }
    }

    /// Goes on with the command that has begun, on a script thread.
    pub(crate) fn resume_elsewhere(&mut self, turn: &mut Turn<'_>) -> Step {
        self.unpark();
        self.resume(turn)
    }

    /// Goes on with the command that has begun.
    fn go_on(&mut self, turn: &mut Turn<'_>) -> Step {
        self.unpark();
        self.hold_between_runs(turn);
        self.resume(turn)
    }

    /// The running command gets another turn.
    fn unpark(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            buffers.waits.unpark();
        }
    }

    /// Drops executed input from the buffer.
    pub(super) fn compact(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            if buffers.offset == buffers.input.len() {
                buffers.input.clear();
                if buffers.input.capacity() > INPUT_BYTES_KEPT {
                    buffers.input = Vec::new();
                }
            } else if buffers.offset > 0 {
                buffers.input.drain(..buffers.offset);
            }
            buffers.offset = 0;
        }
    }
}
