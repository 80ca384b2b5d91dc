//! State of a client that lasts from command to command.

pub(crate) mod contended_keys;
pub(crate) mod interactive;
pub(crate) mod memory;
pub(crate) mod pause;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod staging;
pub(crate) mod unblocking;
pub(crate) mod waiters;
pub(crate) mod watches;
