//! The turns of the connections in a round, and the commands that run together at their end.
//!
//! Connections with short commands come first, and have their replies before others go on with long
//! ones: nobody waits for a turn of each long command.

use std::collections::VecDeque;

use mio::Registry;
use pando_sync::time::{Duration, Instant, now, unix_ms};

use super::EventLoop;
use crate::connection::advance::AfterTurn;
use crate::connection::joining::Joined;
use crate::connection::loop_data::{RoundCounts, Turn};
use crate::connection::round_run::Together;
use crate::connection::{Connection, SpareBuffers};
use crate::event_loop::eviction::make_room;
use crate::event_loop::housekeeping::end_connection;
use crate::event_loop::slab::Slab;
use crate::event_loop::timers::Timers;
use crate::loop_handle::Token;
use crate::times::milliseconds;

/// Time of a turn from which on the next one of the connection comes behind those of others.
const LONG: Duration = Duration::from_micros(100);
/// Time in a round for these, or, if that is more, as much as others have had: both get further,
/// whatever else arrives.
const LONG_TURNS_MIN: Duration = Duration::from_millis(1);

/// What the loop lends to the turns of a round, beside what each of them has.
struct Turns<'a> {
    connections: &'a mut Slab<Connection>,
    runnable: &'a mut VecDeque<Token>,
    slow: &'a mut VecDeque<Token>,
    touched: &'a mut Vec<Token>,
    leaving: &'a mut Vec<Token>,
    /// Commands that run at the end of the round.
    joined: &'a mut Vec<(Joined, Token)>,
    timers: &'a mut Timers,
    registry: &'a Registry,
    spare: &'a mut SpareBuffers,
    /// Clients were to be closed for their memory: the round ends, so that they are.
    is_short: bool,
    began: Instant,
    began_ms: u64,
}

impl EventLoop {
    /// Gives connections their turns in the round that has `begun`, and sends their replies.
    pub(super) fn give_turns(&mut self, begun: Instant) {
        let mut is_short = self.take_turns(None);
        self.ask_for_durability();
        is_short |= self.finish_turns();
        if !self.slow.is_empty() && !is_short {
            let most = now().duration_since(begun).max(LONG_TURNS_MIN);
            self.take_turns(Some(most));
            self.ask_for_durability();
            self.finish_turns();
        }
    }

    /// Gives each runnable connection one turn, or, with a time, so many of the slow ones that they
    /// take about that long: one at least. Returns true if the round is to end, so that clients are
    /// closed.
    fn take_turns(&mut self, most: Option<Duration>) -> bool {
        let (began, began_ms) = (now(), unix_ms());
        let mut turn = Turn {
            index: self.index,
            shared: &self.shared,
            commands: &self.commands,
            handle: &self.handle,
            data: self.data.as_mut(),
            read_buffer: &mut self.read_buffer,
            turns_since: began,
            clock: began,
            is_clock_new: true,
            now_ms: began_ms,
            counts: RoundCounts::default(),
            leaves: self.script_threads.leaves(),
            stopping: self.stop_at.is_some(),
        };
        let mut turns = Turns {
            connections: &mut self.connections,
            runnable: &mut self.runnable,
            slow: &mut self.slow,
            touched: &mut self.touched,
            leaving: &mut self.leaving,
            joined: &mut self.joined,
            timers: &mut self.timers,
            registry: self.poll.registry(),
            spare: &mut self.spare,
            is_short: false,
            began,
            began_ms,
        };
        for behind in (0..turns.queue(most).len()).rev() {
            let Some(token) = turns.queue(most).pop_front() else {
                break;
            };
            if let Some(data) = &mut turn.data {
                let joined = turns.joined.len();
                data.joining.open(joined, behind + joined > 0);
            }
            turns.give(&mut turn, token);
            if turns.is_short || most.is_some_and(|most| turn.is_over(began + most)) {
                break;
            }
        }
        if !turns.joined.is_empty() {
            turns.run_joined(&mut turn);
        }
        turn.tick();
        let is_short = turns.is_short;
        let tell = |of| self.shared.tell_turn(of);
        self.has_turn = self.shared.contended.end_round(self.index, tell);
        if let Some(data) = &mut self.data {
            data.trim();
        }
        is_short
    }
}

