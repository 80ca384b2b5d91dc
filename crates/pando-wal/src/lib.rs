//! The log: framing in segments, reservations, group commit, recycling, replay.
//!
//! A commit takes a [`LogReservation`] first, where waiting is allowed; [`Log::append`] then copies
//! its record into a buffer under one short lock and never waits. Whoever needs durability calls
//! [`Log::wait_durable`] (a thread: it may lead a flush for its neighbours) or
//! [`Log::request_durable`] (an event loop: the log thread in [`Log::run_flusher`] leads for it).
//! [`replay()`] reads what a crash left.
//!
//! Invariants: one flush is in flight; an acknowledged sector is never rewritten; after a failed
//! write or sync nothing is acknowledged again; the durable LSN, the reserved end and the applied
//! LSN only grow. What a record says is the business of `pando_format::log`; which pages it changes
//! is nobody's business here.
//!
//! Lock order: tail, then applied queue; the lists of waiters and the table of files are leaves.
//!
//! Reading order: [`log`], `flush`, [`options`], `tail`, `buffer`, [`reservation`], `group`,
//! `sleepers`, `parking`, `applied`, `segments`, `unused`, `trim`, `probe`, [`mod@replay`],
//! [`error`].

#![forbid(unsafe_code)]
#![cfg_attr(
    all(pando_loom, not(test)),
    expect(dead_code, reason = "only the models use what is left of the crate")
)]

mod group;
#[cfg(all(test, pando_loom))]
mod group_model;
mod parking;
mod sleepers;

// Loom models the wake-up protocol of `group` alone: what needs a device is left out there.
#[cfg(not(pando_loom))]
mod applied;
#[cfg(not(pando_loom))]
mod buffer;
#[cfg(not(pando_loom))]
pub mod error;
#[cfg(not(pando_loom))]
mod flush;
#[cfg(not(pando_loom))]
pub mod log;
#[cfg(not(pando_loom))]
pub mod options;
#[cfg(not(pando_loom))]
mod probe;
#[cfg(not(pando_loom))]
pub mod replay;
#[cfg(not(pando_loom))]
pub mod reservation;
#[cfg(not(pando_loom))]
mod segments;
#[cfg(not(pando_loom))]
mod tail;
#[cfg(not(pando_loom))]
mod trim;
#[cfg(not(pando_loom))]
mod unused;

#[cfg(not(pando_loom))]
pub use error::{Error, Result};
#[cfg(not(pando_loom))]
pub use log::{Acknowledge, Log, Position};
#[cfg(not(pando_loom))]
pub use options::{FlushMethod, LogOptions};
#[cfg(not(pando_loom))]
pub use replay::{ReplayEnd, ReplayOptions, replay};
#[cfg(not(pando_loom))]
pub use reservation::LogReservation;
