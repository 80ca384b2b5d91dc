//! A server that speaks the Redis protocol over the tables of `pandodb`.
//!
//! One acceptor hands connections to event loops, one a core; a connection stays on its loop. A
//! loop never waits for anything but events: a command that would have to wait (a page, the log, a
//! checkpoint) leaves the loop with a waker and is run again from its beginning when woken, and
//! the other connections go on meanwhile. Locks that loops take are held for a push, a swap or a
//! copy, never across a call.
//!
//! A reply to a write waits for the log as the durability setting says; a read may show a write of
//! another client that is not yet durable.
//!
//! Reading order: `options`, `server` (start and stop), `acceptor`, `event_loop`, `connection`
//! (bytes), `executor` (one command, from arguments to gate), `tally` (what it adds to the
//! figures), `lookahead` (faults of a pipeline together), `context` (what a command sees),
//! `keyspace` (how rows lie in tables), `cleaner` (expiry), `statistics`, `spending` (where
//! commands spend their time), `log`, `http_endpoint` (metrics and probes), `commands` (the table
//! and one file for each family).

#![forbid(unsafe_code)]

mod acceptor;
mod advance;
mod burst;
mod cleaner;
mod client;
mod command_statistics;
mod commands;
mod compaction;
mod connection;
mod context;
mod cursor;
mod dashboard;
mod decimal;
mod engine;
mod error;
mod error_codes;
mod event_loop;
mod executor;
mod gauges;
mod glob;
mod http_endpoint;
mod http_request;
mod intake;
mod keepalive;
mod keyspace;
mod latency_monitor;
mod log;
mod lookahead;
mod loop_data;
mod loop_handle;
mod memory_use;
mod metrics_text;
mod options;
mod output;
mod rates;
mod running;
mod server;
mod session;
mod settings;
mod shared;
mod slab;
mod slow_log;
mod spending;
mod staging;
mod statistics;
mod tally;
mod timers;
mod times;
mod watches;

pub use error::Error;
pub use log::{LogLevel, LogLevelSetter};
pub use options::{Durability, ServerOptions};
pub use server::{Handle, Server};
