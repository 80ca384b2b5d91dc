//! Compaction: shrinks a store to what it holds, while it is read and written (decision 033).
//!
//! ```text
//! garbage is freed -> leaves are packed -> the end of the file moves to its front
//! -> checkpoint -> the file is cut; the log frees what it does not use
//! ```
//! Moving and cutting also happen by themselves (`giving_back`), and at a close (decision 082).
//! A rewriting (`Db::rewrite`, decision 080) writes every page again between packing and moving.
//!
//! No step is logged, and each is an ordinary change of pages or of their places: either the next
//! checkpoint contains it, or it has never happened. So a compaction may be killed at any moment,
//! and continues from there when it is started again. Recovery never reads beyond the end of the
//! file: the file is cut after both slots of the superblock name a shorter one.

mod files;
mod giving_back;
mod leaks;
mod places;
mod progress;
mod run;
mod trees;

pub use progress::{CompactPhase, CompactProgress, CompactReport};
