//! The engine through its public API, against naive twins.

#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod basics;
mod chunks;
mod compact;
mod concurrency;
mod devices;
mod dropped;
mod futures;
mod golden;
mod limits;
mod load;
mod many;
mod merges;
mod nonblocking;
mod profile;
mod queue;
mod reads;
mod restart;
mod scan_resistance;
mod stored;
mod twin;
