//! A server that speaks the Redis protocol over the tables of `pandodb`.
//!
//! One acceptor hands connections to event loops, one loop per core; a connection stays on its
//! loop. A loop blocks only in its wait for events. A command that would have to wait (for a page,
//! the log or a checkpoint) leaves a waker and returns to the loop, which runs it again from its
//! beginning when it is woken and serves the other connections in the meantime (decision 009). The
//! locks that loops take are held for a push, a swap or a copy, never across a call.
//!
//! The reply to a write waits for the log as the durability setting demands. With
//! [`Durability::Durable`], a reply that shows a write of another client waits until that write is
//! durable, too (decision 060).
//!
//! Reading order: `options`, `settings`, `server` (start and stop), `acceptor`, `shared` and
//! `loop_handle` (what threads share), `pubsub` (messages), `notifications` (events of keys),
//! `tracking` (keys that clients keep), `event_loop`, `client`, `connection` (bytes and commands),
//! `context` (what a command is, and what it sees), `commands` (the command table, and one file per
//! family), `data` (how rows lie in tables), `figures` (what is counted), `report` (how the figures
//! are presented), `http` (the endpoint that serves them), `log`.

#![forbid(unsafe_code)]

mod acceptor;
mod client;
mod commands;
mod connection;
mod context;
mod data;
mod dump;
mod error;
mod event_loop;
mod figures;
mod float;
#[cfg(feature = "scripts")]
mod function_runs;
mod glob;
mod http;
mod log;
mod loop_handle;
#[cfg(feature = "scripts")]
mod lua;
mod monitoring;
mod notifications;
mod options;
mod pubsub;
pub mod rdb;
mod report;
mod row_readers;
#[cfg(feature = "scripts")]
mod script_cache;
mod script_threads;
mod server;
mod settings;
mod shared;
mod sleeper;
mod socket;
mod spare_memory;
mod times;
mod tracking;

pub use commands::{REDIS_VERSION, is_settable};
pub use data::check::{RowsReport, check_rows};
pub use error::Error;
pub use log::{LogLevel, LogLevelSetter};
pub use options::{ConfigRewriter, DebugCommands, Durability, Parameter, ServerOptions};
pub use server::{Handle, Server};
