//! The only generator of pseudo-random numbers here: SplitMix64.

/// A bijection of 64-bit numbers whose outputs look random.
pub fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the number from which [`mix`] makes `mixed`.
pub(crate) fn unmix(mixed: u64) -> u64 {
    // The inverses of the two factors modulo 2^64, and the inverse of each shift.
    let z = mixed ^ (mixed >> 31) ^ (mixed >> 62);
    let z = z.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = z ^ (z >> 27) ^ (z >> 54);
    let z = z.wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// A sequence of numbers that is determined by a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of `stream` under `seed`; different streams do not overlap soon.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ stream))
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a uniform number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a uniform number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, mix, unmix};

    /// `unmix` is the inverse of `mix`.
    #[test]
    fn what_is_mixed_comes_back() {
        let mut random = Random::new(1, 1);
        for number in (0..1000).map(|_| random.next()).chain([0, 1, u64::MAX]) {
            assert_eq!(unmix(mix(number)), number);
        }
    }
}
