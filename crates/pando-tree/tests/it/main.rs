//! Trees over a pool without a device, so that everything is in memory.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]
#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod ahead;
mod counted;
mod disk;
mod finger;
mod groups;
mod images;
mod leaf_copy;
mod merge;
mod model;
mod pack;
mod rig;
mod run;
mod sample;
mod stress;
mod structure;
mod values;
