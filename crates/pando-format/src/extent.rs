//! Where a page lies on the device, in one 64-bit word.
//!
//! ```text
//! bit 63      61 60    59           40 39        32 31               0
//!     +---------+-----+---------------+------------+------------------+
//!     |  state  |chunk| checksum tag  | length - 1 |   first block    |
//!     |  3 bits |  1  |    20 bits    |   8 bits   |     32 bits      |
//!     +---------+-----+---------------+------------+------------------+
//! ```
//! The state is the pool's (0 on disk: see [`StoredPage`]); the mapping stores words with state
//! [`STATE_ON_DISK`] for mapped pages, [`STATE_CHUNK`] for chunks, and the word 0 for free ones.

/// Bits of the state.
pub const STATE_SHIFT: u32 = 61;
/// State of a page that has an extent and no frame.
pub const STATE_ON_DISK: u64 = 1;
/// State of a chunk, which has an extent and never a frame.
pub const STATE_CHUNK: u64 = 4;
const NAMES_CHUNKS_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 40;
const TAG_BITS: u32 = 20;
const LENGTH_SHIFT: u32 = 32;

/// Most blocks of one extent.
pub const EXTENT_BLOCKS_MAX: u32 = 256;

/// A run of blocks: `block .. block + blocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First block.
    pub block: u32,
    /// Length in blocks, 1 to [`EXTENT_BLOCKS_MAX`].
    pub blocks: u32,
}

/// A page's place on the device and what is known about its bytes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPage {
    /// The blocks.
    pub extent: Extent,
    /// Low 20 bits of the page's checksum: catches a lost write, which leaves an older valid image.
    pub tag: u32,
    /// A leaf that names other pages: of long values, or chunks of very large ones.
    pub names_chunks: bool,
    /// A piece of a very large value: bytes without a header, which no frame ever holds.
    pub is_chunk: bool,
}

impl StoredPage {
    /// The part of a page checksum that is kept with its place.
    pub fn tag_of(checksum: u32) -> u32 {
        checksum & ((1 << TAG_BITS) - 1)
    }

    /// The word, with state [`STATE_ON_DISK`] or [`STATE_CHUNK`].
    pub fn encode(self) -> u64 {
        debug_assert!((1..=EXTENT_BLOCKS_MAX).contains(&self.extent.blocks));
        let state = if self.is_chunk {
            STATE_CHUNK
        } else {
            STATE_ON_DISK
        };
        state << STATE_SHIFT
            | u64::from(self.names_chunks) << NAMES_CHUNKS_SHIFT
            | u64::from(self.tag & ((1 << TAG_BITS) - 1)) << TAG_SHIFT
            | u64::from((self.extent.blocks - 1) & 0xff) << LENGTH_SHIFT
            | u64::from(self.extent.block)
    }

    /// Reads a word; `None` unless its state is [`STATE_ON_DISK`] or [`STATE_CHUNK`].
    pub fn decode(word: u64) -> Option<Self> {
        let is_chunk = match word >> STATE_SHIFT {
            STATE_ON_DISK => false,
            STATE_CHUNK => true,
            _ => return None,
        };
        Some(Self {
            extent: Extent {
                block: (word & u64::from(u32::MAX)) as u32,
                blocks: (word >> LENGTH_SHIFT & 0xff) as u32 + 1,
            },
            tag: (word >> TAG_SHIFT & ((1 << TAG_BITS) - 1)) as u32,
            names_chunks: word >> NAMES_CHUNKS_SHIFT & 1 == 1,
            is_chunk,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_page_survives_its_word() {
        for (block, blocks, tag, names_chunks, is_chunk) in [
            (0, 1, 0, false, false),
            (u32::MAX, 256, 0xf_ffff, true, false),
            (7, 16, 0x1_2345, false, false),
            (9, 256, 0xf_ffff, false, true),
        ] {
            let page = StoredPage {
                extent: Extent { block, blocks },
                tag,
                names_chunks,
                is_chunk,
            };
            assert_eq!(StoredPage::decode(page.encode()), Some(page));
        }
        assert_eq!(StoredPage::decode(0), None);
    }
}
