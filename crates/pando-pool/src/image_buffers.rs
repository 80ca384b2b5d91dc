//! Images and their buffers, and the lists in which started images wait to be written.

use std::collections::VecDeque;

use pando_device::IoBuf;
use pando_format::{Epoch, FrameIndex, PageId};
use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pando_sync::{Mutex, Rank, WaitList};

use crate::options::ImageFacts;

/// A copy of a page, owned by the thread that writes it.
#[derive(Debug)]
pub struct Image {
    pub(crate) page: PageId,
    /// The frame that was copied. It is not reused before the image has ended.
    pub(crate) frame: FrameIndex,
    /// Version of the frame when it was copied.
    pub(crate) version: u64,
    /// Epoch whose checkpoint needs the image.
    pub(crate) epoch: Epoch,
    /// As [`crate::image::Sealed::tag`]; 0 until the image is sealed.
    pub(crate) tag: u32,
    /// As [`crate::image::Sealed::facts`]; the default until the image is sealed.
    pub(crate) facts: ImageFacts,
    /// The page was laid out anew since its last image.
    pub(crate) rebuilt: bool,
    /// Number of bytes of `bytes` to write: whole blocks.
    pub(crate) stored: usize,
    /// A buffer of one page, which goes back to [`Images::buffers`] when the image ends.
    pub(crate) bytes: IoBuf,
}

impl Image {
    /// Returns the id of the page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns the epoch whose checkpoint needs the image.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the bytes to write, after [`crate::Pool::seal_image`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.stored]
    }
}

/// A copy of a page that lies in a frame until a buffer for its image is free.
#[derive(Debug)]
pub(crate) struct Stashed {
    pub(crate) page: PageId,
    /// The frame that was copied, not that of the copy. It is not reused before the image has
    /// ended.
    pub(crate) frame: FrameIndex,
    /// Version of `frame` when it was copied.
    pub(crate) version: u64,
    /// Epoch whose checkpoint needs the image.
    pub(crate) epoch: Epoch,
    /// As [`Image::rebuilt`].
    pub(crate) rebuilt: bool,
    /// Frame of the copy. It has no page and is in no free list: the owner of this value owns it.
    pub(crate) copy: FrameIndex,
}

/// Images that writers have started for a running checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// Images that have a buffer, oldest first.
    pub(crate) images: Vec<Image>,
    /// Copies for which no buffer was free, oldest first.
    pub(crate) stashed: VecDeque<Stashed>,
}

/// Free image buffers, and images that writers started for a running checkpoint.
#[derive(Debug)]
pub(crate) struct Images {
    /// Free buffers.
    pub(crate) buffers: Mutex<Vec<IoBuf>>,
    /// Images and copies that wait for the checkpoint.
    pub(crate) started: Mutex<Started>,
    /// Number of images and copies in `started`. Written under `started`, read without the lock.
    pub(crate) started_count: AtomicUsize,
    /// Number of frames with stashed copies.
    pub(crate) stashed_count: AtomicUsize,
    /// As [`crate::Pool::end_checkpoints`].
    pub(crate) are_over: AtomicBool,
    /// Wakers of waiters for a buffer, for the end of an image, or for fewer dirty pages.
    pub(crate) waiters: WaitList,
}

impl Images {
    /// Makes `count` free buffers of `page_bytes` bytes.
    pub(crate) fn new(count: usize, page_bytes: usize) -> Self {
        Self {
            buffers: Mutex::new(
                Rank::ImageBuffers,
                (0..count).map(|_| IoBuf::new(page_bytes)).collect(),
            ),
            started: Mutex::new(Rank::StartedImages, Started::default()),
            started_count: AtomicUsize::new(0),
            stashed_count: AtomicUsize::new(0),
            are_over: AtomicBool::new(false),
            waiters: WaitList::new(),
        }
    }

    /// Updates `started_count` after a change of `started`, whose lock the caller holds.
    pub(crate) fn note_started(&self, started: &Started) {
        let count = started.images.len() + started.stashed.len();
        self.started_count.store(count, Ordering::Relaxed);
    }

    /// Gives back the buffer of an image that was not written, and wakes waiters.
    pub(crate) fn give_back(&self, buffer: IoBuf) {
        self.buffers.lock().push(buffer);
        self.waiters.notify_all();
    }
}
