//! Registered snapshots, and the old versions that they read, in memory.
//!
//! The trees of a store hold the newest committed values only. Before a commit replaces a value
//! that a registered snapshot still reads, it saves the value here, "the key did not exist" too. A
//! reader at LSN S takes what the leaf has, unless a version says that a batch after S has replaced
//! it: the oldest such version is the value at S. Nothing of this is on disk or in the log, and
//! nothing is left of it after a restart.
//!
//! Versions lie in trees of a [`pando_pool::Pool`] that has no device, in key order, so that a scan
//! finds the versions of its range. They are dropped by generation, as a whole.
//!
//! This crate knows no log, no gate but the proofs that it is closed, and does not wait: the engine
//! decides when to save, and what happens when there is no room.
//!
//! Reading order: [`readers`], [`snapshots`], `key`, [`before_image`], `generations`, [`versions`],
//! [`range`], [`export`].

#![forbid(unsafe_code)]

pub mod before_image;
pub mod export;
mod generations;
mod key;
mod key_filter;
pub mod range;
pub mod readers;
pub mod snapshots;
#[cfg(all(test, pando_loom))]
mod snapshots_model;
pub mod versions;

pub use before_image::BeforeImage;
pub use export::NotExported;
pub use range::VersionRange;
pub use readers::Readers;
pub use snapshots::{Beginning, Registration, Snapshots};
pub use versions::{Found, VersionRoom, VersionScratch, Versions};
