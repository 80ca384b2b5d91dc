//! The frame that a hint names: a child word says where the child was last seen.

use pando_format::{FrameIndex, PageId};
use pando_sync::atomic::AtomicU64;
use pando_sync::words::{prefetch, prefetch_lines};

use crate::frame::FrameHeader;
use crate::pool::Pool;
use crate::words::WORDS_PER_LINE;

/// The frame that a hint names. It may hold another page by now.
#[derive(Debug, Clone, Copy)]
pub struct HintedFrame<'a> {
    pub(crate) header: &'a FrameHeader,
    pub(crate) words: &'a [AtomicU64],
    pub(crate) frame: FrameIndex,
}

impl HintedFrame<'_> {
    /// Returns the hint.
    #[inline]
    pub fn hint(&self) -> u32 {
        self.frame.0 + 1
    }

    /// Prefetches what a look-up and a search of the page read: the frame's header, and of the page
    /// the first `LINES` lines, which begin with the page header, and the last line, where prefixes
    /// lie. All of it arrives at the same time.
    #[inline]
    pub fn prefetch<const LINES: usize>(&self) {
        self.header.prefetch();
        if let [first, .., last] = self.words {
            prefetch_lines::<LINES>(first);
            prefetch(last);
        }
    }

    /// Prefetches `MORE` further lines of the page, after the first `LINES`.
    #[inline]
    pub fn prefetch_more<const LINES: usize, const MORE: usize>(&self) {
        if let Some(word) = self.words.get(LINES * WORDS_PER_LINE) {
            prefetch_lines::<MORE>(word);
        }
    }

    /// Returns the version of `page`, if the frame holds it and nobody changes it.
    #[inline]
    pub(crate) fn version_of(&self, page: PageId) -> Option<u64> {
        let version = self.header.latch.read()?;
        (self.header.page() == page).then_some(version)
    }
}

impl Pool {
    /// Returns the frame of `hint` (frame index + 1), None for 0.
    #[inline]
    pub fn hinted(&self, hint: u32) -> Option<HintedFrame<'_>> {
        let frame = FrameIndex(hint.checked_sub(1)?);
        (frame.index() < self.frames()).then(|| self.in_frame(frame))
    }

    /// Returns `frame`, in which a page is looked for.
    #[inline]
    pub(crate) fn in_frame(&self, frame: FrameIndex) -> HintedFrame<'_> {
        HintedFrame {
            header: self.header(frame),
            words: self.frame_words(frame),
            frame,
        }
    }
}
