//! `bench resp`: a server through sockets, its own or a running one, with a client that pipelines.
//!
//! Reading order: [`options`], `command` (what is sent, and what an answer must be), `connection`
//! (bytes), `client` (what a thread does), `control` (single questions), `server` (one of its own),
//! [`run`](mod@run).

mod client;
mod command;
mod connection;
mod control;
pub mod options;
pub mod run;
mod server;

pub use options::{RespOptions, RespWorkload};
pub use run::run;
