//! All commands: one table, which dispatches and describes them.
//!
//! A family of commands is a file with a list of [`Command`]s; [`FAMILIES`] is the list of these
//! lists.

mod append;
mod auth;
mod client;
mod client_kill;
mod command;
mod compact;
mod config;
mod connection;
mod counter;
mod decimal;
mod exists;
mod expire;
mod flush;
mod get;
mod glob;
mod info;
mod info_text;
mod interactive;
mod latency;
mod list;
mod many;
mod memory;
mod pando;
mod profile;
mod range;
mod save;
mod set;
mod slowlog;
mod sort;
mod transaction;
mod ttl;
mod waitaof;
mod walk;

use crate::context::Command;

pub(crate) use info::info_all;
pub(crate) use transaction::{queue, runs_at_once};

/// The table of all commands.
pub(crate) const FAMILIES: &[&[Command]] = &[
    connection::COMMANDS,
    auth::COMMANDS,
    client::COMMANDS,
    get::COMMANDS,
    set::COMMANDS,
    many::COMMANDS,
    counter::COMMANDS,
    append::COMMANDS,
    range::COMMANDS,
    exists::COMMANDS,
    expire::COMMANDS,
    ttl::COMMANDS,
    walk::COMMANDS,
    list::push::COMMANDS,
    list::pop::COMMANDS,
    list::read::COMMANDS,
    list::position::COMMANDS,
    list::edit::COMMANDS,
    list::transfer::COMMANDS,
    sort::COMMANDS,
    flush::COMMANDS,
    transaction::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    info::COMMANDS,
    slowlog::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    save::COMMANDS,
    compact::COMMANDS,
    pando::COMMANDS,
    waitaof::COMMANDS,
];
