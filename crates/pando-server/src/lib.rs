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
//! Reading order: `options`, `settings`, `server` (start and stop), `acceptor`, `shared` and
//! `loop_handle` (what threads share), `event_loop`, `client`, `connection` (bytes and commands),
//! `context` (what a command is, and what it sees), `commands` (the table and one file for each
//! family), `data` (how rows lie in tables), `figures` (what is counted), `report` (how that is
//! shown), `http` (to whom), `log`.

#![forbid(unsafe_code)]

mod acceptor;
mod client;
mod commands;
mod connection;
mod context;
mod data;
mod error;
mod event_loop;
mod figures;
mod http;
mod log;
mod loop_handle;
mod options;
mod report;
mod server;
mod settings;
mod shared;
mod times;

pub use error::Error;
pub use log::{LogLevel, LogLevelSetter};
pub use options::{Durability, ServerOptions};
pub use server::{Handle, Server};
