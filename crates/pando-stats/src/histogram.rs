//! Histograms for readers: counts by bucket, with merging, subtraction and percentiles.

use crate::scale::{BUCKETS, bounds_of, bucket_of, middle_of};

/// Counts of values by bucket of the scale, and their sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Makes a histogram without values.
    pub fn new() -> Self {
        Self::of(vec![0; BUCKETS], 0)
    }

    /// Makes a histogram from the count of each bucket and the sum of all values.
    pub(crate) fn of(counts: Vec<u64>, sum: u64) -> Self {
        assert_eq!(counts.len(), BUCKETS);
        Self {
            counts: counts.into_boxed_slice(),
            sum,
        }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.sum = self.sum.wrapping_add(value);
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns the values that were added after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Self {
            counts: pairs.map(|(now, then)| now.wrapping_sub(*then)).collect(),
            sum: self.sum.wrapping_sub(earlier.sum),
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the exact sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the mean of all values, 0 without values.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }

    /// Returns the value that the share `share` (0 to 1) of all values does not exceed, within 1 %;
    /// 0 without values.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (share * self.count() as f64).ceil().max(1.0);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return middle_of(bucket);
            }
        }
        self.max()
    }

    /// Returns the smallest value, within 1 %; 0 without values.
    pub fn min(&self) -> u64 {
        let first = self.counts.iter().position(|count| *count > 0);
        first.map_or(0, middle_of)
    }

    /// Returns the largest value, within 1 %; 0 without values.
    pub fn max(&self) -> u64 {
        let last = self.counts.iter().rposition(|count| *count > 0);
        last.map_or(0, middle_of)
    }

    /// Returns the buckets with values: the upper bound of each, and the number of its values.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate();
        filled
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (bounds_of(bucket).1, *count))
    }

    /// Returns the number of values that are at most `limit`, to the precision of buckets.
    pub fn count_up_to(&self, limit: u64) -> u64 {
        self.counts[..=bucket_of(limit)].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns values of every size up to 31 bits.
    fn values(count: usize) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(7);
        let next = |_| u64::from(random.u32(..) >> 1) >> random.u32(..16);
        (0..count).map(next).collect()
    }

    #[test]
    fn percentiles_are_those_of_sorted_values_within_one_percent() {
        let mut sorted = values(10_000);
        let mut histogram = Histogram::new();
        sorted.iter().for_each(|value| histogram.add(*value));
        sorted.sort_unstable();
        for share in [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
            let exact = sorted[rank - 1] as f64;
            let found = histogram.percentile(share) as f64;
            assert!(
                (found - exact).abs() <= exact * 0.01,
                "{share}: {found} for {exact}"
            );
        }
        assert_eq!(histogram.count(), 10_000);
        assert_eq!(histogram.sum(), sorted.iter().sum::<u64>());
        assert_eq!(histogram.min(), sorted[0]);
        let max = histogram.max() as f64;
        assert!((max / sorted[9999] as f64 - 1.0).abs() <= 0.01);
        assert_eq!(Histogram::new().percentile(0.5), 0);
    }

    #[test]
    fn merging_is_adding_all_values_and_subtracting_takes_them_away() {
        let all = values(3000);
        let (mut whole, mut one, mut other) = Default::default();
        let add = |histogram: &mut Histogram, values: &[u64]| {
            values.iter().for_each(|value| histogram.add(*value));
        };
        add(&mut whole, &all);
        add(&mut one, &all[..1000]);
        add(&mut other, &all[1000..]);
        assert_eq!(whole.since(&one), other);
        one.merge(&other);
        assert_eq!(one, whole);
        let buckets = whole.buckets().map(|(_, count)| count).sum::<u64>();
        assert_eq!(buckets, 3000);
        assert_eq!(whole.count_up_to(u64::MAX), 3000);
        let small = all.iter().filter(|value| **value <= 100).count();
        assert_eq!(whole.count_up_to(100), small as u64);
    }
}
