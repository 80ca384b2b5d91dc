//! Which blocks of the data file are free: a hierarchical bitmap with groups, bounded search and
//! reserved. Pure: it does no I/O and persists nothing; the engine rebuilds it at open.
//!
//! ```text
//! block      1 bit, 1 = free                 word = 64 blocks
//! word       2 bits: not full, all free      region = 64 words = 4,096 blocks
//! region     its longest run at most         group = every n-th region, under one lock
//! core       extents of 1 to 16 blocks, kept ready
//! ```
//!
//! Extents of the common lengths are kept ready for each core, and are taken with one swap. They
//! count as free; they go back to the bitmap before anything is refused.
//!
//! Regions are dealt to the groups in turn, and a thread begins with the group of its core, so that
//! cores do not meet. A group that cannot serve is recognised by an atomic count without its lock.
//! A search looks at so many words, then goes to the next group; only when all groups have been
//! searched so does it look everywhere, so that `None` means that no such run exists.
//!
//! Extents of various lengths cut what is free to pieces. So it is counted in units, too: disjoint
//! runs of the longest length that is asked for. Every extent is taken from the low end of a free
//! run, which costs one unit at most; so as many extents as there are units always find room,
//! whatever their lengths.
//!
//! Two tallies are kept: the bits (what is free) and the [`reserved`](Space::reservation) (what of
//! it is spoken for). Extents that were replaced but may not be used again yet stay allocated here;
//! the engine keeps them until their checkpoint.
//!
//! Reading order: [`space`], `region`, `region_set`, `group`, `magazine`, `ready`, `ledger`,
//! [`batch`], [`lowest`], [`resize`], [`survey`], [`error`].

#![forbid(unsafe_code)]

pub mod batch;
pub mod error;
mod group;
mod ledger;
pub mod lowest;
mod magazine;
mod ready;
mod region;
mod region_set;
pub mod resize;
pub mod space;
pub mod survey;

pub use error::{Error, Result};
pub use ledger::Urgency;
pub use lowest::LowCursor;
pub use region::REGION_BLOCKS;
pub use space::{BLOCKS_MAX, Space, SpaceOptions};
pub use survey::Survey;
