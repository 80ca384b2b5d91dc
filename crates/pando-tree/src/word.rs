//! Words of a page, wherever they lie: frames (relaxed atomics), private copies, images.
//!
//! Code over [`Word`] slices is total: an index out of range reads 0, so that torn content of a
//! page under an optimistic latch can neither panic nor run away. Nothing here validates a version.

use pando_pool::PageMut;
use pando_sync::atomic::{AtomicU64, Ordering};

/// One 64-bit word that can be read.
pub trait Word {
    /// Its value.
    fn get(&self) -> u64;
}

impl Word for AtomicU64 {
    #[inline]
    fn get(&self) -> u64 {
        // Relaxed: counts only after Optimistic::validate, whose fence(Acquire) pairs with the
        // Release of the version in Exclusive's drop; under an exclusive latch nobody else writes.
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

/// The word at `index`, 0 outside the slice.
#[inline]
pub fn load<W: Word>(words: &[W], index: usize) -> u64 {
    words.get(index).map_or(0, Word::get)
}

/// A page that may be changed.
pub trait Store {
    /// What its words are.
    type Word: Word;
    /// The words as they are now.
    fn words(&self) -> &[Self::Word];
    /// Replaces a word.
    fn store(&mut self, index: usize, value: u64);
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
}
