//! The log: framing in segments, reservations, group commit, recycling, replay.
//!
//! A commit takes a [`LogReservation`] first, where waiting is allowed; [`Log::append`] then copies
//! its record into a buffer under one short lock and never waits. To wait for durability, a thread
//! calls [`Log::wait_durable`], where it may lead a flush for others, and an event loop calls
//! [`Log::request_durable`], for which the log thread in [`Log::run_flusher`] leads. [`replay()`]
//! reads the log after a crash.
//!
//! Invariants: at most one flush is in flight; an acknowledged sector is never rewritten; after a
//! failed write or sync nothing is acknowledged again; the durable LSN, the reserved end and the
//! applied LSN only grow. `pando_format::log` defines the content of records. This crate does not
//! know which pages they change.
//!
//! Lock order: tail, then applied queue; the wait lists and the table of files are leaves.
//!
//! Reading order: [`log`], `flush`, [`options`], `tail`, `buffer`, [`reservation`], `group`,
//! `sleepers`, `parking`, `applied`, `segments`, `wanted`, [`growth`], `probe`, [`mod@replay`],
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

// Loom models the wake-up protocol of `group` alone: modules that need a device are left out there.
#[cfg(not(pando_loom))]
mod applied;
#[cfg(not(pando_loom))]
mod buffer;
#[cfg(not(pando_loom))]
pub mod error;
#[cfg(not(pando_loom))]
mod flush;
#[cfg(not(pando_loom))]
pub mod growth;
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
mod wanted;

#[cfg(not(pando_loom))]
pub use error::{Error, Result};
#[cfg(not(pando_loom))]
pub use growth::Surroundings;
#[cfg(not(pando_loom))]
pub use log::{Acknowledge, Log, Position};
#[cfg(not(pando_loom))]
pub use options::{FlushMethod, LogOptions};
#[cfg(not(pando_loom))]
pub use replay::{ReplayEnd, ReplayOptions, replay};
#[cfg(not(pando_loom))]
pub use reservation::LogReservation;
