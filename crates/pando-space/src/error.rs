//! What a caller with bytes from a disk may get wrong. Programmer errors panic instead.

use std::fmt;

use pando_format::Extent;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why blocks could not be marked, or the space not be made smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A block has two owners.
    Overlap {
        /// What was to be marked.
        extent: Extent,
        /// Its first block that is allocated already.
        block: u32,
    },
    /// Blocks that do not exist, or none at all.
    Beyond {
        /// What was to be marked.
        extent: Extent,
        /// Blocks that there are.
        blocks: u64,
    },
    /// The tail to be cut off is not free.
    InUse {
        /// An allocated block in it.
        block: u32,
    },
    /// The tail to be cut off is reserved.
    Reserved {
        /// Blocks that can be cut off at most.
        available: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { extent, block } => {
                write!(f, "block {block} of {extent:?} is allocated already")
            }
            Self::Beyond { extent, blocks } => {
                write!(f, "{extent:?} does not lie within {blocks} blocks")
            }
            Self::InUse { block } => write!(f, "block {block} is in use"),
            Self::Reserved { available } => {
                write!(f, "only {available} blocks are free and not reserved")
            }
        }
    }
}

impl std::error::Error for Error {}
