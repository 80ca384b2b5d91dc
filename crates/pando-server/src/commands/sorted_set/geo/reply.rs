//! Coordinates and distances in replies.

use pando_resp::Version;

use crate::context::Context;
use crate::data::earth::Place;

/// Replies with the longitude and the latitude, with 17 digits behind the point but no zeros at
/// the end.
pub(super) fn coordinates(context: &mut Context<'_>, place: Place) {
    context.reply().array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        match context.session.version {
            Version::Resp2 => context.reply().bulk(text.as_bytes()),
            Version::Resp3 => context.reply().raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

/// Replies with a distance, which is not negative, with four digits behind the point.
pub(super) fn distance(context: &mut Context<'_>, distance: f64) {
    let digits = format!("{:05.0}", (distance * 10_000.0).round_ties_even());
    let (whole, rest) = digits.split_at(digits.len() - 4);
    context.reply().bulk(format!("{whole}.{rest}").as_bytes());
}
