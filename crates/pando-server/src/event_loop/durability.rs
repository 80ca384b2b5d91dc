//! Replies that wait for the log: one request for durability per round, and the release of replies.

use pando_stats::Ticker;
use pandodb::Lsn;

use super::EventLoop;
use crate::connection::Connection;
use crate::loop_handle::Token;

impl EventLoop {
    /// Requests one flush of the log for all replies of this round.
    pub(super) fn ask_for_durability(&mut self) {
        let mut newest: Option<Lsn> = None;
        for token in &self.touched {
            if let Some(connection) = self.connections.get(*token)
                && let Some(lsn) = connection.close_gate()
            {
                newest = newest.max(Some(lsn));
                if !connection.gated {
                    connection.gated = true;
                    self.gated.push(*token);
                }
            }
        }
        let Some(data) = &self.data else { return };
        if self.gated.is_empty() {
            return;
        }
        if self.asked.is_none() {
            // The log has answered the last request: ask again for what still waits.
            for token in &self.gated {
                let connection = self.connections.get(*token);
                newest = newest.max(connection.and_then(Connection::close_gate));
            }
        }
        let mut failed = None;
        if let Some(lsn) = newest.filter(|lsn| self.asked.is_none_or(|asked| *lsn > asked)) {
            match data.engine.db.when_durable(lsn, &self.durable_waker) {
                Ok(true) => {}
                Ok(false) => self.asked = Some(lsn),
                Err(error) => failed = Some(error),
            }
        }
        let durable = data.engine.db.durable_lsn();
        let mut gated = std::mem::take(&mut self.gated);
        gated.retain(|token| self.open_gates(*token, durable, failed.as_ref()));
        self.gated = gated;
    }

    /// Releases the replies of one connection that are durable; returns true if some still wait.
    pub(super) fn open_gates(
        &mut self,
        token: Token,
        durable: Lsn,
        failed: Option<&pandodb::Error>,
    ) -> bool {
        let Some(connection) = self.connections.get(token) else {
            return false;
        };
        let Some(buffers) = connection.buffers.as_mut() else {
            connection.gated = false;
            return false;
        };
        buffers.output.open_gates(durable);
        if let Some(error) = failed
            && buffers.output.is_gated()
        {
            buffers.output.fail_gates();
            connection.running = None;
            connection.session.closing = true;
            connection.write_error(&format!("MISCONF Errors writing to the log: {error}"));
            self.shared.statistics.tick(Ticker::CommandErrors, 1);
            self.handle.errors.add(b"MISCONF");
        }
        let waits = connection
            .buffers
            .as_ref()
            .is_some_and(|of| of.output.is_gated());
        connection.gated = waits;
        if !waits && let Some(profiles) = &mut connection.session.profiles {
            profiles.open_gate();
        }
        self.touched.push(token);
        waits
    }
}
