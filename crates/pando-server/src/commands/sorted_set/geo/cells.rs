//! Which geohashes a search has to look at.
//!
//! A geohash has bits of the latitude and of the longitude in turns. So the places of a cell, a
//! rectangle whose sides are the earth's divided by a power of two, are neighbours in the order of
//! scores. A search looks at the cells of one size that touch the box around its shape: the
//! smallest ones of which four rows and four columns are enough. Redis takes a cell and its eight
//! neighbours (`geohash_helper.c`); a box that is never too small needs no corrections near poles.

use std::f64::consts::FRAC_PI_2;
use std::ops::Range;

use crate::data::earth::{BITS, LATITUDES, LONGITUDES, Place, RADIUS_METERS, spread};
use crate::data::shape::Shape;

/// Most rows and columns of cells, without those beyond the end of a coordinate.
const CELLS_MAX: i64 = 4;
/// Radians by which a box is larger than its shape, since distances are rounded: six meters.
const MARGIN: f64 = 1e-6;

/// Returns the ranges of geohashes, in ascending order, that have all places that lie in `shape`
/// around `center`, and others.
pub(super) fn covering(center: Place, shape: Shape) -> Vec<Range<u64>> {
    let (latitude, longitude) = reach(center, shape);
    // Not the smallest ones: of geohashes behind the last column a score has not the last bit.
    let mut level = BITS - 1;
    let (rows, columns) = loop {
        let rows = row_numbers(center.latitude, latitude, level);
        let columns = column_numbers(center.longitude, longitude, level);
        let count = |numbers: &Range<i64>| numbers.end - numbers.start;
        if count(&rows) <= CELLS_MAX && count(&columns) <= CELLS_MAX || level == 0 {
            break (rows, columns);
        }
        level -= 1;
    };
    let (rows, columns) = (numbers_of(rows, level), numbers_of(columns, level));
    let below = 2 * (BITS - level);
    let mut ranges: Vec<Range<u64>> = rows
        .iter()
        .flat_map(|row| {
            columns
                .iter()
                .map(move |column| spread(*row) | spread(*column) << 1)
        })
        .map(|cell| cell << below..(cell + 1) << below)
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touches = next.start <= range.end;
        if touches {
            range.end = range.end.max(next.end);
        }
        touches
    });
    ranges
}

/// Returns the degrees of latitude and longitude that a shape reaches from its center, or more.
fn reach(center: Place, shape: Shape) -> (f64, f64) {
    let angle = |meters: f64| meters / RADIUS_METERS + MARGIN;
    let from_equator = center.latitude.to_radians().abs();
    match shape {
        Shape::Circle { radius } => {
            let radius = angle(radius);
            // Where a meridian touches the circle, it is at a right angle to the radius.
            let longitude = match from_equator + radius < FRAC_PI_2 {
                true => (radius.sin() / from_equator.cos()).asin(),
                false => f64::INFINITY,
            };
            (radius.to_degrees(), longitude.to_degrees())
        }
        Shape::Rectangle { width, height } => {
            let height = angle(height / 2.0);
            // As wide along each parallel, so that most degrees are on the one next to a pole.
            let parallel = (from_equator + height).min(LATITUDES.end().to_radians());
            let half = angle(width / 2.0) / 2.0;
            let sine = half.min(FRAC_PI_2).sin() / parallel.cos();
            let longitude = match sine < 1.0 {
                true => 2.0 * sine.asin(),
                false => f64::INFINITY,
            };
            (height.to_degrees(), longitude.to_degrees())
        }
    }
}

/// Returns the number of a cell; outside of the range, it goes on.
fn number(value: f64, range: &std::ops::RangeInclusive<f64>, level: u32) -> i64 {
    let share = (value - range.start()) / (range.end() - range.start());
    // Infinite ones become the greatest or the least number there is.
    #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
    let number = (share * f64::from(1_u32 << level)).floor() as i64;
    number
}

/// Returns the rows that touch the latitudes up to `reach` from `middle`.
fn row_numbers(middle: f64, reach: f64, level: u32) -> Range<i64> {
    let last = (1 << level) - 1;
    let number = |latitude| number(latitude, &LATITUDES, level).clamp(0, last);
    number(middle - reach)..number(middle + reach) + 1
}

