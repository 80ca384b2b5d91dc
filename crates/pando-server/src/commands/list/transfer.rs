//! LMOVE and its old name RPOPLPUSH.

use std::ops::Range;

use super::{End, encoding, part, writing};
use crate::context::{Collection, Command, Context, Flags, Interrupted, Keys, Run};
use crate::notifications::classes::Class;

const fn transferring(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: Keys::TWO,
        summary,
        ..writing(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "6.2.0",
        ..transferring(
            "lmove",
            5,
            |context| {
                let (from, to) = (End::at(context, 3)?, End::at(context, 4)?);
                transfer_or_null(context, from, to)
            },
            "Returns an element after popping it from one list and pushing it to another. Deletes \
             the list if the last element was moved.",
        )
    },
    Command {
        since: "1.2.0",
        ..transferring(
            "rpoplpush",
            3,
            |context| transfer_or_null(context, End::Tail, End::Head),
            "Returns the last element of a list after removing and pushing it to another list. \
             Deletes the list if the last element was popped.",
        )
    },
];

fn transfer_or_null(context: &mut Context<'_>, from: End, to: End) -> Run {
    if !transfer(context, from, to)? {
        context.reply().null();
    }
    Ok(())
}

/// Moves an element and replies with it; returns false if the first list has none.
pub(super) fn transfer(context: &mut Context<'_>, from: End, to: End) -> Result<bool, Interrupted> {
    let (source_key, target_key) = (context.argument(1), context.argument(2));
    let (mut source, places) = part(context, source_key, |length| from.places(1, length))?;
    if !source.exists() {
        return Ok(false);
    }
    let element = source.strings.at(places.start).to_vec();
    if source_key == target_key {
        rotate(context, (source, places), &element, to)?;
        context.event(Class::List, to.pushed(), source_key);
        context.event(Class::List, from.popped(), source_key);
    } else {
        source.strings.remove(places);
        let mut target = end_of(context, target_key, to)?;
        add(&mut target, to, &element);
        encoding::shrink(&mut source);
        context.check_room(&target)?;
        context.put_collection(target_key, &target)?;
        context.event(Class::List, to.pushed(), target_key);
        context.event(Class::List, from.popped(), source_key);
        context.put_collection(source_key, &source)?;
    }
    context.reply().bulk(&element);
    context.check_reply()?;
    Ok(true)
}

/// Reads the list at `key`, of a large one nothing, to be pushed to.
fn end_of(context: &mut Context<'_>, key: &[u8], end: End) -> Result<Collection, Interrupted> {
    let places = |length| match end {
        End::Head => 0..0,
        End::Tail => length..length,
    };
    part(context, key, places).map(|(list, _)| list)
}

fn add(list: &mut Collection, end: End, element: &[u8]) {
    encoding::grow(list, 1, encoding::moved_bytes(element));
    end.push(&mut list.strings, element);
}

/// Moves an element to an end of its own list.
fn rotate(
    context: &mut Context<'_>,
    (mut list, places): (Collection, Range<usize>),
    element: &[u8],
    to: End,
) -> Run {
    let key = context.argument(1);
    list.strings.remove(places);
    if list.elsewhere() > 0 {
        // The other end of a large list was not read.
        context.put_collection(key, &list)?;
        list = end_of(context, key, to)?;
    }
    add(&mut list, to, element);
    encoding::shrink(&mut list);
    context.put_collection(key, &list)
}
