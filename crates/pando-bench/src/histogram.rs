//! A histogram of durations: 64 buckets for each power of two, so that a percentile is off by at
//! most 1/64. Fixed size, no allocation after creation.

const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;
/// Points of a curve of percentiles, from one power of ten of the rest to the next.
const POINTS_PER_POWER: f64 = 8.0;
const BUCKETS: usize = ((u64::BITS - SUB_BITS + 1) << SUB_BITS) as usize;

/// Counts of values, any `u64`; nanoseconds here.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = u64::BITS - 1 - value.leading_zeros() - SUB_BITS;
    (((u64::from(shift) + 1) << SUB_BITS) + ((value >> shift) - SUB)) as usize
}

/// The largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let first = ((bucket & (SUB - 1)) + SUB) << shift;
    first + ((1 << shift) - 1)
}

impl Histogram {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another one.
    pub fn merge(&mut self, other: &Self) {
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into += from;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// The least value that at least `share` (0 to 1) of all values do not exceed; 0 without any.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = ((share * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= wanted {
                return bucket_end(index).min(self.max);
            }
        }
        self.max
    }

    /// Shares, and values that so many do not exceed: some for each power of ten of the rest, up to
    /// the share of all but one value, with the largest.
    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, u64)> {
        let all_but_one = 1.0 - 1.0 / self.count.max(1) as f64;
        let rests = (0..).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / POINTS_PER_POWER));
        let shares = rests.take_while(move |share| *share < all_but_one);
        let points = shares.map(|share| (share, self.percentile(share)));
        let last = (self.count > 0).then_some((all_but_one, self.max));
        points.chain(last)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, bucket, bucket_end};

    #[test]
    fn buckets_are_in_order_and_without_gaps() {
        for index in 0..BUCKETS - 1 {
            let end = bucket_end(index);
            assert_eq!(bucket(end), index);
            assert_eq!(bucket(end + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_off_by_a_64th_at_most() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|value| histogram.add(value));
        for (share, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let found = histogram.percentile(share) as f64;
            assert!(
                (0.0..=1.0 / 64.0).contains(&((found - exact) / exact)),
                "{share}: {found}"
            );
        }
        assert_eq!(histogram.max(), 100_000);
        assert_eq!(histogram.percentile(1.0), 100_000);
        assert!((histogram.mean() - 50_000.5).abs() < 1e-6);
    }

    #[test]
    fn merged_ones_are_as_one() {
        let (mut left, mut right, mut both) = Default::default();
        for value in 0..1000_u64 {
            let histogram: &mut Histogram = if value % 3 == 0 {
                &mut left
            } else {
                &mut right
            };
            histogram.add(value * value);
            Histogram::add(&mut both, value * value);
        }
        left.merge(&right);
        assert_eq!(left.count(), both.count());
        assert_eq!(left.percentile(0.9), both.percentile(0.9));
    }

    #[test]
    fn a_curve_begins_with_the_least_and_ends_with_the_largest() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.points().count(), 0);
        histogram.add(7);
        assert_eq!(histogram.points().collect::<Vec<_>>(), [(0.0, 7)]);
        (1..=1000).for_each(|value| histogram.add(value));
        let points: Vec<_> = histogram.points().collect();
        assert_eq!(points[0], (0.0, 1));
        assert_eq!(points[8].0, 0.9);
        assert!(points.is_sorted());
        assert_eq!(points.last().map(|(_, value)| *value), Some(1000));
    }
}
