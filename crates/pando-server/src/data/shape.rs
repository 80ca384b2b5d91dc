//! What a search of places is limited to.

use super::earth::Place;

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
