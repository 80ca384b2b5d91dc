//! Geohashes and distances, as Redis has them (`geohash.c`, `geohash_helper.c`): 26 bits of the
//! latitude and 26 of the longitude in turns, over the range of the Mercator projection of the web;
//! distances on a sphere.

use std::ops::RangeInclusive;

/// Bits of each coordinate.
pub(crate) const BITS: u32 = 26;
pub(crate) const RADIUS_METERS: f64 = 6_372_797.560_856;
pub(crate) const LONGITUDES: RangeInclusive<f64> = -180.0..=180.0;
pub(crate) const LATITUDES: RangeInclusive<f64> = -85.051_128_78..=85.051_128_78;
/// Latitudes of the geohashes that other programs use.
const ALL_LATITUDES: RangeInclusive<f64> = -90.0..=90.0;

/// A place on the earth, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

impl Place {
    /// Returns true if it can be a member's.
    pub(crate) fn is_valid(self) -> bool {
        LONGITUDES.contains(&self.longitude) && LATITUDES.contains(&self.latitude)
    }

    /// Returns its geohash as a score.
    pub(crate) fn score(self) -> f64 {
        self.hash(&LATITUDES) as f64
    }

    fn hash(self, latitudes: &RangeInclusive<f64>) -> u64 {
        let part = |value: f64, range: &RangeInclusive<f64>| {
            let share = (value - range.start()) / (range.end() - range.start());
            spread(whole(share * f64::from(1_u32 << BITS)))
        };
        part(self.latitude, latitudes) | part(self.longitude, &LONGITUDES) << 1
    }

    /// Returns the middle of the cell that a score stands for.
    pub(crate) fn of_score(score: f64) -> Self {
        let bits = whole(score);
        let middle = |bits: u64, range: &RangeInclusive<f64>| {
            let cell = collect(bits);
            let edge = |cell: u32| {
                let share = f64::from(cell) / f64::from(1_u32 << BITS);
                range.start() + share * (range.end() - range.start())
            };
            let middle = (edge(cell) + edge(cell.wrapping_add(1))) / 2.0;
            middle.min(*range.end()).max(*range.start())
        };
        Self {
            longitude: middle(bits >> 1, &LONGITUDES),
            latitude: middle(bits, &LATITUDES),
        }
    }

    /// Returns the geohash that other programs know, with 11 letters; of the last one Redis has no
    /// bits.
    pub(crate) fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let hash = self.hash(&ALL_LATITUDES);
        let mut text = [b'0'; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            let index = hash >> (47 - at * 5) & 0x1f;
            *letter = LETTERS[usize::try_from(index).unwrap_or(0)];
        }
        text
    }

    /// Returns the distance in meters.
    pub(crate) fn distance(self, other: Self) -> f64 {
        let (a, b) = (self.longitude.to_radians(), other.longitude.to_radians());
        let across = ((b - a) / 2.0).sin();
        if across == 0.0 {
            return self.latitude_distance(other);
        }
        let (a, b) = (self.latitude.to_radians(), other.latitude.to_radians());
        let along = ((b - a) / 2.0).sin();
        let square = along * along + a.cos() * b.cos() * across * across;
        2.0 * RADIUS_METERS * square.sqrt().asin()
    }

    /// Returns the distance in meters along a meridian.
    pub(crate) fn latitude_distance(self, other: Self) -> f64 {
        RADIUS_METERS * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }
}

/// Returns the whole part of a number as Redis does where it runs on x86: of a negative one that of
/// two's complement; of one that is too small 2^63; of one that is too large 0.
pub(crate) fn whole(value: f64) -> u64 {
    const HALF: f64 = (1_u64 << 63) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it saturates at -2^63, as is meant"
    )]
    let signed = |value: f64| (value as i64).cast_unsigned();
    match value {
        _ if value < HALF => signed(value),
        _ if value < 2.0 * HALF => signed(value - HALF) ^ 1 << 63,
        _ => 0,
    }
}

/// Puts each of the lower 32 bits at twice its place.
pub(crate) fn spread(bits: u64) -> u64 {
    let bit = |place: u32| (bits >> place & 1) << (2 * place);
    (0..32).map(bit).sum()
}

/// Takes every second bit, from the lowest one on.
fn collect(bits: u64) -> u32 {
    let bit = |place: u32| (bits >> (2 * place) & 1) << place;
    let collected: u64 = (0..32).map(bit).sum();
    u32::try_from(collected).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_known_from_the_documentation() {
        let palermo = Place {
            longitude: 13.361389,
            latitude: 38.115556,
        };
        let catania = Place {
            longitude: 15.087269,
            latitude: 37.502669,
        };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let stored = |place: Place| Place::of_score(place.score());
        assert_eq!(&stored(palermo).geohash(), b"sqc8b49rny0");
        assert_eq!(&stored(catania).geohash(), b"sqdtr74hyu0");
        let distance = stored(palermo).distance(stored(catania));
        assert!((distance - 166_274.151_6).abs() < 0.0001, "{distance}");
    }

    /// Scores that no place has: as redis-server 7.0 shows them.
    #[test]
    fn odd_scores_are_the_places_that_they_are_in_redis() {
        let (west, south) = (-179.999_997_317_790_99, -85.051_127_512_639_43);
        let (east, north) = (180.0, 85.051_128_78);
        for (score, longitude, latitude) in [
            (-0.5, west, south),
            (0.5, west, south),
            (-1.0, east, north),
            (-5.0, east, north),
            (4_503_599_627_370_495.0, -west, -south),
            (4_503_599_627_370_496.0, west, north),
            (9_007_199_254_740_992.0, east, south),
            (1e17, east, north),
            (9_223_372_036_854_775_808.0, east, south),
            (1e19, east, north),
            (18_446_744_073_709_551_616.0, west, south),
            (1e300, west, south),
            (f64::INFINITY, west, south),
            (-1e300, east, south),
            (f64::NEG_INFINITY, east, south),
        ] {
            let place = Place::of_score(score);
            let is_near = |a: f64, b: f64| (a - b).abs() < 1e-12;
            let is_there = is_near(place.longitude, longitude) && is_near(place.latitude, latitude);
            assert!(is_there, "{score}: {place:?}");
        }
    }

    proptest! {
        #[test]
        fn places_come_back_within_a_meter(
            longitude in -180.0..180.0_f64,
            latitude in -85.0..85.0_f64,
        ) {
            let place = Place { longitude, latitude };
            let again = Place::of_score(place.score());
            prop_assert!(place.distance(again) < 1.0);
            prop_assert_eq!(again.score(), place.score());
        }

        #[test]
        fn any_score_is_a_place(bits in any::<u64>()) {
            prop_assert!(Place::of_score(f64::from_bits(bits)).is_valid());
        }

        #[test]
        fn the_whole_part_is_that_of_the_number(value in 0..1_u64 << 53) {
            prop_assert_eq!(whole(value as f64), value);
            prop_assert_eq!(whole(value as f64 / 4.0), value / 4);
        }
    }
}
