//! Chooses the next key among those that were filled.

use crate::distribution::Distribution;
use crate::permutation::Permutation;
use crate::random::Random;
use crate::zipf::Zipf;

/// Exponent of Zipf's law for `latest`.
const LATEST_EXPONENT: f64 = 0.99;

/// Chooses numbers below a count by a distribution. Shared by threads: each brings its own random
/// generator.
#[derive(Debug, Clone)]
pub struct Chooser {
    count: u64,
    distribution: Distribution,
    permutation: Permutation,
    zipf: Option<Zipf>,
}

impl Chooser {
    /// Creates a chooser of numbers below `count`; `seed` decides where the frequent ones lie.
    pub fn new(distribution: Distribution, count: u64, seed: u64) -> Self {
        let exponent = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf(exponent) => Some(exponent),
            Distribution::Latest => Some(LATEST_EXPONENT),
        };
        Self {
            count,
            distribution,
            permutation: Permutation::new(count, seed),
            zipf: exponent.map(|exponent| Zipf::new(count, exponent)),
        }
    }

    /// Returns the next number.
    pub fn choose(&self, random: &mut Random) -> u64 {
        match (self.distribution, &self.zipf) {
            (Distribution::Latest, Some(zipf)) => self.count - 1 - zipf.rank(random),
            (_, Some(zipf)) => self.permutation.at(zipf.rank(random)),
            (_, None) => random.below(self.count),
        }
    }

    /// Returns its distribution.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Returns the distance of the next number from the newest one; `None` unless it prefers the
    /// newest.
    pub(crate) fn age(&self, random: &mut Random) -> Option<u64> {
        let zipf = self.zipf.as_ref()?;
        (self.distribution == Distribution::Latest).then(|| zipf.rank(random))
    }

    /// Returns the order in which a random fill writes.
    pub(crate) fn permutation(&self) -> &Permutation {
        &self.permutation
    }
}

#[cfg(test)]
mod tests {
    use super::Chooser;
    use crate::distribution::Distribution;
    use crate::random::Random;

    /// Returns the share of the most frequent number, and that of the ten most frequent ones.
    fn shares(distribution: Distribution) -> (f64, f64) {
        let chooser = Chooser::new(distribution, 1000, 1);
        let mut random = Random::new(1, 1);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[chooser.choose(&mut random) as usize] += 1;
        }
        let most = counts.iter().max().copied().unwrap();
        let highest: u32 = counts[990..].iter().sum();
        (f64::from(most) / 1e5, f64::from(highest) / 1e5)
    }

    #[test]
    fn frequent_numbers_lie_where_the_distribution_says() {
        let (most, highest) = shares(Distribution::Uniform);
        assert!(most < 0.002 && highest < 0.02, "{most} {highest}");
        let (most, highest) = shares(Distribution::Zipf(0.99));
        assert!(most > 0.1 && highest < 0.1, "{most} {highest}");
        let (most, highest) = shares(Distribution::Latest);
        assert!(most > 0.1 && highest > 0.3, "{most} {highest}");
    }
}
