//! Which keys may have versions in a generation. Most commits save a key for the first time, and
//! most keys of a leaf that has changed have not changed: they need not look into the tree.
//!
//! One bit for several hashes: a key without its bit has no version. A saver sets the bit before it
//! puts the version, and thus before its leaf changes. So whoever has seen the change of the leaf,
//! or holds the stripe of the key, sees the bit, without an order of its own.

use pando_format::cast::usize_of;
use pando_sync::atomic::{AtomicU64, Ordering};

/// Fewest and most bits.
const BITS_MIN: u64 = 1 << 10;
const BITS_MAX: u64 = 1 << 21;
/// Bytes of memory for versions for which there is one bit.
const BYTES_PER_BIT: u64 = 64;

/// The bits of one generation.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    words: Box<[AtomicU64]>,
}

impl KeyFilter {
    /// Returns a filter without keys, for versions that may take `bytes` bytes in all generations.
    pub(crate) fn new(bytes: u64) -> Self {
        let bits = (bytes / BYTES_PER_BIT).clamp(BITS_MIN, BITS_MAX);
        let words = usize_of(bits.next_power_of_two() / u64::from(u64::BITS));
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the word and the bit of a hash.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let word = usize_of(hash / u64::from(u64::BITS)) & (self.words.len() - 1);
        (&self.words[word], 1 << (hash % u64::from(u64::BITS)))
    }

    /// Returns false if no key of this hash has a version.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        // Relaxed: see above.
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Notes a key of this hash, before a version of it is put.
    #[inline]
    pub(crate) fn add(&self, hash: u64) {
        let (word, bit) = self.place(hash);
        // Without a write if it is set: other cores read the word.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Forgets all keys. Nobody adds one meanwhile.
    pub(crate) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_filter_knows_what_was_added_and_little_else() {
        for bytes in [0, 512 << 10, 1 << 30] {
            let filter = KeyFilter::new(bytes);
            let bits = filter.words.len() as u64 * 64;
            assert!((BITS_MIN..=BITS_MAX).contains(&bits));
            let mut random = fastrand::Rng::with_seed(bytes);
            let hashes: Vec<u64> = (0..bits / 16).map(|_| random.u64(..)).collect();
            for hash in &hashes {
                filter.add(*hash);
            }
            assert!(hashes.iter().all(|hash| filter.may_have(*hash)));
            let others = (0..10_000).filter(|_| filter.may_have(random.u64(..)));
            let others = others.count();
            assert!((300..1_000).contains(&others), "{others} of 10,000");
            filter.clear();
            assert!(!hashes.iter().any(|hash| filter.may_have(*hash)));
        }
    }
}
