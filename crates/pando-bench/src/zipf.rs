//! Zipf-distributed ranks by rejection-inversion (Hoermann and Derflinger 1996): no table, two or
//! three logarithms per sample, exact for any exponent above 0.

use crate::random::Random;

/// Ranks 1..=count, where rank k has the weight 1 / k^exponent.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    count: f64,
    exponent: f64,
    high: f64,
    low: f64,
    sure: f64,
}

impl Zipf {
    /// Prepares ranks below `count`. Panics unless both arguments are above 0.
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        assert!(count > 0 && exponent > 0.0, "a distribution over something");
        let mut zipf = Self {
            count: count as f64,
            exponent,
            high: 0.0,
            low: 0.0,
            sure: 0.0,
        };
        zipf.high = zipf.integral(1.5) - 1.0;
        zipf.low = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Returns a rank, counted from 0 for the most frequent one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 1 to the count"
    )]
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.low + random.unit() * (self.high - self.low);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of the weight, in a form that also works for exponent 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let y = (1.0 - self.exponent) * log;
        let ratio = if y.abs() > 1e-8 {
            y.exp_m1() / y
        } else {
            1.0 + y / 2.0
        };
        ratio * log
    }

    fn inverse(&self, x: f64) -> f64 {
        let y = (x * (1.0 - self.exponent)).max(-1.0);
        let ratio = if y.abs() > 1e-8 {
            y.ln_1p() / y
        } else {
            1.0 - y / 2.0
        };
        (ratio * x).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use crate::random::Random;

    #[test]
    fn frequencies_follow_the_law() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let (zipf, mut random) = (Zipf::new(100, exponent), Random::new(1, 0));
            let mut counts = [0_u64; 100];
            for _ in 0..200_000 {
                counts[usize::try_from(zipf.rank(&mut random)).unwrap()] += 1;
            }
            let sum: f64 = (1..=100).map(|k| f64::from(k).powf(-exponent)).sum();
            for rank in [0_usize, 1, 9, 50] {
                let expected = 200_000.0 * (rank as f64 + 1.0).powf(-exponent) / sum;
                let error = (counts[rank] as f64 - expected).abs() / expected;
                assert!(error < 0.15, "exponent {exponent}, rank {rank}: {error}");
            }
        }
    }
}
