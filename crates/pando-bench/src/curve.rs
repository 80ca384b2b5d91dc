//! The curve of percentiles in a record.

use pando_stats::Histogram;

/// Number of points for each power of ten of the remaining share.
const POINTS_PER_POWER: f64 = 8.0;

/// Returns shares, with the values that these shares of `times` do not exceed: some for each power
/// of ten of the remaining share, up to the share of all values but one, and at last the maximum.
pub(crate) fn points(times: &Histogram) -> impl Iterator<Item = (f64, u64)> {
    let count = times.count();
    let all_but_one = 1.0 - 1.0 / count.max(1) as f64;
    let rests = (0..).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / POINTS_PER_POWER));
    let shares = rests.take_while(move |share| *share < all_but_one);
    let points = shares.map(|share| (share, times.percentile(share)));
    let last = (count > 0).then_some((all_but_one, times.max()));
    points.chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_begins_with_the_least_and_ends_with_the_largest() {
        let mut times = Histogram::default();
        assert_eq!(points(&times).count(), 0);
        times.add(7);
        assert_eq!(points(&times).collect::<Vec<_>>(), [(0.0, 7)]);
        (1..=1000).for_each(|value| times.add(value));
        let points: Vec<_> = points(&times).collect();
        assert_eq!(points[0], (0.0, 1));
        assert_eq!(points[8].0, 0.9);
        assert!(points.is_sorted());
        assert_eq!(points.last().map(|(_, value)| *value), Some(times.max()));
    }
}
