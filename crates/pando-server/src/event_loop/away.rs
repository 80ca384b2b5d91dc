//! What a loop knows of a connection whose command a script thread carries out (decision 095).

use pando_sync::WakerArc;

use crate::connection::Connection;
use crate::loop_handle::{Arrival, TokenWake};

/// What the loop knows of a connection that is away.
pub(super) struct Away {
    /// Number of its job.
    pub(super) job: u64,
    pub(super) client: u64,
    pub(super) wake: WakerArc<TokenWake>,
    /// What its socket has become meanwhile.
    pub(super) readable: bool,
    pub(super) read_closed: bool,
    pub(super) writable: bool,
    pub(super) gone: bool,
    /// Of those who wait until it begins no command any more. They learn that once it is back.
    pub(super) arrivals: Vec<Arrival>,
}

impl Away {
    /// Returns what is known of `connection` when it leaves; its job has no number yet.
    pub(super) fn new(connection: &Connection) -> Self {
        Self {
            job: 0,
            client: connection.record.id,
            wake: connection.wake.clone(),
            readable: false,
            read_closed: false,
            writable: false,
            gone: false,
            arrivals: Vec::new(),
        }
    }

    /// Gives what has become of the socket to the connection, which is back.
    pub(super) fn give_to(&self, connection: &mut Connection) {
        connection.readable |= self.readable;
        connection.read_closed |= self.read_closed;
        connection.writable |= self.writable || self.gone;
        connection.gone |= self.gone;
    }
}
