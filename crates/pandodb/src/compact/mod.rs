//! Compaction: a store becomes as small as what it holds, while it is read and
//! written (decision 033).
//!
//! ```text
//! garbage is freed -> leaves are packed -> what lies at the end of the file moves to its front
//! -> checkpoint -> the file is cut; the log gives back what it does not use
//! ```
//! No step is logged, and each is an ordinary change of pages or of places: it is in the next
//! checkpoint or it has never been. So a compaction may be killed at any moment, and goes on from
//! where it was when it is begun again. Nothing lies behind the end of the file that recovery could
//! read: the file is cut when both slots of the superblock name a shorter one.

mod files;
mod leaks;
mod places;
mod progress;
mod run;
mod trees;

pub use progress::{CompactPhase, CompactProgress, CompactReport};
