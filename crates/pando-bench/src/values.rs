//! Values: what belongs to a key, so that a read can be checked to the last byte.
//!
//! A value begins with eight bytes that are derived from the key's number, and four with the number
//! of its version; the rest is derived from both, and so is the length if lengths differ. Values
//! shorter than that have one version only.

use crate::random::mix;
use crate::value_sizes::{HEAD_BYTES, Sizes, ValueSizes};

const STAMP_BYTES: usize = 8;
const WORD_BYTES: usize = 8;
/// Difference between successive words before they are mixed: SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How values are made.
///
/// They are computed, not copied from a pool of random bytes: a pool that is large enough to keep
/// neighbours different does not fit into the caches of a core, and a benchmark of reads from
/// memory would measure the pool's misses.
#[derive(Debug)]
pub struct Values {
    sizes: Sizes,
    seed: u64,
    /// Share of a value that cannot be compressed; the rest repeats it.
    share: f64,
}

impl Values {
    /// Creates values of `bytes` bytes that can be compressed to `share` of that (1: they cannot).
    pub fn new(bytes: usize, share: f64, seed: u64) -> Self {
        Self::sized(ValueSizes::Fixed(bytes), share, seed)
    }

    /// Creates values of `sizes` that can be compressed to `share` of that (1: they cannot).
    pub fn sized(sizes: ValueSizes, share: f64, seed: u64) -> Self {
        Self {
            sizes: Sizes::new(sizes),
            seed,
            share,
        }
    }

    /// Replaces `out` by the value of key `number` in `version`.
    pub fn write(&self, number: u64, version: u32, out: &mut Vec<u8>) {
        let has_head = self.sizes.max() >= HEAD_BYTES;
        let version = if has_head { version } else { 0 };
        let (stamp, place) = self.stamp_and_place(number, version);
        let bytes = self.sizes.size(place);
        out.clear();
        // A head and whole words, of which `truncate` leaves the requested length.
        let dense = dense_bytes(bytes, self.share).next_multiple_of(WORD_BYTES);
        out.resize(HEAD_BYTES + dense, 0);
        out[..STAMP_BYTES].copy_from_slice(&stamp.to_le_bytes());
        out[STAMP_BYTES..HEAD_BYTES].copy_from_slice(&version.to_le_bytes());
        let (chunks, _) = out[HEAD_BYTES..].as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(words(place)) {
            *chunk = word.to_le_bytes();
        }
        while out.len() < bytes {
            let again = dense.min(bytes - out.len());
            out.extend_from_within(HEAD_BYTES..HEAD_BYTES + again);
        }
        out.truncate(bytes);
    }

    /// Returns the version of `value`, if it is one that key `number` was given.
    pub fn check(&self, number: u64, value: &[u8], scratch: &mut Vec<u8>) -> Option<u32> {
        let version = match value.get(STAMP_BYTES..HEAD_BYTES) {
            Some(bytes) => u32::from_le_bytes(bytes.try_into().ok()?),
            None => 0,
        };
        let is_own = match value.split_at_checked(HEAD_BYTES) {
            Some((head, rest)) if self.share == 1.0 => self.is_dense(number, version, head, rest),
            _ => {
                self.write(number, version, scratch);
                scratch == value
            }
        };
        is_own.then_some(version)
    }

    /// Returns true if `head` and `rest` are a value without repetition, of key `number` in
    /// `version`, which `head` contains. Takes less time than generating the value, so that the
    /// benchmark measures the read.
    fn is_dense(&self, number: u64, version: u32, head: &[u8], rest: &[u8]) -> bool {
        let (stamp, place) = self.stamp_and_place(number, version);
        let (chunks, last) = rest.as_chunks();
        let mut words = words(place);
        let differ = |all, (chunk, word): (&_, u64)| all | (u64::from_le_bytes(*chunk) ^ word);
        head[..STAMP_BYTES] == stamp.to_le_bytes()
            && HEAD_BYTES + rest.len() == self.sizes.size(place)
            && chunks.iter().zip(&mut words).fold(0, differ) == 0
            && words.next().unwrap_or(0).to_le_bytes().starts_with(last)
    }

    /// Returns what the head of a value begins with, and what the rest is derived from.
    fn stamp_and_place(&self, number: u64, version: u32) -> (u64, u64) {
        let stamp = mix(number ^ mix(self.seed ^ 0x5a5a));
        (stamp, mix(stamp ^ u64::from(version)))
    }
}

/// Returns the words of a value after its head.
fn words(place: u64) -> impl Iterator<Item = u64> {
    let mut state = place;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(STEP);
        mix(state)
    })
}

/// Returns the number of bytes, in a value of `bytes` bytes, that the rest repeats.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length, which is bounded after it"
)]
fn dense_bytes(bytes: usize, share: f64) -> usize {
    ((bytes as f64 * share).ceil() as usize).clamp(1, bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::{ValueSizes, Values};

    #[test]
    fn a_value_is_told_from_every_other() {
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        let sizes = [0, 1, 8, 20, 100, 5000].into_iter();
        for (bytes, share) in sizes.flat_map(|bytes| [(bytes, 1.0), (bytes, 0.5)]) {
            let values = Values::new(bytes, share, 3);
            values.write(7, 2, &mut value);
            assert_eq!(value.len(), bytes);
            let version = if bytes < 12 { 0 } else { 2 };
            assert_eq!(values.check(7, &value, &mut scratch), Some(version));
            for at in 0..bytes {
                value[at] ^= 1;
                assert_eq!(
                    values.check(7, &value, &mut scratch),
                    None,
                    "{bytes} at {at}"
                );
                value[at] ^= 1;
            }
            assert!(bytes == 0 || values.check(8, &value, &mut scratch).is_none());
        }
    }

    #[test]
    fn compressible_values_repeat() {
        let mut value = Vec::new();
        Values::new(1012, 0.25, 3).write(1, 1, &mut value);
        assert_eq!(value[12..268], value[268..524]);
    }

    #[test]
    fn a_size_follows_from_key_and_version_and_is_checked() {
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        let values = Values::sized(ValueSizes::Uniform { min: 12, max: 99 }, 0.5, 3);
        let mut sizes = std::collections::BTreeSet::new();
        for (number, version) in (0..1000).map(|index| (index % 100, index as u32 / 100)) {
            values.write(number, version, &mut value);
            sizes.insert(value.len());
            assert_eq!(values.check(number, &value, &mut scratch), Some(version));
            value.push(0);
            assert_eq!(values.check(number, &value, &mut scratch), None);
            value.truncate(value.len() - 2);
            assert_eq!(values.check(number, &value, &mut scratch), None);
        }
        assert!(sizes.len() > 80 && sizes.first() == Some(&12), "{sizes:?}");
    }
}
