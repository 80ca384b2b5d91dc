//! HRANDFIELD.

use pando_resp::Version;

use super::reading;
use crate::commands::sample::parse_count;
use crate::context::{Command, Context, Flags, Run, replies};
use crate::data::keyspace::ValueType;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::READONLY,
    complexity: "O(N) where N is the number of fields returned",
    ..reading(
        "hrandfield",
        -2,
        "6.2.0",
        random,
        "Returns one or more random fields from a hash.",
    )
}];

fn random(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    if context.count() == 2 {
        let found = context.read(key)?;
        let (hash, mut places) = context.choose(found, ValueType::Hash, 1)?;
        match places.next() {
            None => context.reply().null(),
            Some(place) => context.reply().bulk(hash.strings.at(place * 2)),
        }
        return context.check_reply();
    }
    let count = parse_count(context, 2)?;
    let with_values = context.is(3, "withvalues");
    if context.count() > 4 || context.count() == 4 && !with_values {
        return context.fail(replies::SYNTAX);
    }
    if with_values && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return context.fail("ERR value is out of range");
    }
    let found = context.read(key)?;
    let (hash, places) = context.choose(found, ValueType::Hash, count)?;
    let in_pairs = with_values && context.session.version == Version::Resp3;
    let of_one = 1 + usize::from(with_values && !in_pairs);
    context.reply().array(places.len().saturating_mul(of_one));
    for place in places {
        let mut reply = context.reply();
        if in_pairs {
            reply.array(2);
        }
        reply.bulk(hash.strings.at(place * 2));
        if with_values {
            reply.bulk(hash.strings.at(place * 2 + 1));
        }
        context.check_reply()?;
    }
    Ok(())
}
