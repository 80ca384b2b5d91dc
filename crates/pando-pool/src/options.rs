//! Options of a pool.

use pando_format::{Compression, PageSize};
use pando_stats::Statistics;
use pando_sync::Arc;

/// What the tree reports about an image that it has prepared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// The page is a leaf that names other pages (of long values): freeing it requires reading it.
    pub names_pages: bool,
}

/// Which images are checked in full, like pages that were read, before they are written. The id and
/// the marks of a leaf are checked always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckImages {
    /// Every image.
    All,
    /// Images of pages that were laid out anew since their last image: see
    /// [`crate::Exclusive::rebuild`].
    Rebuilt,
}

/// What a load does with the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Checks them and copies them into the frame.
    #[default]
    Checked,
    /// Neither checks nor copies them: the frame keeps its old content. For measurements of
    /// everything but the bytes; a store over such a pool reads nonsense.
    Ignored,
}

/// How a pool is made.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Size of a page and of a frame.
    pub page_size: PageSize,
    /// Number of frames, from [`crate::pool::FRAMES_MIN`] to [`crate::pool::FRAMES_MAX`].
    pub frames: usize,
    /// Maximum number of page ids of the store. Each id in use costs 8 bytes of memory.
    pub page_ids_max: usize,
    /// Number of image buffers, at least 2; 0 for a pool without a device. Pages of such a pool
    /// stay in their frames until they are freed, and its epoch never ends.
    pub images: usize,
    /// Size of a block in bytes. A stored image has whole blocks. At most a page.
    pub block_bytes: usize,
    /// How new images are stored.
    pub compression: Compression,
    /// Prepares the bytes of a page for the device (zeroes hints) and reports what the page names.
    pub prepare_image: fn(&mut [u8]) -> ImageFacts,
    /// Checks the structure of a page that was read from the device, or is about to be written.
    pub check_page: fn(&[u8]) -> Result<(), &'static str>,
    /// Which images `check_page` is called for.
    pub check_images: CheckImages,
    /// What a load does with the bytes: always [`Content::Checked`], except in measurements.
    pub content: Content,
    /// Statistics that the pool counts in.
    pub statistics: Arc<Statistics>,
}

impl PoolOptions {
    /// Returns whether pages are written to a device.
    pub(crate) fn has_device(&self) -> bool {
        self.images > 0
    }

    /// Returns the number of free frames at or below which the cleaner is woken.
    pub(crate) fn free_frames_low(&self) -> usize {
        (self.frames / 64).clamp(4, 1024)
    }

    /// Returns the number of free frames that the cleaner aims for.
    pub fn free_frames_high(&self) -> usize {
        2 * self.free_frames_low()
    }
}
