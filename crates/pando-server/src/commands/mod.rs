//! All commands: one table, which dispatches and describes them.
//!
//! A family of commands is a file with a list of [`Command`]s; [`FAMILIES`] is the list of these
//! lists.

mod acl;
mod append;
mod auth;
mod background;
mod bit;
mod bit_count;
mod bit_field;
mod bit_operation;
mod client;
pub(crate) mod client_kill;
mod client_pause;
mod client_tracking;
mod command;
mod command_keys;
mod config;
mod connection;
mod counter;
mod debug;
mod decimal;
mod decimal_digits;
mod documents;
mod dump;
mod exists;
mod expire;
mod flush;
#[cfg(feature = "scripts")]
mod function;
mod get;
mod hash;
mod hyperloglog;
mod info;
mod info_text;
mod interactive;
mod key_range;
mod key_table;
mod latency;
mod list;
mod many;
mod memory;
mod monitor;
mod object;
mod pando;
mod popping;
mod profile;
mod publish;
mod pubsub;
mod random_key;
mod range;
mod rename;
mod role;
mod sample;
mod save;
mod scan_options;
#[cfg(feature = "scripts")]
mod script;
mod set;
mod sets;
mod shown;
mod slowlog;
mod sort;
mod sorted_set;
mod stream;
mod subscribe;
mod subsequence;
mod swapdb;
mod transaction;
mod ttl;
mod waitaof;
mod walk;
mod watched_times;

use crate::context::Command;
use crate::glob;

pub use auth::REDIS_VERSION;
pub use config::is_settable;
pub(crate) use config::start as start_parameters;
pub(crate) use info::info_all;
#[cfg(feature = "scripts")]
pub(crate) use script::{named_only_reads, only_reads};
pub(crate) use transaction::{queue, runs_at_once};

/// The table of all commands.
pub(crate) const FAMILIES: &[&[Command]] = &[
    connection::COMMANDS,
    auth::COMMANDS,
    background::COMMANDS,
    client::COMMANDS,
    get::COMMANDS,
    set::COMMANDS,
    many::COMMANDS,
    counter::COMMANDS,
    append::COMMANDS,
    random_key::COMMANDS,
    range::COMMANDS,
    bit::COMMANDS,
    bit_count::COMMANDS,
    bit_operation::COMMANDS,
    bit_field::COMMANDS,
    subsequence::COMMANDS,
    hyperloglog::COMMANDS,
    exists::COMMANDS,
    expire::COMMANDS,
    ttl::COMMANDS,
    walk::COMMANDS,
    hash::read::COMMANDS,
    hash::expire::COMMANDS,
    hash::deadline::COMMANDS,
    hash::get_set::COMMANDS,
    hash::write::COMMANDS,
    hash::number::COMMANDS,
    hash::random::COMMANDS,
    hash::scan::COMMANDS,
    sets::read::COMMANDS,
    sets::write::COMMANDS,
    sets::random::COMMANDS,
    sets::scan::COMMANDS,
    sets::algebra::COMMANDS,
    list::push::COMMANDS,
    list::pop::COMMANDS,
    list::read::COMMANDS,
    list::position::COMMANDS,
    list::edit::COMMANDS,
    list::transfer::COMMANDS,
    list::waiting::COMMANDS,
    rename::COMMANDS,
    dump::COMMANDS,
    object::COMMANDS,
    sort::COMMANDS,
    flush::COMMANDS,
    swapdb::COMMANDS,
    transaction::COMMANDS,
    subscribe::COMMANDS,
    publish::COMMANDS,
    pubsub::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    info::COMMANDS,
    slowlog::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    save::COMMANDS,
    acl::COMMANDS,
    debug::COMMANDS,
    role::COMMANDS,
    monitor::COMMANDS,
    pando::COMMANDS,
    waitaof::COMMANDS,
    #[cfg(feature = "scripts")]
    script::COMMANDS,
    #[cfg(feature = "scripts")]
    script::CONTAINER,
    #[cfg(feature = "scripts")]
    function::COMMANDS,
    #[cfg(feature = "scripts")]
    function::CONTAINER,
    sorted_set::add::COMMANDS,
    sorted_set::score::COMMANDS,
    sorted_set::count::COMMANDS,
    sorted_set::range::COMMANDS,
    sorted_set::remove::COMMANDS,
    sorted_set::pop::COMMANDS,
    sorted_set::random::COMMANDS,
    sorted_set::scan::COMMANDS,
    sorted_set::combine::COMMANDS,
    sorted_set::waiting::COMMANDS,
    sorted_set::geo::add::COMMANDS,
    sorted_set::geo::look::COMMANDS,
    sorted_set::geo::search::COMMANDS,
    stream::add::COMMANDS,
    stream::range::COMMANDS,
    stream::delete::COMMANDS,
    stream::trim::COMMANDS,
    stream::set_last::COMMANDS,
    stream::read::COMMANDS,
    stream::manage::COMMANDS,
    stream::acknowledge::COMMANDS,
    stream::pending::COMMANDS,
    stream::claim_chosen::COMMANDS,
    stream::claim_automatically::COMMANDS,
    stream::info::COMMANDS,
];
