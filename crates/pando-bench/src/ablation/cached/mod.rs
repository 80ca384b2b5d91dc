//! Ablations of a cached point read: `descent`, `cursor`, `replacement`, `search`.
//!
//! A tree in a pool that holds all of it, without an engine above: what differs between variants is
//! one step of a read (`pando_tree::Approach`), the rest is the product's code. [`reads`] makes the
//! readers of a variant, for the benchmark (`run`) and for the coherence audit alike.
//!
//! Reading order: `rig` (the tree), [`reads`], then the steps: `coupled`, `snapshot`, `cursors`,
//! `always`, `kernels`, `hint_lines`; `run`.

mod always;
mod coupled;
mod cursors;
mod hint_lines;
mod kernels;
#[cfg(test)]
mod kernels_tests;
pub mod reads;
mod rig;
pub(super) mod run;
mod snapshot;
#[cfg(test)]
mod snapshot_tests;

pub use reads::{CachedReads, Reader};
