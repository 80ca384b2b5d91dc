//! What happens when all clients hold more memory than they may (`client/memory.rs`): those are
//! closed that hold most, as in Redis, but not after CLIENT NO-EVICT.

use pando_stats::Ticker;

use crate::connection::Connection;
use crate::shared::Shared;

/// Sends what this connection can take, since it has grown, and closes those who hold most if that
/// does not help. Returns true if the connection can continue.
#[cold]
pub(super) fn make_room(shared: &Shared, connection: &mut Connection) -> bool {
    let mut sent_bytes = 0;
    let goes_on = connection.flush(&mut sent_bytes, shared.output_bytes_max());
    (shared.statistics).tick(Ticker::OutputBytes, sent_bytes);
    let memory = &shared.clients.memory;
    let _grown = memory.count(&connection.record.held, connection.memory());
    shared.evict();
    goes_on
}
