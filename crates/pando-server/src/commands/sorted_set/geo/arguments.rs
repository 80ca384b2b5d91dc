//! Arguments of searches: shapes, units, and the places that clients send.

use crate::context::{Context, Interrupted, replies};
use crate::data::earth::Place;
use crate::data::shape::Shape;
use crate::float::parse_score;

/// Reads a radius and its unit from argument `at` on. Also returns the length of the unit.
pub(super) fn circle(context: &Context<'_>, at: usize) -> Result<(Shape, f64), Interrupted> {
    let radius = parse_score(context.argument(at)).ok_or("ERR need numeric radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    let unit = unit(context, at + 1)?;
    let radius = radius * unit;
    Ok((Shape::Circle { radius }, unit))
}

/// Reads a width, a height and their unit from argument `at` on.
pub(super) fn rectangle(context: &Context<'_>, at: usize) -> Result<(Shape, f64), Interrupted> {
    let width = parse_score(context.argument(at)).ok_or("ERR need numeric width")?;
    let height = parse_score(context.argument(at + 1)).ok_or("ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    let unit = unit(context, at + 2)?;
    let (width, height) = (width * unit, height * unit);
    Ok((Shape::Rectangle { width, height }, unit))
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
