//! A seeded permutation of 0..n without a table: a Feistel network over the next even power of two,
//! applied repeatedly until the result is below n.

use crate::random::mix;

const ROUNDS: u64 = 4;

/// A permutation of the numbers below a count.
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Creates the permutation of 0..`count` that `seed` selects.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// Returns the number at `index`, which must be below the count.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.count, "{index} of {}", self.count);
        let mut number = index;
        // At most four steps on average, since the network covers at most four times the count.
        loop {
            number = self.shuffle(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn shuffle(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let key = mix(self.seed ^ (round << 56));
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    #[test]
    fn every_number_comes_once() {
        for count in [1, 2, 3, 10, 64, 1000, 4097] {
            let permutation = Permutation::new(count, 7);
            let mut seen: Vec<u64> = (0..count).map(|index| permutation.at(index)).collect();
            let in_order = seen.clone();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..count), "{count}");
            assert!(count < 64 || in_order != seen, "{count} is not shuffled");
        }
    }
}
