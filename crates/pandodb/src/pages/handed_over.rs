//! Images that wait for room on a full disk and whose writer does not wait: the next thread that
//! does takes them over (decision 037).

use pando_format::Extent;
use pando_pool::Image;
use pando_sync::{Mutex, Rank};

/// An image, and where it is written.
pub(crate) type PlacedImage = (Image, Extent);

/// The images that nobody writes at the moment. While there are some, they count as one write that
/// waits for room.
#[derive(Debug)]
pub(crate) struct HandedOver {
    images: Mutex<Vec<PlacedImage>>,
}

impl HandedOver {
    pub(crate) fn new() -> Self {
        Self {
            images: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }

    /// Adds `images`. Returns true if there were none.
    pub(crate) fn add(&self, images: Vec<PlacedImage>) -> bool {
        let mut all = self.images.lock();
        let is_first = all.is_empty();
        all.extend(images);
        is_first
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<PlacedImage> {
        std::mem::take(&mut *self.images.lock())
    }
}
