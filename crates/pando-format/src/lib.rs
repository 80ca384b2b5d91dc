//! The on-disk format: identifiers, headers, checksums, little-endian codecs; no I/O.
//!
//! This crate defines the layout of all files of a store; `docs/format.md` documents it byte by
//! byte. Bytes from a disk are untrusted: every decoder returns [`Damage`] for bytes that it cannot
//! accept, and never panics. The newest version is [`VERSION`]: a change that older programs would
//! read wrongly needs a new number, and golden files for it. A store has the least version that has
//! all it uses.
//!
//! Reading order: [`ids`], [`extent`], [`page`], [`weight`], [`compression`], [`superblock`],
//! [`mapping`], [`catalogue`], [`chunks`], [`log`], [`checksum`]; [`cast`] has the conversions
//! between widths of integers.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

pub mod bytes;
pub mod cast;
pub mod catalogue;
pub mod checksum;
pub mod chunks;
pub mod compression;
pub mod extent;
pub mod ids;
pub mod log;
pub mod lost;
pub mod mapping;
pub mod page;
pub mod superblock;
pub mod weight;

pub use compression::{Codec, Compression, PageDecoder, PageEncoder};
pub use extent::{Extent, StoredKind, StoredPage};
pub use ids::{Epoch, FrameIndex, Lsn, PageId, TreeId};
pub use page::PageSize;

#[cfg(target_endian = "big")]
compile_error!("pages are used in memory as they lie on disk: little-endian");

/// The newest version of the format that this code reads and writes.
pub const VERSION: u32 = 3;
/// The version of a store that uses nothing newer, as each does at first: programs that know no
/// later version can open it.
pub const VERSION_BASE: u32 = 1;
/// The first version with counted trees.
pub const VERSION_COUNTED: u32 = 2;
/// The first version with weighted trees.
pub const VERSION_WEIGHTED: u32 = 3;

/// An error of a decoder: why bytes were not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What was being decoded, and what is wrong with it.
    pub what: String,
}

impl Damage {
    /// Makes an error with a message for people.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Damage {}
