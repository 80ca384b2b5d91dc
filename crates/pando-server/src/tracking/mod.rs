//! Clients that keep what they have read, and are told to forget it when it changes: CLIENT
//! TRACKING (decision 091).
//!
//! Reading order: `written` (the keys that a command has written), `reads` (those that it has read
//! for a client that tracks), `tracker` (one such client, as all loops see it), `table` (who has
//! read which key), `prefixes` (who wants to hear of all keys of a prefix), `registry` (all of it,
//! and the argument that nothing is lost), `session` (the same, as the client's commands see it).

mod prefixes;
pub(crate) mod reads;
pub(crate) mod registry;
pub(crate) mod session;
mod table;
mod tracker;
pub(crate) mod written;

#[cfg(test)]
mod interleavings;
