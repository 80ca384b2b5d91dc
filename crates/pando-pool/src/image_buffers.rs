//! What an image is, and where images are until they are written.

use std::collections::VecDeque;

use pando_device::IoBuf;
use pando_format::{Epoch, FrameIndex, PageId};
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::{Mutex, Rank, WaitList};

use crate::options::ImageFacts;

/// A copy of a page, owned by whoever writes it.
#[derive(Debug)]
pub struct Image {
    pub(crate) page: PageId,
    pub(crate) frame: FrameIndex,
    pub(crate) version: u64,
    pub(crate) epoch: Epoch,
    pub(crate) tag: u32,
    pub(crate) facts: ImageFacts,
    /// The page was laid out anew since the last image.
    pub(crate) rebuilt: bool,
    /// How many of `bytes` are to be written: whole blocks.
    pub(crate) stored: usize,
    pub(crate) bytes: IoBuf,
}

impl Image {
    /// The page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// The epoch whose checkpoint it belongs to.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What is to be written, after [`crate::Pool::seal_image`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.stored]
    }
}

/// A copy of a page in a frame, until there is a buffer for its image.
#[derive(Debug)]
pub(crate) struct Stashed {
    pub(crate) page: PageId,
    pub(crate) frame: FrameIndex,
    pub(crate) version: u64,
    pub(crate) epoch: Epoch,
    pub(crate) rebuilt: bool,
    /// Without a page, and in no list of free ones: whoever has this owns it.
    pub(crate) copy: FrameIndex,
}

/// What writers have started for a running checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Started {
    pub(crate) images: Vec<Image>,
    /// Those that found no buffer, oldest first.
    pub(crate) stashed: VecDeque<Stashed>,
}

/// Free image buffers, and images that writers started for a running checkpoint.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) buffers: Mutex<Vec<IoBuf>>,
    pub(crate) started: Mutex<Started>,
    pub(crate) started_count: AtomicUsize,
    /// Frames with copies.
    pub(crate) stashed_count: AtomicUsize,
    /// Those that wait for a buffer, for the end of an image, or for fewer dirty pages.
    pub(crate) waiters: WaitList,
}

impl Images {
    pub(crate) fn new(count: usize, page_bytes: usize) -> Self {
        Self {
            buffers: Mutex::new(
                Rank::ImageBuffers,
                (0..count).map(|_| IoBuf::new(page_bytes)).collect(),
            ),
            started: Mutex::new(Rank::StartedImages, Started::default()),
            started_count: AtomicUsize::new(0),
            stashed_count: AtomicUsize::new(0),
            waiters: WaitList::new(),
        }
    }

    /// `started` has changed; the caller has its lock.
    pub(crate) fn note_started(&self, started: &Started) {
        let count = started.images.len() + started.stashed.len();
        self.started_count.store(count, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, buffer: IoBuf) {
        self.buffers.lock().push(buffer);
        self.waiters.notify_all();
    }
}
