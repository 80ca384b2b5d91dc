//! What happens when all clients hold more memory than they may (`client/memory.rs`): those are
//! closed that hold most, as in Redis, but not after CLIENT NO-EVICT.

use std::task::Waker;

use pando_stats::Ticker;
use pando_sync::atomic::Ordering;

use crate::client::record::NO_EVICT;
use crate::connection::Connection;
use crate::loop_handle::Underway;
use crate::shared::Shared;

/// Sends what this connection can take, since it has grown, and closes those who hold most if that
/// does not help. Returns true if the connection can continue.
#[cold]
pub(super) fn make_room(shared: &Shared, connection: &mut Connection) -> bool {
    let mut sent_bytes = 0;
    let goes_on = connection.flush(&mut sent_bytes, shared.output_bytes_max());
    (shared.statistics).tick(Ticker::OutputBytes, sent_bytes);
    let memory = &shared.clients.memory;
    memory.count(&connection.record.held, connection.memory());
    evict(shared);
    goes_on
}

/// Closes clients, those first that hold most, until the others hold no more than they may.
fn evict(shared: &Shared) {
    let memory = &shared.clients.memory;
    let mut clients: Vec<_> = shared
        .clients
        .all()
        .into_iter()
        // Relaxed: what it has asked for is not about anything else.
        .filter(|client| client.asked.load(Ordering::Relaxed) & NO_EVICT == 0)
        .map(|client| (client.held.counted(), client))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    clients.sort_by_key(|(bytes, _)| *bytes);
    // Looked at before each: another loop may do the same.
    while memory.excess() > 0
        && let Some((bytes, client)) = clients.pop()
    {
        if client.is_killed() {
            continue;
        }
        shared.end_client(&client, &Underway::new(1, Waker::noop().clone()));
        memory.count_evicted();
        shared.events.client_evicted(&client.address, bytes);
    }
}
