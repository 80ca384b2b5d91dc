//! Words of a page, in frames (relaxed atomics), private copies and images alike.
//!
//! Code over [`Word`] slices is total: an index out of range reads 0, so torn content of a page
//! that is read optimistically can neither cause a panic nor an endless loop. Nothing here
//! validates a version.

use std::ops::Range;

use pando_pool::PageMut;
use pando_sync::atomic::{AtomicU64, Ordering};

/// One 64-bit word that can be read.
pub trait Word {
    /// Returns its value.
    fn get(&self) -> u64;
}

impl Word for AtomicU64 {
    #[inline]
    fn get(&self) -> u64 {
        // Relaxed: under an exclusive latch nobody else writes. Otherwise the value counts only
        // after Optimistic::validate; see the ordering argument of `pando_pool::latch`.
        self.load(Ordering::Relaxed)
    }
}

impl Word for u64 {
    #[inline]
    fn get(&self) -> u64 {
        *self
    }
}

impl Word for [u8; 8] {
    #[inline]
    fn get(&self) -> u64 {
        u64::from_le_bytes(*self)
    }
}

/// Returns the word at `index`, 0 outside the slice.
#[inline]
pub fn load<W: Word>(words: &[W], index: usize) -> u64 {
    words.get(index).map_or(0, Word::get)
}

/// A page that may be changed.
pub trait Store {
    /// Type of its words.
    type Word: Word;
    /// Returns the present words.
    fn words(&self) -> &[Self::Word];
    /// Replaces the word at `index`.
    fn store(&mut self, index: usize, value: u64);
    /// Replaces the words from `index` on by `values`.
    fn store_all(&mut self, index: usize, values: impl ExactSizeIterator<Item = u64>) {
        for (index, value) in (index..).zip(values) {
            self.store(index, value);
        }
    }
    /// Moves the words of `range` up by `by` words.
    fn move_up(&mut self, range: Range<usize>, by: usize) {
        for index in range.rev() {
            self.store(index + by, load(self.words(), index));
        }
    }
    /// Moves the words of `range` down by `by` words.
    fn move_down(&mut self, range: Range<usize>, by: usize) {
        for index in range {
            self.store(index - by, load(self.words(), index));
        }
    }
}

impl Store for [u64] {
    type Word = u64;

    fn words(&self) -> &[u64] {
        self
    }

    fn store(&mut self, index: usize, value: u64) {
        self[index] = value;
    }
}

impl Store for [[u8; 8]] {
    type Word = [u8; 8];

    #[inline]
    fn words(&self) -> &[[u8; 8]] {
        self
    }

    #[inline]
    fn store(&mut self, index: usize, value: u64) {
        self[index] = value.to_le_bytes();
    }
}

impl Store for PageMut<'_> {
    type Word = AtomicU64;

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        PageMut::words(self).slice()
    }

    #[inline]
    fn store(&mut self, index: usize, value: u64) {
        PageMut::store(self, index, value);
    }

    #[inline]
    fn store_all(&mut self, index: usize, values: impl ExactSizeIterator<Item = u64>) {
        PageMut::store_all(self, index, values);
    }

    #[inline]
    fn move_up(&mut self, range: Range<usize>, by: usize) {
        PageMut::move_up(self, range, by);
    }

    #[inline]
    fn move_down(&mut self, range: Range<usize>, by: usize) {
        PageMut::move_down(self, range, by);
    }
}
