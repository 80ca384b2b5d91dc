//! Optimistic, restartable B+tree over the pool; does no I/O.
//!
//! A tree maps byte strings to byte strings, in order. Every operation is one synchronous attempt
//! that ends with a result or with the reason why it could not continue ([`pando_pool::Restart`]).
//! In the second case it holds nothing, and its caller does what the reason asks and starts it
//! again. This crate does not wait, read files or know of transactions: locks, logs and snapshots
//! belong to the engine, which passes a [`pando_pool::ApplyToken`] to every change.
//!
//! Reading order: [`word`], [`node`], [`tree`], `access`, `descent`, `leaf`, [`get`], [`overflow`],
//! [`value`], [`scratch`], [`finger`], [`place`], [`insert`], [`run`], `postcondition`, `split`,
//! [`remove`], [`remove_empty`], [`merge`], [`known_rank`], [`counted`], [`remove_run`],
//! [`leaf_copy`], [`scan`], [`ahead`], [`seek`], [`sample`], [`fill`], [`free_tree`], [`summary`].

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

mod access;
pub mod ahead;
pub mod counted;
mod descent;
pub mod fill;
pub mod finger;
pub mod free_tree;
pub mod get;
pub mod get_group;
pub mod insert;
pub mod known_rank;
mod leaf;
pub mod leaf_copy;
pub mod merge;
pub mod node;
pub mod overflow;
pub mod pack;
pub mod place;
mod postcondition;
pub mod remove;
pub mod remove_empty;
pub mod remove_run;
pub mod run;
pub mod sample;
pub mod scan;
pub mod scratch;
pub mod seek;
mod split;
pub mod summary;
#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod traps;
pub mod tree;
pub mod value;
pub mod word;

pub use ahead::Ahead;
pub use counted::{Ranked, Selected};
pub use fill::{Filling, LeafFiller};
pub use finger::{Cover, Finger};
pub use free_tree::FreedStep;
pub use get::{Before, Located};
pub use get_group::{Fate, GROUP_MAX, Ways};
pub use insert::Inserted;
pub use known_rank::KnownRank;
pub use leaf::{Lookup, Stored};
pub use leaf_copy::{Direction, LeafCopy, ScanBound, ScanValue};
pub use node::check::{check_page, prepare_image};
pub use overflow::VALUE_BYTES_MAX;
pub use pack::Packed;
pub use place::Place;
pub use remove::{LeafFill, Removed};
pub use remove_run::RemovedRun;
pub use run::Run;
pub use scratch::Scratch;
pub use seek::Sought;
pub use summary::{NodeSummary, OverflowRef};
pub use tree::Tree;
pub use value::ValueReader;
