//! A small random generator (splitmix64), so that a seed gives the same numbers everywhere and in
//! every version, because seeds that have found a bug are kept. For this device, and for
//! simulations with it.

use crate::cast::usize_of;

/// A random generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes the generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Like [`Random::below`], for indices.
    pub fn index(&mut self, limit: usize) -> usize {
        usize_of(self.below(limit as u64))
    }

    /// Returns true with the probability 1 / `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Makes an independent generator for a part of the run.
    #[must_use]
    pub fn part(&self, label: u64) -> Self {
        let mut part = Self(self.0 ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93));
        part.number();
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers depend only on the seed, and parts of a generator are independent.
    #[test]
    fn a_seed_means_the_same_again_and_parts_differ() {
        let draw = |mut random: Random| [random.number(), random.number(), random.below(7)];
        assert_eq!(draw(Random::new(3)), draw(Random::new(3)));
        assert_ne!(draw(Random::new(3)), draw(Random::new(4)));
        let random = Random::new(3);
        assert_ne!(draw(random.part(1)), draw(random.part(2)));
        assert_eq!(draw(random.part(1)), draw(random.part(1)));
    }
}
