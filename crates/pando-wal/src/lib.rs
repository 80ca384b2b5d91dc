//! The log: framing in segments, credits, group commit, recycling, replay.
//!
//! A commit takes a [`LogCredit`] first, where waiting is allowed; [`Log::append`] then copies its
//! record into a buffer under one short lock and never waits. Whoever needs durability calls
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
//! Reading order: [`log`], [`options`], `tail`, `buffer`, [`credit`], `group`, `sleepers`,
//! `applied`, `segments`, [`mod@replay`], [`error`].

#![forbid(unsafe_code)]

mod applied;
mod buffer;
pub mod credit;
pub mod error;
mod group;
pub mod log;
pub mod options;
pub mod replay;
mod segments;
mod sleepers;
mod tail;

pub use credit::LogCredit;
pub use error::{Error, Result};
pub use log::Log;
pub use options::{FlushMethod, LogOptions};
pub use replay::{ReplayEnd, ReplayOptions, replay};
