//! LPOP, RPOP, LMPOP.

use std::ops::Range;

use super::{End, number_from, remove, writing};
use crate::context::{Collection, Command, Context, Flags, Interrupted, Keys, Run, replies};

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
        complexity: "O(N) where N is the number of elements returned",
        summary: "Returns the first elements in a list after removing it. Deletes the list if the \
                  last element was popped.",
        ..writing("lpop", -2, |context| pop(context, End::Head))
    },
    Command {
        flags: Flags::WRITE.and(Flags::FAST),
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
        3 => Some(number_from(context, 2, 0, replies::NOT_POSITIVE)?),
        _ => return Err(replies::wrong_arity(context.command.name).into()),
    };
    let key = context.argument(1);
    let mut list = context.collection(key)?;
    if !list.exists() {
        match count {
            Some(_) => context.reply().null_array(),
            None => context.reply().null(),
        }
        return Ok(());
    }
    let places = end.places(count.unwrap_or(1), list.len());
    match count {
        Some(_) => reply_elements(context, &list, places.clone(), end),
        None => context.reply().bulk(list.strings.at(places.start)),
    }
    context.check_reply()?;
    if places.is_empty() {
        return Ok(());
    }
    remove(context, key, &mut list, places)
}

/// What LMPOP and BLMPOP pop.
pub(super) struct Popping {
    /// Places of the keys among the arguments.
    pub(super) keys: Range<usize>,
    end: End,
    count: usize,
}

impl Popping {
    /// Reads the arguments from the number of keys on, which is argument `at`.
    pub(super) fn parse(context: &Context<'_>, at: usize) -> Result<Self, &'static str> {
        let keys = number_from(context, at, 1, "ERR numkeys should be greater than 0")?;
        let end_at = keys.saturating_add(at + 1);
        if end_at >= context.count() {
            return Err(replies::SYNTAX);
        }
        let end = End::at(context, end_at)?;
        let mut count = None;
        let mut option = end_at + 1;
        while option < context.count() {
            if count.is_some() || !context.is(option, "count") || option + 1 == context.count() {
                return Err(replies::SYNTAX);
            }
            let text = "ERR count should be greater than 0";
            count = Some(number_from(context, option + 1, 1, text)?);
            option += 2;
        }
        Ok(Self {
            keys: at + 1..end_at,
            end,
            count: count.unwrap_or(1),
        })
    }
}

/// Pops from the list whose key is argument `at`; returns false if there is none.
pub(super) fn pop_from(
    context: &mut Context<'_>,
    at: usize,
    popping: &Popping,
) -> Result<bool, Interrupted> {
    let key = context.argument(at);
    let mut list = context.collection(key)?;
    if !list.exists() {
        return Ok(false);
    }
    let places = popping.end.places(popping.count, list.len());
    context.reply().array(2);
    context.reply().bulk(key);
    reply_elements(context, &list, places.clone(), popping.end);
    context.check_reply()?;
    remove(context, key, &mut list, places)?;
    Ok(true)
}

/// Pops from the first list that exists.
fn pop_of_many(context: &mut Context<'_>) -> Run {
    let popping = Popping::parse(context, 1)?;
    for at in popping.keys.clone() {
        if pop_from(context, at, &popping)? {
            return Ok(());
        }
    }
    context.reply().null_array();
    Ok(())
}
