//! Events that peers cause. Each kind has a rate limit, and reports how many events the limit
//! dropped.
//!
//! No event contains a key, a value or a password: only names of commands and addresses of clients.
//! Commands that succeed do not pass through here.

use std::io;

use pando_sync::time::unix_ms;

use super::limit::Limit;
use crate::socket::Address;

/// The rate limits, one per kind of event.
#[derive(Debug, Default)]
pub(crate) struct Events {
    connections: Limit,
    refused: Limit,
    accepting: Limit,
    protocol: Limit,
    passwords: Limit,
    slow: Limit,
    subscribers: Limit,
    evicted: Limit,
    engine: Limit,
}

impl Events {
    /// Reports that a connection was opened, or closed if not `open`.
    pub(crate) fn connection(&self, client: &Address, open: bool) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let Some(left_out) = self.connections.admit(unix_ms()) else {
            return;
        };
        match open {
            true => tracing::debug!(%client, left_out, "connection opened"),
            false => tracing::debug!(%client, left_out, "connection closed"),
        }
    }

    /// Reports that a connection was refused.
    #[cold]
    pub(crate) fn refused(&self, client: &Address, why: &str) {
        if let Some(left_out) = self.refused.admit(unix_ms()) {
            tracing::warn!(%client, why, left_out, "connection refused");
        }
    }

    /// Reports that the system cannot accept connections now.
    #[cold]
    pub(crate) fn not_accepted(&self, error: &io::Error) {
        if let Some(left_out) = self.accepting.admit(unix_ms()) {
            tracing::warn!(%error, left_out, "connections cannot be accepted");
        }
    }

    /// Reports that a peer sent an invalid request, which ends its connection.
    #[cold]
    pub(crate) fn protocol_error(&self, client: &Address, error: &str) {
        if let Some(left_out) = self.protocol.admit(unix_ms()) {
            tracing::warn!(%client, error, left_out, "protocol error");
        }
    }

    /// Reports that a peer gave a wrong password.
    #[cold]
    pub(crate) fn wrong_password(&self, client: &Address) {
        if let Some(left_out) = self.passwords.admit(unix_ms()) {
            tracing::warn!(%client, left_out, "wrong password");
        }
    }

    /// Reports a command that is slow enough for the slow log.
    #[cold]
    pub(crate) fn slow_command(&self, client: &Address, command: &str, us: u64, waits: &str) {
        if let Some(left_out) = self.slow.admit(unix_ms()) {
            tracing::info!(%client, command, us, waits, left_out, "slow command");
        }
    }

    /// Reports that a subscriber is closed, for it reads more slowly than others publish.
    #[cold]
    pub(crate) fn slow_subscriber(&self, client: &Address) {
        if let Some(left_out) = self.subscribers.admit(unix_ms()) {
            tracing::warn!(%client, left_out, "subscriber closed: too many messages wait for it");
        }
    }

    /// Reports that a client is closed, for all clients hold too much memory and it holds most.
    #[cold]
    pub(crate) fn client_evicted(&self, client: &Address, bytes: u64) {
        if let Some(left_out) = self.evicted.admit(unix_ms()) {
            let message = "client closed: all clients hold more than maxmemory-clients";
            tracing::warn!(%client, bytes, left_out, message);
        }
    }

    /// Reports a command that failed since the store failed. Errors of the command itself are
    /// reported to its client only.
    #[cold]
    pub(crate) fn failed_command(&self, command: &str, error: &pandodb::Error) {
        use pandodb::Error::{Full, Io, Poisoned};
        if !error.is_corruption() && !matches!(error, Full { .. } | Io { .. } | Poisoned { .. }) {
            return;
        }
        let Some(left_out) = self.engine.admit(unix_ms()) else {
            return;
        };
        match error.is_corruption() {
            true => tracing::error!(command, %error, left_out, "damage was found"),
            false => tracing::warn!(command, %error, left_out, "the store failed a command"),
        }
    }
}
