//! Coordinates and distances in replies, and members with them.

use pando_resp::Writer;

use crate::data::earth::{Place, whole};
use crate::data::near_walk::NearMember;
use crate::data::shown_near::Extras;

/// Replies with the longitude and the latitude, with 17 digits behind the point but no zeros at
/// the end.
pub(super) fn coordinates(reply: &mut Writer<'_>, place: Place) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        reply.double_text(text.as_bytes());
    }
}

/// Replies with a distance, which is not negative, with four digits behind the point.
pub(super) fn distance(reply: &mut Writer<'_>, distance: f64) {
    let digits = format!("{:05.0}", (distance * 10_000.0).round_ties_even());
    let (whole, rest) = digits.split_at(digits.len() - 4);
    reply.bulk(format!("{whole}.{rest}").as_bytes());
}

/// Replies with a member that a search has found.
pub(super) fn found(reply: &mut Writer<'_>, found: NearMember<'_>, extras: Extras) {
    let shown = [extras.distance, extras.hash, extras.coordinates];
    let shown = shown.into_iter().filter(|is_shown| *is_shown).count();
    if shown > 0 {
        reply.array(shown + 1);
    }
    reply.bulk(found.name);
    if extras.distance {
        distance(reply, found.distance);
    }
    if extras.hash {
        let hash = i64::try_from(whole(found.score));
        reply.integer(hash.unwrap_or(i64::MAX));
    }
    if extras.coordinates {
        coordinates(reply, Place::of_score(found.score));
    }
}
