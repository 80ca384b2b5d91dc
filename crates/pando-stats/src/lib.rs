//! Core-local counters that are always on; readers add them up.
//!
//! A tick adds to a line that belongs to the current core, so that it costs no transfer; a query
//! reads one array for each core, whatever the number of threads. Nothing is lost when a thread
//! exits or migrates: a count belongs to the core it was made on, and every add is atomic.
//!
//! [`ticker`] is the one table of what is counted, with unit and help.

pub mod statistics;
pub mod ticker;

pub use statistics::{Snapshot, Statistics};
pub use ticker::Ticker;
