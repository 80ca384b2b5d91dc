//! BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH: commands of lists that wait for elements.

use super::pop::pop_from;
use super::transfer::transfer;
use super::{End, part, writing};
use crate::commands::popping::Popping;
use crate::context::{Command, Context, Flags, Keys, Run};
use crate::notifications::classes::Class;

const FLAGS: Flags = Flags::WRITE
    .and(Flags::REMOVES)
    .and(Flags::BLOCKING)
    .and(Flags::NOSCRIPT);
const OF_MANY: &str = "O(N) where N is the number of provided keys.";

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: FLAGS,
        since: "2.0.0",
        keys: Keys::BUT_LAST,
        complexity: OF_MANY,
        summary: "Removes and returns the first element in a list. Blocks until an element is \
                  available otherwise. Deletes the list if the last element was popped.",
        ..writing("blpop", -3, |context| pop(context, End::Head))
    },
    Command {
        flags: FLAGS,
        since: "2.0.0",
        keys: Keys::BUT_LAST,
        complexity: OF_MANY,
        summary: "Removes and returns the last element in a list. Blocks until an element is \
                  available otherwise. Deletes the list if the last element was popped.",
        ..writing("brpop", -3, |context| pop(context, End::Tail))
    },
    Command {
        flags: Flags::WRITE.and(Flags::REMOVES).and(Flags::BLOCKING),
        since: "7.0.0",
        keys: Keys::NONE.and_counted(2),
        complexity: "O(N+M) where N is the number of provided keys and M is the number of \
                     elements returned.",
        summary: "Pops the first element from one of multiple lists. Blocks until an element is \
                  available otherwise. Deletes the list if the last element was popped.",
        ..writing("blmpop", -5, pop_of_many)
    },
    Command {
        flags: Flags::WRITE
            .and(Flags::DENYOOM)
            .and(Flags::BLOCKING)
            .and(Flags::NOSCRIPT),
        since: "6.2.0",
        keys: Keys::TWO,
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks \
                  until an element is available otherwise. Deletes the list if the last element \
                  was moved.",
        ..writing("blmove", 6, |context| {
            let (from, to) = (End::at(context, 3)?, End::at(context, 4)?);
            move_element(context, (from, to), 5)
        })
    },
    Command {
        flags: Flags::WRITE
            .and(Flags::DENYOOM)
            .and(Flags::BLOCKING)
            .and(Flags::NOSCRIPT),
        since: "2.2.0",
        keys: Keys::TWO,
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks \
                  until an element is available otherwise. Deletes the list if the last element \
                  was popped.",
        ..writing("brpoplpush", 4, |context| {
            move_element(context, (End::Tail, End::Head), 3)
        })
    },
];

fn pop(context: &mut Context<'_>, end: End) -> Run {
    let timeout_at = context.count() - 1;
    let serve = |context: &mut Context<'_>, at: usize| {
        let key = context.argument(at);
        let (mut list, places) = part(context, key, |length| end.places(1, length))?;
        if !list.exists() {
            return Ok(false);
        }
        context.reply().array(2);
        context.reply().bulk(key);
        context.reply().bulk(list.strings.at(places.start));
        context.event(Class::List, end.popped(), key);
        super::remove(context, key, &mut list, places)?;
        Ok(true)
    };
    context.serve_or_wait(1..timeout_at, timeout_at, serve, |reply| reply.null_array())
}

fn pop_of_many(context: &mut Context<'_>) -> Run {
    let popping = Popping::parse(context, 2, End::at)?;
    let keys = popping.keys.clone();
    let serve = |context: &mut Context<'_>, at| pop_from(context, at, &popping);
    context.serve_or_wait(keys, 1, serve, |reply| reply.null_array())
}

fn move_element(context: &mut Context<'_>, (from, to): (End, End), timeout_at: usize) -> Run {
    let serve = |context: &mut Context<'_>, _| transfer(context, from, to);
    // Redis tells an empty list from a wait that has ended.
    let waits = context.exec_index.is_none();
    context.serve_or_wait(1..2, timeout_at, serve, |reply| match waits {
        true => reply.null_array(),
        false => reply.null(),
    })
}
