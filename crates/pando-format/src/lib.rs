//! The on-disk vocabulary: identifiers, headers, checksums, little-endian codecs; no I/O.
//!
//! Everything that a file of a store holds is laid out here, and documented byte by byte in
//! `docs/format.md`. Bytes that come from a disk are hostile: every decoder returns [`Damage`]
//! for what it cannot accept and never panics. The version is [`VERSION`]: a change of what is
//! written, or of what it means, comes with a new number, and with golden files of it.
//!
//! Reading order: [`ids`], [`extent`], [`page`], [`compression`], [`superblock`], [`mapping`],
//! [`catalogue`], [`chunks`], [`log`], [`checksum`].

#![forbid(unsafe_code)]

pub mod bytes;
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

pub use compression::{Codec, Compression, PageDecoder, PageEncoder};
pub use extent::{Extent, StoredKind, StoredPage};
pub use ids::{Epoch, FrameIndex, Lsn, PageId, TreeId};
pub use page::PageSize;

#[cfg(target_endian = "big")]
compile_error!("pages are used in memory as they lie on disk: little-endian");

/// Version of the format that this code reads and writes.
pub const VERSION: u32 = 1;

/// Why bytes were not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What was being decoded, and what is wrong with it.
    pub what: String,
}

impl Damage {
    /// A description for people.
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
