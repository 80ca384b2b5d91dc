//! The allocator of the data file's blocks: a hierarchical bitmap with groups, bounded search and
//! reservations. It does no I/O and persists nothing; the engine rebuilds it at open.
//!
//! ```text
//! block      1 bit, 1 = free                 word = 64 blocks
//! word       2 bits: not full, all free      region = 64 words = 4,096 blocks
//! region     its longest run at most         group = every n-th region, under one lock
//! core       extents of 1 to 16 blocks, kept ready
//! ```
//!
//! Extents of the common lengths are kept ready in a magazine for each core, and are taken with one
//! swap. They count as free, and go back to the bitmap before anything is refused.
//!
//! Regions are assigned to the groups in turn, and a thread begins with the group of its core, so
//! that cores do not contend. An atomic count tells without the lock that a group has too few free
//! blocks. A search reads a bounded number of words of a group and then continues with the next
//! one. Only when all groups have been searched in this way does it search everywhere, so that
//! `None` means that no such run exists.
//!
//! Extents of various lengths fragment the free space. So it is also counted in units: disjoint
//! runs of the longest length that is ever requested. Every extent is taken from the low end of a
//! free run, which costs at most one unit. So as many extents as there are units always find room,
//! whatever their lengths are.
//!
//! The space keeps the bits (which blocks are free) and the number of [reserved](Space::reserved)
//! blocks. Extents that were replaced but may not be reused yet stay allocated here; the engine
//! keeps them until their checkpoint.
//!
//! Reading order: [`space`], `region`, `region_set`, `group`, `search`, `freeing`, `magazine`,
//! `ready`, `ledger`, [`batch`], [`lowest`], [`resize`], [`survey`], [`BlockSet`], [`error`].

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

pub mod batch;
mod block_set;
pub mod error;
mod freeing;
mod group;
mod ledger;
pub mod lowest;
mod magazine;
mod ready;
mod region;
mod region_set;
pub mod resize;
mod search;
pub mod space;
pub mod survey;

pub use block_set::BlockSet;
pub use error::{Error, Result};
pub use ledger::Urgency;
pub use lowest::LowCursor;
pub use region::REGION_BLOCKS;
pub use space::{BLOCKS_MAX, Space, SpaceOptions};
pub use survey::Survey;
