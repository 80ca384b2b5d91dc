//! What a search is limited to, its units, and the places that clients send.

use super::super::number::parse_score;
use super::earth::Place;
use crate::context::{Context, Interrupted, replies};

/// A circle or a rectangle; its lengths are in meters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

impl Shape {
    /// Returns the distance of `place` from `center`, if it lies in the shape around that.
    pub(super) fn distance(self, center: Place, place: Place) -> Option<f64> {
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

    /// Reads a radius and its unit from argument `at` on. Also returns the length of the unit.
    pub(super) fn circle(context: &Context<'_>, at: usize) -> Result<(Self, f64), Interrupted> {
        let radius = parse_score(context.argument(at)).ok_or("ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        let unit = unit(context, at + 1)?;
        let radius = radius * unit;
        Ok((Self::Circle { radius }, unit))
    }

    /// Reads a width, a height and their unit from argument `at` on.
    pub(super) fn rectangle(context: &Context<'_>, at: usize) -> Result<(Self, f64), Interrupted> {
        let width = parse_score(context.argument(at)).ok_or("ERR need numeric width")?;
        let height = parse_score(context.argument(at + 1)).ok_or("ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        let unit = unit(context, at + 2)?;
        let (width, height) = (width * unit, height * unit);
        Ok((Self::Rectangle { width, height }, unit))
    }
}

/// Returns the meters of the unit that argument `at` names.
pub(super) fn unit(context: &Context<'_>, at: usize) -> Result<f64, Interrupted> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let mut units = UNITS.iter();
    let unit = units.find(|(name, _)| context.is(at, name));
    let unit = unit.ok_or("ERR unsupported unit provided. please use M, KM, FT, MI")?;
    Ok(unit.1)
}

/// Reads a longitude and a latitude from argument `at` on.
pub(super) fn place(context: &Context<'_>, at: usize) -> Result<Place, Interrupted> {
    let number = |at| parse_score(context.argument(at)).ok_or(replies::NOT_A_FLOAT);
    let (longitude, latitude) = (number(at)?, number(at + 1)?);
    let place = Place {
        longitude,
        latitude,
    };
    if !place.is_valid() {
        let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
        return Err(text.into());
    }
    Ok(place)
}
