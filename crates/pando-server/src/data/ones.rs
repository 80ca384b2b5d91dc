//! The number of bits that are set in bytes.
//!
//! Words are added to each other bit by bit before ones are counted: sixteen words become one whose
//! ones count sixteen each, by fifteen full adders of five operations, and only that one is counted
//! (Harley and Seal; Muła, Kurz and Lemire: Faster Population Counts Using AVX2 Instructions, The
//! Computer Journal 61, 2018). Four words beside each other let the compiler use vectors of any
//! width.

/// Words that are added beside each other.
const LANES: usize = 4;
/// Bytes of so many words.
const BYTES: usize = LANES * size_of::<u64>();
/// Blocks of words that become one.
const GROUP: usize = 16;

type Words = [u64; LANES];

/// Counts the ones of `bytes`.
pub(crate) fn count(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<BYTES>();
    let (groups, rest) = blocks.as_chunks::<GROUP>();
    let mut sums = Sums::default();
    let sixteens: u64 = groups.iter().map(|group| ones(sums.add(group))).sum();
    let rest: u64 = rest.iter().map(|block| ones(words(block))).sum();
    let tail: u64 = tail.iter().map(|byte| u64::from(byte.count_ones())).sum();
    16 * sixteens + sums.count() + rest + tail
}

/// What was added and is not sixteen yet, by bits: each place has from 0 to 15 ones.
#[derive(Debug, Default)]
struct Sums {
    one: Words,
    two: Words,
    four: Words,
    eight: Words,
}

impl Sums {
    /// Adds a group; returns the places where it makes sixteen.
    #[inline]
    fn add(&mut self, group: &[[u8; BYTES]; GROUP]) -> Words {
        let (halves, _) = group.as_chunks::<8>();
        let low = self.add_half(&halves[0]);
        let high = self.add_half(&halves[1]);
        carry(&mut self.eight, low, high)
    }

    /// Adds eight blocks; returns the places where they make eight.
    #[inline]
    fn add_half(&mut self, half: &[[u8; BYTES]; 8]) -> Words {
        let mut fours = [Words::default(); 2];
        for (four, blocks) in fours.iter_mut().zip(half.as_chunks::<4>().0) {
            let low = carry(&mut self.one, words(&blocks[0]), words(&blocks[1]));
            let high = carry(&mut self.one, words(&blocks[2]), words(&blocks[3]));
            *four = carry(&mut self.two, low, high);
        }
        carry(&mut self.four, fours[0], fours[1])
    }

    fn count(&self) -> u64 {
        ones(self.one) + 2 * ones(self.two) + 4 * ones(self.four) + 8 * ones(self.eight)
    }
}

/// Adds two bits to each bit of `sum`; returns the carries.
#[inline]
fn carry(sum: &mut Words, left: Words, right: Words) -> Words {
    let mut carries = Words::default();
    for lane in 0..LANES {
        let half = sum[lane] ^ left[lane];
        carries[lane] = (sum[lane] & left[lane]) | (half & right[lane]);
        sum[lane] = half ^ right[lane];
    }
    carries
}

#[inline]
fn words(block: &[u8; BYTES]) -> Words {
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

#[inline]
fn ones(words: Words) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_counted_as_byte_by_byte() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in (0..3 * GROUP * BYTES).chain([100_003]) {
            let density = random.u8(..3);
            let byte = |_| match density {
                0 => random.u8(..) & random.u8(..),
                1 => random.u8(..),
                _ => random.u8(..) | random.u8(..),
            };
            let bytes: Vec<u8> = (0..length).map(byte).collect();
            let expected: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
            assert_eq!(count(&bytes), expected, "{length}");
        }
        assert_eq!(count(&[0xff; 1 << 16]), 8 << 16);
    }
}
