//! GEOPOS, GEODIST, GEOHASH: what is known of members.

use super::super::order::SortedSet;
use super::describe::reading;
use super::{arguments, reply};
use crate::context::{Command, Context, Part, Run, replies};
use crate::data::earth::Place;

const FOR_EACH: &str = "O(1) for each member requested.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        complexity: FOR_EACH,
        summary: "Returns the longitude and latitude of members from a geospatial index.",
        ..reading("geopos", -2, "3.2.0", positions)
    },
    Command {
        summary: "Returns the distance between two members of a geospatial index.",
        ..reading("geodist", -4, "3.2.0", distance)
    },
    Command {
        complexity: FOR_EACH,
        summary: "Returns members from a geospatial index as geohash strings.",
        ..reading("geohash", -2, "3.2.0", geohashes)
    },
];

/// Returns the place of a member.
pub(super) fn place_of(set: &SortedSet, member: &[u8]) -> Option<Place> {
    let rank = set.rank_of(member);
    rank.map(|rank| Place::of_score(set.score(rank)))
}

/// Writes one reply for each member, of its place.
fn for_each(context: &mut Context<'_>, put: impl Fn(&mut Context<'_>, Option<Place>)) -> Run {
    let members: Vec<&[u8]> = context.arguments.from(2).collect();
    let set = SortedSet::read_part(context, context.argument(1), &Part::Named(&members))?;
    let scores = set.scores();
    let count = context.count() - 2;
    context.reply().array(count);
    for member in context.arguments.from(2) {
        let score = scores.get(member);
        put(context, score.map(|score| Place::of_score(*score)));
    }
    context.check_reply()
}

fn positions(context: &mut Context<'_>) -> Run {
    for_each(context, |context, place| match place {
        Some(place) => reply::coordinates(&mut context.reply(), place),
        None => context.reply().null_array(),
    })
}

fn geohashes(context: &mut Context<'_>) -> Run {
    for_each(context, |context, place| match place {
        Some(place) => context.reply().bulk(&place.geohash()),
        None => context.reply().null(),
    })
}

fn distance(context: &mut Context<'_>) -> Run {
    let unit = match context.count() {
        4 => 1.0,
        5 => arguments::unit(context, 4)?,
        _ => return Err(replies::SYNTAX.into()),
    };
    let members = [context.argument(2), context.argument(3)];
    let set = SortedSet::read_part(context, context.argument(1), &Part::Named(&members))?;
    let place = |at| place_of(&set, context.argument(at));
    match (place(2), place(3)) {
        (Some(a), Some(b)) => reply::distance(&mut context.reply(), a.distance(b) / unit),
        _ => context.reply().null(),
    }
    Ok(())
}