impl Turns<'_> {
    /// Returns those that have turns now.
    fn queue(&mut self, most: Option<Duration>) -> &mut VecDeque<Token> {
        match most {
            None => self.runnable,
            Some(_) => self.slow,
        }
    }

    fn give(&mut self, turn: &mut Turn<'_>, token: Token) {
        let Some(connection) = self.connections.get(token) else {
            return;
        };
        connection.queued = false;
        // If the previous turn has just read the clock, its time serves this turn, too.
        if !turn.is_clock_new {
            turn.clock = now();
        }
        let since = turn.clock;
        turn.now_ms = self.began_ms + milliseconds(since.duration_since(self.began));
        let next = connection.advance(turn, self.spare);
        connection.is_slow &= connection.running.is_some();
        connection.is_slow |= next == AfterTurn::Again || turn.is_over(since + LONG);
        match next {
            AfterTurn::Again => {
                connection.queued = true;
                self.slow.push_back(token);
            }
            AfterTurn::Leave => self.leaving.push(token),
            AfterTurn::Wait => {}
            AfterTurn::Join(joined) => {
                // Until then it counts as queued: it has its turn.
                connection.queued = true;
                return self.joined.push((joined, token));
            }
        }
        self.end(turn, token);
    }

    /// Ends a turn. One that its peer has closed, and that owes nothing, is closed at once: the
    /// turns behind it do not see it any longer.
    fn end(&mut self, turn: &Turn<'_>, token: Token) {
        let Some(connection) = self.connections.get(token) else {
            return;
        };
        if connection.was_closed() {
            self.timers.set(token, &mut connection.timer, None);
            if let Some(connection) = self.connections.remove(token) {
                end_connection(connection, (turn.shared, turn.handle), self.registry);
            }
            return;
        }
        connection.publish(turn.clock, turn.now_ms);
        let memory = &turn.shared.clients.memory;
        if memory.count(&connection.record.held, connection.memory()) {
            self.is_short = true;
            let goes_on = make_room(turn.shared, connection);
            if goes_on && !connection.queued {
                connection.queued = true;
                self.runnable.push_back(token);
            }
        }
        let deadline = connection.deadline();
        self.timers.set(token, &mut connection.timer, deadline);
        self.touched.push(token);
    }

    /// Runs the commands that wait for the end of the round: those of each key together.
    fn run_joined(&mut self, turn: &mut Turn<'_>) {
        let mut joined = std::mem::take(self.joined);
        if let Some(data) = &mut turn.data {
            // Those that have to run alone do so at once.
            data.joining.open(0, false);
        }
        joined.sort_by_key(|(of, _)| *of);
        for group in joined.chunk_by(|(a, _), (b, _)| a.key == b.key) {
            match group {
                [(_, token)] => self.give(turn, *token),
                _ => self.run_group(turn, group),
            }
        }
        joined.clear();
        *self.joined = joined;
    }

    /// Runs commands that write the same key.
    fn run_group(&mut self, turn: &mut Turn<'_>, group: &[(Joined, Token)]) {
        let mut together = Together::new(turn);
        let (mut done, mut left) = (Vec::with_capacity(group.len()), Vec::new());
        for (joined, token) in group {
            let connection = self.connections.get(*token);
            match connection.is_some_and(|of| of.run_in_round(turn, *joined, &mut together)) {
                true => done.push((*joined, *token)),
                false => left.push(*token),
            }
        }
        let last = done
            .last()
            .and_then(|(_, token)| self.connections.get(*token));
        let share = last.and_then(|last| last.commit_round(turn, &mut together));
        together.end(turn);
        for (joined, token) in done {
            let Some(connection) = self.connections.get(token) else {
                continue;
            };
            let Some(share) = share else {
                connection.leave_round();
                left.push(token);
                continue;
            };
            connection.end_in_round(turn, joined, share);
            // What has arrived since it was read raises no new event.
            connection.queued = connection.readable;
            if connection.queued {
                self.runnable.push_back(token);
            }
            self.end(turn, token);
        }
        for token in left {
            self.give(turn, token);
        }
    }
}
