//! LPOP, RPOP, LMPOP.

use std::ops::Range;

use super::{End, part, part_of, remove, writing};
use crate::commands::popping::Popping;
use crate::context::{Collection, Command, Context, Flags, Interrupted, Keys, Run, replies};
use crate::data::packed::Encoding;
use crate::notifications::classes::Class;

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "O(N) where N is the number of elements returned",
        summary: "Returns the first elements in a list after removing it. Deletes the list if the \
                  last element was popped.",
        ..writing("lpop", -2, |context| pop(context, End::Head))
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::FAST),
        complexity: "O(N) where N is the number of elements returned",
        summary: "Returns and removes the last elements of a list. Deletes the list if the last \
                  element was popped.",
        ..writing("rpop", -2, |context| pop(context, End::Tail))
    },
    Command {
        since: "7.0.0",
        keys: Keys::NONE.and_counted(1),
        complexity: "O(N+M) where N is the number of provided keys and M is the number of \
                     elements returned.",
        summary: "Returns multiple elements from a list after removing them. Deletes the list if \
                  the last element was popped.",
        ..writing("lmpop", -4, pop_of_many)
    },
];

/// Replies with the elements at `places`, beginning at `end`.
fn reply_elements(context: &mut Context<'_>, list: &Collection, places: Range<usize>, end: End) {
    let mut reply = context.reply();
    reply.array(places.len());
    match end {
        End::Head => places.for_each(|place| reply.bulk(list.strings.at(place))),
        End::Tail => places
            .rev()
            .for_each(|place| reply.bulk(list.strings.at(place))),
    }
}

fn pop(context: &mut Context<'_>, end: End) -> Run {
    let count = match context.count() {
        2 => None,
        3 => Some(context.number_from(2, 0, replies::MUST_BE_POSITIVE)?),
        _ => return Err(replies::wrong_arity(context.command.name).into()),
    };
    let key = context.argument(1);
    let taken = count.unwrap_or(1);
    let found = match count {
        Some(_) => context.find(key)?,
        None => match context.long_collection(key, Encoding::Quicklist)? {
            Ok(held) if context.pop_at_end(key, (held, end.into()))? => {
                context.event(Class::List, end.popped(), key);
                return Ok(());
            }
            Ok(_) => context.find(key)?,
            Err(found) => found,
        },
    };
    let (mut list, places) = part_of(context, found, |length| end.places(taken, length))?;
    if !list.exists() {
        match count {
            Some(_) => context.reply().null_array(),
            None => context.reply().null(),
        }
        return Ok(());
    }
    match count {
        Some(_) => reply_elements(context, &list, places.clone(), end),
        None => context.reply().bulk(list.strings.at(places.start)),
    }
    context.check_reply()?;
    if places.is_empty() {
        return Ok(());
    }
    context.event(Class::List, end.popped(), key);
    remove(context, key, &mut list, places)
}

/// Pops from the list whose key is argument `at`; returns false if there is none.
pub(super) fn pop_from(
    context: &mut Context<'_>,
    at: usize,
    popping: &Popping<End>,
) -> Result<bool, Interrupted> {
    let key = context.argument(at);
    let places = |length| popping.end.places(popping.count, length);
    let (mut list, places) = part(context, key, places)?;
    if !list.exists() {
        return Ok(false);
    }
    context.reply().array(2);
    context.reply().bulk(key);
    reply_elements(context, &list, places.clone(), popping.end);
    context.check_reply()?;
    context.event(Class::List, popping.end.popped(), key);
    remove(context, key, &mut list, places)?;
    Ok(true)
}

/// Pops from the first list that exists.
fn pop_of_many(context: &mut Context<'_>) -> Run {
    let popping = Popping::parse(context, 1, End::at)?;
    for at in popping.keys.clone() {
        if pop_from(context, at, &popping)? {
            return Ok(());
        }
    }
    context.reply().null_array();
    Ok(())
}
