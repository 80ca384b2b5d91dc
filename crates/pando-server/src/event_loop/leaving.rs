//! Connections that leave their loop with a command that goes on on a script thread, and come back
//! (decision 095).
//!
//! The connection itself is away, and its place in the slab is kept. Its replies wait with it, in
//! order, and nothing is read. When its peer is gone, or it was killed, its command is ended: it
//! comes back soon, and is closed.

use mio::event::Event;
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;

use super::EventLoop;
use super::away::Away;
use crate::connection::Connection;
use crate::loop_handle::{Arrival, Token};
use crate::script_threads::{Returned, ScriptThreads};

impl EventLoop {
    /// Sends those connections to script threads whose commands are to go on there.
    pub(super) fn send_away(&mut self) {
        for token in std::mem::take(&mut self.leaving) {
            let Some(mut connection) = self.connections.lend(token) else {
                continue;
            };
            self.timers.set(token, &mut connection.timer, None);
            let away = Away::new(&connection);
            match ScriptThreads::send(&self.script_threads, (self.index, token), connection) {
                Ok(job) => {
                    self.shared.statistics.tick(Ticker::ScriptsMoved, 1);
                    let away = Away { job, ..away };
                    self.away.insert(token, away);
                }
                Err(connection) => {
                    self.connections.give_back(token, connection);
                    self.enqueue(token);
                }
            }
        }
    }

    /// Notes what has become of the socket at `index`, whose connection is away.
    pub(super) fn note_event(&mut self, index: usize, event: &Event) {
        let Some(token) = self.connections.token_of(index) else {
            return;
        };
        let Some(away) = self.away.get_mut(&token) else {
            return;
        };
        away.readable |= event.is_readable() || event.is_read_closed();
        away.read_closed |= event.is_read_closed();
        away.writable |= event.is_writable();
        if event.is_error() || event.is_write_closed() {
            away.gone = true;
            self.call_back(token);
        }
    }

    /// Takes a wake-up of a connection that is away: it gets a turn anyway once it is back.
    pub(super) fn wake_away(&mut self, token: Token) {
        if let Some(away) = self.away.get(&token) {
            away.wake.taken();
        }
    }

    /// Has a connection come back that was killed; `arrival` is dropped once it is here, or is not
    /// away.
    pub(super) fn kill_away(&mut self, token: Token, arrival: Arrival) {
        if let Some(away) = self.away.get_mut(&token) {
            away.arrivals.push(arrival);
            self.call_back(token);
        }
    }

    /// Ends the command of a connection that is away.
    fn call_back(&mut self, token: Token) {
        let job = self.away.get(&token).map(|away| away.job);
        if let Some(connection) = job.and_then(|job| self.script_threads.withdraw(job)) {
            self.come_back(token, Some(connection));
        }
    }

    /// Takes the connections that script threads have given back.
    pub(super) fn take_returned(&mut self) {
        for Returned { token, connection } in self.script_threads.returned(self.index) {
            self.come_back(token, connection);
        }
    }

    fn come_back(&mut self, token: Token, connection: Option<Box<Connection>>) {
        let Some(away) = self.away.remove(&token) else {
            return;
        };
        let Some(mut connection) = connection else {
            self.connections.end_loan(token);
            self.shared.clients.remove(away.client);
            // Relaxed: a hint for the acceptor.
            self.handle.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        away.give_to(&mut connection);
        // The lists of the loop do not know it any more.
        (connection.queued, connection.gated) = (false, false);
        let is_over = connection.is_over(false);
        self.connections.give_back(token, connection);
        if is_over {
            // It must not go on with a command that was ended.
            self.close(token);
        } else {
            self.touch(token);
            self.enqueue(token);
        }
        drop(away.arrivals);
    }

    /// Ends the commands of all connections that are away: the loop ends.
    pub(super) fn leave_away(&mut self) {
        for away in self.away.values() {
            drop(self.script_threads.withdraw(away.job));
        }
        self.away.clear();
    }
}
