//! Where every page is: one atomic word for each page id.
//!
//! A word changes only by the transitions listed in the crate's documentation, and only from the
//! value that the owner of the claim or of the exclusive latch saw last.

use pando_format::cast::low_u32;
use pando_format::extent::STATE_SHIFT;
use pando_format::{FrameIndex, PageId, StoredKind, StoredPage};
use pando_sync::WordArena;
use pando_sync::atomic::Ordering;

const STATE_LOADING: u64 = 2;
const STATE_RESIDENT: u64 = 3;

/// A decoded page word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No page has this id.
    Free,
    /// On the device only.
    OnDisk(StoredPage),
    /// Being read into the frame.
    Loading(FrameIndex),
    /// In the frame.
    Resident(FrameIndex),
    /// A chunk: on the device, and never in a frame.
    Chunk(StoredPage),
    /// On the device, but no longer read: a write to it is missing (decision 061).
    OutOfReach(StoredPage),
}

impl Place {
    /// Returns the place of a page from the mapping.
    pub(crate) fn of_stored(stored: StoredPage) -> Self {
        match stored.kind {
            StoredKind::Page => Self::OnDisk(stored),
            StoredKind::Chunk => Self::Chunk(stored),
            StoredKind::OutOfReach => Self::OutOfReach(stored),
        }
    }

    fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::OnDisk(stored) | Self::Chunk(stored) | Self::OutOfReach(stored) => {
                stored.encode()
            }
            Self::Loading(frame) => STATE_LOADING << STATE_SHIFT | u64::from(frame.0),
            Self::Resident(frame) => STATE_RESIDENT << STATE_SHIFT | u64::from(frame.0),
        }
    }

    fn decode(word: u64) -> Self {
        let frame = FrameIndex(low_u32(word));
        match word >> STATE_SHIFT {
            STATE_LOADING => Self::Loading(frame),
            STATE_RESIDENT => Self::Resident(frame),
            _ => StoredPage::decode(word).map_or(Self::Free, Self::of_stored),
        }
    }
}

/// The words of all pages. Only ids that were used cost memory.
#[derive(Debug)]
pub struct PageTable {
    words: WordArena,
}

impl PageTable {
    /// Makes a table for `pages` ids, all free.
    pub(crate) fn new(pages: usize) -> std::io::Result<Self> {
        Ok(Self {
            words: WordArena::new("page table", pages, false)?,
        })
    }

    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether the table has no ids.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the place of `page`; [`Place::Free`] for an id beyond the table.
    #[inline]
    pub fn get(&self, page: PageId) -> Place {
        if page.index() >= self.words.len() {
            return Place::Free;
        }
        // Acquire: pairs with the Release in set and swap: later loads see a frame header at least
        // as new as the word.
        Place::decode(self.words.words(page.index(), 1)[0].load(Ordering::Acquire))
    }

    /// Changes the word of `page` from `old` to `new`. Returns false if it is no longer `old`.
    pub(crate) fn swap(&self, page: PageId, old: Place, new: Place) -> bool {
        self.words.words(page.index(), 1)[0]
            .compare_exchange(
                old.encode(),
                new.encode(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Changes the word of `page` from `old`, which the caller owns by claim or latch, to `new`.
    pub(crate) fn set(&self, page: PageId, old: Place, new: Place) {
        assert!(
            self.swap(page, old, new),
            "{page}: its word changed under its owner"
        );
    }
}
