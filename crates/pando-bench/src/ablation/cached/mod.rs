//! Ablations of a cached point read: `descent` and `cursor`.
//!
//! A tree in a pool that holds all of it, without an engine above: what differs between variants
//! is how a read comes by its nodes (`descent`), or what is done around it. [`reads`] makes the
//! readers of a variant, for the benchmark (`run`) and for the coherence audit alike.
//!
//! Reading order: `rig` (the tree), `descent` (the way of those that are not ours), `coupled`,
//! `snapshot`, `cursors`; [`reads`], `run`.

mod coupled;
mod cursors;
mod descent;
pub mod reads;
mod rig;
pub(super) mod run;
mod snapshot;
#[cfg(test)]
mod snapshot_tests;

pub use reads::{CachedReads, Reader};
