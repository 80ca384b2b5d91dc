//! Notifications of keyspace events: what happens to keys, published to channels (decision 090).
//!
//! Reading order: `classes` (what is asked for), `recorded` (what a command has done, until it is
//! committed), `order` (when what may be published; the argument of order), `release` (the same
//! with its locks, and publishing).

pub(crate) mod classes;
mod order;
pub(crate) mod recorded;
pub(crate) mod release;
