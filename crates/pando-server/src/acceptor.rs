//! Accepts connections from the listening sockets and hands each to the least loaded loop; between
//! them, gives memory back that the allocator keeps.

use std::io::{self, Write as _};

use mio::{Events, Poll};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_sync::time::{Duration, now};

use crate::context::replies;
use crate::loop_handle::Message;
use crate::shared::{Shared, Stage};
use crate::socket::{Address, Listener, Stream};
use crate::spare_memory::SpareMemory;

/// Pause after the system refuses to accept a connection, for example since it is out of open
/// files.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Longest time for which clients wait for a store that opens; then they are told that it does.
const OPENING_PAUSE: Duration = Duration::from_secs(1);

/// Waits until the store is open, the server stops, or the clients have waited long enough.
fn wait_for_store(poll: &mut Poll, events: &mut Events, shared: &Shared) -> io::Result<()> {
    let until = now() + OPENING_PAUSE;
    while shared.stage() == Stage::Loading {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            break;
        }
        match poll.poll(events, Some(left)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Accepts until the server stops; blocks.
///
/// # Errors
/// The wait for events failed.
pub(crate) fn run(poll: &mut Poll, listeners: &[Listener], shared: &Shared) -> io::Result<()> {
    let mut events = Events::with_capacity(64);
    wait_for_store(poll, &mut events, shared)?;
    // Whoever came meanwhile raises no further event.
    let mut pause = Some(Duration::ZERO);
    let mut spare_memory = SpareMemory::default();
    while shared.stage() != Stage::Stopping {
        let most = spare_memory.until_next_look(now());
        match poll.poll(&mut events, Some(pause.take().unwrap_or(most))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        spare_memory.look(now(), shared);
        for listener in listeners {
            loop {
                match listener.accept() {
                    Ok((stream, address)) => admit(stream, address, shared),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The connection is gone, or the system is out of resources: try again a little
                    // later.
                    Err(error) => {
                        shared.events.not_accepted(&error);
                        pause = Some(REFUSED_PAUSE);
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn admit(mut stream: Stream, address: Address, shared: &Shared) {
    shared.statistics.tick(Ticker::ConnectionsReceived, 1);
    // Relaxed throughout: these are hints, which a concurrent open or close may spoil.
    let load = |of: &crate::loop_handle::LoopHandle| of.connections.load(Ordering::Relaxed);
    let open: usize = shared.loops.iter().map(|handle| load(handle)).sum();
    let settings = &shared.settings;
    let refusal = if open as u64 >= settings.maxclients() {
        Some(replies::MAX_CLIENTS)
    } else if settings.protected_mode() && !settings.has_password() && !address.is_local() {
        Some(replies::DENIED)
    } else {
        None
    };
    if let Some(text) = refusal {
        shared.statistics.tick(Ticker::ConnectionsRejected, 1);
        shared.events.refused(&address, text);
        // The write may fail: the peer may not even read it.
        let _: io::Result<usize> = stream.write(format!("-{text}\r\n").as_bytes());
        return;
    }
    let least = shared.loops.iter().min_by_key(|handle| load(handle));
    let least = least.expect("a server has a loop");
    least.connections.fetch_add(1, Ordering::Relaxed);
    shared.events.connection(&address, true);
    least.send(Message::Accept(stream, address));
}
