//! SRANDMEMBER, SPOP.

use super::{reading, writing};
use crate::commands::sample::parse_count;
use crate::context::{Command, Context, Flags, Run, replies};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::READONLY,
        complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value \
                     of the passed count.",
        ..reading(
            "srandmember",
            -2,
            "1.0.0",
            random,
            "Get one or multiple random members from a set",
        )
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the \
                     passed count.",
        ..writing(
            "spop",
            -2,
            "1.0.0",
            pop,
            "Returns one or more random members from a set after removing them. Deletes the set \
             if the last member was popped.",
        )
    },
];

fn random(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    if context.count() == 2 {
        let found = context.read(key)?;
        if context.reply_one_member(&found)? {
            return Ok(());
        }
        let (set, mut places) = context.choose(found, ValueType::Set, 1)?;
        match places.next() {
            None => context.reply().null(),
            Some(place) => context.reply().bulk(set.strings.at(place)),
        }
        return context.check_reply();
    }
    if context.count() > 3 {
        return context.fail(replies::SYNTAX);
    }
    let count = parse_count(context, 2)?;
    let found = context.read(key)?;
    let (set, places) = context.choose(found, ValueType::Set, count)?;
    context.reply().array(places.len());
    for place in places {
        context.reply().bulk(set.strings.at(place));
        context.check_reply()?;
    }
    Ok(())
}

fn pop(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    if context.count() > 3 {
        return context.fail(replies::SYNTAX);
    }
    let count = match context.count() {
        2 => None,
        _ => match context.integer_at(2) {
            Ok(count) if count >= 0 => Some(count),
            _ => return context.fail(replies::MUST_BE_POSITIVE),
        },
    };
    let held = match count {
        None => context.long_collection(key, Encoding::Hashtable)?,
        Some(_) => Err(context.find(key)?),
    };
    let found = match held {
        Err(found) => found,
        Ok(held) => {
            if context.pop_one_member(key, held)? {
                context.event(Class::Set, "spop", key);
                return Ok(());
            }
            context.find(key)?
        }
    };
    let (mut set, popped) = context.choose(found, ValueType::Set, count.unwrap_or(1))?;
    let mut popped: Vec<usize> = popped.collect();
    match count {
        Some(_) => context.reply().set(popped.len()),
        None if popped.is_empty() => context.reply().null(),
        None => {}
    }
    for place in &popped {
        context.reply().bulk(set.strings.at(*place));
    }
    if popped.is_empty() {
        return Ok(());
    }
    popped.sort_unstable();
    set.strings
        .retain(|place| popped.binary_search(&place).is_err());
    context.event(Class::Set, "spop", key);
    context.put_collection(key, &set)?;
    context.check_reply()
}
