//! Access to the words of a page in a frame: relaxed and bounds-checked, never by a plain reference
//! to bytes.

use std::ops::Range;

use pando_sync::atomic::{AtomicU64, Ordering};

/// Words of a cache line of 64 bytes.
pub(crate) const WORDS_PER_LINE: usize = 8;

/// Read access. What is read without a latch counts only after validation.
#[derive(Debug, Clone, Copy)]
pub struct PageWords<'a> {
    words: &'a [AtomicU64],
}

impl<'a> PageWords<'a> {
    /// Gives access to the words of one page.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Returns the word at `index`, 0 beyond the page.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        // Relaxed: the latch of the frame orders accesses; see its module.
        self.words
            .get(index)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the number of words.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the words themselves.
    #[inline]
    pub fn slice(&self) -> &'a [AtomicU64] {
        self.words
    }
}

/// Write access, under the exclusive latch, to a page that is marked dirty.
#[derive(Debug)]
pub struct PageMut<'a> {
    words: &'a [AtomicU64],
}

impl<'a> PageMut<'a> {
    /// Gives access to the words of one page. The caller holds its exclusive latch, and has marked
    /// it dirty.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Read access.
    #[inline]
    pub fn words(&self) -> PageWords<'_> {
        PageWords::new(self.words)
    }

    /// Stores a word.
    ///
    /// # Panics
    /// When `index` is beyond the page.
    #[inline]
    pub fn store(&mut self, index: usize, value: u64) {
        // Relaxed: the latch of the frame orders accesses; see its module.
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Stores `values` in the words from `index` on.
    ///
    /// # Panics
    /// When they end beyond the page.
    #[inline]
    pub fn store_all(&mut self, index: usize, values: impl ExactSizeIterator<Item = u64>) {
        let words = &self.words[index..index + values.len()];
        for (word, value) in words.iter().zip(values) {
            // Relaxed: as in store.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Moves the words of `range` up by `by` words.
    ///
    /// # Panics
    /// When they end beyond the page.
    #[inline]
    pub fn move_up(&mut self, range: Range<usize>, by: usize) {
        let from = &self.words[range.start..range.end];
        let to = &self.words[range.start + by..range.end + by];
        for (from, to) in from.iter().zip(to).rev() {
            // Relaxed: as in store.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Moves the words of `range` down by `by` words.
    ///
    /// # Panics
    /// When there are fewer words below them, or they end beyond the page.
    #[inline]
    pub fn move_down(&mut self, range: Range<usize>, by: usize) {
        let from = &self.words[range.start..range.end];
        let to = &self.words[range.start - by..range.end - by];
        for (from, to) in from.iter().zip(to) {
            // Relaxed: as in store.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
