//! What a search of places is limited to.

use std::cmp::Ordering;

use super::earth::Place;

/// Members beyond twice as many as are wanted that are kept before they are cut to these.
const BEYOND: usize = 64;

/// Which members of a sorted set a search of places keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Around {
    pub(crate) center: Place,
    pub(crate) shape: Shape,
    /// Meters of the unit in which distances are.
    pub(crate) unit: f64,
    /// So many are enough.
    pub(crate) enough: usize,
    /// Of all these, no more are wanted than come first in this order, which is that of the reply.
    pub(crate) order: Option<Order>,
}

impl Around {
    /// Returns how far from the center a member with this score is, if it lies in the shape.
    pub(crate) fn distance(&self, score: f64) -> Option<f64> {
        let place = Place::of_score(score);
        let distance = self.shape.distance(self.center, place);
        distance.map(|distance| distance / self.unit)
    }
}

/// An order by distances, in which those that are equal stay as they are, and how many are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Order {
    pub(crate) is_descending: bool,
    pub(crate) count: usize,
}

impl Order {
    /// Compares two distances.
    pub(crate) fn compare(self, a: f64, b: f64) -> Ordering {
        match self.is_descending {
            false => a.total_cmp(&b),
            true => b.total_cmp(&a),
        }
    }

    /// Returns true if so many have to be cut to those that are wanted, so that memory is taken for
    /// about twice these.
    pub(crate) fn is_to_be_cut(self, count: usize) -> bool {
        count >= self.count.saturating_mul(2).saturating_add(BEYOND)
    }

    /// Returns the places of those that are wanted among these distances, in ascending order, and
    /// the distance of the last one; to be asked if some are not wanted.
    pub(crate) fn cut(self, distances: &[f64]) -> (Vec<usize>, f64) {
        let mut places: Vec<usize> = (0..distances.len()).collect();
        let (_, last, _) = places.select_nth_unstable_by(self.count - 1, |a, b| {
            let by_distance = self.compare(distances[*a], distances[*b]);
            by_distance.then(a.cmp(b))
        });
        let last = distances[*last];
        places.truncate(self.count);
        places.sort_unstable();
        (places, last)
    }
}

/// A circle or a rectangle; its lengths are in meters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

impl Shape {
    /// Returns the distance of `place` from `center`, if it lies in the shape around that.
    pub(crate) fn distance(self, center: Place, place: Place) -> Option<f64> {
        match self {
            Self::Circle { radius } => {
                let distance = center.distance(place);
                (distance <= radius).then_some(distance)
            }
            Self::Rectangle { width, height } => {
                if place.latitude_distance(center) > height / 2.0 {
                    return None;
                }
                let beside = Place {
                    latitude: place.latitude,
                    ..center
                };
                let is_inside = place.distance(beside) <= width / 2.0;
                is_inside.then(|| center.distance(place))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn those_that_are_kept_are_the_first_of_a_stable_order(
            distances in prop::collection::vec(0..9_u8, 1..60),
            count in 1..20_usize,
            is_descending: bool,
        ) {
            let distances: Vec<f64> = distances.into_iter().map(f64::from).collect();
            let order = Order { is_descending, count: count.min(distances.len()) };
            let mut expected: Vec<usize> = (0..distances.len()).collect();
            expected.sort_by(|a, b| order.compare(distances[*a], distances[*b]));
            expected.truncate(order.count);
            let farthest = distances[expected[order.count - 1]];
            expected.sort_unstable();
            prop_assert_eq!(order.cut(&distances), (expected, farthest));
        }
    }
}
