//! The log-linear scale of histograms: the bucket of a value, and the values of a bucket.
//!
//! Values below 128 have a bucket each. Above, each power of two is divided into 64 buckets of
//! equal width, so that the middle of a bucket is within 1/128 of all its values. Values from 2^40
//! (18 minutes in nanoseconds) fall into the last bucket.

/// Each power of two has two to this many buckets.
const BITS: u32 = 6;
const PER_POWER: usize = 1 << BITS;
/// The first power of two outside the scale.
const POWERS: u32 = 40;
/// Largest value of the scale; greater ones count like it.
pub const VALUE_MAX: u64 = (1 << POWERS) - 1;
/// Number of buckets.
pub const BUCKETS: usize = PER_POWER * (POWERS - BITS + 1) as usize;

/// Returns the bucket of `value`.
#[inline]
pub fn bucket_of(value: u64) -> usize {
    let value = value.min(VALUE_MAX);
    let power = (value | (PER_POWER as u64 - 1)).ilog2();
    let shift = (power + 1).saturating_sub(BITS + 1);
    (shift as usize * PER_POWER) + (value >> shift) as usize
}

/// Returns the smallest and the largest value of bucket `bucket`. For the last bucket, which has no
/// upper bound, the largest is that of the scale.
pub fn bounds_of(bucket: usize) -> (u64, u64) {
    assert!(bucket < BUCKETS, "no such bucket");
    let shift = (bucket / PER_POWER).saturating_sub(1);
    let lower = ((bucket - shift * PER_POWER) as u64) << shift;
    (lower, lower + (1 << shift) - 1)
}

/// Returns the middle of bucket `bucket`, which represents its values.
pub fn middle_of(bucket: usize) -> u64 {
    let (lower, upper) = bounds_of(bucket);
    lower + (upper - lower) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (lower, upper) = bounds_of(bucket);
            assert_eq!(lower, next, "bucket {bucket}");
            for value in [lower, middle_of(bucket), upper] {
                assert_eq!(bucket_of(value), bucket, "{value}");
            }
            next = upper + 1;
        }
        assert_eq!(next, VALUE_MAX + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_middle_is_within_one_percent_of_every_value() {
        let mut value: u64 = 1;
        while value < VALUE_MAX {
            let (lower, upper) = bounds_of(bucket_of(value));
            let middle = middle_of(bucket_of(value)) as f64;
            for edge in [lower, upper] {
                let error = (middle - edge as f64).abs();
                assert!(error <= edge as f64 * 0.01, "{middle} for {edge}");
            }
            value += 1 + value / 50;
        }
    }
}
