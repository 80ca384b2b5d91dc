//! LMOVE and its old name RPOPLPUSH.

use super::{End, encoding, writing};
use crate::context::{Command, Context, Flags, Interrupted, Keys, Run};

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
    let mut source = context.collection(source_key)?;
    if !source.exists() {
        return Ok(false);
    }
    let places = from.places(1, source.len());
    let element = source.strings.at(places.start).to_vec();
    source.strings.remove(places);
    let added = encoding::moved_bytes(&element);
    if source_key == target_key {
        encoding::grow(&mut source, 1, added);
        to.push(&mut source.strings, &element);
        encoding::shrink(&mut source);
    } else {
        let mut target = context.collection(target_key)?;
        encoding::grow(&mut target, 1, added);
        to.push(&mut target.strings, &element);
        encoding::shrink(&mut source);
        context.check_room(target_key, &target)?;
        context.put_collection(target_key, &target)?;
    }
    context.put_collection(source_key, &source)?;
    context.reply().bulk(&element);
    context.check_reply()?;
    Ok(true)
}
