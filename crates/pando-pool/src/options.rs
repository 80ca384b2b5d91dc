//! How a pool is made.

use pando_format::{Compression, PageSize};
use pando_stats::Statistics;
use pando_sync::Arc;

/// What the tree says about an image that it made ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// A leaf that names other pages (of long values): freeing it takes reading it.
    pub names_pages: bool,
}

/// Which images are checked in full before they are written, as pages are that were read. The
/// marks of a leaf, and the id, always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckImages {
    /// Each.
    All,
    /// Those of pages that were laid out anew since their last image: see
    /// [`crate::Exclusive::rebuild`].
    Rebuilt,
}

/// What publishing a page does with the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Checks them and copies them into the frame.
    #[default]
    Checked,
    /// Neither: the frame keeps what it held. For measuring everything around the bytes; a store
    /// over such a pool reads nonsense.
    Ignored,
}

/// How a pool is made.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Size of a page and of a frame.
    pub page_size: PageSize,
    /// Number of frames, at least [`crate::pool::FRAMES_MIN`].
    pub frames: usize,
    /// Most pages that the store may have: 8 bytes of memory for each that exists.
    pub page_ids_max: usize,
    /// Number of image buffers, at least 2.
    pub images: usize,
    /// Size of a block: what a stored image is a multiple of. At most a page.
    pub block_bytes: usize,
    /// How new images are stored.
    pub compression: Compression,
    /// Makes a page's bytes ready for the device (hints zeroed) and says what it names.
    pub prepare_image: fn(&mut [u8]) -> ImageFacts,
    /// Checks the structure of a page that came from the device, or is about to go there.
    pub check_page: fn(&[u8]) -> Result<(), &'static str>,
    /// Which of those that go there.
    pub check_images: CheckImages,
    /// What becomes of bytes that were read: always checked, but in measurements.
    pub content: Content,
    /// Where ticks go.
    pub statistics: Arc<Statistics>,
}

impl PoolOptions {
    /// Free frames below which the cleaner is told.
    pub(crate) fn free_frames_low(&self) -> usize {
        (self.frames / 64).clamp(4, 1024)
    }

    /// Free frames that the cleaner works for.
    pub fn free_frames_high(&self) -> usize {
        2 * self.free_frames_low()
    }
}
