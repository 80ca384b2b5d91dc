//! ZRANDMEMBER.

use super::describe::{SLOW_READ, reading};
use super::order::SortedSet;
use super::replying;
use crate::commands::sample::parse_count;
use crate::context::{Command, Context, Run, replies};
use crate::data::keyspace::ValueType;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: SLOW_READ,
    complexity: "O(N) where N is the number of members returned",
    summary: "Returns one or more random members from a sorted set.",
    ..reading("zrandmember", -2, "6.2.0", random)
}];

fn random(context: &mut Context<'_>) -> Run {
    if context.count() > 2 {
        return random_many(context);
    }
    let found = context.read(context.argument(1))?;
    let (set, mut places) = context.choose(found, ValueType::SortedSet, 1)?;
    let set = SortedSet::checked(set)?;
    match places.next() {
        None => context.reply().null(),
        Some(place) => context.reply().bulk(set.member(place)),
    }
    context.check_reply()
}

fn random_many(context: &mut Context<'_>) -> Run {
    let count = parse_count(context, 2)?;
    let with_scores = context.count() > 3;
    if context.count() > 4 || with_scores && !context.is(3, "withscores") {
        return Err(replies::SYNTAX.into());
    }
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err("ERR value is out of range".into());
    }
    let found = context.read(context.argument(1))?;
    let (set, ranks) = context.choose(found, ValueType::SortedSet, count)?;
    let set = SortedSet::as_read(set)?;
    replying::begin(context, ranks.len(), with_scores);
    for rank in ranks {
        replying::element(context, set.element(rank), with_scores)?;
    }
    Ok(())
}
