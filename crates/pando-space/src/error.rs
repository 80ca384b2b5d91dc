//! Errors of callers with bytes from a disk. Programming errors panic instead.

use std::fmt;

use pando_format::Extent;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why blocks could not be marked, or why the space could not shrink.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A block has two owners.
    Overlap {
        /// The extent to mark.
        extent: Extent,
        /// Its first block that is allocated already.
        block: u32,
    },
    /// The extent has blocks that do not exist, or no blocks.
    Beyond {
        /// The extent to mark.
        extent: Extent,
        /// Number of existing blocks.
        blocks: u64,
    },
    /// The tail to be cut off is not free.
    InUse {
        /// An allocated block in it.
        block: u32,
    },
    /// The tail to be cut off is reserved.
    Reserved {
        /// Maximum number of blocks that can be cut off.
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
