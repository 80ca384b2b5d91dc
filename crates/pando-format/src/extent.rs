//! The place of a page on the device, in one 64-bit word.
//!
//! ```text
//! bit 63      61 60    59           40 39        32 31               0
//!     +---------+-----+---------------+------------+------------------+
//!     |  state  |chunk| checksum tag  | length - 1 |   first block    |
//!     |  3 bits |  1  |    20 bits    |   8 bits   |     32 bits      |
//!     +---------+-----+---------------+------------+------------------+
//! ```
//! The state is the pool's (0 on disk: see [`StoredPage`]); the mapping stores words with state
//! [`STATE_ON_DISK`] for mapped pages, [`STATE_CHUNK`] for chunks, [`STATE_OUT_OF_REACH`] for pages
//! that are no longer read, and the word 0 for free pages.

use crate::cast::low_u32;

/// Position of the state's lowest bit.
pub const STATE_SHIFT: u32 = 61;
/// State of a page that has an extent and no frame.
pub const STATE_ON_DISK: u64 = 1;
/// State of a chunk, which has an extent but never a frame.
pub const STATE_CHUNK: u64 = 4;
/// State of a page without a write that is in the log: the page was unreadable when the write was
/// due (decision 061).
pub const STATE_OUT_OF_REACH: u64 = 5;
const NAMES_CHUNKS_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 40;
const TAG_BITS: u32 = 20;
const LENGTH_SHIFT: u32 = 32;

/// Maximum length of an extent in blocks.
pub const EXTENT_BLOCKS_MAX: u32 = 256;

/// A run of blocks: `block .. block + blocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First block.
    pub block: u32,
    /// Length in blocks, 1 to [`EXTENT_BLOCKS_MAX`].
    pub blocks: u32,
}

/// A page's place on the device, and facts about its bytes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPage {
    /// The blocks.
    pub extent: Extent,
    /// Low 20 bits of the page's checksum. Detects a lost write, which leaves an older valid image.
    pub tag: u32,
    /// The page is a leaf that names pages of long values, or chunks of very large ones.
    pub names_chunks: bool,
    /// Kind of the content.
    pub kind: StoredKind,
}

/// Kind of the content at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredKind {
    /// The image of a page.
    Page,
    /// A piece of a very large value: bytes without a header, never in a frame.
    Chunk,
    /// An image without a write that the page must have: it was unreadable when the write was due.
    OutOfReach,
}

impl StoredPage {
    /// Returns the part of a page's checksum that is stored with its place.
    pub fn tag_of(checksum: u32) -> u32 {
        checksum & ((1 << TAG_BITS) - 1)
    }

    /// Returns whether this is a piece of a very large value.
    pub fn is_chunk(&self) -> bool {
        self.kind == StoredKind::Chunk
    }

    /// Returns the word, with the state of its kind.
    pub fn encode(self) -> u64 {
        debug_assert!((1..=EXTENT_BLOCKS_MAX).contains(&self.extent.blocks));
        let state = match self.kind {
            StoredKind::Page => STATE_ON_DISK,
            StoredKind::Chunk => STATE_CHUNK,
            StoredKind::OutOfReach => STATE_OUT_OF_REACH,
        };
        state << STATE_SHIFT
            | u64::from(self.names_chunks) << NAMES_CHUNKS_SHIFT
            | u64::from(self.tag & ((1 << TAG_BITS) - 1)) << TAG_SHIFT
            | u64::from((self.extent.blocks - 1) & 0xff) << LENGTH_SHIFT
            | u64::from(self.extent.block)
    }

    /// Reads a word. Returns `None` unless its state is that of a kind.
    pub fn decode(word: u64) -> Option<Self> {
        let kind = match word >> STATE_SHIFT {
            STATE_ON_DISK => StoredKind::Page,
            STATE_CHUNK => StoredKind::Chunk,
            STATE_OUT_OF_REACH => StoredKind::OutOfReach,
            _ => return None,
        };
        Some(Self {
            extent: Extent {
                block: low_u32(word),
                blocks: (word >> LENGTH_SHIFT & 0xff) as u32 + 1,
            },
            tag: (word >> TAG_SHIFT & ((1 << TAG_BITS) - 1)) as u32,
            names_chunks: word >> NAMES_CHUNKS_SHIFT & 1 == 1,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encoding as a page word is reversible.
    #[test]
    fn a_stored_page_survives_its_word() {
        for (block, blocks, tag, names_chunks, kind) in [
            (0, 1, 0, false, StoredKind::Page),
            (u32::MAX, 256, 0xf_ffff, true, StoredKind::Page),
            (7, 16, 0x1_2345, false, StoredKind::OutOfReach),
            (9, 256, 0xf_ffff, false, StoredKind::Chunk),
        ] {
            let page = StoredPage {
                extent: Extent { block, blocks },
                tag,
                names_chunks,
                kind,
            };
            assert_eq!(StoredPage::decode(page.encode()), Some(page));
        }
        assert_eq!(StoredPage::decode(0), None);
    }
}