/// Returns the columns that touch the longitudes up to `reach` from `middle`; those below zero and
/// behind the last one are on the other side of the 180th meridian.
fn column_numbers(middle: f64, reach: f64, level: u32) -> Range<i64> {
    let all = 0..1 << level;
    if reach >= 180.0 {
        return all;
    }
    let number = |longitude| number(longitude, &LONGITUDES, level);
    let columns = number(middle - reach)..number(middle + reach) + 1;
    match columns.end - columns.start < all.end {
        true => columns,
        false => all,
    }
}

/// Returns the numbers as they are in geohashes. What lies exactly at the end of a coordinate has
/// the number behind the last one.
fn numbers_of(numbers: Range<i64>, level: u32) -> Vec<u64> {
    let count = 1_i64 << level;
    let mut all: Vec<u64> = numbers
        .map(|number| number.rem_euclid(count).unsigned_abs())
        .collect();
    let end = count.unsigned_abs();
    if all.contains(&(end - 1)) {
        all.push(end);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::earth::whole;
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = Place> {
        let longitude = prop_oneof![
            -180.0..180.0_f64,
            Just(-180.0),
            Just(180.0),
            179.9..180.0_f64,
            -180.0..-179.9_f64,
        ];
        let latitude = prop_oneof![
            -85.0..85.0_f64,
            Just(*LATITUDES.start()),
            Just(*LATITUDES.end()),
            84.9..85.05_f64,
        ];
        (longitude, latitude).prop_map(|(longitude, latitude)| Place {
            longitude,
            latitude,
        })
    }

    fn shape() -> impl Strategy<Value = Shape> {
        let length = || {
            prop_oneof![
                0.0..10.0_f64,
                0.0..1e5_f64,
                0.0..3e7_f64,
                Just(0.0),
                Just(f64::INFINITY),
            ]
        };
        prop_oneof![
            length().prop_map(|radius| Shape::Circle { radius }),
            (length(), length()).prop_map(|(width, height)| Shape::Rectangle { width, height }),
        ]
    }

    fn are_in_order(ranges: &[Range<u64>]) -> bool {
        ranges.windows(2).all(|pair| pair[0].end < pair[1].start)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_lies_in_the_shape_is_covered(
            center in place(),
            shape in shape(),
            others in prop::collection::vec(place(), 40),
            near in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 40),
        ) {
            let center = Place::of_score(center.score());
            let ranges = covering(center, shape);
            prop_assert!(are_in_order(&ranges) && ranges.len() <= 25, "{ranges:?}");
            let (latitude, longitude) = reach(center, shape);
            let near = near.into_iter().map(|(east, north)| Place {
                longitude: {
                    let longitude = center.longitude + east * longitude.min(180.0);
                    (longitude + 540.0).rem_euclid(360.0) - 180.0
                },
                latitude: (center.latitude + north * latitude.min(90.0))
                    .clamp(*LATITUDES.start(), *LATITUDES.end()),
            });
            for place in others.into_iter().chain(near) {
                let score = place.score();
                if shape.distance(center, Place::of_score(score)).is_some() {
                    let hash = whole(score);
                    let is_covered = ranges.iter().any(|range| range.contains(&hash));
                    prop_assert!(is_covered, "{place:?} {center:?} {shape:?} {ranges:?}");
                }
            }
        }

        #[test]
        fn a_small_shape_needs_little_of_the_earth(
            // Elsewhere a circle may have a pole, or touch the cells behind the last column.
            longitude in -170.0..170.0_f64,
            latitude in -80.0..80.0_f64,
            meters in 20.0..100_000.0_f64,
        ) {
            let (center, shape) = (Place { longitude, latitude }, Shape::Circle { radius: meters });
            let bits: u64 = covering(center, shape).iter().map(|of| of.end - of.start).sum();
            let (latitude, longitude) = reach(center, shape);
            let of_all = latitude / 85.051_128_78 * longitude / 180.0 * (1_u64 << 52) as f64;
            // Less than three times as wide, and of rows that are wider than high, two at least.
            prop_assert!((bits as f64) < 20.0 * of_all, "{bits} {of_all} {center:?} {meters}");
        }
    }
}
