//! Periodic work: expiry and timeouts (decision 052); and how a connection is closed.

use std::io;

use mio::Registry;
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_sync::time::{Duration, Instant, unix_ms};

use super::EventLoop;
use crate::connection::Connection;
use crate::data::cleaner::Cleaned;
use crate::loop_handle::{LoopHandle, Token};
use crate::report::memory_use::MemoryUse;
use crate::shared::Shared;
use crate::times::nanoseconds;

/// Interval at which the cleaner looks for work.
const CLEAN_INTERVAL: Duration = Duration::from_millis(100);
/// Most time of a turn of the cleaner in a round that does little else.
const CLEAN_MAX: Duration = Duration::from_millis(1);
/// Most time of a turn of the cleaner.
const CLEAN_BESIDE_MAX: Duration = Duration::from_millis(10);
/// Interval at which connections are checked for timeouts.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(500);
/// How late that may be: a loop that runs is not as late.
const LATE: Duration = Duration::from_millis(2500);
/// Number of tracked keys that are looked at in one round.
const TRACKED_KEYS_PER_TURN: usize = 4096;
/// Time that a closing connection has to read its last replies.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(10);

impl EventLoop {
    /// Removes the connection, if it is still there, and closes its socket.
    pub(super) fn close(&mut self, token: Token) {
        let Some(mut connection) = self.connections.remove(token) else {
            return;
        };
        self.keep_commit(&mut connection);
        self.timers.set(token, &mut connection.timer, None);
        let registry = self.poll.registry();
        end_connection(connection, (&self.shared, &self.handle), registry);
    }

    /// Lets the cleaner remove expired keys, and collections that were given up; the round has
    /// begun at `begun`.
    pub(super) fn clean(&mut self, now: Instant, begun: Instant) {
        let (Some(data), Some(cleaner)) = (&mut self.data, &mut self.cleaner) else {
            self.next_clean = now + HOUSEKEEPING_INTERVAL;
            return;
        };
        if now >= self.next_clean {
            let entries = cleaner.has_entries(&data.engine);
            self.cleaning |= entries;
            self.next_clean = now
                + if entries {
                    CLEAN_INTERVAL
                } else {
                    HOUSEKEEPING_INTERVAL
                };
        }
        let cleans = self.cleaning && self.stop_at.is_none();
        // A pause of writes is one of this, too.
        let cleans = cleans && self.shared.pause.get(now).is_none();
        if cleans && self.shared.settings.active_expire() {
            let statistics = &self.shared.statistics;
            let shared = (statistics, &self.shared.notifications);
            // A batch, and more while that takes no longer than the commands of the round did, or
            // half of the time since the last turn: what is given up must not outrun its removal.
            let beside = now.saturating_duration_since(begun).min(CLEAN_BESIDE_MAX);
            let share = now.saturating_duration_since(self.last_clean) / 2;
            let end = now + share.min(CLEAN_MAX).max(beside);
            let mut cleaned = Cleaned::More;
            while cleaned == Cleaned::More {
                cleaned = cleaner.step(&data.engine, &mut data.reactor, shared);
                self.last_clean = pando_sync::time::now();
                if self.last_clean >= end {
                    break;
                }
            }
            self.cleaning = cleaned == Cleaned::More;
            let changed = cleaner.take_changed();
            if !changed.is_empty() && self.shared.tracking.any() {
                let keys = changed.iter().map(|key| &key[..]);
                (self.shared.tracking).changed(keys, None, &self.shared.channels);
            }
            let ns = nanoseconds(self.last_clean.saturating_duration_since(now));
            self.shared.observe("expire-cycle", ns, unix_ms());
        } else {
            self.cleaning = false;
        }
    }

    /// Tries once more to send: the system reports a writable socket only once it has much room.
    fn takes_something(&mut self, token: Token, now: Instant) -> bool {
        let Some(connection) = self.connections.get(token) else {
            return false;
        };
        connection.writable = true;
        let mut sent_bytes = 0;
        let most = self.shared.output_bytes_max();
        let goes_on = connection.flush(&mut sent_bytes, most);
        let takes = !connection.broken && !connection.takes_nothing(now, Duration::ZERO);
        (self.shared.statistics).tick(Ticker::OutputBytes, sent_bytes);
        if goes_on {
            self.enqueue(token);
        }
        takes
    }

    /// Closes connections that exceed a timeout; not when the loop itself was away, as in a process
    /// that was stopped: what has come meanwhile is to be read first.
    pub(super) fn housekeeping(&mut self, now: Instant) {
        if now < self.next_housekeeping {
            return;
        }
        let late = now.saturating_duration_since(self.next_housekeeping);
        self.next_housekeeping = now + HOUSEKEEPING_INTERVAL;
        if self.index == 0 {
            let tell = |of| self.shared.tell_turn(of);
            self.shared.contended.cool(now, tell);
            (self.shared.tracking).tidy(TRACKED_KEYS_PER_TURN, &self.shared.channels);
            self.shared.statistics.remember(now);
            let used = MemoryUse::new(&self.shared).used();
            self.shared.statistics.memory_peak(used);
        }
        if late > LATE {
            return;
        }
        let idle_timeout = self.shared.settings.timeout();
        let stall_timeout = self.shared.settings.stall_timeout();
        let handshake = self.shared.options.handshake_timeout;
        for index in 0..self.connections.places() {
            let Some((token, connection)) = self.connections.at(index) else {
                continue;
            };
            let since = |time: Instant| now.saturating_duration_since(time);
            // A client that waits for the server or for messages is not idle; a client that does
            // not read its replies is.
            let idle = connection.running.is_none()
                && !connection.awaits_turn
                && !connection.gated
                && !connection.session.is_subscribed()
                && !connection.session.is_monitor();
            let is_slow = connection.is_slow_subscriber(&self.shared.channels.limits, now);
            if is_slow {
                let client = &connection.record.address;
                self.shared.events.slow_subscriber(client);
                self.shared.channels.count_overrun();
            }
            let session = &connection.session;
            let is_late = |asked| !session.authenticated && since(asked) > handshake;
            let late = session.asked_since.is_some_and(is_late)
                || idle && idle_timeout.is_some_and(|most| since(connection.active) > most)
                || connection
                    .closing_since
                    .is_some_and(|time| since(time) > CLOSING_TIMEOUT);
            let deaf = stall_timeout.is_some_and(|most| connection.takes_nothing(now, most));
            let mute = stall_timeout.is_some_and(|most| connection.sends_nothing_more(now, most));
            if late || is_slow || mute || deaf && !self.takes_something(token, now) {
                self.close(token);
            }
        }
    }
}

/// Closes a connection that its loop has taken out of its slab and timers, and counts it no longer.
pub(super) fn end_connection(
    mut connection: Box<Connection>,
    (shared, handle): (&Shared, &LoopHandle),
    registry: &Registry,
) {
    shared.clients.remove(connection.record.id);
    let address = &connection.record.address;
    shared.events.connection(address, false);
    // Relaxed: a hint for the acceptor.
    handle.connections.fetch_sub(1, Ordering::Relaxed);
    // If the socket cannot be deregistered, it is closed all the same.
    let _: io::Result<()> = registry.deregister(&mut connection.stream);
}
